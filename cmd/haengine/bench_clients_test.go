package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/haengine/haengine/remoting"
)

func benchClientsJSON(t *testing.T, args ...string) (r clientsResult) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	o := expect(t, exitDone, append([]string{"bench", "clients", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, o.stdout)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return r
}

func TestSendsOfClientsAreMeasured(t *testing.T) {
	for _, args := range []string{
		"--connections 1 --outstanding 1", "--connections 3 --outstanding 8 --size 128", "--rate 500 --connections 2", "--role ASYNC_MASTER --size 300KiB --outstanding 4 --connections 2",
	} {
		r := benchClientsJSON(t, append(strings.Fields(args), "--duration", "300ms", "--warmup", "50ms", "--rounds", "3")...)
		if r.Messages == 0 || r.MessagesPerSecond <= 0 || r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.Max || len(r.Rounds) != 3 || r.BrokerCPU == nil || r.GeneratorShare == nil {
			t.Errorf("%s: %+v", args, r)
		}
		if len(r.Other) > 0 {
			t.Errorf("%s: answers by code %v", args, r.Other)
		}
		if strings.Contains(args, "--rate") && r.MessagesPerSecond > 550 {
			t.Errorf("%s: %v messages a second", args, r.MessagesPerSecond)
		}
	}
}

// What the load counts is what the broker has.
func TestTwoBrokersTakeTurns(t *testing.T) {
	m := startNode(t, "--ha-listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0")
	other := startNode(t, "--ha-listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", "--namesrv-listen", "")
	pid := strconv.Itoa(m.cmd.Process.Pid)
	r := benchClientsJSON(t, "--namesrv", m.NamesrvListen, "--pid", pid, "--against", other.ClientListen, "--duration", "200ms", "--warmup", "0s", "--rounds", "2", "--size", "100", "--connections", "2")
	if r.Address != m.ClientListen || r.Against == nil || r.Against.Address != other.ClientListen || r.Against.BrokerCPU != nil || r.BrokerCPU == nil {
		t.Fatalf("%+v", r)
	}
	if want := r.MessagesPerSecond / r.Against.MessagesPerSecond; r.Ratio == nil || math.Abs(r.Ratio.MessagesPerSecond-want) > 1e-9 {
		t.Errorf("ratio %+v, want %v", r.Ratio, want)
	}
	for _, side := range []struct {
		r clientsResult
		n *node
	}{{r, m}, {*r.Against, other}} {
		waitUntil(t, func() bool { return storedOf(t, side.n.ClientListen) >= side.r.Messages }) // queues follow the log
		if n := storedOf(t, side.n.ClientListen); n != side.r.Messages {
			t.Errorf("%s has %d messages, %d were measured", side.r.Address, n, side.r.Messages)
		}
	}
	o := expect(t, exitDone, "bench", "clients", "--addr", m.ClientListen, "--against", other.ClientListen, "--duration", "50ms", "--warmup", "0s", "--rounds", "1")
	mustContain(t, o.stdout, m.ClientListen, other.ClientListen, "p99.9", "first ÷ second", "load")
}

// storedOf is how many messages the queues of the benchmark's topic have.
func storedOf(t *testing.T, addr string) (all int64) {
	t.Helper()
	for queue := range benchQueues {
		a := ask(t, addr, &remoting.Command{Code: remoting.CodeGetMaxOffset, Ext: remoting.Ext{
			{Name: "topic", Value: "haengine-bench"}, {Name: "queueId", Value: strconv.Itoa(queue)},
		}})
		n, err := a.Ext.Int("offset", 0, math.MaxInt64)
		if err != nil {
			t.Fatal(a.Remark, err)
		}
		all += n
	}
	return all
}

func TestRefusedSendsAreNotCounted(t *testing.T) {
	// A synchronous master that wants two copies in sync and has one.
	m := startNode(t, "--role", "SYNC_MASTER", "--min-in-sync-replicas", "2", "--ha-listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", "--namesrv-listen", "")
	o := expect(t, exitFailed, "bench", "clients", "--addr", m.ClientListen, "--duration", "50ms", "--warmup", "0s", "--rounds", "1", "--connections", "1")
	mustContain(t, o.stderr, "no message was stored in a round", "map[1:")
}

func TestWrongUseOfBenchClientsIsExplained(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--connections 0", "--connections 0 is out of range"},
		{"--addr a:1 --namesrv b:2", "exclude each other"},
		{"--addr a:1 --idle 5", "--idle needs --pid"},
		{"--rate -1", "--rate -1"},
		{"--topic a\"b", "is no name of a topic"},
	} {
		o := expect(t, exitUsage, append([]string{"bench", "clients"}, strings.Fields(test.args)...)...)
		mustContain(t, o.stderr, test.want)
	}
}

func TestAnswersAreReadInBothHeaders(t *testing.T) {
	const slot = 17
	for _, frame := range [][]byte{
		remoting.AppendFrame(nil, &remoting.Command{Code: 12, Flag: 1, Opaque: opaqueBase + slot, Remark: `"opaque":5, "code":6`, Ext: remoting.Ext{{Name: "msgId", Value: `"code":9`}}}),
		[]byte("\x00\x00\x00\x19\x01\x00\x00\x15" + "\x00\x0c" + "\x00" + "\x00\x00" + string([]byte{0, 15, 66, 64 + slot}) + "\x00\x00\x00\x01" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"),
	} {
		code, got, err := scanAnswer(frame)
		if code != 12 || got != slot || err != nil {
			t.Errorf("code %d, slot %d, %v", code, got, err)
		}
	}
	for _, frame := range []string{"", "\x00\x00\x00\x04\x00\x00\x00\x00", "\x00\x00\x00\x06\x01\x00\x00\x02ab", "\x00\x00\x00\x0a\x00\x00\x00\x06\"code\""} {
		if _, _, err := scanAnswer([]byte(frame)); err == nil {
			t.Errorf("%q is understood", frame)
		}
	}
}

func TestATemplatesFramesAreSends(t *testing.T) {
	template, err := newSendTemplate("t", 10)
	if err != nil {
		t.Fatal(err)
	}
	b := template.append([]byte("before"), 65535, 1_795_963_032_047, 12345)
	var c remoting.Command
	if err := remoting.ParseFrame(b[len("before"):], &c); err != nil {
		t.Fatal(err)
	}
	if c.Opaque != opaqueBase+65535 || c.Ext.Text("e") != "1" || c.Ext.Text("g") != "1795963032047" || string(c.Body) != "xxxxxxxxxx" {
		t.Errorf("%+v", c)
	}
	mustContain(t, c.Ext.Text("i"), "UNIQ_KEY\x01"+strings.Repeat("0", 27)+"12345\x02")
}

const idleConnections = 10000

// A whole broker, a synchronous master with its slave, and all that connects to it
// from another process.
func TestTenThousandIdleConnectionsCostAWholeBrokerLittle(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < idleConnections+500 {
		t.Skipf("the hard limit of file descriptors is %d: %v", limit.Max, errors.New("ten thousand connections need more"))
	}
	// A busy machine delays both, now and then one of them only; what connections
	// cost by their number would be there each time.
	for looks := 3; ; looks-- {
		r := benchClientsJSON(t, "--idle", strconv.Itoa(idleConnections), "--connections", "4", "--outstanding", "8", "--rate", "400", "--duration", "1500ms", "--rounds", "3", "--warmup", "300ms")
		if r.Idle == nil || r.Idle.Connections != idleConnections {
			t.Fatalf("%+v", r.Idle)
		}
		t.Logf("%d connections: %d bytes more, p50 %.0f µs, before %.0f µs; p99 %.0f µs, before %.0f µs", r.Idle.Connections, r.Idle.Growth, r.Idle.P50, r.Idle.P50Before, r.Idle.P99, r.Idle.P99Before)
		if r.Idle.Growth > 50<<20 {
			t.Errorf("idle connections cost %d bytes, want at most 50 MiB", r.Idle.Growth)
		}
		if r.Idle.Growth < idleConnections*100 {
			t.Errorf("idle connections cost %d bytes: too little to be true", r.Idle.Growth)
		}
		if r.Idle.P50 <= 5*r.Idle.P50Before+5000 {
			return
		}
		if looks == 1 {
			t.Fatalf("a message takes %.0f µs beside idle connections, %.0f µs without", r.Idle.P50, r.Idle.P50Before)
		}
	}
}
