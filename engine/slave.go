package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
)

const (
	dialTimeout      = time.Second
	resolveTimeout   = 5 * time.Second
	overlapBytes     = 64 << 10
	receivedPerTurn  = 4 << 20  // bytes after which a turn of the loop takes no more from the master
	frameBytesLimit  = 64 << 20 // a larger frame is no RocketMQ master's
	reasonConnect    = "connect"
	reasonLost       = "lost"
	reasonSilence    = "silence"
	reasonRefused    = "refused"
	reasonDiverged   = "diverged"
	reasonProtocol   = "protocol"
	reasonLogTrouble = "log"
	reasonAuth       = "auth"
)

// reasons are the values of reconnects_total{reason}.
var reasons = []string{reasonConnect, reasonLost, reasonSilence, reasonRefused, reasonDiverged, reasonProtocol, reasonLogTrouble, reasonAuth}

// slave is the connection to the master, one after another (RocketMQ HAClient):
// dial, report, receive into the segment, acknowledge, reconnect. It carries
// out what its follower decides. Loop-confined, as all fields unless they say
// otherwise.
type slave struct {
	e        *Engine
	master   string // HOST:PORT; never changes
	address  string // that the connection goes to; stored before work off the loop begins
	log      *commitlog.Log
	loop     *reactor.Loop
	follower *transfer.Follower
	backoff  *transfer.Backoff
	conn     *reactor.Conn // nil between connections
	timer    *reactor.Timer
	armed    time.Duration // when timer fires; never when it is not set
	wake     *reactor.Waker
	ready    *reactor.Waker

	header      [transfer.ExtendedHeaderBytes]byte
	compare     []byte // what comes again of our own end, and messages
	own         []byte // our own bytes beside it
	iov         [2][]byte
	ahead       []byte // of beyond: bytes that were read and not taken yet
	beyond      [aheadBytes]byte
	small       bool // the last body had aheadBytes at most
	unpublished int  // body bytes received past the log's end
	splices     bool // the body that is being received goes through the file
	readsOnly   bool // there is no splice here
	paused      bool // the next segment is not there yet
	preparing   bool // work off the loop goes on before the next byte is taken
	working     bool // that work goes on, whatever became of the connection
	dialLater   bool // when it is done

	space   [transfer.ExtendedReportBytes]byte // of a report
	out     []byte                             // what the socket had no room for
	grown   bool                               // bytes were published on this connection
	epoch   transfer.Epoch                     // the last that our log has
	cluster string                             // the master's

	extended   atomic.Bool  // the connection speaks the extended protocol; stored by the loop
	plain      atomic.Bool  // it speaks RocketMQ's, or the last one did; stored by the loop
	spoke      atomic.Bool  // the master has said something on it; stored by the loop
	confirmed  atomic.Int64 // up to where the master said its puts to be complete, -1: it speaks RocketMQ's protocol; stored by the loop
	onReplicas atomic.Bool  // and that these are on replicas; stored by the loop
	aligned    atomic.Bool  // a master has shown that what we hold is its history; stored by the loop
	doubtful   atomic.Bool  // the end of the log may be no master's history; stored before start, then by the loop

	context context.Context // of name look-ups, as cancel; neither changes
	cancel  context.CancelFunc
	lookups sync.WaitGroup // any goroutine; and the work that pauseFor began, and the comparison

	comparing comparing
	cuts      atomic.Int64  // how often our log was cut
	ended     chan struct{} // closed when the connection is over after stop

	door   slaveDoor   // of our own replicas
	later  atomic.Bool // the next dial is not to be soon; stored by work off the loop
	broken error       // the log's trouble: no further connection
	over   bool

	shared struct {
		sync.Mutex
		source    transfer.Source
		caughtUp  time.Duration // when the log last reached what the master said to have
		state     string
		address   string
		lastError string
		trouble   *Trouble // of this state; never edited
		connected string   // address of the extended connection, and
		node      string   // replica id of the master at its end
	}
}

func newSlave(e *Engine, master string) *slave {
	loop := e.group.Next()
	s := &slave{
		e: e, master: master, log: e.log, loop: loop, ended: make(chan struct{}),
		backoff: transfer.NewBackoff(rand.Int64N),
		compare: make([]byte, overlapBytes), own: make([]byte, overlapBytes),
		follower: transfer.NewFollower(transfer.FollowerConfig{
			SegmentBytes: e.log.SegmentBytes(), Heartbeat: e.opts.Heartbeat, Housekeeping: e.opts.Housekeeping,
			OverlapBytes: overlapBytes, FrameBytesLimit: frameBytesLimit, LastSegment: e.opts.From == FromLastSegment, Elsewhere: e.opts.From > 0,
			Extended: e.opts.Wire == WireAuto, HelloWait: e.opts.HelloWait, Secret: e.opts.HASecret,
		}),
	}
	s.confirmed.Store(-1)
	s.door.master = e.master
	if e.identityNow().Differs {
		s.door.close(&transfer.RefusalError{Code: transfer.RefusedDiverged, Text: "this node's log is known to differ from its master's"})
	}
	s.context, s.cancel = context.WithCancel(context.Background())
	s.timer = loop.NewTimer(s.due)
	s.wake = loop.NewWaker(func() {
		if s.conn != nil {
			s.sendReport(s.loop.Now())
		}
	})
	s.ready = loop.NewWaker(s.resume)
	s.shared.address, s.shared.state = master, transfer.FollowerConnecting.String()
	return s
}

func (s *slave) start() {
	s.loop.Post(s.dial)
	if s.e.opts.CompareInterval > 0 {
		s.lookups.Add(1)
		go s.compareAgain()
	}
}

// stop ends the connection and waits until the loop has let go of the log.
func (s *slave) stop() {
	s.cancel()
	defer s.door.open()
	defer s.lookups.Wait()
	if !s.loop.Post(func() {
		if s.over {
			return
		}
		s.over = true
		s.timer.Stop()
		if s.conn != nil {
			s.conn.Close(ErrClosed)
		} else {
			close(s.ended)
		}
	}) {
		return
	}
	<-s.ended
}

// flushed and segmentReady are told by the log; any goroutine.
func (s *slave) flushed() {
	if s.e.opts.Ack == AckFlushed || s.extended.Load() {
		s.wake.Wake()
	}
}
func (s *slave) segmentReady() { s.ready.Wake() }

// diskTrouble ends replication: what this log holds from here on cannot be trusted.
// Any goroutine.
func (s *slave) diskTrouble(err error) {
	s.loop.Post(func() {
		s.broken = err
		if s.conn != nil {
			s.refuse(&transfer.RefusalError{Code: transfer.RefusedDamaged, Text: err.Error()})
		} else {
			s.noteBroken()
		}
	})
}

func (s *slave) held() transfer.Range {
	return transfer.Range{Min: s.log.MinOffset(), End: s.log.EndOffset()}
}

// acknowledged is what the slave reports to have received: all it holds, or with
// --ack flushed what is durable and was checked, in either protocol.
func (s *slave) acknowledged() transfer.Range {
	r := s.held()
	if s.e.opts.Ack == AckFlushed {
		r.End = min(s.log.FlushedOffset(), s.log.DispatchedOffset())
	}
	return r
}

// dial resolves the master's name anew and tries each address.
func (s *slave) dial() {
	if s.over || s.broken != nil {
		return
	}
	if s.working {
		s.dialLater = true
		return
	}
	s.lookups.Add(1)
	go func() {
		defer s.lookups.Done()
		var addrs []netip.AddrPort
		var err error
		if s.e.opts.Ack == AckFlushed {
			// The first report acknowledges, too.
			if err = s.log.Flush(); err == nil {
				err = s.log.AwaitChecked(s.e.opts.Housekeeping)
			}
		}
		if err == nil {
			addrs, err = resolve(s.context, s.master)
		}
		s.loop.Post(func() { s.resolved(addrs, err) })
	}()
}

func resolve(ctx context.Context, master string) ([]netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port %q: %w", port, err)
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		addrs[i] = netip.AddrPortFrom(ip.Unmap(), uint16(number))
	}
	return addrs, nil
}

func (s *slave) resolved(addrs []netip.AddrPort, err error) {
	if err == nil && len(addrs) == 0 {
		err = errors.New("the name has no address")
	}
	if err != nil {
		s.unreachable(err)
		return
	}
	s.dialFirst(addrs)
}

// dialFirst tries the first address and, if it fails, those after it.
func (s *slave) dialFirst(addrs []netip.AddrPort) {
	if s.over || s.broken != nil {
		return
	}
	s.loop.Dial(addrs[0], s.e.socketOptions(), dialTimeout, func(c *reactor.Conn, err error) reactor.Handler {
		switch {
		case s.over || s.broken != nil:
			return nil
		case err == nil:
			s.connected(c)
			return s
		case len(addrs) > 1:
			s.dialFirst(addrs[1:])
		default:
			s.unreachable(err)
		}
		return nil
	})
}

func (s *slave) unreachable(err error) {
	if s.over || s.broken != nil {
		return
	}
	s.follower.Ended(err, s.loop.Now())
	s.lost(fmt.Errorf("connect to master %s: %w", s.master, err), reasonConnect)
}

func (s *slave) connected(c *reactor.Conn) {
	now := s.loop.Now()
	s.conn, s.paused, s.preparing, s.grown, s.splices, s.small = c, false, false, false, false, false
	s.ahead, s.out = nil, nil
	s.armed = never
	s.address = c.RemoteAddr().String()
	s.follower.SetPeer(s.address, len(*s.e.terms.Load()) > 0)
	first := s.follower.Begin(s.held(), now)
	if s.follower.Plain() {
		s.plain.Store(true)
	}
	if err := s.follower.Expired(now); err != nil {
		c.Close(err)
		return
	}
	s.writeReport(first, now)
	s.noteState()
	s.rearm()
}

// sendReport sends a report if one is due and the last one is out.
func (s *slave) sendReport(now time.Duration) {
	if s.conn == nil || len(s.out) > 0 {
		return
	}
	if offset, ok := s.follower.FallBack(s.held(), now); ok {
		s.confirmed.Store(-1)
		s.onReplicas.Store(false)
		s.plain.Store(true)
		if err := s.follower.Expired(now); err != nil {
			s.conn.Close(err)
			return
		}
		s.writeReport(offset, now)
		return
	}
	if s.follower.Extended() {
		s.follower.SetAcks(min(s.log.FlushedOffset(), s.log.DispatchedOffset()), s.damaged())
	}
	if offset, due := s.follower.NextReport(s.acknowledged(), now); due {
		s.writeReport(offset, now)
	}
}

func (s *slave) writeReport(offset int64, now time.Duration) {
	s.out = s.follower.AppendReport(s.space[:0], offset)
	s.follower.Reported(offset, now)
	s.flushOut()
}

func (s *slave) flushOut() {
	s.iov[0] = s.out
	n, err := s.conn.Writev(s.iov[:1])
	s.out = s.out[max(n, 0):]
	if err != nil && !errors.Is(err, reactor.ErrWouldBlock) {
		s.conn.Close(err)
		return
	}
	s.conn.WantWrite(len(s.out) > 0)
}

// Writable goes on with what the socket had no room for.
func (s *slave) Writable(*reactor.Conn) {
	if len(s.out) > 0 {
		s.flushOut()
	}
	if len(s.out) == 0 {
		s.sendReport(s.loop.Now())
	}
}

// Closed zeroes what was received past the published end, before anyone is told
// an offset, and plans the next dial.
func (s *slave) Closed(_ *reactor.Conn, err error) {
	s.conn = nil
	s.extended.Store(false)
	s.spoke.Store(false)
	if s.unpublished > 0 {
		if derr := s.log.Discard(s.unpublished); derr != nil {
			// An offset told from here on would stand for other bytes.
			s.broken = fmt.Errorf("bytes received past the end could not be zeroed: %w", derr)
			s.e.opts.Logger.Error("replication has ended until a restart", "error", s.broken)
		}
		s.unpublished = 0
	}
	s.follower.Ended(err, s.loop.Now())
	if s.over {
		close(s.ended)
		return
	}
	if s.broken != nil {
		s.e.opts.Metrics.Reconnect(reasonLogTrouble)
		s.noteBroken()
		return
	}
	s.lost(err, s.lossReason(err))
}

func (s *slave) lossReason(err error) string {
	var frame *transfer.FrameError
	var refusal *transfer.RefusalError
	switch {
	case errors.As(err, &refusal) && refusal.Code == transfer.RefusedAuth:
		return reasonAuth
	case errors.Is(err, transfer.ErrDiverged):
		return reasonDiverged
	case errors.Is(err, transfer.ErrRefused):
		return reasonRefused
	case errors.Is(err, transfer.ErrSilent):
		return reasonSilence
	case errors.As(err, &frame):
		return reasonProtocol
	case errors.Is(err, commitlog.ErrReadOnly), errors.Is(err, commitlog.ErrCorrupt), errors.Is(err, commitlog.ErrSegmentUnavailable):
		return reasonLogTrouble
	case s.follower.State() == transfer.FollowerRefused, errors.Is(err, transfer.ErrFirstSegmentGone):
		return reasonRefused
	}
	return reasonLost
}

// lost plans the next dial: soon after a loss, later after a refusal.
func (s *slave) lost(err error, reason string) {
	wait := s.backoff.Lost
	var refusal *transfer.RefusalError
	switch state := s.follower.State(); {
	case errors.As(err, &refusal) && refusal.Code == transfer.RefusedStopping && !s.later.Swap(false): // back soon
	case refusal != nil, state == transfer.FollowerDiverged, state == transfer.FollowerRefused, reason == reasonLogTrouble:
		wait = s.backoff.Refused
	}
	if why := s.follower.Reason(); why != "" && s.follower.State() != transfer.FollowerConnecting {
		err = explained{err, why} // says more than how the connection ended
	}
	s.e.opts.Metrics.Reconnect(reason)
	s.e.steady.warn("master-"+reason, "connection to the master ended; it is tried again",
		"master", s.master, "state", s.follower.State().String(), "reason", sentence(err), "end_offset", s.log.EndOffset())
	s.note(s.follower.State(), refusal, err)
	s.armed = s.loop.Now() + wait()
	s.timer.ResetAt(s.armed)
}

// explained is an error with a better text.
type explained struct {
	error
	text string
}

func (e explained) Error() string { return e.text }
func (e explained) Unwrap() error { return e.error }

// due runs when time alone may have changed something: the connection's
// deadlines, or the next dial's time.
func (s *slave) due() {
	s.armed = never
	if s.conn == nil {
		s.dial()
		return
	}
	now := s.loop.Now()
	if err := s.follower.Expired(now); err != nil {
		s.conn.Close(err)
		return
	}
	s.noteState()
	s.sendReport(now)
	s.rearm()
}

func (s *slave) rearm() {
	if s.conn == nil {
		return
	}
	if at := s.follower.Deadline(); at < s.armed {
		s.armed = at
		s.timer.ResetAt(at)
	}
}
