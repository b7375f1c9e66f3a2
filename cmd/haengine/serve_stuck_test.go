package main

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/remoting"
)

// stuckClient asks and never reads an answer, until the broker takes no more of
// it, or closes it.
func stuckClient(t *testing.T, addr string, frame []byte) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for sent := 0; sent < 64<<20; sent += len(frame) {
		if err := c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(frame); err != nil {
			return
		}
	}
}

// A whole broker with a slave: clients that read nothing, of sends and of pulls,
// and one that reads a byte now and then, delay neither another client nor the
// replication that its messages wait for.
func TestStuckClientsDelayNeitherOthersNorTheSlave(t *testing.T) {
	m := startNode(t, "--role", "SYNC_MASTER", "--ha-listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", "--namesrv-listen", "", "--segment-bytes", "64MiB")
	s := startNode(t, "--role", "SLAVE", "--master", m.HAListen, "--segment-bytes", "64MiB")
	inSync := func() bool { r := m.status(t).Replicas; return len(r) == 1 && r[0].InSync }
	waitUntil(t, inSync)

	load := func(args ...string) clientsResult {
		t.Helper()
		r := benchClientsJSON(t, append([]string{"--addr", m.ClientListen, "--pid", strconv.Itoa(m.cmd.Process.Pid), "--warmup", "0s", "--rounds", "3"}, args...)...)
		if len(r.Other) > 0 {
			t.Errorf("answers by code: %v", r.Other)
		}
		return r
	}
	small := []string{"--connections", "8", "--outstanding", "4", "--rate", "300", "--duration", "1200ms"}
	load("--topic", "large", "--size", "64KiB", "--connections", "2", "--outstanding", "4", "--duration", "600ms") // for the pulls
	alone := load(small...)

	pull := remoting.AppendFrame(nil, &remoting.Command{Code: remoting.CodePullMessage, Language: "JAVA", Version: remoting.Version, Ext: remoting.Ext{
		{Name: "consumerGroup", Value: "stuck"}, {Name: "topic", Value: "large"}, {Name: "queueId", Value: "0"}, {Name: "queueOffset", Value: "0"},
		{Name: "maxMsgNums", Value: "32"}, {Name: "sysFlag", Value: "4"}, {Name: "commitOffset", Value: "0"}, {Name: "suspendTimeoutMillis", Value: "0"},
		{Name: "subscription", Value: "*"}, {Name: "subVersion", Value: "0"}, {Name: "expressionType", Value: "TAG"},
	}})
	template, err := newSendTemplate("stuck", 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		stuckClient(t, m.ClientListen, []byte(strings.Repeat(string(pull), 16)))
		var sends []byte
		for n := range 64 {
			sends = template.append(sends, n, 1_795_963_032_047, int64(i*64+n))
		}
		stuckClient(t, m.ClientListen, sends)
	}
	slow, err := net.Dial("tcp", m.ClientListen)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	defer func() {
		slow.Close()
		<-over
	}()
	if _, err := slow.Write([]byte(strings.Repeat(string(pull), 16))); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(over)
		for b := make([]byte, 1); ; time.Sleep(time.Millisecond) {
			if _, err := slow.Read(b); err != nil {
				return
			}
		}
	}()

	// A turn of a stuck client's is some milliseconds on a busy machine, and who
	// waited for one would wait for seconds, each time: one look of some must be
	// good, so that what else the machine does fails no test.
	for looks := 5; ; looks-- {
		beside := load(small...)
		t.Logf("p50 %.0f µs, alone %.0f µs; p99 %.0f µs, alone %.0f µs", beside.P50, alone.P50, beside.P99, alone.P99)
		if beside.P50 <= 10*alone.P50+20_000 {
			break
		}
		if looks == 1 {
			t.Fatalf("a message takes %.0f µs beside stuck clients, %.0f µs alone", beside.P50, alone.P50)
		}
	}
	waitUntil(t, func() bool {
		r := m.status(t).Replicas
		return len(r) == 1 && r[0].InSync && r[0].LagBytes == 0
	})
	m.stopCleanly(t)
	s.stopCleanly(t)
}
