package sim

import (
	"bytes"
	"errors"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// client is a slave's side of one connection: it drives the follower as the
// engine does (receive.go there, but reads nothing ahead), and plays the kernel that writes into the
// segment.
type client struct {
	slave  *slave
	node   *Node
	socket *Socket
	out    []byte // what is left of a report

	unpublished int  // body bytes received past the log's end
	paused      bool // the next segment is not there yet
	preparing   bool // work off the loop goes on before the next byte is taken
	armed       time.Duration

	began   bool  // in RocketMQ's protocol …
	overlap int64 // … with so many bytes to compare
}

func (c *client) Readable() {
	for !c.socket.Over() && !c.paused && !c.preparing {
		took, err := c.receive()
		if err != nil {
			c.socket.Close(err)
			return
		}
		if took == 0 {
			break
		}
	}
	c.turn()
}

// receive reads once, to where the follower wants the bytes.
func (c *client) receive() (int, error) {
	f, n, now := c.slave.follower, c.node, c.node.world.clock.Now()
	want := f.Want()
	if want.Kind == transfer.WantStore {
		return c.store(want)
	}
	buf := make([]byte, min(want.Bytes, 700))
	got, err := c.socket.Read(buf)
	if got == 0 {
		return 0, err
	}
	buf = buf[:got]
	if want.Kind == transfer.WantHeader {
		return got, c.header(buf)
	}
	own := make([]byte, got)
	if _, err := n.log.ReadAt(own, want.Offset); err != nil {
		return got, err
	}
	if bytes.Equal(own, buf) {
		return got, f.Compared(int64(got), -1, now)
	}
	equal := 0
	for own[equal] == buf[equal] {
		equal++
	}
	return got, f.Compared(int64(equal), want.Offset+int64(equal), now)
}

func (c *client) header(b []byte) error {
	f, n := c.slave.follower, c.node
	if _, err := f.Header(b, n.span(), n.world.clock.Now()); err != nil {
		return err
	}
	if hello, waits := f.Greeting(); waits {
		c.greeted(hello)
	} else if f.Extended() {
		c.heard()
	}
	return nil
}

// store reads body bytes into the segment.
func (c *client) store(want transfer.Want) (int, error) {
	s, n := c.slave, c.node
	room, err := c.room(min(want.Bytes, 700))
	if errors.Is(err, commitlog.ErrSegmentPending) {
		c.paused = true
		n.stir()
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	body := room[c.unpublished:]
	got, err := c.socket.Read(body)
	if got == 0 {
		return 0, err
	}
	c.unpublished += got
	publish := s.follower.Stored(int64(got), n.world.clock.Now())
	if publish == 0 {
		return got, nil
	}
	if err := n.log.Publish(int(publish)); err != nil {
		return got, err
	}
	c.unpublished -= int(publish)
	s.backoff.Succeeded()
	if n.world.cfg.Ack == transfer.Flushed || s.follower.Source().FlushWanted {
		n.log.RequestFlush(n.log.EndOffset())
	}
	n.stir()
	return got, nil
}

// room gives up to want of the segment's free bytes, behind those that came; an empty
// log is begun where the master's first frame says.
func (c *client) room(want int64) ([]byte, error) {
	f, l := c.slave.follower, c.node.log
	base, ok := f.StartOffset()
	if ok && l.EndOffset() == 0 && c.unpublished == 0 {
		if err := l.StartAt(base); err != nil {
			return nil, err
		}
		c.node.loadTerms()
		if f.SkipByte() {
			if _, err := l.Reserve(1); err != nil {
				return nil, err
			}
			if err := l.Publish(1); err != nil {
				return nil, err
			}
		}
	}
	return l.Reserve(int64(c.unpublished) + want)
}

// resume goes on when the next segment is there.
func (c *client) resume() {
	if !c.paused || c.preparing || c.socket.Over() {
		return
	}
	c.paused = false
	c.Readable()
}

// turn reports and sets the timer after something happened.
func (c *client) turn() {
	if c.socket.Over() {
		return
	}
	s, n, now := c.slave, c.node, c.node.world.clock.Now()
	if len(c.out) == 0 {
		if offset, ok := s.follower.FallBack(n.span(), now); ok {
			s.confirmed, s.onReplicas = -1, false
			c.report(offset, now)
		}
	}
	if len(c.out) == 0 {
		if s.follower.Extended() {
			s.follower.SetAcks(n.durableNow(), n.damaged())
		}
		if offset, due := s.follower.NextReport(s.acknowledged(), now); due {
			c.report(offset, now)
		}
	}
	c.rearm()
}

func (c *client) report(offset int64, now time.Duration) {
	f := c.slave.follower
	if offset >= 0 && !f.Extended() && !c.began {
		c.began, c.overlap = true, c.node.log.EndOffset()-offset
	}
	c.node.claims.reported(c, offset)
	c.out = f.AppendReport(nil, offset)
	f.Reported(offset, now)
	c.flush()
}

// flush hands the socket what is left of a report.
func (c *client) flush() {
	for len(c.out) > 0 {
		n := c.socket.Write(c.out[:1+c.node.world.random.IntN(len(c.out))])
		if n == 0 {
			return
		}
		c.out = c.out[n:]
	}
}

func (c *client) Writable() {
	c.flush()
	if len(c.out) == 0 {
		c.turn()
	}
}

func (c *client) rearm() {
	at := c.slave.follower.Deadline()
	if c.socket.Over() || at >= c.armed {
		return
	}
	c.armed = at
	c.node.at(at, func() {
		if c.socket.Over() || c.armed != at {
			return
		}
		c.armed = never
		if err := c.slave.follower.Expired(c.node.world.clock.Now()); err != nil {
			c.socket.Close(err)
			return
		}
		c.turn()
	})
}

func (c *client) Closed(err error) {
	if c.slave.client == c {
		c.slave.ended(c, err)
	}
}
