package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/haengine/haengine/commitlog"
	"github.com/spf13/cobra"
)

func newLog() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Inspect, check and compare store directories",
		Long: "These commands read a store directory, beside a running node or without one, and\n" +
			"never write to it. The end they show is the one that recovery would find.",
		Example: "  haengine log info --store ./a --sha256\n" +
			"  haengine log dump --store ./a --topic load --limit 10\n" +
			"  haengine log verify --store ./a\n" +
			"  haengine log diff --store ./a --with ./b",
	}
	asGroup(cmd)
	cmd.AddCommand(newLogInfo(), newLogDump(), newLogVerify(), newLogDiff())
	return cmd
}

const defaultStore = "./haengine-store"

func addStoreFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "store", defaultStore, "store directory")
}

// openStore opens a store directory for reading only.
func openStore(cmd *cobra.Command, dir string) (*commitlog.Log, error) {
	return commitlog.OpenReadOnly(commitlog.Options{Dir: dir, Logger: newLogger(cmd.ErrOrStderr(), "text", slog.LevelWarn)})
}

// damageNotes says what makes a node that opens the store read-only.
func damageNotes(l *commitlog.Log) []string {
	d := l.Info().Damage
	if d == nil {
		return []string{}
	}
	return []string{fmt.Sprintf("a node that opens %s is read-only: %v", l.Info().Dir, d)}
}

func printNotes(w io.Writer, notes []string) {
	for _, note := range notes {
		fmt.Fprintln(w, "note:", note)
	}
}

// segmentBase is the first offset of the segment that holds offset.
func segmentBase(l *commitlog.Log, offset int64) int64 {
	return max(offset-offset%l.SegmentBytes(), l.MinOffset())
}

// copyLog writes the log's bytes [from, to) to w, in pieces.
func copyLog(w io.Writer, l *commitlog.Log, from, to int64, show *progress) error {
	buf := make([]byte, 1<<20)
	for at := from; at < to; {
		piece := buf[:min(int64(len(buf)), to-at)]
		if err := readFull(l, piece, at); err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
		at += int64(len(piece))
		show.chunk(at - from)
	}
	return nil
}
