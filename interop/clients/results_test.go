package clients

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	resultsFile = "testdata/results.txt"
	tableBegin  = "<!-- written by make clients-full: begin -->\n"
	tableEnd    = "<!-- written by make clients-full: end -->\n"
)

// key is a result's place: where, who, what.
type key struct {
	part   int // index of parts
	place  int // of the scenario
	what   string
	client string
	target string
}

func (k key) at(target string) key {
	k.target = target
	return k
}

// line is how testdata/results.txt names it.
func (k key) line() string {
	return fmt.Sprintf("%s | %s | %s | %s", parts[k.part].name, k.what, k.client, k.target)
}

// part is a part of the table.
type part struct{ name, title string }

var parts = []part{
	{"master", "Master and slave are up"},
	{"mqadmin", "mqadmin, master and slave are up"},
	{"slave", "The master was killed"},
	{"mqadmin-slave", "mqadmin, the master was killed"},
}

// results are what was found.
type results struct {
	mu    sync.Mutex
	found map[key]outcome
	notes map[key]note // by key without target
}

type note struct {
	title string
	why   string
	alone bool
}

func newResults() *results {
	return &results{found: map[key]outcome{}, notes: map[key]note{}}
}

func (r *results) put(k key, n note, o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found[k], r.notes[k.at("")] = o, n
}

// check compares all with RocketMQ's own and with what is written in testdata.
func (r *results) check(t *testing.T, want map[string]string) {
	t.Helper()
	if *rewriteFlag {
		want = r.rewrite(t, want)
	}
	keys := slices.SortedFunc(maps.Keys(r.found), compareKeys)
	for _, k := range keys {
		o, n := r.found[k], r.notes[k.at("")]
		t.Run(strings.ReplaceAll(strings.ReplaceAll(k.line(), " | ", "/"), " ", "_"), func(t *testing.T) {
			t.Logf("%v: %s %s", o.took.Round(time.Millisecond), o.result, o.text)
			expected, own := want[k.line()]
			if n.alone && k.target == control {
				return // RocketMQ does it
			}
			if !own {
				expected = want[k.at(control).line()]
			}
			if own && k.target != control && n.why == "" {
				t.Errorf("%s has a line for %q, and no reason is given for a difference", resultsFile, k.line())
			}
			if o.result != expected {
				t.Errorf("%s at %s gave\n%s\nwant\n%s\n(%s; -rewrite takes over RocketMQ's)\n%s", k.client, k.target, o.result, expected, resultsFile, o.text)
			}
			if theirs, ok := r.found[k.at(control)]; ok && !own && !n.alone && theirs.result != o.result {
				t.Errorf("%s at %s gave\n%s\nat RocketMQ's broker\n%s", k.client, k.target, o.result, theirs.result)
			}
		})
	}
}

func compareKeys(a, b key) int {
	return strings.Compare(a.order(), b.order())
}

func (k key) order() string {
	return fmt.Sprintf("%d %03d %s %s %s", k.part, k.place, k.what, k.client, k.target)
}

// readResults reads lines "part | scenario | client | target | result".
func readResults(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile(resultsFile)
	if err != nil && !*rewriteFlag {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if i := strings.LastIndex(line, " | "); i > 0 && !strings.HasPrefix(line, "#") {
			all[line[:i]] = strings.TrimSpace(line[i+3:])
		}
	}
	return all
}

// rewrite takes over what RocketMQ's brokers gave, and ours where a difference is
// accounted for. What was not run stays.
func (r *results) rewrite(t *testing.T, want map[string]string) map[string]string {
	t.Helper()
	for k, o := range r.found {
		n := r.notes[k.at("")]
		same := o.result == r.found[k.at(control)].result && !n.alone
		switch {
		case k.target == control && !n.alone, k.target != control && n.why != "" && !same:
			want[k.line()] = o.result
		default:
			delete(want, k.line())
		}
	}
	lines := []string{"# Written by -rewrite; what a scenario gave at RocketMQ's broker, and at others where that differs."}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		lines = append(lines, name+" | "+want[name])
	}
	if err := os.WriteFile(resultsFile, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return want
}

// write puts the table between the marks of a page.
func (r *results) write(page string) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(b), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !ok || !ends {
		return fmt.Errorf("%s has no place for the table: %q and %q are missing", page, tableBegin, tableEnd)
	}
	var s strings.Builder
	targets := []string{ours, oursReal, realOurs}
	for i, p := range parts {
		fmt.Fprintf(&s, "\n### %s\n\n| what | client | %s | result at RocketMQ's |\n| --- | --- | --- | --- | --- | --- |\n", p.title, strings.Join(targets, " | "))
		var last key
		for _, k := range slices.SortedFunc(maps.Keys(r.found), compareKeys) {
			if k = k.at(""); k.part != i || k == last {
				continue
			}
			last = k
			n := r.notes[k]
			theirs := r.found[k.at(control)].result
			if n.alone {
				theirs = ""
			}
			fmt.Fprintf(&s, "| %s | %s |", n.title, k.client)
			for _, target := range targets {
				fmt.Fprintf(&s, " %s |", r.cell(k.at(target), n, theirs))
			}
			fmt.Fprintf(&s, " %s |\n", short(theirs))
		}
	}
	return os.WriteFile(page, []byte(before+tableBegin+s.String()+"\n"+tableEnd+after), 0o644)
}

func (r *results) cell(k key, n note, theirs string) string {
	o, ok := r.found[k]
	switch {
	case !ok:
		return ""
	case o.result == theirs && !n.alone:
		return "same"
	case n.alone:
		return short(o.result) + ": " + n.why
	}
	return "differs: " + n.why
}

// short is a result as a cell of the table.
func short(result string) string {
	if result == "" {
		return ""
	}
	const most = 120
	var fields map[string]json.RawMessage
	text := result
	if json.Unmarshal([]byte(result), &fields) == nil {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			all = append(all, name+" "+strings.Trim(string(fields[name]), `"`))
		}
		text = strings.Join(all, ", ")
	} else if json.Unmarshal([]byte(result), &text) == nil {
		text = strings.ReplaceAll(text, "\n", "; ")
	}
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return "`" + strings.NewReplacer("|", "\\|", "`", "'").Replace(text) + "`"
}
