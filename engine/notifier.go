package engine

import (
	"context"
	"sync"
	"sync/atomic"
)

// notifier wakes goroutines that wait for a condition on atomics. Telling it
// costs one load while nobody waits. Any goroutine.
type notifier struct {
	waiting atomic.Int32
	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed and replaced at each change
}

func (n *notifier) init() { n.changed = make(chan struct{}) }

// wake must be called after what the conditions look at was stored.
func (n *notifier) wake() {
	if n.waiting.Load() == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

// wait returns when done holds, with ctx's error, or with ErrClosed once
// stopping is closed.
func (n *notifier) wait(ctx context.Context, stopping <-chan struct{}, done func() bool) error {
	n.waiting.Add(1) // before done is asked: a change after that is told
	defer n.waiting.Add(-1)
	for {
		n.mu.Lock()
		changed := n.changed
		n.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-stopping:
			return ErrClosed
		}
	}
}
