package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/haengine/haengine/transfer"
)

// Waits is what a put waits for.
type Waits struct {
	Copies  int           // that have to hold it, this node's included, 1 to 64; 1: no replica is waited for
	Ack     AckKind       // what a replica has to say of its copy
	Flush   bool          // this node's disk has to have it, too
	Timeout time.Duration // of each wait; 0: the node's SlaveTimeout and FlushTimeout
}

// PutWaiting is Put with waits of its own in place of the node's: it may ask for
// more copies or for durable ones, or for fewer, on a master of either role. A
// message that says not to wait (WAIT=false) waits for nothing. The kinds of waits
// that are in use at once are few: of pairs of Copies and Ack, 16 since the start.
// Errors are Put's, and ErrOptions.
func (e *Engine) PutWaiting(ctx context.Context, m *Message, w Waits) (PutResult, error) {
	if err := w.check(); err != nil {
		return e.refuse(e.newFuture(), err)
	}
	return e.put(ctx, &w, m, nil)
}

func (w *Waits) check() error {
	if w.Copies < 1 || w.Copies > replicasMax || w.Ack > AckFlushed || w.Timeout < 0 {
		return fmt.Errorf("%w: a put that waits for %d copies (1 to %d), %v, at most %v", ErrOptions, w.Copies, replicasMax, w.Ack, w.Timeout)
	}
	return nil
}

// waits is what the node's settings say.
func (e *Engine) waits() Waits {
	w := Waits{Copies: 1, Ack: e.opts.Ack, Flush: e.opts.Flush == SyncFlush}
	if e.Role() == SyncMaster {
		w.Copies = int(e.inSyncReplicas.Load())
	}
	return w
}

func (a AckKind) kind() transfer.Kind {
	if a == AckFlushed {
		return transfer.Flushed
	}
	return transfer.Received
}
