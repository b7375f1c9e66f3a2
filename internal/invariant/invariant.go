// Package invariant states what the program's own code guarantees.
//
// A peer or a file that breaks a rule is an error. Own state that cannot be is
// a bug: Check panics on it in test builds and costs nothing in others.
package invariant

// Check panics with msg if ok is false and checks are on. Any goroutine.
func Check(ok bool, msg string) {
	if Enabled && !ok {
		panic("invariant: " + msg)
	}
}
