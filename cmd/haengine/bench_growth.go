package main

import "github.com/spf13/cobra"

// addGrowthBenches adds those that say how cost grows, and what trouble costs.
func addGrowthBenches(cmd *cobra.Command) {
	cmd.AddCommand(newBenchSweep(), newBenchFlush(), newBenchStart(), newBenchIdle(), newBenchBusy(), newBenchStuck(), newBenchOutage())
}
