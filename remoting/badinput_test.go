package remoting

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// badFrames are what a connection does not survive: each was once seen to take a
// broker down, or waits for somebody to try.
func badFrames() map[string]struct {
	bytes []byte
	want  Reason
} {
	type bad = struct {
		bytes []byte
		want  Reason
	}
	return map[string]bad{
		"length 0":                           {unhex("00000000"), FrameTooShort},
		"header of 16 bytes in a frame of 8": {unhex("0000000400000010"), HeaderTooLong},
		"header type 127":                    {unhex("000000087F00000400000000"), HeaderType},
		"length -1":                          {unhex("FFFFFFFF"), FrameTooLong},
		"length 16 MiB and one":              {unhex("01000001"), FrameTooLong},
		"remark of 2 GiB":                    {rawFrame(1, string(unhex("000A00000100000007000000007FFFFFFF00000000")), ""), HeaderBinary},
		"ext fields of -1 bytes":             {rawFrame(1, string(unhex("000A000001000000070000000000000000FFFFFFFF")), ""), HeaderBinary},
		"header longer than its frame":       {unhex("00000010" + "00FFFFFF" + "7B7D"), HeaderTooLong},
		"JSON a thousand levels deep":        {rawFrame(0, deep(1000, "[", "]"), ""), HeaderJSON},
		"a header of nothing but fields":     {rawFrame(0, manyFields(1100), ""), HeaderFields},
	}
}

const (
	badTimes       = 10000
	badPieces      = 32  // of a frame that does not come whole; short ones come a byte at a time
	badBytewise    = 200 // times that long ones do, too
	badConnections = 8   // at once
)

func TestBadFramesCloseTheirConnectionAndNothingElse(t *testing.T) {
	for name, bad := range badFrames() {
		t.Run(name, func(t *testing.T) {
			times := badTimes
			if testing.Short() {
				times /= 100
			}
			s := listen(t, echo, ServerOptions{Loops: 2})
			other := dial(t, s, nil)
			ask(t, other, &Command{})
			over := make(chan struct{})
			var calls atomic.Int64
			var well sync.WaitGroup
			well.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
						ask(t, other, &Command{Body: []byte("well")})
						calls.Add(1)
					}
				}
			})
			sendMany(t, s, bad.bytes, times/10, len(bad.bytes)) // pools fill
			before := heapBytes()
			sendMany(t, s, bad.bytes, times, len(bad.bytes))
			sendMany(t, s, bad.bytes, times, max(len(bad.bytes)/badPieces, 1))
			sendMany(t, s, bad.bytes, min(badBytewise, times), 1)
			until(t, "they are gone", func() bool { return s.Connections() == 1 })
			close(over)
			well.Wait()
			if grown := heapBytes() - before; grown > 4<<20 {
				t.Errorf("memory grew by %d bytes", grown)
			}
			if got, want := s.Count(bad.want), int64(times/10+2*times+min(badBytewise, times)); got != want {
				t.Errorf("counted %d of %v, want %d", got, bad.want, want)
			}
			for reason, n := range s.Counts {
				if n > 0 && reason != bad.want.String() {
					t.Errorf("counted %d of %s, too", n, reason)
				}
			}
			if calls.Load() == 0 {
				t.Error("the other client was not answered")
			}
		})
	}
}

// sendMany sends bytes on many new connections, in pieces, and sees each closed
// without a word.
func sendMany(t *testing.T, s *Server, bytes []byte, times, piece int) {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(times))
	var all sync.WaitGroup
	for range badConnections {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := sendOnce(s, bytes, piece); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func sendOnce(s *Server, bytes []byte, piece int) error {
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	// So that thousands of them leave no port waiting.
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	for len(bytes) > 0 {
		n := min(piece, len(bytes))
		if _, err := c.Write(bytes[:n]); err != nil {
			break // it is closed already
		}
		bytes = bytes[n:]
	}
	var b [1]byte
	n, err := c.Read(b[:])
	var timeout net.Error
	if n > 0 || errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("a bad frame is answered, or not closed: %d bytes, %v", n, err)
	}
	return nil
}
