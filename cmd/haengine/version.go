package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildVersion may be set at link time (-X main.buildVersion=v1.2.3) where the
// module version that the toolchain records is not the one to show.
var buildVersion string

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified"` // built from a work tree with changes
	Time     string `json:"commit_time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() versionInfo {
	v := versionInfo{Version: buildVersion, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		v.Version = cmp.Or(v.Version, "unknown")
		return v
	}
	v.Version = cmp.Or(v.Version, info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		case "vcs.time":
			v.Time = s.Value
		}
	}
	return v
}

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print what this binary was built from",
		Example: "  haengine version\n  haengine version --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := readVersion()
			return answer(cmd, asJSON, v, func(w io.Writer) {
				fmt.Fprintf(w, "haengine %s %s %s", v.Version, v.Go, v.Platform)
				if v.Revision != "" {
					fmt.Fprintf(w, " %s", v.Revision)
				}
				if v.Modified {
					fmt.Fprint(w, " modified")
				}
				fmt.Fprintln(w)
			})
		},
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}
