package engine

import (
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/reactor"
	"github.com/haengine/haengine/transfer"
)

// How often a master looks at its replicas as a whole: retention and events.
const reviewInterval = time.Second

// never is the time of a timer that is not set.
const never time.Duration = math.MaxInt64

// master accepts replicas and sends them the log (RocketMQ HAService with
// AcceptSocketService). A slave that cascades has one too.
type master struct {
	e        *Engine
	listener *reactor.Listener
	hosts    []*host // one for each loop
	review   *reactor.Timer
	warned   bool // of long topics; the review's
	departed departures
	holds    atomic.Int32 // of those who keep the door closed: no connection is taken above 0

	mu struct {
		sync.Mutex
		replicas map[*replica]struct{} // made a valid first report
		attached map[*host]int         // connections on each loop
		stopped  bool
	}
}

// sendPause is the least time from one look at a growing log to the next while
// nobody waits for a replica: without it each asynchronous put of a single
// producer would cost master and slave four system calls and two wakes. The
// first record after a silence is sent at once, and so is all that a put waits
// for.
const sendPause = time.Millisecond

// host is a loop's share of the replicas. Loop-confined but for waker and
// resting.
type host struct {
	m        *master
	loop     *reactor.Loop
	waker    *reactor.Waker
	pause    *reactor.Timer
	resting  atomic.Bool // no look at the log before pause ends, unless a put waits; stored by the loop
	sent     int64       // where the log ended at the last look
	replicas []*replica
	read     [16 << 10]byte // reports are read here by all the loop's connections
	readv    [1][]byte
}

func newMaster(e *Engine) (*master, error) {
	m := &master{e: e}
	m.mu.replicas = map[*replica]struct{}{}
	m.mu.attached = map[*host]int{}
	for i := range e.group.Len() {
		h := &host{m: m, loop: e.group.Loop(i)}
		h.readv[0] = h.read[:]
		h.waker = h.loop.NewWaker(h.sendAll)
		h.pause = h.loop.NewTimer(h.rested)
		m.hosts = append(m.hosts, h)
	}
	if e.Role() == Slave {
		m.holds.Store(1) // until there is somebody who knows whether replicas may come
	}
	loop := e.group.Loop(0)
	m.review = loop.NewTimer(m.runReview)
	listener, err := e.group.Listen(e.opts.HAListen, e.socketOptions(), m.accept)
	if err != nil {
		return nil, err
	}
	m.listener = listener
	loop.Post(func() { m.review.ResetAt(loop.Now() + reviewInterval) })
	return m, nil
}

func (e *Engine) socketOptions() reactor.SocketOptions {
	return reactor.SocketOptions{
		SendBuffer: e.opts.SendBuffer, ReceiveBuffer: e.opts.ReceiveBuffer, Congestion: e.opts.Congestion,
		UserTimeout: e.opts.Housekeeping, KeepAlive: e.opts.Heartbeat,
	}
}

// stop ends the listener and keeps later connections out; the reactor's Close
// ends those that are open.
func (m *master) stop() {
	m.mu.Lock()
	m.mu.stopped = true
	m.mu.Unlock()
	if m.listener != nil {
		m.listener.Close()
	}
}

// accept runs on the loop that will own c.
func (m *master) accept(c *reactor.Conn) reactor.Handler {
	if m.holds.Load() > 0 || m.e.leaseEnded() {
		return nil
	}
	for _, h := range m.hosts {
		if h.loop == c.Loop() {
			return h.attach(c)
		}
	}
	return nil
}

// countConnection keeps the list of loops that wakeSenders tells.
func (m *master) countConnection(h *host, delta int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.attached[h] += delta
	senders := make([]*host, 0, len(m.hosts))
	for _, h := range m.hosts {
		if m.mu.attached[h] > 0 {
			senders = append(senders, h)
		}
	}
	m.e.senders.Store(&senders)
}

func (m *master) joined(r *replica) {
	m.departed.forget(r)
	m.mu.Lock()
	m.mu.replicas[r] = struct{}{}
	m.mu.Unlock()
	m.keep() // before retention takes what this replica needs
}

func (m *master) left(r *replica) {
	m.mu.Lock()
	delete(m.mu.replicas, r)
	m.mu.Unlock()
}

// list gives the replicas that made a valid first report, in no order.
func (m *master) list() []*replica {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*replica, 0, len(m.mu.replicas))
	for r := range m.mu.replicas {
		all = append(all, r)
	}
	return all
}

// runReview tells retention what replicas still need, and looks who fell out of
// sync without a word.
func (m *master) runReview() {
	end := m.e.served().End
	replicas := m.list()
	for _, r := range replicas {
		r.noteSync(end)
	}
	m.keep()
	m.warnOfLongTopics(replicas)
	m.review.ResetAt(m.e.group.Loop(0).Now() + reviewInterval)
}

// warnOfLongTopics says once that a replica is sent records which it may not be
// able to read: the plain protocol does not carry its version.
func (m *master) warnOfLongTopics(replicas []*replica) {
	topic := m.e.log.LongTopic()
	if m.warned || topic == "" || len(replicas) == 0 {
		return
	}
	m.warned = true
	m.e.opts.Logger.Warn("the log has a topic longer than 127 bytes, whose records are V2: a replica that is RocketMQ 4.x copies them, and stops reading at the first",
		"topic", topic)
}

// keep tells retention the lowest offset that a replica still needs.
func (m *master) keep() {
	keep := int64(math.MaxInt64)
	for _, r := range m.list() {
		keep = min(keep, r.acked.Load())
	}
	m.e.log.SetKeep(keep)
}

// repace gives all replicas the pace that is set for them now.
func (m *master) repace() {
	for _, h := range m.hosts {
		h.loop.Post(func() {
			for _, r := range slices.Clone(h.replicas) {
				if r.member == nil {
					continue // it gets its pace when it joins
				}
				r.session.SetPace(transfer.Pace(m.e.paces.of(r.identity)))
				if !r.blocked {
					r.send(h.loop.Now())
				}
			}
		})
	}
}

// endAll ends all connections for a reason. When it returns none is served or
// counted any more. Not for a loop.
func (m *master) endAll(why error) { m.end(why).Wait() }

// end is endAll that does not wait: what it returns does. For loops, too.
func (m *master) end(why error) *sync.WaitGroup {
	var all sync.WaitGroup
	for _, h := range m.hosts {
		all.Add(1)
		if !h.loop.Post(func() {
			defer all.Done()
			for _, r := range slices.Clone(h.replicas) {
				r.end(why)
			}
		}) {
			all.Done()
		}
	}
	return &all
}

// closeDoor ends all connections and takes no other until open is called, and all
// others who closed it have, too. Not for a loop.
func (m *master) closeDoor(why error) (open func()) {
	open = m.holdDoor()
	m.endAll(why)
	return open
}

// holdDoor takes no connection until open is called. Any goroutine.
func (m *master) holdDoor() (open func()) {
	m.holds.Add(1)
	return sync.OnceFunc(func() { m.holds.Add(-1) })
}

func (h *host) attach(c *reactor.Conn) reactor.Handler {
	e := h.m.e
	r := &replica{host: h, e: e, conn: c, address: c.RemoteAddr(), armed: never}
	r.flushed.Store(-1)
	r.damaged.Store(-1)
	var hello *transfer.Hello
	if e.opts.Wire == WireAuto {
		own := e.hello()
		own.Questions = transfer.QuestionLimits{Sums: transfer.QuestionSumsMax, Bytes: transfer.QuestionBytesMax}
		hello = &own
	}
	r.session = transfer.NewSession(transfer.SessionConfig{
		Hello: hello, Secret: e.opts.HASecret, Nonce: newNonce(),
		Peer:          r.address.String(),
		FrameBytesMax: int32(e.opts.FrameBytes), SegmentBytes: e.log.SegmentBytes(),
		HistoryFirst: e.opts.PlainHistory == HistoryFirst,
		Heartbeat:    e.opts.Heartbeat, Housekeeping: e.opts.Housekeeping,
	}, h.loop.Now())
	r.timer = h.loop.NewTimer(r.due)
	r.index = len(h.replicas)
	h.replicas = append(h.replicas, r)
	h.m.countConnection(h, 1)
	r.rearm()
	return r
}

func (h *host) detach(r *replica) {
	last := len(h.replicas) - 1
	h.replicas[r.index] = h.replicas[last]
	h.replicas[r.index].index = r.index
	h.replicas[last] = nil
	h.replicas = h.replicas[:last]
	if last == 0 {
		h.pause.Stop()
		h.resting.Store(false)
	}
	h.m.countConnection(h, -1)
}

// sendAll runs when the log has grown: replicas that are waiting for the socket
// go on when it is writable.
func (h *host) sendAll() {
	h.resting.Store(false)
	h.sent = h.m.e.served().End
	now := h.loop.Now()
	for i := len(h.replicas) - 1; i >= 0; i-- { // backwards: one that ends leaves
		if r := h.replicas[i]; !r.blocked {
			r.send(now)
		}
	}
	if len(h.replicas) > 0 && !h.m.e.rings.replicaAwaited() {
		h.resting.Store(true)
		h.pause.ResetAt(now + sendPause)
	}
}

// rested ends a pause. Who put meanwhile told nobody.
func (h *host) rested() {
	if h.resting.Swap(false) && h.m.e.served().End != h.sent {
		h.sendAll()
	}
}

// identityOf names a plain peer, whose protocol carries no name.
func (e *Engine) identityOf(a netip.AddrPort) string {
	if e.opts.PlainIdentity == IdentityConnection {
		return a.String()
	}
	return a.Addr().String()
}
