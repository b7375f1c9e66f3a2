package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
)

func TestRocketMQsFaultsAreNotOurs(t *testing.T) {
	runChecks(t, "6. RocketMQ's faults", []check{
		{name: "our slave holds more than its master", direction: realToOurs, newest: true, run: ourSlaveAhead},
		{name: "RocketMQ's slave holds more than its master", direction: oursToReal, newest: true, run: realSlaveAhead},
		{name: "another history of the same length", direction: realToOurs, newest: true, run: otherHistory},
		{name: "another segment size", direction: realToOurs, newest: true, run: otherSegmentSize},
		{name: "a filler at the end that its restart cuts off", direction: realToOurs, newest: true, run: fillerCutOff},
		{name: "the largest frames that fit its buffer", direction: oursToReal, newest: true, run: largestFrames},
		{name: "garbage beside a slave", direction: oursToReal, newest: true, run: garbageBesideASlave},
	})
}

// copyStore copies a store that nobody has open.
func copyStore(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// filledByRocketMQ is a store that RocketMQ wrote and closed.
func filledByRocketMQ(c *trial, seed uint64, bytes int) (store string) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"))
	m.mixed(c.version, seed, bytes)
	m.Ask("phase size=100,count=200", "phase") // the last records are small
	m.Quit()
	return m.store
}

// refused waits until a slave of ours says that it will not go on, and how.
func refused(s *node, states ...string) engine.MasterStatus {
	s.t.Helper()
	var last engine.MasterStatus
	eventually(s.t, fmt.Sprintf("the slave is %s", strings.Join(states, " or ")), func() bool {
		if m := s.Status().Master; m != nil {
			last = *m
		}
		for _, state := range states {
			if fmt.Sprint(last.State) == state {
				return true
			}
		}
		return false
	})
	return last
}

func ourSlaveAhead(c *trial) {
	short := filledByRocketMQ(c, 1, 1<<20)
	long := copyStore(c, short)
	ahead := open(c, engine.Options{Store: long})
	newMixer(c, c.version).fill(ahead, 200_000)
	ahead.close()
	_, high := ends(c, long)
	sum := checksum(c, long, 0, high)

	m := c.version.master(c, short, "--role", "SYNC_MASTER", "--conf", "slaveTimeout=1000")
	s := openSlave(c, m.address, engine.Options{Store: long})
	stalled := refused(s, "stalled", "refused") // 4.9 closes the connection
	// The master grows past our end: its bytes there are not ours.
	m.Ask("phase size=1000,threads=1,outstanding=200,until="+fmt.Sprint(high+100_000), "phase")
	diverged := refused(s, "diverged")
	s.close()
	m.Kill()
	if now := checksum(c, long, 0, high); now != sum || s.Status().MaxOffset != high {
		c.Error("the slave's log was changed")
	}
	c.figure("%s (%s), then diverged (%s); our log is unchanged", stalled.State, stalled.LastError, diverged.LastError)
}

func realSlaveAhead(c *trial) {
	m := openMaster(c, engine.Options{Role: engine.SyncMaster, PlainHistory: engine.HistoryFirst, SlaveTimeout: time.Second})
	s := c.version.slave(c, filepath.Join(c.TempDir(), "real"), m.address())
	eventually(c, "the slave has reported", func() bool { return len(m.Status().Replicas) == 1 })
	newMixer(c, c.version).fill(m, 1<<20)
	m.close()
	s.Quit()
	short := copyStore(c, m.store)
	long := c.version.master(c, s.store)
	long.mixed(c.version, 5, 1<<18)
	long.Quit()
	_, high := ends(c, s.store)

	m = openMaster(c, engine.Options{Store: short, Role: engine.SyncMaster, SlaveTimeout: time.Second})
	c.version.slave(c, s.store, m.address())
	eventually(c, "our master turns it away", func() bool { return len(m.log.lines("level=WARN", fmt.Sprint(high))) > 0 })
	r, err := m.Put(context.Background(), &engine.Message{Topic: "t", Body: []byte("nobody has this")})
	if err == nil || r.Status == engine.PutOK || len(m.Status().Replicas) != 0 {
		c.Errorf("a put beside a slave that is ahead: %v, %v; replicas %v", r.Status, err, m.Status().Replicas)
	}
	c.figure("closed with its offset %d and our range in the log; nothing is acknowledged", high)
}

// otherHistory takes two logs of the same length that differ in one record near
// the end: only the bytes that our slave asks for again can tell.
func otherHistory(c *trial) {
	store := filledByRocketMQ(c, 1, 1<<20)
	other := copyStore(c, store)
	_, high := ends(c, store)
	lines := messages(c, haengine(c, "log", "dump", "--store", other, "--json"), 0)
	l := open(c, engine.Options{Store: other})
	// Further back than what a start compares with what it noted at the stop.
	last, err := l.Get(offsetOf(c, lines[len(lines)-100]))
	if err != nil {
		c.Fatal(err)
	}
	l.close()
	// Another born time: nothing checks that field.
	patch(c, other, last.PhysicalOffset+40, binary.BigEndian.AppendUint64(nil, uint64(last.BornTimestamp+1)))
	sum := checksum(c, other, 0, high)

	m := c.version.master(c, store)
	s := openSlave(c, m.address, engine.Options{Store: other})
	diverged := refused(s, "diverged")
	m.mixed(c.version, 2, 1<<18)
	s.close()
	m.Quit()
	if end := s.Status().MaxOffset; end != high || checksum(c, other, 0, high) != sum {
		c.Errorf("the slave's log was changed; it ends at %d, was %d", end, high)
	}
	c.figure("found: %s", diverged.LastError)
}

func offsetOf(t testing.TB, line string) int64 {
	t.Helper()
	_, rest, ok := strings.Cut(line, `"physicOffset":`)
	var at int64
	if _, err := fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &at); err != nil || !ok {
		t.Fatalf("no offset in %.100q", line)
	}
	return at
}

// patch changes bytes of a closed store's log.
func patch(t testing.TB, store string, offset int64, b []byte) {
	t.Helper()
	base := offset - offset%segmentBytes
	f, err := os.OpenFile(filepath.Join(store, "commitlog", fmt.Sprintf("%020d", base)), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, offset-base); err != nil {
		t.Fatal(err)
	}
}

// otherSegmentSize gives our slave smaller and larger segments than its master
// has. A frame that passes the end of a smaller one is refused as it comes; that
// a larger one is wrong, only the first filler tells.
func otherSegmentSize(c *trial) {
	m := c.version.master(c, filepath.Join(c.TempDir(), "real"))
	end := m.mixed(c.version, 1, 3<<20).Number("max_offset")
	for _, size := range []int64{segmentBytes / 2, 2 * segmentBytes} {
		s := openSlave(c, m.address, engine.Options{SegmentBytes: size})
		s.damaged = true // the record that the border cuts, which the close may be the first to meet
		var said string
		eventually(c, "the slave says what is wrong", func() bool {
			st := s.Status()
			if said = st.Reason; said == "" && st.Master != nil {
				said = st.Master.LastError
			}
			if !strings.Contains(said, fmt.Sprint(size)) {
				// The record that the border cuts is damage, and may be met at once.
				if lines := s.log.lines("reason=", fmt.Sprint(size)); len(lines) > 0 {
					said = lines[0]
				}
			}
			return strings.Contains(said, fmt.Sprint(size))
		})
		if size < segmentBytes && s.Status().MaxOffset >= end {
			c.Errorf("the slave took all of %d bytes", end)
		}
		s.close()
		c.figure("with segments of %d bytes: %s", size, strings.ReplaceAll(said, s.store+"/", ""))
	}
	m.Quit()
}

// fillerCutOff gives our running slave the filler that RocketMQ wrote last
// before it died: its recovery forgets it, and writes other bytes there.
func fillerCutOff(c *trial) {
	store := filledByRocketMQ(c, 1, 1<<19)
	_, high := ends(c, store)
	border := high - high%segmentBytes + segmentBytes
	log, err := os.ReadFile(filepath.Join(store, "commitlog", fmt.Sprintf("%020d", 0)))
	if err != nil || border != segmentBytes {
		c.Fatalf("the log ends at %d: %v", high, err)
	}
	copy(log[high:], binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(border-high)), 0xCBD43194))
	r := newRelay(c, sendAll(c, log), link{})
	s := openSlave(c, r.addr, engine.Options{})
	eventually(c, "our slave has the filler", func() bool { return s.Status().QueuedOffset == border })

	m := c.version.master(c, store, "--role", "SYNC_MASTER", "--conf", "slaveTimeout=1000")
	if m.end != high {
		c.Fatalf("RocketMQ's recovery ends at %d, want %d", m.end, high)
	}
	r.setTarget(m.address)
	stalled := refused(s, "stalled", "refused")
	m.Ask("phase size=1000,threads=1,outstanding=200,until="+fmt.Sprint(border+100_000), "phase")
	diverged := refused(s, "diverged")
	s.close()
	m.Kill()
	if n := s.Status().MaxOffset; n != border {
		c.Errorf("the slave's log ends at %d, want %d", n, border)
	}
	now, err := os.ReadFile(filepath.Join(s.store, "commitlog", fmt.Sprintf("%020d", 0)))
	if err != nil || !bytes.Equal(now[:high+8], log[:high+8]) {
		c.Errorf("the slave's log was changed: %v", err)
	}
	c.figure("%s (%s), then diverged (%s)", stalled.State, stalled.LastError, diverged.LastError)
}

// sendAll is a master that sends a log of one segment to whoever asks.
func sendAll(t testing.TB, log []byte) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				from := int64(-1)
				for from < 0 { // RocketMQ's master is silent on -1
					var report [8]byte
					if _, err := io.ReadFull(conn, report[:]); err != nil {
						return
					}
					from = int64(binary.BigEndian.Uint64(report[:]))
				}
				for body := log[from:]; len(body) > 0; {
					n := min(len(body), 32<<10)
					header := binary.BigEndian.AppendUint64(nil, uint64(int64(len(log)-len(body))))
					if _, err := conn.Write(append(binary.BigEndian.AppendUint32(header, uint32(n)), body[:n]...)); err != nil {
						return
					}
					body = body[n:]
				}
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

func largestFrames(c *trial) {
	const segment = 16 << 20
	m := openMaster(c, engine.Options{SegmentBytes: segment, FrameBytes: engine.FrameBytesMax, PlainHistory: engine.HistoryFirst})
	body := make([]byte, 1<<20)
	put := func(n int) {
		for range n {
			if _, err := m.Put(context.Background(), &engine.Message{Topic: "big", Body: body}); err != nil {
				c.Fatal(err)
			}
		}
	}
	put(40)
	var meter frameMeter
	r := newRelay(c, m.address(), link{sent: meter.sent})
	s := c.version.slave(c, filepath.Join(c.TempDir(), "real"), r.addr, "--segment-bytes", fmt.Sprint(segment))
	m.acked(1)
	put(10)
	m.acked(1)
	s.Quit()
	m.close()
	if meter.largest != engine.FrameBytesMax {
		c.Errorf("the largest frame had %d body bytes, want %d", meter.largest, engine.FrameBytesMax)
	}
	c.figure("%d messages equal; frames of up to %d bytes with their header", c.version.mustMatch(c, s.store, m.store), meter.largest+12)
}

// frameMeter finds the largest frame in a master's stream.
type frameMeter struct {
	header  []byte
	skip    int // body bytes to come
	largest int
}

func (f *frameMeter) sent(b []byte) {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			f.skip, b = f.skip-n, b[n:]
			continue
		}
		n := min(12-len(f.header), len(b))
		f.header, b = append(f.header, b[:n]...), b[n:]
		if len(f.header) == 12 {
			f.skip = int(binary.BigEndian.Uint32(f.header[8:]))
			f.largest, f.header = max(f.largest, f.skip), f.header[:0]
		}
	}
}

func garbageBesideASlave(c *trial) {
	m := openMaster(c, engine.Options{Role: engine.SyncMaster})
	c.version.slave(c, filepath.Join(c.TempDir(), "real"), m.address())
	eventually(c, "the slave has reported", func() bool { return len(m.Status().Replicas) == 1 })
	x := newMixer(c, c.version)
	for i, garbage := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01", "\x7f\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xfb", "\x5a\x17\xc3\xe4\x99\xf0\x2b\x6d",
	} {
		conn := dial(c, m.address())
		if _, err := conn.Write([]byte(garbage)); err != nil {
			c.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			c.Errorf("garbage %d: %d bytes and %v, want a close", i, n, err)
		}
		conn.Close()
		x.fill(m, 50_000) // each put must return PUT_OK
	}
	if n := len(m.Status().Replicas); n != 1 {
		c.Errorf("%d replicas, want RocketMQ's alone", n)
	}
	c.figure("closed unanswered; puts go on")
}
