package reactor

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestEchoOnSeveralLoops(t *testing.T) {
	g := open(t, Options{Loops: 2})
	ln := listen(t, g, SocketOptions{}, func(*Conn) Handler { return newEcho() })
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			c := dialGo(t, ln.Addr())
			defer c.Close()
			sent := make([]byte, 256<<10)
			rnd := rand.NewChaCha8([32]byte{byte(i)})
			_, _ = rnd.Read(sent)
			wg.Go(func() {
				if _, err := c.Write(sent); err != nil {
					t.Error(err)
				}
				_ = c.CloseWrite()
			})
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(c, got); err != nil {
				t.Error(err)
			}
			if !bytes.Equal(got, sent) {
				t.Error("echo differs from what was sent")
			}
		})
	}
	wg.Wait()
}

func TestConnectionsHaveAddressesAndDistinctIDs(t *testing.T) {
	g := open(t, Options{Loops: 2})
	conns := make(chan *Conn, 4)
	ln, err := g.Listen(":0", SocketOptions{}, func(c *Conn) Handler {
		conns <- c
		return newEcho()
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	loops := map[*Loop]int{}
	for range 4 {
		raw := dialRaw(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), ln.Addr().Port()), 0)
		local, err := localAddr(raw)
		if err != nil {
			t.Fatal(err)
		}
		c := await(t, conns, "connection")
		if c.RemoteAddr() != local {
			t.Errorf("remote address %v, want %v: an IPv4 peer of a socket for both is IPv4", c.RemoteAddr(), local)
		}
		if c.LocalAddr().Port() != ln.Addr().Port() {
			t.Errorf("local address %v, want port %d", c.LocalAddr(), ln.Addr().Port())
		}
		seen[c.ID()] = true
		loops[c.Loop()]++
		shut(t, raw)
	}
	if len(seen) != 4 || len(loops) != 2 {
		t.Errorf("%d identities on %d loops, want 4 on 2", len(seen), len(loops))
	}
}

// streamer sends frames of a 12-byte header and a body: header by writev and
// body by sendfile, or both by writev, as far as the socket takes them.
type streamer struct {
	file   *os.File
	data   []byte
	frame  int // body bytes in a frame
	offset int // of the frame being sent, in data
	sent   int // bytes of the frame that went out, header included
	header [12]byte
	bufs   [2][]byte
	fail   func(error)
}

func (s *streamer) Readable(c *Conn) {
	var b [64]byte
	if _, err := c.Readv([][]byte{b[:]}); err != nil && !errors.Is(err, ErrWouldBlock) {
		c.Close(err)
	}
}

func (s *streamer) Writable(c *Conn) {
	for s.offset < len(s.data) {
		body := min(s.frame, len(s.data)-s.offset)
		binary.BigEndian.PutUint64(s.header[:], uint64(s.offset))
		binary.BigEndian.PutUint32(s.header[8:], uint32(body))
		n, err := s.push(c, body)
		if errors.Is(err, ErrWouldBlock) {
			c.WantWrite(true)
			return
		}
		if err != nil {
			s.fail(err)
			return
		}
		if s.sent += n; s.sent == len(s.header)+body {
			s.offset, s.sent = s.offset+body, 0
		}
	}
	c.WantWrite(false)
}

func (s *streamer) push(c *Conn, body int) (int, error) {
	bySendfile := s.offset/s.frame%2 == 1
	if s.sent < len(s.header) {
		if bySendfile {
			s.bufs[0] = s.header[s.sent:]
			return c.WritevMore(s.bufs[:1])
		}
		s.bufs[0], s.bufs[1] = s.header[s.sent:], s.data[s.offset:s.offset+body]
		return c.Writev(s.bufs[:2])
	}
	at := s.offset + s.sent - len(s.header)
	left := body + len(s.header) - s.sent
	if bySendfile {
		return c.Sendfile(int(s.file.Fd()), int64(at), left)
	}
	s.bufs[0] = s.data[at : at+left]
	return c.Writev(s.bufs[:1])
}

func (s *streamer) Closed(*Conn, error) {}

func TestASlowReaderGetsExactBytesAndHoldsNobodyUp(t *testing.T) {
	data := make([]byte, 8<<20)
	rnd := rand.NewChaCha8([32]byte{6})
	_, _ = rnd.Read(data)
	file, err := os.Create(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		t.Fatal(err)
	}
	const frame = 100_003
	g := open(t, Options{})
	slow := listen(t, g, SocketOptions{}, func(c *Conn) Handler {
		c.WantWrite(true)
		return &streamer{file: file, data: data, frame: frame, fail: func(err error) { t.Error(err) }}
	})
	healthy := listen(t, g, SocketOptions{}, func(*Conn) Handler { return newEcho() })

	reader := dialRaw(t, slow.Addr(), 4096)
	defer shut(t, reader)
	partner := dialRaw(t, healthy.Addr(), 0)
	defer shut(t, partner)

	hash := sha256.New()
	total := 0
	take := func(b []byte) {
		n, err := readRaw(reader, b)
		if err != nil {
			t.Fatalf("after %d bytes: %v", total, err)
		}
		hash.Write(b[:n])
		total += n
	}
	var before, after uint64
	const rounds = 500
	ping := make([]byte, 16)
	for i := range rounds {
		if i == 10 { // both streams are under way
			on(t, g.Loop(0), func() { before = g.Loop(0).events })
		}
		take(make([]byte, 1))
		writeRaw(t, partner, ping)
		if _, err := readRaw(partner, ping); err != nil {
			t.Fatalf("healthy peer, round %d: %v", i, err)
		}
	}
	on(t, g.Loop(0), func() { after = g.Loop(0).events })
	if n := after - before; n > 4*rounds {
		t.Errorf("%d events in %d rounds: the loop spins on the peer that does not read", n, rounds)
	}

	want := sha256.New()
	size := 0
	for at := 0; at < len(data); at += frame {
		body := min(frame, len(data)-at)
		var header [12]byte
		binary.BigEndian.PutUint64(header[:], uint64(at))
		binary.BigEndian.PutUint32(header[8:], uint32(body))
		want.Write(header[:])
		want.Write(data[at : at+body])
		size += len(header) + body
	}
	for total < size {
		take(make([]byte, min(size-total, 65_521)))
	}
	if !bytes.Equal(hash.Sum(nil), want.Sum(nil)) {
		t.Error("the stream differs from what was to be sent")
	}
}

func TestDataThatArrivesWithAHangUpIsReadFirst(t *testing.T) {
	const report = "8 bytes."
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	send := func(t testing.TB, raw, flags int) {
		if err := unix.Send(raw, []byte(report), flags); err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct {
		name  string
		leave func(t testing.TB, raw int)
		write bool // the loop writes to the peer that is gone before it reads
		want  []error
	}{
		{"FIN in the data's segment", func(t testing.TB, raw int) {
			send(t, raw, unix.MSG_MORE)
			shut(t, raw)
		}, false, []error{io.EOF}},
		{"RST", func(t testing.TB, raw int) {
			send(t, raw, 0)
			reset(t, raw)
		}, false, []error{unix.ECONNRESET}},
		{"RST, found by a write", func(t testing.TB, raw int) {
			send(t, raw, 0)
			reset(t, raw)
		}, true, []error{unix.ECONNRESET, unix.EPIPE}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			g := open(t, Options{})
			type arrival struct {
				c    *Conn
				ends <-chan ended
			}
			accepted := make(chan arrival, 1)
			ln := listen(t, g, SocketOptions{}, func(c *Conn) Handler {
				h, out := collect()
				accepted <- arrival{c, out}
				return h
			})
			for i := range rounds {
				raw := dialRaw(t, ln.Addr(), 0)
				peer := await(t, accepted, "connection")
				release := hold(t, g.Loop(0), func() {
					if tc.write {
						if _, err := peer.c.Writev([][]byte{[]byte("frame")}); !errors.Is(err, ErrWouldBlock) {
							t.Errorf("write to a peer that is gone: %v, want it left to the reader", err)
						}
						peer.c.WantWrite(true)
					}
				})
				tc.leave(t, raw)
				release()
				end := await(t, peer.ends, "end of the connection")
				if end.got != report {
					t.Fatalf("round %d: got %q, want %q", i, end.got, report)
				}
				ok := false
				for _, want := range tc.want {
					ok = ok || errors.Is(end.err, want)
				}
				if !ok {
					t.Fatalf("round %d: ended with %v, want one of %v", i, end.err, tc.want)
				}
			}
		})
	}
}

func TestWritesToAGonePeerFailAtOnceWhenNobodyReads(t *testing.T) {
	g := open(t, Options{})
	h := &hooks{}
	raw, c := pair(t, g, h)
	on(t, g.Loop(0), func() { c.WantRead(false) })
	reset(t, raw)
	var err error
	on(t, g.Loop(0), func() {
		_, err = c.Writev([][]byte{[]byte("frame")})
	})
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		t.Errorf("got %v, want a reset", err)
	}
	var op *OpError
	if !errors.As(err, &op) || op.Peer != c.RemoteAddr() {
		t.Errorf("%v does not name the peer %v", err, c.RemoteAddr())
	}
}

func TestHungUpPeersCostNothing(t *testing.T) {
	drain := func(c *Conn) {
		buf := make([]byte, 64)
		_, _ = c.Readv([][]byte{buf})
	}
	cases := []struct {
		name   string
		h      *hooks
		setup  func(c *Conn)
		leave  func(t testing.TB, raw int)
		closed bool // by the loop
	}{
		{"end of stream that the handler ignores", &hooks{readable: drain}, nil, shut, false},
		{"reset that the handler ignores", &hooks{readable: drain}, nil, reset, true},
		{"reset that the handler does not read", &hooks{}, nil, reset, true},
		{"reset while only writing is wanted", &hooks{}, func(c *Conn) {
			c.WantRead(false)
			c.WantWrite(true)
		}, reset, true},
		{"reset while the failing write is ignored", &hooks{writable: func(c *Conn) {
			_, _ = c.Writev([][]byte{[]byte("x")})
		}}, func(c *Conn) {
			c.WantRead(false)
			c.WantWrite(true)
		}, reset, true},
		{"reset while nothing is wanted", &hooks{}, func(c *Conn) { c.WantRead(false) }, reset, false},
		{"urgent byte", &hooks{readable: drain}, nil, func(t testing.TB, raw int) {
			if err := unix.Send(raw, []byte("!"), unix.MSG_OOB); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { shut(t, raw) })
		}, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			g := open(t, Options{})
			l := g.Loop(0)
			gone := make(chan error, 1)
			tc.h.closed = func(_ *Conn, err error) { gone <- err }
			raw, c := pair(t, g, tc.h)
			release := hold(t, l, func() {
				if tc.setup != nil {
					tc.setup(c)
				}
			})
			tc.leave(t, raw)
			release()
			if tc.closed {
				if err := await(t, gone, "close"); err == nil || errors.Is(err, ErrClosed) {
					t.Errorf("closed with %v, want the peer's reason", err)
				}
			}
			// Five ticks of a timer: whatever spins is counted in thousands.
			var first, last uint64
			ticked := make(chan struct{})
			on(t, l, func() {
				first = l.events
				left := 5
				var tick *Timer
				tick = l.NewTimer(func() {
					if left--; left == 0 {
						last = l.events
						close(ticked)
						return
					}
					tick.ResetAt(l.Now() + 5*time.Millisecond)
				})
				tick.ResetAt(l.Now() + 5*time.Millisecond)
			})
			await(t, ticked, "ticks")
			if n := last - first; n > 20 {
				t.Errorf("%d events in 5 ticks: the loop spins", n)
			}
		})
	}
}
