package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A store that was copied from elsewhere, with its identity or only its log, is
// compared with its master as a whole before it follows, and once only.
func TestACopiedStoreIsComparedAsAWhole(t *testing.T) {
	for _, identity := range []bool{true, false} {
		t.Run(fmt.Sprintf("identity copied %v", identity), func(t *testing.T) {
			dir := filepath.Join(markedDir(t), "store")
			m := openMaster(t, Options{Store: dir, SegmentBytes: 64 << 10})
			puts(t, m, 300) // much more than the tail that is proved at each connection
			shut(t, m)
			good, bad := filepath.Join(t.TempDir(), "good"), filepath.Join(t.TempDir(), "bad")
			copyStore(t, dir, good)
			copyStore(t, dir, bad)
			if !identity {
				for _, store := range []string{good, bad} {
					if err := os.Remove(filepath.Join(store, identityFile)); err != nil {
						t.Fatal(err)
					}
				}
			}
			spoil(t, bad)
			m = openMaster(t, Options{Store: dir, SegmentBytes: 64 << 10})
			puts(t, m, 5)

			s := openSlave(t, m, Options{Store: bad, SegmentBytes: 64 << 10})
			end := s.log.EndOffset()
			eventually(t, "the spoiled copy is refused", func() bool { trouble := s.Status().Trouble; return trouble != nil && trouble.Cause == "diverged" })
			if why := s.Status().Trouble.Reason; s.log.EndOffset() != end || !strings.Contains(why, "differs from the master's at offset ") {
				t.Errorf("the log ends at %d, before at %d; %s", s.log.EndOffset(), end, why)
			}
			shut(t, s)

			for start, want := range []int{1, 0} {
				logger, text := newTestLog(t, "copy")
				s = openSlave(t, m, Options{Store: good, SegmentBytes: 64 << 10, Logger: logger})
				follow(t, m, s)
				shut(t, s)
				if n := strings.Count(text.String(), "it is compared with the master"); n != want {
					t.Errorf("start %d: compared as a whole %d times, want %d", start, n, want)
				}
			}
		})
	}
}

// Epochs say where to cut, not that what stays is the master's: the bytes before
// are compared first, and nothing is cut if they differ.
func TestNothingIsCutFromALogThatDiffersBefore(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	m := openMaster(t, Options{Store: a})
	s := openSlave(t, m, Options{Store: b})
	puts(t, m, 20)
	follow(t, m, s)
	shut(t, s)
	puts(t, m, 7) // nobody else has these
	end := m.log.EndOffset()
	shut(t, m)
	spoil(t, a)
	m = openMaster(t, Options{Store: b})
	puts(t, m, 3)
	s = openSlave(t, m, Options{Store: a})
	eventually(t, "the old master does not fit", func() bool { trouble := s.Status().Trouble; return trouble != nil && trouble.Cause == "diverged" })
	if cut, err := os.ReadDir(filepath.Join(a, "cut")); s.log.EndOffset() != end || err == nil {
		t.Errorf("the log ends at %d, before at %d; cut: %v", s.log.EndOffset(), end, cut)
	}
}
