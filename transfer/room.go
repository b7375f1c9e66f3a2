package transfer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

// ErrRingClosed means there will be no more room because the ring, or the
// queue of completions, was closed.
var ErrRingClosed = errors.New("waiter ring closed")

// room counts the free places of a bounded buffer, so that a put knows it has
// a place before it writes anything. Taking a place is one compare-and-swap.
// Whoever finds none may wait in line; places that come free go to the line
// first, in order, so a waiting put is not overtaken for ever by newcomers.
//
// Invariant: 0 <= used <= size, closedRoom apart. Closing is one bit of the
// count, so no place can be taken after it by one who looked before it.
//
// No wake-up is lost. One who waits first shows itself (waiting) and then
// looks at used; one who frees first lowers used and then looks at waiting.
// All four are sequentially consistent, so at least one sees the other, and
// both end in grantLocked, which serves the line while there is room.
type room struct {
	size    int64        // fixed from the start
	waiting atomic.Int64 // length of the line; written under mu, rarely
	_       cpu.CacheLinePad
	used    atomic.Int64 // places taken, plus closedRoom: every producer and the pass contend here
	_       cpu.CacheLinePad
	mu      sync.Mutex // guards the line and spare
	line    struct{ first, last *placeWaiter }
	// spare keeps the channels of past waits, for a producer that outruns its
	// replicas always waits for room. As many as ever stood in line at once,
	// and this room's only: a channel made in one test bubble must not turn
	// up in another.
	spare *placeWaiter
}

// closedRoom in room.used is more than any size: nothing fits any more.
const closedRoom = 1 << 62

// placeWaiter is one who stands in line. All but ready is guarded by room.mu
// until ready is signalled, and belongs to the one who waits from then on.
type placeWaiter struct {
	ready      chan struct{} // capacity 1; signalled once each time it stands in line
	prev, next *placeWaiter
	called     bool  // it left the line: with a place, or with err
	err        error // of the wait, once it is over
}

// take takes a place unless there is none or somebody waits for one.
func (m *room) take() bool { return m.waiting.Load() == 0 && m.takeAny() }

// takeAny takes a place if there is one. It never passes size, even for a
// moment: an add that is taken back would hide a free place from others.
func (m *room) takeAny() bool {
	for {
		used := m.used.Load()
		if used >= m.size {
			return false
		}
		if m.used.CompareAndSwap(used, used+1) {
			return true
		}
	}
}

// wait takes a place as soon as there is one. It returns the context's cause,
// or ErrRingClosed, and takes none then.
func (m *room) wait(ctx context.Context) error {
	if m.take() {
		return nil
	}
	step()
	m.mu.Lock()
	if m.closed() {
		m.mu.Unlock()
		return ErrRingClosed
	}
	w := m.pushLocked()
	m.grantLocked()
	m.mu.Unlock()

	came := false
	select {
	case <-w.ready:
		came = true
	case <-ctx.Done():
	}
	step()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !w.called {
		m.removeLocked(w)
		w.err = context.Cause(ctx)
	} else if !came {
		// Called at the very moment the context ended: what came counts, for
		// the caller can give a place back and we cannot.
		<-w.ready
	}
	err := w.err
	w.next, m.spare = m.spare, w
	return err
}

// free gives n places back and calls those in line.
func (m *room) free(n int) {
	m.used.Add(-int64(n))
	step()
	if m.waiting.Load() != 0 {
		m.mu.Lock()
		m.grantLocked()
		m.mu.Unlock()
	}
}

// close refuses everybody from here on, those in line included.
func (m *room) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed() {
		m.used.Add(closedRoom)
	}
	for w := m.line.first; w != nil; w = m.line.first {
		m.callLocked(w, ErrRingClosed)
	}
}

func (m *room) closed() bool { return m.used.Load() >= closedRoom }

// taken returns how many places are taken.
func (m *room) taken() int { return int(m.used.Load() &^ closedRoom) }

func (m *room) grantLocked() {
	for w := m.line.first; w != nil && m.takeAny(); w = m.line.first {
		m.callLocked(w, nil)
	}
}

// callLocked ends w's wait. The send cannot block: ready holds one, and w is
// called once.
func (m *room) callLocked(w *placeWaiter, err error) {
	m.removeLocked(w)
	w.called, w.err = true, err
	w.ready <- struct{}{}
}

// pushLocked puts a new wait at the end of the line.
func (m *room) pushLocked() *placeWaiter {
	w := m.spare
	if w == nil {
		w = &placeWaiter{ready: make(chan struct{}, 1)}
	} else {
		m.spare = w.next
	}
	*w = placeWaiter{ready: w.ready, prev: m.line.last}
	if m.line.last == nil {
		m.line.first = w
	} else {
		m.line.last.next = w
	}
	m.line.last = w
	m.waiting.Add(1)
	return w
}

func (m *room) removeLocked(w *placeWaiter) {
	if w.prev == nil {
		m.line.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		m.line.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	m.waiting.Add(-1)
}
