package commitlog

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
)

// Crash cuts the power and restores it: handles, mappings and locks are dead,
// and of what was not synced some is there and some is not.
func (t *Twin) Crash() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.life++
	t.offAt = 0
	t.locks = map[string]*twinLock{}
	t.crashRenamesLocked()
	t.crashNamesLocked()
	for _, n := range t.nodesLocked() {
		n.crash(t.rng)
	}
	t.live = maps.Clone(t.durable)
}

// moveNames gives a file, or a directory with all that is below it, another name.
func moveNames(names map[string]*twinNode, from, to string) {
	for _, p := range sortedKeys(names) {
		if below, ok := strings.CutPrefix(p, from); ok && (below == "" || below[0] == '/') {
			n := names[p]
			delete(names, p)
			names[to+below] = n
		}
	}
}

// renamedLocked finds the durable name of a file or directory that has another
// one now.
func (t *Twin) renamedLocked(to string) (from string, ok bool) {
	n := t.live[to]
	if t.durable[to] == n {
		return "", false
	}
	for _, from := range sortedKeys(t.durable) {
		if t.durable[from] == n && t.live[from] == nil {
			return from, true
		}
	}
	return "", false
}

// crashRenamesLocked decides for each rename that was not synced. What had a
// durable name has that one or the new one: a file system moves it in one step.
func (t *Twin) crashRenamesLocked() {
	for _, to := range sortedKeys(t.live) {
		if t.live[to] == nil {
			continue // below a directory that was moved back
		}
		switch from, ok := t.renamedLocked(to); {
		case !ok:
		case t.rng.IntN(2) == 0:
			moveNames(t.durable, from, to)
		default:
			moveNames(t.live, to, from)
			if over := t.durable[to]; over != nil {
				t.live[to] = over
			}
		}
	}
}

// crashNamesLocked decides for each name that was not synced.
func (t *Twin) crashNamesLocked() {
	for _, path := range sortedKeys(t.live) {
		if t.durable[path] != t.live[path] && t.rng.IntN(2) == 0 {
			t.durable[path] = t.live[path]
		}
	}
	for _, path := range sortedKeys(t.durable) {
		if t.live[path] == nil && t.rng.IntN(2) == 0 {
			delete(t.durable, path)
		}
	}
	for _, path := range sortedKeys(t.durable) {
		if parent := t.durable[filepath.Dir(path)]; parent == nil || !parent.dir {
			delete(t.durable, path)
		}
	}
}

// Kill ends the processes that use the disk, and nothing else: all that was
// written is there.
func (t *Twin) Kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.life++
	t.offAt = 0
	t.locks = map[string]*twinLock{}
	for _, n := range t.nodesLocked() {
		n.data = unseen(n.data) // stores of dead mappings go nowhere
	}
}

// Clone copies the disk with all that it may lose, but for its faults, limits
// and the handles of others: what would be left if the power were cut now? seed
// decides what that loses.
func (t *Twin) Clone(seed uint64) *Twin {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := NewTwin(seed)
	c.clock, c.inodes = t.clock, t.inodes
	copies := map[*twinNode]*twinNode{}
	for _, n := range t.nodesLocked() {
		m := *n
		m.data, m.stable, m.dropped = unseen(n.data), slices.Clone(n.stable), maps.Clone(n.dropped)
		copies[n] = &m
	}
	c.live, c.durable = map[string]*twinNode{}, map[string]*twinNode{}
	for path, n := range t.live {
		c.live[path] = copies[n]
	}
	for path, n := range t.durable {
		c.durable[path] = copies[n]
	}
	return c
}

// Flip changes the bits of mask in a byte of a file that nobody has open, on
// the disk, as a bad disk does without a word.
func (t *Twin) Flip(path string, at int64, mask byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.findLocked("flip", path)
	if err != nil {
		return err
	}
	if at < 0 || at >= int64(min(len(n.data), len(n.stable))) {
		return &fs.PathError{Op: "flip", Path: path, Err: fs.ErrInvalid}
	}
	n.data = unseen(n.data)
	n.data[at] ^= mask
	n.stable = slices.Clone(n.stable)
	n.stable[at] ^= mask
	return nil
}

// nodesLocked lists each file once, in the order of names.
func (t *Twin) nodesLocked() []*twinNode {
	var list []*twinNode
	seen := map[*twinNode]bool{}
	for _, names := range []map[string]*twinNode{t.live, t.durable} {
		for _, path := range sortedKeys(names) {
			if n := names[path]; !seen[n] {
				seen[n] = true
				list = append(list, n)
			}
		}
	}
	return list
}

func sortedKeys(m map[string]*twinNode) []string { return slices.Sorted(maps.Keys(m)) }

// crash keeps some of what was not synced.
func (n *twinNode) crash(rng *rand.Rand) {
	data := unseen(n.data)
	if len(data) != len(n.stable) && rng.IntN(2) == 0 {
		n.stable = resized(n.stable, int64(len(data)))
	}
	for at := int64(0); at < int64(min(len(data), len(n.stable))); at += twinPage {
		end := min(at+twinPage, int64(len(data)), int64(len(n.stable)))
		if string(data[at:end]) == string(n.stable[at:end]) || n.wasDropped(data, at) || rng.IntN(2) == 0 {
			continue
		}
		if rng.IntN(4) == 0 { // torn between two sectors
			end = at + (end-at)/2
		}
		copy(n.stable[at:end], data[at:end])
	}
	n.data, n.dropped = slices.Clone(n.stable), nil
}

// wasDropped tells a page that a failed sync made clean, unless it was written
// since.
func (n *twinNode) wasDropped(data []byte, at int64) bool {
	old, ok := n.dropped[at]
	return ok && string(old) == string(data[at:min(at+twinPage, int64(len(data)))])
}

func resized(b []byte, size int64) []byte {
	if int64(len(b)) >= size {
		return b[:size:size]
	}
	return append(slices.Clone(b), make([]byte, size-int64(len(b)))...)
}

// unseen copies memory that others may be writing.
func unseen(b []byte) []byte {
	c := make([]byte, len(b))
	copyUnseen(c, b)
	return c
}

// copyUnseen is copy, as the kernel does it to the pages of a mapping: it may
// meet a writer, of bytes that nobody asks for yet. The race detector sees what
// copy does even here, so the bytes are moved one by one.
//
//go:norace
func copyUnseen(dst, src []byte) int {
	n, i := min(len(dst), len(src)), 0
	for i < n {
		dst[i] = src[i]
		i++
	}
	return n
}
