package reactor

import (
	"errors"
	"fmt"

	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"github.com/panjf2000/gnet/v2/pkg/queue"
	"golang.org/x/sys/unix"

	"github.com/haengine/haengine/internal/invariant"
)

// Bits of an event, as epoll reports them.
const (
	eventRead   = uint32(netpoll.ReadEvents)
	eventWrite  = uint32(netpoll.WriteEvents)
	eventHangUp = uint32(netpoll.ErrEvents)
)

// watchMode is what a watch is registered for.
type watchMode uint8

const (
	watchNone  watchMode = 0 // not in the epoll set: no event, not even a hang-up
	watchRead  watchMode = 1
	watchWrite watchMode = 2
	watchBoth  watchMode = watchRead | watchWrite
	watchEdge  watchMode = 4 // readable, edge triggered: needs no read to fall silent
)

// target is what owns a watched file descriptor.
type target interface {
	ready(events uint32) // epoll reported events
	abandon(err error)   // the loop ends: let go of the descriptor
}

// watch is a file descriptor's place in a poller. It is embedded in its
// owner, which keeps it alive: with gnet's poll_opt tag the kernel holds a
// pointer to the attachment that the garbage collector cannot see.
type watch struct {
	attachment netpoll.PollAttachment
	owner      target // nil: not attached
	mode       watchMode
}

// poller is gnet's netpoll.Poller with its corners covered. It finds the
// watch by descriptor, so that both builds of netpoll look alike; knows
// everything that is attached; and turns netpoll's task queue, which runs
// after the last event of a batch, into the end of a turn.
// Loop-confined.
type poller struct {
	netpoll *netpoll.Poller
	table   []*watch // by descriptor
	event   netpoll.PollEventHandler
	ending  queue.Func
	stopped bool
}

// openPoller makes a poller that calls onEvent for each event of an attached
// watch, and onTurnEnd at the end of the turn after endTurn was called.
func openPoller(onEvent func(w *watch, events uint32), onTurnEnd func()) (*poller, error) {
	np, err := netpoll.OpenPoller()
	if err != nil {
		return nil, fmt.Errorf("open poller: %w", err)
	}
	p := &poller{netpoll: np}
	p.event = func(fd int, events netpoll.IOEvent, _ netpoll.IOFlags) error {
		// Whatever was detached or silenced earlier in this batch may still
		// have an event in it.
		if fd < len(p.table) {
			if w := p.table[fd]; w != nil && w.mode != watchNone {
				onEvent(w, events)
			}
		}
		return nil // netpoll would drop an error
	}
	p.ending = func(any) error {
		onTurnEnd()
		if p.stopped {
			return gneterrors.ErrEngineShutdown
		}
		return nil
	}
	return p, nil
}

// run handles events until stop; nil then, else the kernel's refusal.
func (p *poller) run() error {
	var err error
	switch np := any(p.netpoll).(type) {
	case interface {
		Polling(netpoll.PollEventHandler) error
	}:
		err = np.Polling(p.event)
	case interface{ Polling() error }: // gnet's poll_opt tag
		err = np.Polling()
	}
	if errors.Is(err, gneterrors.ErrEngineShutdown) {
		return nil
	}
	return fmt.Errorf("wait for events: %w", err)
}

// endTurn asks for the end of a turn to be reported: when the last event of
// this batch was handled, or of the next. It allocates and writes an eventfd,
// so the caller asks once for all it has.
func (p *poller) endTurn() error {
	return p.netpoll.Trigger(queue.HighPriority, p.ending, nil)
}

// stop makes run return at the end of this turn or the next.
func (p *poller) stop() error {
	p.stopped = true
	return p.endTurn()
}

func (p *poller) close() error { return p.netpoll.Close() }

// attach gives fd a place, with no event asked for yet.
func (p *poller) attach(w *watch, fd int, owner target) {
	for fd >= len(p.table) {
		p.table = append(p.table, nil)
	}
	invariant.Check(p.table[fd] == nil, "descriptor attached twice")
	w.attachment = netpoll.PollAttachment{FD: fd, Callback: p.event}
	w.owner, w.mode = owner, watchNone
	p.table[fd] = w
}

// detach takes w out; no event of it is reported from here on. The
// descriptor must stay open until the end of the turn.
func (p *poller) detach(w *watch) {
	if w.owner == nil {
		return
	}
	if w.mode != watchNone {
		// It can only fail for a descriptor that is not in the set.
		_ = p.netpoll.Delete(w.attachment.FD)
	}
	p.table[w.attachment.FD] = nil
	w.owner, w.mode = nil, watchNone
}

// watch registers w for mode.
func (p *poller) watch(w *watch, mode watchMode) error {
	if w.mode == mode || w.owner == nil {
		return nil
	}
	// netpoll cannot change a registration to "writable only".
	if w.mode != watchNone && (mode == watchNone || mode == watchWrite) {
		err := p.netpoll.Delete(w.attachment.FD)
		w.mode = watchNone
		if err != nil || mode == watchNone {
			return err
		}
	}
	err := p.register(w, mode)
	if err == nil {
		w.mode = mode
	}
	return err
}

func (p *poller) register(w *watch, mode watchMode) error {
	fresh := w.mode == watchNone
	switch {
	case mode == watchEdge:
		return p.netpoll.AddRead(&w.attachment, true)
	case mode == watchWrite:
		return p.netpoll.AddWrite(&w.attachment, false)
	case mode == watchRead && fresh:
		return p.netpoll.AddRead(&w.attachment, false)
	case mode == watchRead:
		return p.netpoll.ModRead(&w.attachment, false)
	case mode == watchBoth && fresh:
		return p.netpoll.AddReadWrite(&w.attachment, false)
	case mode == watchBoth:
		return p.netpoll.ModReadWrite(&w.attachment, false)
	}
	return unix.EINVAL
}
