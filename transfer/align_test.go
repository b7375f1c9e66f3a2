package transfer

import (
	"errors"
	"strings"
	"testing"
)

func TestAlign(t *testing.T) {
	node := func(id string, low, end int64, epochs ...Epoch) Hello {
		return Hello{VersionMin: 1, VersionMax: 1, ReplicaID: id, SegmentBytes: 4096, Log: Range{low, end}, Epochs: epochs, FrameBytes: 1000}
	}
	e := func(number int32, start int64) Epoch {
		return Epoch{Number: number, ID: uint64(number) * 0x1111, Start: start}
	}
	with := func(h Hello, f func(*Hello)) Hello { f(&h); return h }
	for _, c := range []struct {
		name        string
		own, master Hello
		confirmed   int64
		keep        int64
		code        RefusalCode
		says        string
	}{
		{name: "an empty log begins", own: node("b", 0, 0), master: node("a", 0, 900, e(1, 0))},
		{name: "an empty log may have other segments", own: with(node("b", 0, 0), func(h *Hello) { h.SegmentBytes = 1 << 30 }), master: node("a", 0, 900, e(1, 0))},
		{name: "behind in the same term", own: node("b", 0, 500, e(1, 0)), master: node("a", 0, 900, e(1, 0)), keep: 500},
		{name: "at the end", own: node("b", 0, 900, e(1, 0)), master: node("a", 0, 900, e(1, 0)), keep: 900},
		{name: "missed a term", own: node("b", 0, 500, e(1, 0)), master: node("a", 0, 900, e(1, 0), e(2, 700)), keep: 500},
		{name: "an old master's unsent tail is cut", own: node("b", 0, 800, e(1, 0)), master: node("a", 0, 900, e(1, 0), e(2, 700)), keep: 700},
		{name: "cut two terms back", own: node("b", 0, 800, e(1, 0), e(2, 300), e(3, 500)), master: node("a", 0, 900, e(1, 0), e(4, 200)), keep: 200},
		{name: "a term lost by both", own: node("b", 0, 800, e(1, 0), e(2, 300), e(3, 500)), master: node("a", 0, 900, e(1, 0), e(2, 300), e(4, 400)), keep: 400},
		{name: "terms without records", own: node("b", 0, 100, e(4, 0), e(6, 100)), master: node("a", 0, 100, e(4, 0), e(7, 100)), keep: 100},
		{name: "a term without records may be newer than the master's", own: node("b", 0, 100, e(4, 0), e(9, 100)), master: node("a", 0, 100, e(4, 0), e(7, 100)), keep: 100},
		{name: "an id that is not known goes with any", own: node("b", 0, 500, Epoch{Number: 1}), master: node("a", 0, 900, e(1, 0)), keep: 500},
		{name: "from before there were terms", own: node("b", 0, 500), master: node("a", 0, 900, e(1, 700)), keep: 500},
		{name: "no terms, and ahead", own: node("b", 0, 950), master: node("a", 0, 900, e(1, 700)), code: RefusedBehind, says: "ends at 900, ours at 950"},
		{name: "ahead in the same term", own: node("b", 0, 950, e(1, 0)), master: node("a", 0, 900, e(1, 0)), code: RefusedBehind, says: "it is behind us"},
		{name: "what is cut is not what was confirmed", own: node("b", 0, 950, e(1, 0)), master: node("a", 0, 1000, e(1, 0), e(2, 900)), confirmed: 900, keep: 900},
		{name: "a master behind what is known to be confirmed", own: node("b", 0, 950, e(1, 0)), master: node("a", 0, 1000, e(1, 0), e(2, 900)), confirmed: 901, code: RefusedBehind, says: "at offset 900, and we know puts up to 901"},
		{name: "an empty master", own: node("b", 0, 500, e(1, 0)), master: node("a", 0, 0, e(2, 0)), code: RefusedBehind, says: "empty"},
		{name: "an older master", own: node("b", 0, 500, e(1, 0), e(3, 400)), master: node("a", 0, 900, e(1, 0), e(2, 450)), code: RefusedBehind, says: "last epoch is 2, ours is 3"},
		{name: "the same number, another id", own: node("b", 0, 900, e(1, 0), Epoch{2, 77, 600}), master: node("a", 0, 900, e(1, 0), e(2, 600)), code: RefusedDiverged, says: "two masters wrote from offset 600"},
		{name: "the same number, another start", own: node("b", 0, 900, e(1, 0), e(2, 650)), master: node("a", 0, 900, e(1, 0), e(2, 600)), code: RefusedDiverged, says: "two masters wrote from offset 600"},
		{name: "nothing in common", own: node("b", 0, 900, e(1, 0)), master: node("a", 0, 900, e(2, 0)), code: RefusedDiverged, says: "two histories from offset 0"},
		{name: "the common part was deleted here", own: node("b", 4096, 8000, e(1, 0)), master: node("a", 0, 9000, e(1, 0), e(2, 3000)), code: RefusedDiverged, says: "before our first byte at 4096"},
		{name: "what follows was deleted there", own: node("b", 0, 500, e(1, 0)), master: node("a", 4096, 9000, e(1, 0)), code: RefusedRange, says: "need offset 500 next, the master holds 4096 to 9000"},
		{name: "another cluster", own: with(node("b", 0, 1), func(h *Hello) { h.ClusterID = "x" }), master: with(node("a", 0, 900), func(h *Hello) { h.ClusterID = "y" }), code: RefusedCluster, says: `"y"`},
		{name: "a cluster that is not set", own: with(node("b", 0, 500), func(h *Hello) { h.ClusterID = "x" }), master: node("a", 0, 900), keep: 500},
		{name: "itself", own: node("a", 0, 500), master: node("a", 0, 900), code: RefusedCluster, says: "our own replica id"},
		{name: "other segments", own: with(node("b", 0, 500), func(h *Hello) { h.SegmentBytes = 8192 }), master: node("a", 0, 900), code: RefusedSegments, says: "4096 bytes, our store of 8192"},
		{name: "a later version only", own: node("b", 0, 500), master: with(node("a", 0, 900), func(h *Hello) { h.VersionMin, h.VersionMax = 2, 3 }), code: RefusedVersion, says: "versions 2 to 3"},
	} {
		keep, err := Align(c.own, c.master, c.confirmed)
		var refusal *RefusalError
		switch {
		case c.code == 0 && (err != nil || keep != c.keep):
			t.Errorf("%s: keep %d, %v; want %d", c.name, keep, err, c.keep)
		case c.code != 0 && (!errors.As(err, &refusal) || refusal.Code != c.code || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: keep %d, %v; want a refusal %d that says %q", c.name, keep, err, c.code, c.says)
		}
	}
}
