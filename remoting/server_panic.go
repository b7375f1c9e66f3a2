package remoting

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// What a handler's panic does. A request that no handler was written for must not
// take the node down: it would come again, and to the node that takes over, too.
// It is answered with SystemError, as RocketMQ's broker answers an exception, and
// is logged with its stack and counted.
//
// A panic that comes out of the log is another matter: its locks may be held and
// its state is in doubt. The process ends, and what starts instead recovers from
// what is on the disk. So it does when what was handed to another goroutine panics.

// ownPackage is what our functions' names begin with.
const ownPackage = "github.com/haengine/haengine/"

// guarded serves a request, and outlives a panic of its handler.
func (p *peer) guarded(r *Request) {
	whole := false
	defer func() {
		if whole || fromLog() {
			return // the panic, if there is one, goes on
		}
		if v := recover(); v != nil {
			p.panicked(r, v)
		}
	}()
	p.h.Serve(r)
	whole = true
}

func (p *peer) panicked(r *Request, v any) {
	p.s.counts[HandlerPanicked].Add(1)
	p.s.o.Logger.Error("a request's handler panicked: this is a bug, please report it", "code", r.Code, "peer", p.addr,
		"panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	r.ReplyCode(SystemError, "this broker failed at the request: %v", v)
}

// fromLog tells whether the panic that unwinds comes from a call into the engine or
// what is below it. Only in a deferred function.
func fromLog() bool {
	var space [64]uintptr
	frames := runtime.CallersFrames(space[:runtime.Callers(2, space[:])])
	for {
		f, more := frames.Next()
		if rest, own := strings.CutPrefix(f.Function, ownPackage); own {
			if !strings.HasPrefix(rest, "remoting.") {
				return true
			}
			if strings.HasPrefix(rest, "remoting.(*peer).guarded") && !strings.Contains(rest, "func") {
				return false
			}
		}
		if !more {
			return false
		}
	}
}
