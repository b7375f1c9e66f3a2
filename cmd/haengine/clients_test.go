package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/haengine/haengine/remoting"
	"github.com/haengine/haengine/remoting/client"
)

// clientNode starts a master with its name server, and waits until it is registered.
func clientNode(t *testing.T, args ...string) *node {
	t.Helper()
	n := startNode(t, append([]string{"--ha-listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0"}, args...)...)
	waitUntil(t, func() bool { return strings.Contains(askRoute(t, n.NamesrvListen, "TBW102"), `"0":"`) })
	return n
}

// at adds the name server to a command line.
func (n *node) at(args ...string) []string {
	return append(args, "--namesrv", n.NamesrvListen, "--timeout", "20s")
}

func readAnswer[T any](t *testing.T, o outcome) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(o.stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, o.stdout)
	}
	return v
}

func TestLinesThatArePutAreTailed(t *testing.T) {
	n := clientNode(t)
	lines := "one\n\n\"three\"\tü\nno end"
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	s := readAnswer[putSummary](t, expect(t, exitDone, n.at("put", "--topic", "orders", "--file", file, "--queue", "0", "--key", "4711 x", "--tag", "paid", "--json")...))
	if s.Messages != 3 || s.Stored != 3 || s.Statuses["SEND_OK"] != 3 || s.Empty != 1 || s.P50 <= 0 || s.Max < s.P99 || s.Topic != "orders" {
		t.Errorf("%+v", s)
	}
	lines = strings.Replace(lines, "\n\n", "\n", 1) // brokers take no empty messages
	o := expect(t, exitDone, n.at("tail", "--topic", "orders")...)
	if o.stdout != lines+"\n" || o.stderr != "" {
		t.Errorf("tail prints %q, %q", o.stdout, o.stderr)
	}
	mustContain(t, expect(t, exitDone, n.at("tail", "--topic", "orders", "--long")...).stdout,
		"  broker-a  orders/0@0  keys=4711 x  tags=paid  one\n", `  \"three\"\tü`+"\n")
	mustContain(t, expect(t, exitDone, n.at("tail", "--topic", "orders", "--limit", "1", "--body", "base64")...).stdout, "b25l\n")
	for _, test := range []struct{ want, from string }{{"no end\n", "2"}, {"", "last"}, {lines + "\n", "1h"}} {
		if o := expect(t, exitDone, n.at("tail", "--topic", "orders", "--queue", "0", "--from", test.from)...); o.stdout != test.want {
			t.Errorf("from %s: %q, want %q", test.from, o.stdout, test.want)
		}
	}

	// Records are named as log dump names them.
	o = expect(t, exitDone, n.at("tail", "--topic", "orders", "--json", "--limit", "1")...)
	dump := expect(t, exitDone, "log", "dump", "--store", n.store, "--topic", "orders", "--body", "text", "--json", "--limit", "1")
	if got := strings.Replace(o.stdout, `,"brokerName":"broker-a"`, "", 1); got != dump.stdout {
		t.Errorf("tail --json:\n%slog dump --json:\n%s", o.stdout, dump.stdout)
	}
}

func TestMessagesAreMadeUp(t *testing.T) {
	n := clientNode(t)
	o := expect(t, exitDone, n.at("put", "--topic", "load", "--count", "200", "--size", "16")...)
	mustContain(t, o.stdout, "SEND_OK              200\n", "200 messages stored in topic load in ", "p50 ", "p99 ", "max ")
	var numbers []string
	for line := range strings.Lines(expect(t, exitDone, n.at("tail", "--topic", "load")...).stdout) {
		if len(line) != 17 {
			t.Errorf("a body has %d bytes, want 16", len(line)-1)
		}
		numbers = append(numbers, strings.TrimSpace(line))
	}
	slices.Sort(numbers)
	if len(slices.Compact(numbers)) != 200 {
		t.Errorf("%d different messages", len(numbers))
	}
}

func TestAMessageThatIsTooLongIsNamedAndTheOthersAreStored(t *testing.T) {
	n := clientNode(t)
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, bytes.Join([][]byte{[]byte("a"), bytes.Repeat([]byte("x"), 5<<20), []byte("b")}, []byte("\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	o := expect(t, exitFailed, n.at("put", "--topic", "orders", "--file", file, "--queue", "0")...)
	mustContain(t, o.stdout, "MESSAGE_ILLEGAL      1\n", "SEND_OK              2\n")
	mustContain(t, o.stderr, "line 2 (5,242,880 bytes)", "at most 4194304")
	if o := expect(t, exitDone, n.at("tail", "--topic", "orders")...); o.stdout != "a\nb\n" {
		t.Errorf("stored is %q", o.stdout)
	}
}

func TestADoubtfulPutIsAFailureThatIsStored(t *testing.T) {
	n := clientNode(t, "--role", "SYNC_MASTER") // without a slave
	o := expect(t, exitFailed, n.at("put", "--topic", "orders", "--count", "2", "--size", "5")...)
	mustContain(t, o.stdout, "SLAVE_NOT_AVAILABLE  2\n2 messages stored")
	mustContain(t, o.stderr, "2 messages stored, but not known to be on enough disks or slaves")
}

func TestAGroupIsTailedDescribedAndReset(t *testing.T) {
	n := clientNode(t)
	expect(t, exitDone, n.at("put", "--topic", "orders", "--count", "10", "--size", "5", "--queue", "0")...)
	lines := func() int {
		return strings.Count(expect(t, exitDone, n.at("tail", "--topic", "orders", "--group", "shop")...).stdout, "\n")
	}
	if a, b := lines(), lines(); a != 10 || b != 0 {
		t.Errorf("%d lines, and then %d", a, b)
	}
	if o := expect(t, exitDone, n.at("group", "list")...); o.stdout != "shop\n" {
		t.Errorf("groups: %q", o.stdout)
	}
	mustContain(t, expect(t, exitDone, n.at("group", "list", "--all", "--json")...).stdout, `{"group":"shop"}`+"\n")
	d := readAnswer[groupDescription](t, expect(t, exitDone, n.at("group", "describe", "shop", "--json")...))
	if d.Lag != 0 || len(d.Members) != 0 || !slices.ContainsFunc(d.Queues, func(q groupQueue) bool { return q.Topic == "orders" && q.Offset == 10 && q.MaxOffset == 10 }) {
		t.Errorf("%+v", d)
	}
	reset := func(args ...string) groupReset {
		return readAnswer[groupReset](t, expect(t, exitDone, n.at(append([]string{"group", "reset", "shop", "--topic", "orders", "--json"}, args...)...)...))
	}
	if r := reset("--to", "first"); r.Done || len(r.Queues) != 4 || r.Queues[0].From == nil || *r.Queues[0].From != 10 || r.Queues[0].To != 0 {
		t.Errorf("%+v", r)
	}
	if left := lines(); left != 0 {
		t.Errorf("without --yes %d lines come again", left)
	}
	if r := reset("--to", "4", "--queue", "0", "--yes"); !r.Done || len(r.Queues) != 1 {
		t.Errorf("%+v", r)
	}
	if left := lines(); left != 6 {
		t.Errorf("%d lines from offset 4, want 6", left)
	}
	mustContain(t, expect(t, exitDone, n.at("group", "reset", "shop", "--topic", "orders", "--to", "first", "--yes")...).stdout, "nobody is there", "done")
	mustContain(t, expect(t, exitDone, n.at("group", "describe", "shop")...).stdout, "10 messages", "TOPIC")
	mustContain(t, expect(t, exitFailed, n.at("group", "reset", "shpo", "--topic", "orders", "--to", "first")...).stderr, "group shpo: no broker knows it")
	mustContain(t, expect(t, exitFailed, n.at("group", "describe", "shpo")...).stderr, "group shpo: no broker knows it", "haengine group list")

	mustContain(t, expect(t, exitDone, n.at("group", "delete", "shop")...).stdout, "--yes deletes it")
	if g := readAnswer[groupDeletion](t, expect(t, exitDone, n.at("group", "delete", "shop", "--yes", "--json")...)); !g.Done || len(g.Queues) == 0 {
		t.Errorf("%+v", g)
	}
	mustContain(t, expect(t, exitFailed, n.at("group", "delete", "shop")...).stderr, "group shop: no broker knows it")
	if again := lines(); again != 10 {
		t.Errorf("a group that was deleted reads %d lines, want all 10", again)
	}
	var none bytes.Buffer
	groupDescription{Group: "new"}.print(&none)
	mustContain(t, none.String(), "the group has no offset yet")
	mustContain(t, expect(t, exitFailed, n.at("tail", "--topic", "orders", "--queue", "0", "--from", "11")...).stderr, "it ends at 10")
}

func TestATailThatIsInterruptedBeforeItsEndFails(t *testing.T) {
	addr := sendServer(t, func(int64, *remoting.Request) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout bytes.Buffer
	for follow, want := range map[string]int{"--follow=false": exitFailed, "--follow": exitDone} {
		c, err := client.New(client.Options{NameServers: []string{addr}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r, err := c.OpenReader(t.Context(), client.ReaderOptions{Topic: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		tl := &tailer{tailOptions: tailOptions{follow: follow == "--follow"}, out: bufio.NewWriter(&stdout)}
		if err := tl.run(ctx, r); (err != nil) != (want == exitFailed) {
			t.Errorf("%s: %v", follow, err)
		}
		r.Close(t.Context())
	}
}

// What clients tell of is sentences: what, where, and why, each once.
func TestTalkIsReadable(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(&talk{w: &out})
	log.Warn("a node does not answer", "address", "h:1", "error", errors.New("pull at h:1:\nno answer"))
	log.Info("reset", "topic", "orders", "to_offset", 7)
	if got, want := out.String(), "haengine: a node does not answer: pull at h:1:; no answer\nhaengine: reset (topic orders, to offset 7)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestALateAnswerIsCalledThat(t *testing.T) {
	late := cause(fmt.Errorf("Get: %w", context.DeadlineExceeded))
	if late.Error() != "no answer in time" || !errors.Is(late, context.DeadlineExceeded) {
		t.Errorf("%v", late)
	}
}

func TestTopicsAreListedMadeDescribedAndDeleted(t *testing.T) {
	n := clientNode(t)
	mustContain(t, expect(t, exitDone, n.at("topic", "create", "orders", "--queues", "2")...).stdout, "topic orders made at "+n.ClientListen, "2 queues")
	mustContain(t, expect(t, exitDone, n.at("topic", "create", "orders", "--queues", "2")...).stdout, "is there already")
	mustContain(t, expect(t, exitFailed, n.at("topic", "create", "orders", "--queues", "3")...).stderr, "is there already", "not changed")
	if o := expect(t, exitDone, n.at("topic", "list")...); o.stdout != "orders\n" {
		t.Errorf("topics: %q", o.stdout)
	}
	mustContain(t, expect(t, exitDone, n.at("topic", "list", "--all", "--json")...).stdout, `{"topic":"TBW102"}`+"\n")
	expect(t, exitDone, n.at("put", "--topic", "orders", "--count", "3", "--size", "5")...)
	d := readAnswer[topicDescription](t, expect(t, exitDone, n.at("topic", "describe", "orders", "--json")...))
	if d.Messages != 3 || len(d.Brokers) != 1 || len(d.Brokers[0].Queues) != 2 || d.Brokers[0].Nodes[0] != n.ClientListen || d.Brokers[0].Perm != "rw" {
		t.Errorf("%+v", d)
	}
	mustContain(t, expect(t, exitDone, n.at("topic", "describe", "orders")...).stdout, "messages  3", "broker broker-a (master "+n.ClientListen+")", "QUEUE")
	mustContain(t, expect(t, exitDone, n.at("topic", "delete", "orders")...).stdout, "--yes")
	expect(t, exitDone, n.at("topic", "describe", "orders")...)
	mustContain(t, expect(t, exitDone, n.at("topic", "delete", "orders", "--yes")...).stdout, "deleted")
	for _, args := range [][]string{{"topic", "describe", "orders"}, {"topic", "delete", "orders"}, {"tail", "--topic", "orders"}} {
		mustContain(t, expect(t, exitFailed, n.at(args...)...).stderr, "topic orders: no name server knows this topic", "haengine topic list")
	}
}

func TestWrongCommandLinesOfClientsAreExplained(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nothing")
	for _, test := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "--topic: the topic is missing", []string{"put"}},
		{exitUsage, "--namesrv: \"x\"", []string{"put", "--topic", "T", "--namesrv", "x"}},
		{exitUsage, "--file or - reads them: not both", []string{"put", "--topic", "T", "--file", "-", "--size", "1"}},
		{exitUsage, "--outstanding -1", []string{"put", "--topic", "T", "--outstanding", "-1"}},
		{exitUsage, "is never found", []string{"put", "--topic", "T", "--tag", "a||b"}},
		{exitUsage, "--tag: the bytes 1 and 2", []string{"put", "--topic", "T", "--tag", "\x01"}},
		{exitUsage, `"y" is not expected`, []string{"put", "--topic", "T", "y"}},
		{exitUsage, "--from: \"x\"", []string{"tail", "--topic", "T", "--from", "x"}},
		{exitUsage, "name it with --queue", []string{"tail", "--topic", "T", "--from", "7"}},
		{exitUsage, "did you mean --topic T?", []string{"tail", "T"}},
		{exitUsage, "did you mean --topic T?", []string{"put", "T"}},
		{exitUsage, "between name servers stands ;", []string{"topic", "list", "--namesrv", "a:1,b:2"}},
		{exitUsage, "\"127.0.0.1:abc\", want HOST:PORT", []string{"put", "--topic", "T", "--namesrv", "127.0.0.1:abc"}},
		{exitUsage, "\"127.0.0.1:70000\", want HOST:PORT", []string{"put", "--topic", "T", "--namesrv", "127.0.0.1:70000"}},
		{exitUsage, "invalid argument \"x\" for \"--count\" flag: want a number\n", []string{"put", "--topic", "T", "--count", "x"}},
		{exitUsage, "a group reads all", []string{"tail", "--topic", "T", "--group", "g", "--from", "5"}},
		{exitUsage, "is the brokers' own", []string{"group", "delete", "TOOLS_CONSUMER"}},
		{exitUsage, "--queue and --group", []string{"tail", "--topic", "T", "--queue", "1", "--group", "g"}},
		{exitUsage, "--body \"x\"", []string{"tail", "--topic", "T", "--body", "x"}},
		{exitUsage, "want one topic", []string{"topic", "create"}},
		{exitUsage, "illegal characters", []string{"topic", "create", "a b"}},
		{exitUsage, "--queues 0", []string{"topic", "create", "T", "--queues", "0"}},
		{exitUsage, "--perm \"x\"", []string{"topic", "create", "T", "--perm", "x"}},
		{exitUsage, "is the brokers' own", []string{"topic", "delete", "TBW102"}},
		{exitUsage, "--to: say where to go on", []string{"group", "reset", "g", "--topic", "T"}},
		{exitUsage, "--to 7 is an offset", []string{"group", "reset", "g", "--topic", "T", "--to", "7"}},
		{exitFailed, "no such file", []string{"put", "--topic", "T", "--file", file}},
		{exitFailed, "no name server answers at 127.0.0.1:1", []string{"tail", "--topic", "T", "--namesrv", "127.0.0.1:1"}},
	} {
		mustContain(t, expect(t, test.code, test.args...).stderr, test.want)
	}
}

func TestLinesAreCut(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for in, want := range map[string][]string{
		"": nil, "\n": {""}, "a": {"a"}, "a\n": {"a"}, "a\r\n\nb": {"a\r", "", "b"}, long + "\n" + long: {long, long},
	} {
		l := newLineReader(strings.NewReader(in))
		var got []string
		for {
			line, err := l.next()
			if err != nil {
				break
			}
			got = append(got, string(line))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.20q: %d lines, want %d", in, len(got), len(want))
		}
	}
	if _, err := newLineReader(strings.NewReader(strings.Repeat("x", lineMax+2))).next(); err == nil || !strings.Contains(err.Error(), "line 1 is longer") {
		t.Errorf("a line without an end: %v", err)
	}
}

func TestASlaveHasANameServerOfItsOwnWhenToldSo(t *testing.T) {
	m := clientNode(t)
	free := fmt.Sprintf("127.0.0.1:%d", freePorts(t))
	s := startNode(t, "--role", "SLAVE", "--master", m.HAListen, "--client-listen", "127.0.0.1:0",
		"--namesrv", m.NamesrvListen+";"+free, "--namesrv-listen", free)
	if s.NamesrvListen != free {
		t.Errorf("it listens at %q", s.NamesrvListen)
	}
	for _, names := range []string{m.NamesrvListen, s.NamesrvListen} {
		waitUntil(t, func() bool { return strings.Contains(askRoute(t, names, "TBW102"), `"1":"`+s.Advertised+`"`) })
	}
}
