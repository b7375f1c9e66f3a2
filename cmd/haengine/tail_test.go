package main

import (
	"bufio"
	"io"
	"testing"

	"github.com/haengine/haengine/remoting/client"
)

// A reader that always has the next message, as of a topic that is larger than
// memory, never makes tail wait.
func TestTailLetsGoOfWhatItHasPrinted(t *testing.T) {
	n := clientNode(t)
	expect(t, exitDone, n.at("put", "--topic", "load", "--count", "30", "--size", "16", "--queue", "0")...)
	c, err := client.New(client.Options{NameServers: []string{n.NamesrvListen}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.OpenReader(t.Context(), client.ReaderOptions{Topic: "load"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	tail := &tailer{out: bufio.NewWriter(io.Discard), pendingMost: 5} // all 30 come with one answer
	if err := tail.run(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if tail.printed != 30 {
		t.Errorf("%d messages are printed", tail.printed)
	}
	if most := cap(tail.pending); most > 8 {
		t.Errorf("room for %d messages that are printed was needed, want 5", most)
	}
}
