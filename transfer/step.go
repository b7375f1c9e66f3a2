package transfer

import "github.com/haengine/haengine/internal/invariant"

// interleave is set by tests that decide themselves which goroutine takes the
// next step of a lock-free protocol, so that every order can be tried and a
// failing one replayed from its seed.
var interleave func()

// step marks a place between two atomic operations where another goroutine's
// operation matters. It compiles to nothing unless internal/invariant is on.
func step() {
	if invariant.Enabled && interleave != nil {
		interleave()
	}
}
