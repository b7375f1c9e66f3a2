package remoting

import (
	"sync"
	"time"
)

// Why consumers' reads are not done on the event loops, although most of them
// only copy from memory: whether a page is in memory is known only once it has
// been touched, and a loop that waits for a disk keeps all its connections
// waiting. What a loop can answer from a few atomics, that a queue has nothing
// new, it does itself; that is what an idle consumer costs. Everything else goes
// to one of two pools of a fixed number of goroutines: first to the one for what
// is likely in memory, and from there to the other when the record turns out to
// be far behind the end of the log. So cold reads, however many and slow, occupy
// the second pool only, and read by system calls, in which the runtime gives the
// processor to others; the replication's loops never wait for them.

// lane is one of the pools. Peers take turns, and each has a few reads at once
// at most: one with thousands of queues delays nobody but itself.
type lane struct {
	perPeer int    // reads of one peer at once
	stall   func() // told when a peer has no room: unstall is to be called in a while

	mu      sync.Mutex
	work    sync.Cond
	ready   []*lanePeer // peers with work that may begin, in turn
	stalled []*lanePeer // peers that have work and no room for more bytes
	stopped bool
	served  int64 // tasks that were begun
	length  int   // tasks that wait, over all peers
	done    sync.WaitGroup
}

// lanePeer is a peer's share of a lane. Guarded by lane.mu.
type lanePeer struct {
	room    func() bool // whether a read may begin; any goroutine
	waiting []waitingTask
	running int
	listed  bool // in ready or stalled
}

// task is one read, on one of the lane's goroutines.
type task interface{ run() }

type waitingTask struct {
	task
	since time.Time
}

// taskFunc is a function that is a task.
type taskFunc func()

func (f taskFunc) run() { f() }

func newLane(readers, perPeer int, stall func()) *lane {
	l := &lane{perPeer: perPeer, stall: stall}
	l.work.L = &l.mu
	l.done.Add(readers)
	for range readers {
		go l.serve()
	}
	return l
}

// add puts a task behind the others of its peer. After stop it is done at once.
func (l *lane) add(p *lanePeer, t task) {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		t.run()
		return
	}
	p.waiting = append(p.waiting, waitingTask{t, time.Now()})
	l.length++
	l.listLocked(p)
	l.mu.Unlock()
}

// listLocked gives a peer its turn, if it has work and is not waiting for one.
func (l *lane) listLocked(p *lanePeer) {
	if p.listed || len(p.waiting) == 0 || p.running >= l.perPeer {
		return
	}
	p.listed = true
	if p.room != nil && !p.room() {
		l.stalled = append(l.stalled, p)
		l.stall()
		return
	}
	l.ready = append(l.ready, p)
	l.work.Signal()
}

// unstall looks again at the peers that had no room.
func (l *lane) unstall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	stalled := l.stalled
	l.stalled = nil
	for _, p := range stalled {
		p.listed = false
		l.listLocked(p)
	}
}

// stop ends the goroutines after all that waits; the tasks are expected to know
// that there is an end, and peers to have room.
func (l *lane) stop() {
	l.unstall()
	l.mu.Lock()
	l.stopped = true
	l.work.Broadcast()
	l.mu.Unlock()
	l.done.Wait()
}

// queue tells how many tasks wait, and how long the oldest of peers whose turn may
// come has waited: one that has no room waits for its client.
func (l *lane) queue(now time.Time) (length int, oldest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.ready {
		oldest = max(oldest, now.Sub(p.waiting[0].since))
	}
	return l.length, oldest
}

func (l *lane) serve() {
	defer l.done.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.ready) == 0 {
			if l.stopped {
				return
			}
			l.work.Wait()
		}
		p := l.ready[0]
		l.ready[0] = nil
		l.ready = l.ready[1:]
		p.listed = false
		t := p.waiting[0]
		p.waiting[0] = waitingTask{}
		p.waiting = p.waiting[1:]
		l.length--
		p.running++
		l.served++
		l.listLocked(p)
		l.mu.Unlock()
		t.run()
		l.mu.Lock()
		p.running--
		l.listLocked(p)
	}
}
