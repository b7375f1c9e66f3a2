package engine

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/haengine/haengine/transfer"
)

// framed cuts a log into frames of these sizes in turn, of which none crosses a segment.
func framed(log []byte, segment int, sizes ...int) (stream []byte) {
	for i, at := 0, 1; at < len(log); i++ {
		n := min(sizes[i%len(sizes)], len(log)-at, segment-at%segment)
		stream = append(append(stream, header(int64(at), int32(n))...), log[at:at+n]...)
		at += n
	}
	return stream
}

// awaitReport reads reports until one is of end; false, and an error of the test, if none comes.
func awaitReport(t *testing.T, c net.Conn, end int64) bool {
	t.Helper()
	for last := int64(0); last < end; {
		r, err := readReport(c)
		if err != nil {
			t.Errorf("last report %d, want %d: %v", last, end, err)
			return false
		}
		last = r
	}
	return true
}

// wantLog waits until the slave's log is this one.
func wantLog(t *testing.T, s *Engine, log []byte) {
	t.Helper()
	if err := s.WaitFor(context20(t), int64(len(log))); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(log))
	if _, err := s.log.ReadAt(got, 0); err != nil || string(got) != string(log) {
		t.Fatalf("the slave's log differs: %v", err)
	}
}

func TestFramesCutAtAnyByteGiveTheSameLog(t *testing.T) {
	const segment = 64 << 10
	o := Options{SegmentBytes: segment}
	log := recordsOf(t, 400, o)
	if len(log) < segment+segment/4 {
		t.Fatalf("the log has %d bytes, it is to have two segments", len(log))
	}
	for _, sizes := range [][]int{{333}, {len(log)}, {40, 1, 700, aheadBytes, aheadBytes + 1, 12, 20000, 64, 3}} {
		stream := framed(log, segment, sizes...)
		for _, step := range []int{1, 7, 12, 13, 345, 346, 2 * aheadBytes, len(stream)} {
			t.Run(fmt.Sprint("frames of ", sizes, " in pieces of ", step), func(t *testing.T) {
				t.Parallel()
				m := listenRaw(t, func(n int64, c net.Conn) {
					if n > 1 {
						return // it has all, and came back because we closed
					}
					if r, err := readReport(c); err != nil || r != 1 {
						t.Errorf("first report %d, %v", r, err)
						return
					}
					go func() {
						for at := 0; at < len(stream); at += step {
							if _, err := c.Write(stream[at:min(at+step, len(stream))]); err != nil {
								return
							}
						}
					}()
					awaitReport(t, c, int64(len(log)))
				})
				s := slaveOf(t, m, o)
				wantLog(t, s, log)
				eventually(t, "all queued", func() bool { return s.log.DispatchedOffset() == int64(len(log)) })
			})
		}
	}
}

// A master that waits for each report has its next frames read ahead: several small
// ones in one read, parts of some, and the beginning of one that is not small.
func TestFramesThatAreReadAheadGiveTheSameLog(t *testing.T) {
	const segment = 64 << 10
	o := Options{SegmentBytes: segment}
	log := recordsOf(t, 600, o)
	if len(log) < 2*segment {
		t.Fatalf("the log has %d bytes, it is to have three segments", len(log))
	}
	sizes := []int{40, 700, 1, aheadBytes, 12, 300, aheadBytes + 1, 500, 20000, 64, 3}
	m := listenRaw(t, func(n int64, c net.Conn) {
		if _, err := readReport(c); err != nil || n > 1 {
			return
		}
		for at, i := 1, 0; at < len(log); {
			var group []byte
			for range 1 + i%5 {
				i++
				n := min(sizes[i%len(sizes)], len(log)-at, segment-at%segment)
				group = append(append(group, header(int64(at), int32(n))...), log[at:at+n]...)
				at += n
			}
			if _, err := c.Write(group); err != nil {
				t.Error(err)
				return
			}
			if !awaitReport(t, c, int64(at)) {
				return
			}
		}
	})
	s := slaveOf(t, m, o)
	wantLog(t, s, log)
	used := make(chan bool, 1)
	slave := s.slave.Load()
	slave.loop.Post(func() { used <- slave.beyond != [aheadBytes]byte{} })
	if !<-used {
		t.Error("nothing was read ahead")
	}
}

// What was read ahead of a body that did not come whole, or behind a bad frame, is no
// part of the log, nor of the next connection.
func TestWhatWasReadAheadEndsWithItsConnection(t *testing.T) {
	log := recordsOf(t, 20, Options{})
	one := len(log) - 500 // the last body that comes whole
	for name, lost := range map[string][]byte{
		"half a body": append(header(int64(one), 500), log[one:len(log)-1]...),
		"a bad frame": append(header(int64(one), -1), log[one:]...),
	} {
		t.Run(name, func(t *testing.T) {
			m := listenRaw(t, func(n int64, c net.Conn) {
				if _, err := readReport(c); err != nil {
					return
				}
				if n > 1 {
					from := max(int64(one-overlapBytes), 1)
					_, _ = c.Write(append(header(from, int32(one-int(from))), log[from:one]...))
					_, _ = c.Write(header(int64(one), 0))
					_, _ = io.Copy(io.Discard, c)
					return
				}
				_, _ = c.Write(framed(log[:one], 1<<20, 300))
				if awaitReport(t, c, int64(one)) {
					_, _ = c.Write(lost)
				}
			})
			s := slaveOf(t, m, Options{})
			eventually(t, "it follows again", func() bool {
				return m.accepted.Load() > 1 && s.Status().Master.State == transfer.FollowerTransferring.String()
			})
			if end := s.log.EndOffset(); end != int64(one) {
				t.Fatalf("the log ends at %d, want %d", end, one)
			}
			tail, err := os.ReadFile(s.log.SegmentPath(0))
			if err != nil {
				t.Fatal(err)
			}
			for i, b := range tail[one : one+4096] {
				if b != 0 {
					t.Fatalf("byte %d behind the log's end is %d", i, b)
				}
			}
		})
	}
}
