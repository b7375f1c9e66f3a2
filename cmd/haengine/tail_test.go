package main

import (
	"bufio"
	"context"
	"io"
	"testing"

	"github.com/haengine/haengine/remoting/client"
)

// endlessSource always has a message at once, until there were so many.
type endlessSource struct {
	left, out, mostOut int
	body               []byte
}

func (s *endlessSource) TryNext() (*client.Received, error) {
	if s.left--; s.left < 0 {
		return nil, io.EOF
	}
	s.out++
	s.mostOut = max(s.mostOut, s.out)
	return &client.Received{Content: s.body}, nil
}

func (s *endlessSource) Next(context.Context) (*client.Received, error) { return s.TryNext() }

func (s *endlessSource) Consumed(*client.Received) { s.out-- }

// A topic that is long, or fed faster than it is printed, is neither kept in memory
// nor left unsaid to its group until the end.
func TestATailLetsGoOfWhatItHasPrinted(t *testing.T) {
	s := &endlessSource{left: 10 * tailPending, body: []byte("x")}
	tailer := &tailer{out: bufio.NewWriter(io.Discard)}
	if err := tailer.run(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if tailer.printed != 10*tailPending || s.out != 0 || s.mostOut > tailPending {
		t.Errorf("%d are printed, %d are not said to be consumed, at most %d were at once", tailer.printed, s.out, s.mostOut)
	}
}

// Messages of a few KiB, compressed, may have 64 MiB each when they are printed.
func TestATailLetsGoOfLongMessagesSooner(t *testing.T) {
	s := &endlessSource{left: tailPending, body: make([]byte, tailPendingBytes/4)}
	tailer := &tailer{out: bufio.NewWriter(io.Discard)}
	if err := tailer.run(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if s.out != 0 || s.mostOut > 4 {
		t.Errorf("%d are not said to be consumed, at most %d were at once, want 4", s.out, s.mostOut)
	}
}
