package transfer

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"
)

// sessionScript is a session with a log's range, a clock and the frame in
// flight, driven by a script:
//
//	new [segment=N] [frame=N] [first] [rate=N | live=N catchup=N] [border=N]   a new connection; the log stays
//	log MIN END        the log holds [MIN, END) from now on
//	at TIME            the time from now on
//	report N...        reports in one read;  bytes HEX: any bytes
//	next               asks Next;  send: asks it and sends all;  begin: the header only
//	body N             N more body bytes went out
//	drain              sends until nothing is due
//	pace LIVE CATCHUP  other rates from now on;  phase: which one holds
//	expired, deadline, state
type sessionScript struct {
	s     *Session
	log   Range
	now   time.Duration
	frame Frame
}

func (p *sessionScript) do(verb string, args []string) string {
	switch verb {
	case "new":
		return p.open(args)
	case "log":
		p.log = Range{scriptInt(args[0]), scriptInt(args[1])}
	case "at":
		p.now = scriptTime(args[0])
	case "report":
		var b []byte
		for _, a := range args {
			b = AppendReport(b, scriptInt(a))
		}
		return p.feed(b)
	case "bytes":
		b, err := hex.DecodeString(strings.Join(args, ""))
		if err != nil {
			panic(err)
		}
		return p.feed(b)
	case "next":
		f, ok := p.s.Next(p.log, p.now)
		return frameText(f, ok)
	case "begin", "send":
		f, ok := p.s.Next(p.log, p.now)
		if ok {
			p.frame = f
			p.s.Sent(f, 0, p.now)
			if verb == "send" {
				p.s.Sent(f, f.Bytes, p.now)
			}
		}
		return frameText(f, ok)
	case "body":
		p.s.Sent(p.frame, int32(scriptInt(args[0])), p.now)
		return fmt.Sprintf("sent %d", p.s.SentOffset())
	case "drain":
		var all []string
		for {
			text := p.do("send", nil)
			if text == "nothing" {
				return strings.Join(append(all, text), "\n")
			}
			all = append(all, text)
		}
	case "pace":
		p.s.SetPace(Pace{Live: scriptInt(args[0]), CatchUp: scriptInt(args[1])})
	case "phase":
		if p.s.CatchingUp() {
			return "catching up"
		}
		return "live"
	case "expired":
		if err := p.s.Expired(p.now); err != nil {
			return err.Error()
		}
		return "alive"
	case "deadline":
		return timeText(p.s.Deadline(p.log))
	case "state":
		return p.state()
	default:
		panic("no such verb: " + verb)
	}
	return ""
}

func (p *sessionScript) open(args []string) string {
	cfg := SessionConfig{Peer: "b", SegmentBytes: 4096, FrameBytesMax: 1024}
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "segment":
			cfg.SegmentBytes = scriptInt(value)
		case "frame":
			cfg.FrameBytesMax = int32(scriptInt(value))
		case "rate":
			cfg.Pace = Pace{Live: scriptInt(value), CatchUp: scriptInt(value)}
		case "live":
			cfg.Pace.Live = scriptInt(value)
		case "catchup":
			cfg.Pace.CatchUp = scriptInt(value)
		case "border":
			cfg.CatchUpBytes = scriptInt(value)
		case "first":
			cfg.HistoryFirst = true
		default:
			panic("no such setting: " + key)
		}
	}
	p.s = NewSession(cfg, p.now)
	return ""
}

func (p *sessionScript) feed(b []byte) string {
	if err := p.s.Feed(b, p.log, p.now); err != nil {
		return fmt.Sprintf("%v; connection closed, acked %d", err, p.s.Acked())
	}
	return p.state()
}

func (p *sessionScript) state() string {
	if !p.s.Started() {
		return "not started"
	}
	return fmt.Sprintf("acked %d, sent %d", p.s.Acked(), p.s.SentOffset())
}

func frameText(f Frame, ok bool) string {
	switch {
	case !ok:
		return "nothing"
	case f.Bytes == 0:
		return fmt.Sprintf("heartbeat at %d", f.Offset)
	}
	return fmt.Sprintf("frame [%d, %d)", f.Offset, f.End())
}

func TestSessionScripts(t *testing.T) {
	runScripts(t, "testdata/session/*.script", func() func(string, []string) string {
		p := &sessionScript{}
		p.open(nil)
		return p.do
	})
}
