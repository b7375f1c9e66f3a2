package engine

import (
	"context"
	"sync"

	"github.com/haengine/haengine/transfer"
)

// Completion is a put that has ended. Err is as Put's.
type Completion struct {
	Tag    uint64 // what the producer gave
	Result PutResult
	Err    error
}

// Completions is a bounded queue of puts for producers that keep many
// outstanding: they put with a tag, and one goroutine pulls what has ended in
// batches. At most its size is outstanding or unpulled at once.
//
// Put and TryPut may be called by any number of goroutines, Pull by one.
type Completions struct {
	e        *Engine
	finished *transfer.Completions[*Future]
	pulled   []*Future // Pull's own

	// Futures that were pulled, for the next puts: as many as were ever under way
	// at once. Puts and Pull are on different cores, where a sync.Pool has to take
	// one future at a time from the other's; Pull brings all of a batch at once.
	spare struct {
		sync.Mutex
		first *Future
	}
}

// NewCompletions makes a queue for at least size puts at once.
func (e *Engine) NewCompletions(size int) *Completions {
	return &Completions{e: e, finished: transfer.NewCompletions[*Future](max(size, 1))}
}

// Put appends a message; its end is pulled later. It waits for a place in the
// queue and for room in the rings, or for ctx. The error is a *PutError:
// nothing was written and nothing will be pulled for this put.
func (c *Completions) Put(ctx context.Context, m *Message, tag uint64) error {
	f := c.newFuture()
	if !c.finished.Reserve() {
		f.begin()
		if err := c.finished.ReserveWait(ctx); err != nil {
			_, err = c.e.refuse(f, err)
			return err
		}
	}
	return c.put(ctx, f, m, nil, tag, true)
}

// TryPut is Put that does not wait: without a place or room the error is
// ErrRingFull, during a change of the role ErrRoleChanging.
func (c *Completions) TryPut(m *Message, tag uint64) error { return c.tryPut(m, nil, tag) }

// TryPutBatch is TryPut for messages of one topic and queue, as PutBatch's. The
// slice and the messages stay the caller's.
func (c *Completions) TryPutBatch(batch []*Message, tag uint64) error {
	return c.tryPut(nil, batch, tag)
}

func (c *Completions) tryPut(m *Message, batch []*Message, tag uint64) error {
	f := c.newFuture()
	if !c.finished.Reserve() {
		_, err := c.e.refuse(f, ErrRingFull)
		return err
	}
	return c.put(noWait, f, m, batch, tag, false)
}

// noWait is over already: who would wait for the role gets its cause.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrRoleChanging)
	return ctx
}()

func (c *Completions) put(ctx context.Context, f *Future, m *Message, batch []*Message, tag uint64, mayBlock bool) error {
	f.queue, f.tag = c, tag
	if err := c.e.start(ctx, f, m, batch, mayBlock); err != nil {
		c.finished.Cancel()
		_, err = c.e.refuse(f, err)
		return err
	}
	return nil
}

// Pull waits for at least one put to end and takes up to len(dst) that have, in
// the order they ended. It returns ctx's error if none ended in time, and
// ErrClosed once the engine is closing and nothing is under way.
func (c *Completions) Pull(ctx context.Context, dst []Completion) (int, error) {
	if len(dst) == 0 {
		return 0, nil
	}
	if cap(c.pulled) < len(dst) {
		c.pulled = make([]*Future, len(dst))
	}
	for {
		if n := c.finished.Pull(c.pulled[:len(dst)]); n > 0 {
			c.settle(c.pulled[:n], dst)
			return n, nil
		}
		stopping := c.e.stopping
		if c.finished.Len() > 0 {
			stopping = nil // what is under way still ends
		}
		select {
		case <-c.finished.Ready():
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-stopping:
			return 0, ErrClosed
		}
	}
}

// settle makes completions of pulled futures, which are spare then.
func (c *Completions) settle(pulled []*Future, dst []Completion) {
	now := c.e.measuredNow()
	var first *Future
	last := pulled[0]
	for i, f := range pulled {
		dst[i].Tag, dst[i].Err = f.tag, f.settle(nil, now)
		dst[i].Result = f.result
		f.clear()
		f.next, first = first, f
		pulled[i] = nil
	}
	c.spare.Lock()
	last.next, c.spare.first = c.spare.first, first
	c.spare.Unlock()
}

// newFuture takes a spare future, or the engine's.
func (c *Completions) newFuture() *Future {
	c.spare.Lock()
	f := c.spare.first
	if f != nil {
		c.spare.first, f.next = f.next, nil
	}
	c.spare.Unlock()
	if f == nil {
		return c.e.newFuture()
	}
	return f
}

// Outstanding is how many puts wait or have not been pulled. Any goroutine.
func (c *Completions) Outstanding() int { return c.finished.Len() }
