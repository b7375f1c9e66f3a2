package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// writeJSON writes v on one line, without escaping for HTML.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// answer prints v on stdout: as one line of JSON, or as text writes it.
func answer(cmd *cobra.Command, asJSON bool, v any, text func(w io.Writer)) error {
	if asJSON {
		return writeJSON(cmd.OutOrStdout(), v)
	}
	text(cmd.OutOrStdout())
	return nil
}

func addJSONFlag(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "json", false, "print JSON (fields: docs/cli-json.md)")
}

// fields writes "name  value" lines with the values in one column.
func fields(w io.Writer, pairs ...any) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(tw, "%v\t%v\n", pairs[i], pairs[i+1])
	}
	tw.Flush()
}

// isTerminal tells whether w is a terminal that somebody may be watching.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("TERM") != "dumb"
}

// count writes a number in groups of three.
func count(n int64) string {
	s := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// plural writes "1 record", "2 records".
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// bar draws done of total, width cells wide.
func bar(done, total int64, width int) string {
	full := width
	if total > 0 {
		full = int(float64(width) * min(max(float64(done)/float64(total), 0), 1))
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

// shortDuration writes d to three digits.
func shortDuration(d time.Duration) string {
	for _, unit := range []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}
