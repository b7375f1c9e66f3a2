package sim

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

// recorder reads all that arrives, and writes what is left when it may.
type recorder struct {
	socket *Socket
	got    []byte
	eof    bool
	left   []byte
	closed error
}

func (r *recorder) Readable() {
	buf := make([]byte, 100)
	for {
		n, err := r.socket.Read(buf)
		r.got = append(r.got, buf[:n]...)
		r.eof = err == io.EOF
		if n == 0 {
			return
		}
	}
}

func (r *recorder) Writable()        { r.left = r.left[r.socket.Write(r.left):] }
func (r *recorder) Closed(err error) { r.closed = err }

func newPair(seed uint64) (*Clock, *recorder, *recorder) {
	c := &Clock{}
	n := &Network{Clock: c, Random: rand.New(rand.NewPCG(seed, 0)), DelayMax: time.Second, PieceMax: 7, Room: 50}
	a, b := n.Connect()
	ra, rb := &recorder{socket: a}, &recorder{socket: b}
	a.Serve(ra)
	b.Serve(rb)
	return c, ra, rb
}

func run(c *Clock, until time.Duration) {
	for c.Step(until) {
	}
}

func TestStreamArrivesWholeAndInOrder(t *testing.T) {
	for seed := range uint64(50) {
		c, a, b := newPair(seed)
		want := make([]byte, 1000)
		for i := range want {
			want[i] = byte(i * 7)
		}
		a.left = want
		a.Writable()
		if len(a.left) != 950 {
			t.Fatalf("a way with room for 50 bytes took %d", 1000-len(a.left))
		}
		b.left = []byte("back")
		b.Writable()
		for len(a.left) > 0 && c.Step(time.Hour) {
		}
		a.socket.Close(ErrClosed)
		run(c, 2*time.Hour)
		if !bytes.Equal(b.got, want) || !b.eof || b.closed != nil || string(a.got) != "back" || a.closed != ErrClosed {
			t.Fatalf("seed %d: %d bytes, eof %v, closed %v and %v, back %q", seed, len(b.got), b.eof, a.closed, b.closed, a.got)
		}
	}
}

func TestSilenceDelaysOneDirection(t *testing.T) {
	c, a, b := newPair(1)
	a.socket.Silence(time.Minute)
	a.left, b.left = []byte("there"), []byte("back")
	a.Writable()
	b.Writable()
	run(c, 59*time.Second)
	if string(b.got) != "" || string(a.got) != "back" {
		t.Errorf("in the silence %q and %q", b.got, a.got)
	}
	run(c, 61*time.Second)
	if string(b.got) != "there" {
		t.Errorf("after it %q", b.got)
	}
}

func TestBrokenConnectionTellsWhomItShould(t *testing.T) {
	for _, told := range [][2]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
		c, a, b := newPair(1)
		a.left = []byte("lost")
		a.Writable()
		a.socket.Silence(time.Second)
		a.socket.Break(told[0], told[1])
		run(c, time.Hour)
		if errors.Is(a.closed, ErrReset) != told[0] || errors.Is(b.closed, ErrReset) != told[1] || len(b.got) != 0 {
			t.Errorf("told %v: %v and %v, %q arrived", told, a.closed, b.closed, b.got)
		}
	}
}

func TestClockRunsEventsInOrder(t *testing.T) {
	var c Clock
	var got []int
	c.At(2, func() { got = append(got, 3) })
	c.At(1, func() { got = append(got, 1); c.At(0, func() { got = append(got, 2) }) })
	c.At(2, func() { got = append(got, 4) })
	run(&c, 10)
	if len(got) != 4 || got[0] != 1 || got[1] != 2 || got[2] != 3 || got[3] != 4 || c.Now() != 10 || c.Crowd() != 2 {
		t.Errorf("order %v at %v, crowd %d", got, c.Now(), c.Crowd())
	}
}
