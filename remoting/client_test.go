package remoting

import (
	"context"
	"net"
	"testing"
	"time"
)

// A name server that has stopped reading must not keep a node from ending.
func TestACallDoesNotWriteLongerThanItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // connections wait to be accepted: nobody reads
	c, err := Dial(t.Context(), l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	for err == nil {
		_, err = c.Call(ctx, &Command{Body: make([]byte, FrameBytesMax/2)})
	}
	if took := time.Since(began); took > writeTimeout/2 {
		t.Errorf("a call with %v took %v: %v", 50*time.Millisecond, took, err)
	}
	<-c.Done() // half of a frame is written: nothing can follow
}
