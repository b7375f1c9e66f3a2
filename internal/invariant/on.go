//go:build race || invariants

package invariant

// Enabled tells whether Check panics: under the race detector or the
// `invariants` build tag.
const Enabled = true
