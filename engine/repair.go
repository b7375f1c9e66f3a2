package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/haengine/haengine/commitlog"
)

// ErrNotToFollow means a node that a store must not be cut for, because the store
// could not, or should not, follow it afterwards.
var ErrNotToFollow = errors.New("this node is not to be followed")

// CutStore cuts the log of a store that nobody has open to end at an offset, as
// [commitlog.Cut] does. A term that the store began as a master is over: a master
// that starts on it begins another, since replicas may hold what was cut. planned
// is where the log ended when the cut was planned: if it ends elsewhere now, a node
// has run meanwhile, and ErrChanging says to plan anew.
func CutStore(o commitlog.Options, to, planned int64) (kept string, err error) {
	return commitlog.Cut(o, to, func() error {
		l, err := commitlog.OpenReadOnly(o)
		if err != nil {
			return err
		}
		end, epochs := l.EndOffset(), l.Epochs()
		if err := l.Close(); err != nil {
			return err
		}
		if end != planned {
			return fmt.Errorf("%w: the log ends at %d, it ended at %d when the cut was planned", ErrChanging, end, planned)
		}
		return suspect(o, epochs)
	})
}

// suspect notes in a store's identity what a cut takes from its log: the term that
// it began, the number of the last epoch that it knew, and whether it was compared
// with a master's.
func suspect(o commitlog.Options, epochs []commitlog.Epoch) error {
	disk := o.Disk
	if disk == nil {
		disk = commitlog.OSDisk()
	}
	path := filepath.Join(o.Dir, identityFile)
	note, err := readIdentity(disk, path)
	if err != nil || note.ReplicaID == "" {
		return err // no node has had it open yet
	}
	was := note.identity
	note.Term = ""
	note.Unverified, note.Differs = was.Unverified || was.Differs, false
	if n := len(epochs); n > 0 {
		note.EpochSeen = max(note.EpochSeen, epochs[n-1].Number)
	}
	if note.identity == was {
		return nil
	}
	return note.write(disk, path)
}

// Follows says why a store cannot be made a replica of a node by repair or by a
// new copy, or nil. The error wraps ErrNotToFollow.
func (n *NodeInfo) Follows(own StoreIdentity) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrNotToFollow, fmt.Sprintf(format, args...))
	}
	switch {
	case n.MinOffset == n.MaxOffset:
		return refuse("its log is empty")
	case own.ReplicaID == n.ReplicaID:
		return refuse("it has this store's own replica id %q: it is this node, or a copy of its store", n.ReplicaID)
	case own.ClusterID != "" && n.ClusterID != "" && own.ClusterID != n.ClusterID:
		return refuse("it belongs to cluster %q, the store to %q", n.ClusterID, own.ClusterID)
	}
	return nil
}

// RepairPoint is where a store's log has to be cut to become a part of a node's
// history.
type RepairPoint struct {
	At         int64                   // the first of those below; -1: nothing is wrong
	Comparison Comparison              // with the node
	Damage     *commitlog.CorruptError // the first in the store's log; nil: none
	Epochs     int64                   // where the epochs of both part; -1: they do not
}

// FindRepairPoint compares the log of a stopped store, opened by OpenReadOnly,
// with a running node's: bytes, epochs, and the log with itself. The errors are
// those of [Compare], and ErrNotToFollow where a cut would give up what the node
// does not have. Nothing is changed.
func FindRepairPoint(ctx context.Context, address string, l *commitlog.Log, own StoreIdentity, o CompareOptions) (RepairPoint, error) {
	p := RepairPoint{At: -1, Epochs: -1}
	peer, err := dialPeer(ctx, address, &o)
	if err != nil {
		return p, err
	}
	defer peer.close()
	node := peer.info()
	p.Comparison = Comparison{Node: node, Differs: -1}
	if err := node.Follows(own); err != nil {
		return p, fmt.Errorf("%s: %w", address, err)
	}
	if node.SegmentBytes != l.SegmentBytes() {
		return p, fmt.Errorf("%s: %w: it has segments of %d bytes, the store of %d", address, ErrNotToFollow, node.SegmentBytes, l.SegmentBytes())
	}
	if p.Comparison, err = peer.compareLog(l, &o); err != nil {
		return p, err
	}
	p.Damage = commitlog.FirstDamage(l, nil)
	p.Epochs = epochsPart(l, &p.Comparison.Node)
	for _, at := range []int64{p.Comparison.Differs, p.Epochs} {
		p.At = earlierOf(p.At, at)
	}
	if p.Damage != nil {
		p.At = earlierOf(p.At, p.Damage.Offset)
	}
	if err := p.check(l); err != nil {
		return p, fmt.Errorf("%s: %w", address, err)
	}
	return p, nil
}

// check refuses a node that is behind what it should be cut for.
func (p *RepairPoint) check(l *commitlog.Log) error {
	node, mine := &p.Comparison.Node, lastWritten(l)
	theirs := commitlog.Epoch{}
	if n := len(node.Epochs); n > 0 {
		theirs = node.Epochs[n-1]
	}
	low, end := l.MinOffset(), l.EndOffset()
	switch {
	case p.Comparison.From == p.Comparison.To && low < end:
		return fmt.Errorf("%w: it holds offsets %d to %d, the store %d to %d, which have nothing in common; see haengine reseed", ErrNotToFollow, node.MinOffset, node.MaxOffset, low, end)
	case mine.Number > theirs.Number:
		return fmt.Errorf("%w: it is in epoch %d, the store's last is %d: it is an older master; if it is the one to follow all the same, have it begin epochs above %d first: haengine promote --new-epoch", ErrNotToFollow, theirs.Number, mine.Number, mine.Number)
	case p.At >= 0 && p.At < node.MinOffset:
		return fmt.Errorf("%w: the store's log is to be cut at offset %d, and it holds %d to %d only; see haengine reseed", ErrNotToFollow, p.At, node.MinOffset, node.MaxOffset)
	case node.MaxOffset < end && theirs.Number == mine.Number:
		return fmt.Errorf("%w: its log ends at %d, the store's at %d, and it is in no newer epoch: what it does not have would be given up; start the store as the master; if the node is the one to follow all the same, have it begin one (haengine promote --new-epoch), or cut the store with --truncate-at", ErrNotToFollow, node.MaxOffset, end)
	}
	return nil
}

func earlierOf(a, b int64) int64 {
	if a < 0 || b < 0 {
		return max(a, b)
	}
	return min(a, b)
}

// LastWritten is the number of the last epoch that a log has bytes of; 0: none.
func LastWritten(l *commitlog.Log) int32 { return lastWritten(l).Number }

// lastWritten is the last epoch that a log has bytes of.
func lastWritten(l *commitlog.Log) commitlog.Epoch {
	list := l.Epochs()
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Start < l.EndOffset() {
			return list[i]
		}
	}
	return commitlog.Epoch{}
}

// epochsPart finds the first epoch, of which the log has bytes, that is another
// one on the node, or none, and gives its first offset; -1: there is none. A node
// or a log without epochs says nothing.
func epochsPart(l *commitlog.Log, node *NodeInfo) int64 {
	theirs := map[int32]commitlog.Epoch{}
	for _, e := range node.Epochs {
		theirs[e.Number] = e
	}
	for _, e := range l.Epochs() {
		if len(theirs) == 0 || e.Start >= l.EndOffset() {
			break
		}
		if t, ok := theirs[e.Number]; e.Number >= node.Epochs[0].Number && (!ok || t.Start != e.Start || cmp.Or(t.ID, e.ID) != cmp.Or(e.ID, t.ID)) {
			return max(e.Start, l.MinOffset())
		}
	}
	return -1
}
