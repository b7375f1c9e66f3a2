package remoting

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/engine"
)

// pendingSend is a send from its put to its answer. It belongs to whoever took
// its number until the put is under way, and to the goroutine that answers from
// then on.
type pendingSend struct {
	r       *Request
	queueID int32
	unique  string  // UNIQ_KEY
	sizes   []int32 // of a batch's records; empty: it is one message
	bytes   int64   // what was reserved for it
	back    bool    // a message that a consumer has sent back: its answer is bare
}

// outgoing is what a put is made of. It is over when the put has begun, and holds
// a request's body until then.
type outgoing struct {
	message  engine.Message   // one message
	messages []engine.Message // or a batch
	batch    []*engine.Message
}

var outgoings = sync.Pool{New: func() any { return new(outgoing) }}

func (o *outgoing) release() {
	clear(o.batch)
	*o = outgoing{batch: o.batch[:0]}
	outgoings.Put(o)
}

// pendings are the sends under way, by number, which is the put's tag.
type pendings struct {
	puts     *engine.Completions
	all      []pendingSend
	bytesMax int64
	bytes    atomic.Int64 // of bodies and properties under way
	mu       struct {
		sync.Mutex
		free   []uint32
		closed bool
	}
}

func newPendings(e *engine.Engine, most int, bytesMax int64) *pendings {
	p := &pendings{puts: e.NewCompletions(most), all: make([]pendingSend, most), bytesMax: bytesMax}
	p.mu.free = make([]uint32, most)
	for i := range p.mu.free {
		p.mu.free[i] = uint32(most - 1 - i)
	}
	return p
}

var (
	errFlow     = errors.New("too many sends are under way, try again")
	errStopping = errors.New("the node is stopping")
)

// reserve counts bytes that will be held; false: there are too many. A single
// send always finds room when there is no other.
func (p *pendings) reserve(n int64) bool {
	if all := p.bytes.Add(n); all > p.bytesMax && all > n {
		p.bytes.Add(-n)
		return false
	}
	return true
}

// take takes a number for a send of so many bytes.
func (p *pendings) take(bytes int64) (uint32, error) {
	if !p.reserve(bytes) {
		return 0, fmt.Errorf("%w: %d bytes of at most %d", errFlow, p.bytes.Load(), p.bytesMax)
	}
	p.mu.Lock()
	n := len(p.mu.free)
	closed := p.mu.closed
	var id uint32
	if !closed && n > 0 {
		id = p.mu.free[n-1]
		p.mu.free = p.mu.free[:n-1]
	}
	p.mu.Unlock()
	switch {
	case closed:
		p.bytes.Add(-bytes)
		return 0, errStopping
	case n == 0:
		p.bytes.Add(-bytes)
		return 0, fmt.Errorf("%w: %d of at most %d", errFlow, len(p.all), len(p.all))
	}
	p.all[id].bytes = bytes
	return id, nil
}

// giveBack frees numbers whose sends are over.
func (p *pendings) giveBack(ids ...uint32) {
	for _, id := range ids {
		s := &p.all[id]
		p.bytes.Add(-s.bytes)
		*s = pendingSend{sizes: s.sizes[:0]}
	}
	p.mu.Lock()
	p.mu.free = append(p.mu.free, ids...)
	p.mu.Unlock()
}

// put starts the put of a send; its answer comes through run. The error is a
// *engine.PutError: nothing was written.
func (p *pendings) put(id uint32, o *outgoing) error {
	if len(o.batch) > 0 {
		return p.puts.TryPutBatch(o.batch, uint64(id))
	}
	return p.puts.TryPut(&o.message, uint64(id))
}

const answersMax = 256 // puts whose answers are given in one go

// run gives each put that has ended to answer, until ctx is over and none is
// under way. What has ended together is answered together, so that the loops are
// woken once for it.
func (p *pendings) run(ctx context.Context, answer func(s *pendingSend, r engine.PutResult, err error)) {
	ended := make([]engine.Completion, answersMax)
	ids := make([]uint32, answersMax)
	for {
		n, err := p.pull(ctx, ended)
		for i := range ended[:n] {
			ids[i] = uint32(ended[i].Tag)
			answer(&p.all[ids[i]], ended[i].Result, ended[i].Err)
			ended[i] = engine.Completion{}
		}
		p.giveBack(ids[:n]...)
		if err == nil {
			continue
		}
		if errors.Is(err, engine.ErrClosed) || p.idle() {
			return
		}
	}
}

// pull waits for puts to end; for a moment only when the node is stopping, since
// the last send under way may turn out not to be one.
func (p *pendings) pull(ctx context.Context, ended []engine.Completion) (int, error) {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
	}
	return p.puts.Pull(ctx, ended)
}

// close refuses further sends.
func (p *pendings) close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
}

func (p *pendings) stopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.closed
}

func (p *pendings) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.free) == len(p.all)
}
