package transfer

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write the golden scripts' outputs as they are now")

// runScripts plays each script that matches pattern. A script is a list of
// blocks set apart by an empty line: comments, commands (a verb a line), a line
// of dashes, the commands' output. Each script begins with what fresh returns.
func runScripts(t *testing.T, pattern string, fresh func() func(verb string, args []string) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts %s: %v, %d found", pattern, err, len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := string(b)
			got := playScript(t, want, fresh())
			if *rewrite && got != want {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("%s: output changed (go test -run %s -rewrite, then read the diff)\n%s", file, t.Name(), firstDifference(got, want))
			}
		})
	}
}

// playScript returns the script with the outputs that its commands have now.
func playScript(t *testing.T, script string, do func(verb string, args []string) string) string {
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimSpace(script), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		var answers []string
		commands, _, _ := strings.Cut(block, "\n----")
		for line := range strings.SplitSeq(commands, "\n") {
			out.WriteString(line + "\n")
			if strings.HasPrefix(line, "#") || line == "" {
				continue
			}
			words := strings.Fields(line)
			if answer := do(words[0], words[1:]); answer != "" {
				answers = append(answers, answer)
			}
		}
		if answers != nil {
			out.WriteString("----\n" + strings.Join(answers, "\n") + "\n")
		}
	}
	return out.String()
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			return fmt.Sprintf("line %d: got  %q\n         want %q", i+1, g[i], strings.Join(w[min(i, len(w)):min(i+1, len(w))], ""))
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

// scriptInt reads an offset, which may be written as 2^63-1, -2^63 or 4GiB.
func scriptInt(s string) int64 {
	switch s {
	case "2^63-1":
		return math.MaxInt64
	case "-2^63":
		return math.MinInt64
	}
	shift := 0
	for suffix, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		if cut, ok := strings.CutSuffix(s, suffix); ok {
			s, shift = cut, bits
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n << shift
}

func scriptTime(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

func timeText(d time.Duration) string {
	switch d {
	case math.MaxInt64:
		return "never"
	case math.MinInt64:
		return "now"
	}
	return d.String()
}
