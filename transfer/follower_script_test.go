package transfer

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// followerScript is a follower with a log's range and a clock, driven by a
// script. It does what a driver does: it starts an empty log, publishes, and
// zeroes what a connection left behind.
//
//	new [segment=N] [overlap=N] [limit=N]   a new follower with an empty log
//	log MIN END        the log holds [MIN, END) from now on
//	at TIME            the time from now on
//	connect            Begin, and the first report is sent
//	header OFFSET N    a frame header;  bytes HEX: header bytes cut anywhere
//	equal N, differ N  N overlap bytes came and were equal; the one at offset N differs
//	store N            N body bytes came
//	want, report, expired, deadline, state
//	end [eof]          the connection is over: lost, or closed by the master
type followerScript struct {
	f   *Follower
	log Range
	now time.Duration
}

var errConnectionLost = errors.New("connection reset by peer")

func (p *followerScript) do(verb string, args []string) string {
	switch verb {
	case "new":
		p.open(args)
	case "log":
		p.log = Range{scriptInt(args[0]), scriptInt(args[1])}
	case "at":
		p.now = scriptTime(args[0])
	case "connect":
		r := p.f.Begin(p.log, p.now)
		p.f.Reported(r, p.now)
		return fmt.Sprintf("report %d, %v", r, p.f.State())
	case "header":
		return p.header(AppendFrame(nil, Frame{scriptInt(args[0]), int32(scriptInt(args[1]))}))
	case "bytes":
		b, err := hex.DecodeString(strings.Join(args, ""))
		if err != nil {
			panic(err)
		}
		return p.header(b)
	case "equal":
		return p.failed(p.f.Compared(scriptInt(args[0]), -1, p.now))
	case "differ":
		at := scriptInt(args[0])
		return p.failed(p.f.Compared(at-p.f.Want().Offset, at, p.now))
	case "store":
		if n := p.f.Stored(scriptInt(args[0]), p.now); n > 0 {
			p.log.End += n
			return fmt.Sprintf("published %d, log [%d, %d)", n, p.log.Min, p.log.End)
		}
		return fmt.Sprintf("unpublished %d", p.f.Unpublished())
	case "want":
		return p.want()
	case "report":
		if r, ok := p.f.NextReport(p.log, p.now); ok {
			p.f.Reported(r, p.now)
			return fmt.Sprintf("report %d", r)
		}
		return "no report"
	case "expired":
		return p.failed(p.f.Expired(p.now))
	case "deadline":
		return timeText(p.f.Deadline())
	case "end":
		err := p.f.Expired(p.now)
		if err == nil {
			if err = errConnectionLost; len(args) > 0 {
				err = io.EOF
			}
		}
		p.f.Ended(err, p.now)
		return p.state()
	case "state":
		return p.state()
	default:
		panic("no such verb: " + verb)
	}
	return ""
}

func (p *followerScript) open(args []string) {
	cfg := FollowerConfig{SegmentBytes: 4096, OverlapBytes: 256}
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "segment":
			cfg.SegmentBytes = scriptInt(value)
		case "overlap":
			cfg.OverlapBytes = scriptInt(value)
		case "limit":
			cfg.FrameBytesLimit = int32(scriptInt(value))
		default:
			panic("no such setting: " + key)
		}
	}
	p.f, p.log = NewFollower(cfg), Range{}
}

func (p *followerScript) header(b []byte) string {
	n, err := p.f.Header(b, p.log, p.now)
	if err != nil {
		return p.failed(err)
	}
	if n != len(b) {
		return fmt.Sprintf("took %d of %d bytes", n, len(b))
	}
	text := ""
	if base, ok := p.f.StartOffset(); ok && p.log.End == 0 {
		text = fmt.Sprintf("log starts at %d, ", base)
		p.log = Range{base, base}
		if p.f.SkipByte() {
			p.log.End++
			text += "skips a byte, "
		}
	}
	return text + p.want()
}

func (p *followerScript) want() string {
	w := p.f.Want()
	switch {
	case w.Bytes == 0:
		return "wants nothing"
	case w.Kind == WantHeader:
		return fmt.Sprintf("wants %d header bytes", w.Bytes)
	case w.Kind == WantCompare:
		return fmt.Sprintf("wants to compare [%d, %d)", w.Offset, w.Offset+w.Bytes)
	}
	return fmt.Sprintf("wants to store [%d, %d)", w.Offset, w.Offset+w.Bytes)
}

func (p *followerScript) failed(err error) string {
	if err != nil {
		return fmt.Sprintf("close: %v; %v", err, p.f.State())
	}
	return p.f.State().String()
}

func (p *followerScript) state() string {
	if reason := p.f.Reason(); reason != "" {
		return fmt.Sprintf("%v: %s", p.f.State(), reason)
	}
	return p.f.State().String()
}

func TestFollowerScripts(t *testing.T) {
	runScripts(t, "testdata/follower/*.script", func() func(string, []string) string {
		p := &followerScript{}
		p.open(nil)
		return p.do
	})
}
