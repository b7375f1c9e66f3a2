package reactor

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// childVariable makes this test binary the process that runs out of file
// descriptors.
const childVariable = "REACTOR_TEST_STARVED_CHILD"

// starvedChild serves echoes with no descriptor to spare until it reads a
// line, then with some. It tells its address, and at the end its counts.
func starvedChild() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	logger, lines := logSink()
	g, err := Open(Options{Loops: 2, Logger: logger})
	fail(err)
	ln, err := g.Listen("127.0.0.1:0", SocketOptions{}, func(*Conn) Handler { return newEcho() })
	fail(err)
	in := bufio.NewReader(os.Stdin)

	limit := unix.Rlimit{Cur: 64, Max: 64}
	fail(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	var fill []int
	for {
		fd, err := unix.Dup(0)
		if err != nil {
			break
		}
		fill = append(fill, fd)
	}
	lost := os.Getenv(childVariable) == "reserve lost"
	if lost {
		done := make(chan struct{})
		ln.loop.Post(func() {
			_ = unix.Close(ln.reserve)
			ln.reserve = -1
			fd, err := unix.Dup(0)
			fail(err)
			fill = append(fill, fd)
			close(done)
		})
		<-done
	}
	fmt.Println(ln.Addr())
	_, err = in.ReadString('\n')
	fail(err)
	<-lines.first // the listener has met its trouble
	for _, fd := range fill {
		_ = unix.Close(fd)
	}
	fmt.Println("freed")
	_, err = in.ReadString('\n')
	fail(err)
	events := make(chan uint64, 1)
	ln.loop.Post(func() { events <- ln.loop.events })
	fmt.Println(<-events, lines.lines.Load())
	fail(g.Close())
}

func TestAListenerSurvivesRunningOutOfDescriptors(t *testing.T) {
	for _, mode := range []string{"reserve kept", "reserve lost"} {
		t.Run(mode, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childVariable+"="+mode)
			cmd.Stderr = os.Stderr
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out := bufio.NewReader(stdout)
			line := func() string {
				s, err := out.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				return strings.TrimSpace(s)
			}
			next := func() {
				if _, err := io.WriteString(stdin, "\n"); err != nil {
					t.Fatal(err)
				}
			}
			addr := netip.MustParseAddrPort(line())

			var waiting []int
			for range 20 {
				raw := dialRaw(t, addr, 0)
				if mode == "reserve lost" {
					waiting = append(waiting, raw) // in the backlog until there is room
					continue
				}
				if n, err := readRaw(raw, make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("read %d, %v, want to be turned away", n, err)
				}
				shut(t, raw)
			}
			next()
			if got := line(); got != "freed" {
				t.Fatalf("child says %q", got)
			}
			for range 5 {
				waiting = append(waiting, dialRaw(t, addr, 0))
			}
			for _, raw := range waiting {
				got := make([]byte, 5)
				writeRaw(t, raw, []byte("hello"))
				if _, err := readRaw(raw, got); err != nil || string(got) != "hello" {
					t.Errorf("after descriptors were freed: got %q, %v", got, err)
				}
				shut(t, raw)
			}
			next()
			var events, lines int
			if _, err := fmt.Sscan(line(), &events, &lines); err != nil {
				t.Fatal(err)
			}
			if lines != 1 {
				t.Errorf("%d log lines, want 1", lines)
			}
			if events > 500 {
				t.Errorf("%d events: the listener spins", events)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
