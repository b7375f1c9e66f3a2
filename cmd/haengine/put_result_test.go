package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/haengine/haengine/remoting"
	"github.com/haengine/haengine/remoting/client"
)

// sendServer is a name server and the master of a topic with one queue, whose
// answers to sends a test chooses.
func sendServer(t *testing.T, answer func(n int64, r *remoting.Request)) string {
	t.Helper()
	var sends atomic.Int64
	var server *remoting.Server
	server, err := remoting.Listen("127.0.0.1:0", remoting.HandlerFunc(func(r *remoting.Request) {
		switch r.Code {
		case remoting.CodeGetRouteInfo:
			r.Reply(&remoting.Command{Body: fmt.Appendf(nil, `{"brokerDatas":[{"brokerAddrs":{0:"%s"},"brokerName":"b","cluster":"c"}],`+
				`"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":1,"writeQueueNums":1}]}`, server.Addr())})
		case remoting.CodeSendMessageV2:
			answer(sends.Add(1), r)
		case remoting.CodeGetMaxOffset:
			r.Reply(&remoting.Command{Ext: remoting.Ext(nil).WithInt("offset", 1<<40)})
		default:
			r.Reply(&remoting.Command{})
		}
	}), remoting.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		server.Close(ctx)
	})
	return server.Addr().String()
}

func taken(r *remoting.Request) {
	r.Reply(&remoting.Command{Ext: remoting.Ext{{Name: "msgId", Value: "ID"}, {Name: "queueId", Value: "0"}, {Name: "queueOffset", Value: "3"}}})
}

func lost(r *remoting.Request) { r.Peer.Close(errors.New("the test's master is gone")) }

// numbers is a file with the lines 1 to n, and an empty one before.
func numbers(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	b.WriteByte('\n')
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A crash of the master leaves a message in doubt; the others go to the next one.
func TestPutGoesOnAfterAMessageWithoutAnswer(t *testing.T) {
	addr := sendServer(t, func(n int64, r *remoting.Request) {
		if n == 4 || n == 7 {
			lost(r)
			return
		}
		taken(r)
	})
	args := []string{"put", "--topic", "orders", "--file", numbers(t, 10), "--namesrv", addr, "--patience", "1m"}
	o := expect(t, exitFailed, append(args, "--json")...)
	s := readAnswer[putSummary](t, o)
	want := []putFailure{{5, client.NoAnswer}, {8, client.NoAnswer}} // line 1 is empty
	if s.Messages != 10 || s.Stored != 8 || s.Early || s.Last != 11 || len(s.Failures) != 2 || s.Failures[0] != want[0] || s.Failures[1] != want[1] {
		t.Errorf("%+v", s)
	}
	mustContain(t, o.stderr, "2 messages not stored, or not known to be (line: 5, 8)", "line 5 (1 byte)")
	if strings.Contains(o.stderr, "ended early") {
		t.Errorf("it was not: %s", o.stderr)
	}
}

// Who has to send the rest again knows where that begins.
func TestPutSaysAfterWhichLineItEnded(t *testing.T) {
	addr := sendServer(t, func(n int64, r *remoting.Request) {
		if n > 4 {
			r.ReplyCode(remoting.NoPermission, "no more")
			return
		}
		taken(r)
	})
	args := []string{"put", "--topic", "orders", "--file", numbers(t, 1000), "--namesrv", addr}
	o := expect(t, exitFailed, append(args, "--json")...)
	s := readAnswer[putSummary](t, o)
	if !s.Early || s.Stored != 4 || s.Last < 6 || s.Last > 7 || s.Failures[0] != (putFailure{6, "NO_PERMISSION"}) {
		t.Errorf("%+v", s)
	}
	mustContain(t, o.stderr, fmt.Sprintf("ended early, after line %d: nothing behind it was sent", s.Last))
}

func TestPutEndsWhenNobodyAnswersForItsPatience(t *testing.T) {
	addr := sendServer(t, func(n int64, r *remoting.Request) { lost(r) })
	began := time.Now()
	o := expect(t, exitFailed, "put", "--topic", "orders", "--size", "5", "--count", "1000000", "--rate", "50", "--namesrv", addr, "--patience", "1s", "--json")
	if s := readAnswer[putSummary](t, o); !s.Early || s.Stored != 0 || s.Last < 2 || s.Last > 1000 || time.Since(began) < time.Second {
		t.Errorf("after %v: %+v", time.Since(began), s)
	}
	mustContain(t, o.stderr, "ended early, after message ")
}

func TestShellsAreNotToldOfFilesForATopic(t *testing.T) {
	mustContain(t, expect(t, exitDone, "__complete", "put", "--topic", "").stdout, ":4") // ShellCompDirectiveNoFileComp
}

func TestPutFailsWithFewerLinesThanItWasToldToSend(t *testing.T) {
	addr := sendServer(t, func(_ int64, r *remoting.Request) { taken(r) })
	put := func(code, lines int) outcome {
		return expect(t, code, "put", "--topic", "orders", "--file", numbers(t, lines), "--count", "3", "--namesrv", addr)
	}
	mustContain(t, put(exitDone, 3).stdout, "SEND_OK              3\n")
	mustContain(t, put(exitDone, 4).stdout, "SEND_OK              3\n")
	mustContain(t, put(exitFailed, 2).stderr, "the input has 2 messages, not the 3 of --count")
	o := put(exitFailed, 0)
	mustContain(t, o.stderr, "the input has 0 messages, not the 3 of --count (--size makes messages up)")
	mustContain(t, o.stdout, "nothing was sent")
}
