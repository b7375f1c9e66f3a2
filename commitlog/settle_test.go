package commitlog

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A sparse store on a full disk opens again after a crash: to clear what is torn
// takes no space but for its copy.
func TestClearingATornTailLeavesTheSegmentSparse(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	o.Preallocate, o.SegmentBytes = false, 64<<20
	all := writeStore(t, o, 20, 100)
	bad := all[15]
	crashed(t, o.Dir, all[10].Offset, false)
	patch(t, o.Dir, o.SegmentBytes, bad.Offset+90, []byte{1, 2, 3})
	l := mustOpen(t, o)
	if l.EndOffset() != bad.Offset {
		t.Fatalf("the log ends at %d, want %d", l.EndOffset(), bad.Offset)
	}
	var st unix.Stat_t
	must(t, unix.Stat(l.SegmentPath(0), &st))
	if used := st.Blocks * 512; st.Size != o.SegmentBytes || used > o.SegmentBytes/4 {
		t.Errorf("the segment has %d bytes and takes %d of the disk", st.Size, used)
	}
}
