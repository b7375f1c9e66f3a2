package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/haengine/haengine/commitlog"
)

// findPoint compares a stopped store with a node.
func findPoint(t *testing.T, node *Engine, store string) (RepairPoint, error) {
	t.Helper()
	own, err := ReadIdentity(store)
	if err != nil {
		t.Fatal(err)
	}
	return FindRepairPoint(context20(t), node.HAAddr().String(), readStore(t, store), own, CompareOptions{})
}

// endOf is where a closed store's log ends.
func endOf(t *testing.T, store string) int64 { return readStore(t, store).EndOffset() }

// A store that was cut does not go on in the term that it began: a replica may
// hold what was cut, in that term.
func TestACutStoreBeginsAnotherTerm(t *testing.T) {
	store := t.TempDir()
	m := openMaster(t, Options{Store: store})
	at := mustPut(t, m, message("t", 0, "kept")).EndOffset
	puts(t, m, 10)
	shut(t, m)
	logger, _ := newTestLog(t, "cut")
	kept, err := CutStore(commitlog.Options{Dir: store, Preallocate: true, Logger: logger}, at, endOf(t, store))
	if err != nil || kept == "" {
		t.Fatal(kept, err)
	}
	if _, err := CutStore(commitlog.Options{Dir: store, Preallocate: true, Logger: logger}, 0, at+1); !errors.Is(err, ErrChanging) || endOf(t, store) != at {
		t.Errorf("a cut that was planned for another log: %v, the log ends at %d", err, endOf(t, store))
	}
	m = openMaster(t, Options{Store: store})
	if s := m.Status(); s.Epoch != 2 || s.MaxOffset != at || s.State != StateServing {
		t.Errorf("after the cut: %+v", s)
	}
	shut(t, m)
	if m = openMaster(t, Options{Store: store}); m.Status().Epoch != 2 {
		t.Errorf("and once more: epoch %d", m.Status().Epoch)
	}
}

// Who does not have what a store has, or is not of its group, is no measure.
func TestAStoreIsNotCutForWhoeverIsBehind(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	m := openMaster(t, Options{Store: a})
	puts(t, m, 20)
	s := openSlave(t, m, Options{Store: b, HAListen: "127.0.0.1:0"})
	follow(t, m, s)
	shut(t, s)
	behind := open(t, Options{Store: b, Role: Slave, Master: "127.0.0.1:1", HAListen: "127.0.0.1:0"})
	refused := func(what, store, says string) {
		t.Helper()
		if p, err := findPoint(t, behind, store); !errors.Is(err, ErrNotToFollow) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
	puts(t, m, 5)
	shut(t, m)
	refused("in the same epoch", a, "promote --new-epoch")
	refused("the store's own node", b, "own replica id")
	m = openMaster(t, Options{Store: a})
	if _, err := m.Promote(context20(t), PromoteOptions{Role: AsyncMaster, NewEpoch: true}); err != nil {
		t.Fatal(err)
	}
	puts(t, m, 1)
	shut(t, m)
	refused("in an older epoch", a, "older master")
	other := t.TempDir()
	small := openMaster(t, Options{Store: other, SegmentBytes: 64 << 10})
	puts(t, small, 1)
	shut(t, small)
	refused("other segments", other, "segments of 1048576 bytes")
}

// Damage and differences: the first counts, and a newer epoch may be shorter.
func TestTheFirstOfDamageAndDifferenceIsWhereAStoreIsCut(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	m := openMaster(t, Options{Store: a})
	puts(t, m, 3000) // 3 segments
	s := openSlave(t, m, Options{Store: b})
	follow(t, m, s)
	shut(t, s)
	if p, err := findPoint(t, m, b); err != nil || p.At != -1 || !p.Comparison.Equal() || p.Damage != nil || p.Epochs != -1 {
		t.Errorf("equal logs: %+v, %v", p, err)
	}
	const at = 2_000_100
	flip(t, b, at)
	p, err := findPoint(t, m, b)
	if err != nil || p.Comparison.Differs != at || p.Damage == nil || p.At != p.Damage.Offset || p.At > at || at-p.At > 2000 {
		t.Errorf("a changed byte: %+v, %v", p, err)
	}
	flip(t, b, at)
	// A store of another history: where epochs part counts, too.
	short := t.TempDir()
	n := openMaster(t, Options{Store: short})
	puts(t, n, 1)
	shut(t, n)
	if p, err := findPoint(t, m, short); err != nil || p.At < 0 || p.At != min(p.Comparison.Differs, p.Epochs) {
		t.Errorf("another history: %+v, %v", p, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := FindRepairPoint(ctx, m.HAAddr().String(), readStore(t, b), StoreIdentity{}, CompareOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
