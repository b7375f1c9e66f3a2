package interop

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/haengine/haengine/interop/rocketmq"
)

// results collects the rows of docs/interop.md.
var results table

type table struct {
	mu   sync.Mutex
	rows []*row
}

// row is what one case found with one version of RocketMQ.
type row struct {
	place     int // of the case among all
	group     string
	name      string
	version   version
	direction string
	outcome   string
	took      time.Duration
	figures   []string
}

// trial is a case that is running. Its test adds what it measured.
type trial struct {
	testing.TB
	version version
	row     *row
	mu      sync.Mutex
}

func (c *trial) figure(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.row.figures = append(c.row.figures, fmt.Sprintf(format, args...))
}

// check is a case: what is proven, and how.
type check struct {
	name      string
	direction string
	versions  []version // nil: both
	full      bool      // takes long: with -full only
	newest    bool      // without -full on the newest version only
	run       func(c *trial)
}

// Directions of replication.
const (
	realToOurs = "RocketMQ → haengine"
	oursToReal = "haengine → RocketMQ"
	bothWays   = "both"
)

// runChecks runs a group of cases, each for its versions, side by side.
func runChecks(t *testing.T, group string, checks []check) {
	rocketmq.Need(t)
	t.Parallel()
	run(t, group, checks, true)
}

// runAlone runs cases one after the other, and nothing beside them.
func runAlone(t *testing.T, group string, checks []check) {
	rocketmq.Need(t)
	run(t, group, checks, false)
}

func run(t *testing.T, group string, checks []check, parallel bool) {
	for i, c := range checks {
		versions := c.versions
		if versions == nil {
			versions = storeVersions
		}
		for _, v := range versions {
			r := &row{place: i, group: group, name: c.name, version: v, direction: c.direction, outcome: "not run"}
			results.add(r)
			t.Run(plain(c.name)+"/"+string(v), func(t *testing.T) {
				if !*fullFlag && (c.full || c.newest && v != v5) {
					t.Skip("make interop-full runs it")
				}
				if parallel {
					t.Parallel()
				}
				begun := time.Now()
				t.Cleanup(func() {
					r.took, r.outcome = time.Since(begun), "passed"
					switch {
					case t.Failed():
						r.outcome = "**failed**"
					case t.Skipped():
						r.outcome = "left out"
					}
				})
				c.run(&trial{TB: t, version: v, row: r})
			})
		}
	}
}

// plain makes a name of letters, digits and dashes: it becomes a part of a
// store's path, in which RocketMQ takes a comma for the end of a directory.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case strings.ContainsRune(",'", r):
			return -1
		}
		return r
	}, name)
}

func (t *table) add(r *row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
}

const (
	tableBegin = "<!-- written by make interop-full: begin -->\n"
	tableEnd   = "<!-- written by make interop-full: end -->\n"
)

// write puts the rows between the marks of a page.
func (t *table) write(page string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(b), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !ok || !ends {
		return fmt.Errorf("%s has no place for the table: %q and %q are missing", page, tableBegin, tableEnd)
	}
	for _, r := range t.rows {
		if strings.Contains(r.outcome, "failed") {
			return fmt.Errorf("%s is left as it was: %q failed", page, r.name)
		}
	}
	slices.SortStableFunc(t.rows, func(a, b *row) int {
		return cmp.Or(strings.Compare(a.group, b.group), cmp.Compare(a.place, b.place))
	})
	var s strings.Builder
	group := ""
	for _, r := range t.rows {
		if r.group != group {
			group = r.group
			fmt.Fprintf(&s, "\n### %s\n\n| case | RocketMQ | direction | result | figures |\n| --- | --- | --- | --- | --- |\n", group)
		}
		fmt.Fprintf(&s, "| %s | %s | %s | %s, %.0f s | %s |\n", r.name, r.version, r.direction, r.outcome, r.took.Seconds(), strings.Join(r.figures, "; "))
	}
	return os.WriteFile(page, []byte(before+tableBegin+s.String()+"\n"+tableEnd+after), 0o644)
}
