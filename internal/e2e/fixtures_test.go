package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haengine/haengine/internal/fixture"
)

// The job that everything else is for: a store of RocketMQ's, served as it is,
// is on two empty slaves to the byte, and is as it was after we are gone.
func TestAStoreOfRocketMQIsCopiedByteForByteAndLeftAsItWas(t *testing.T) {
	for _, name := range []string{"mixed", "killed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, original := fixture.Unpack(t, name), fixture.Unpack(t, name)
			want := fixture.Recovery(t, name)

			m := serveMaster(t, store, "--plain-history", "first", "--plain-identity", "connection")
			a := serveSlave(t, "", m.serving.HAListen)
			b := serveSlave(t, "", m.serving.HAListen)
			for _, n := range []*node{a, b} {
				eventually(t, "the slave has the whole log and its queues", func() bool {
					s := n.status(t)
					return s.Max == want.Max && s.Queued == want.Max && n.ready()
				})
			}
			eventually(t, "the master knows it", func() bool {
				s := m.status(t)
				return len(s.Replicas) == 2 && s.Replicas[0].Acked == want.Max && s.Replicas[1].Acked == want.Max
			})
			for _, n := range []*node{m, a, b} {
				if s := n.status(t); s.Min != want.Min || s.Max != want.Max {
					t.Errorf("%s holds %d to %d, want %d to %d", n.store, s.Min, s.Max, want.Min, want.Max)
				}
			}
			for _, n := range []*node{a, b, m} {
				n.stop(t)
			}
			for _, n := range []*node{m, a, b} {
				mustVerify(t, n.store)
				i := info(t, n.store)
				if i.SHA256 != want.SHA256 || i.Min != want.Min || i.Max != want.Max || !i.Clean {
					t.Errorf("%s after the stop: %+v, want %+v and clean", n.store, i, want)
				}
			}
			mustEqual(t, m.store, a.store)
			mustEqual(t, m.store, b.store)
			mustBeUntouched(t, original, store)
		})
	}
}

// mustBeUntouched compares what RocketMQ wrote with what is there now: every
// segment that held data and every index file is the same to the byte, and
// nothing of the kind was added. (checkpoint and abort are rewritten by every
// start of a broker; queues of a crashed store are completed.)
func mustBeUntouched(t *testing.T, original, now string) {
	t.Helper()
	for _, dir := range []string{"commitlog", "index"} {
		before, after := contents(t, filepath.Join(original, dir)), contents(t, filepath.Join(now, dir))
		for name, want := range before {
			got, ok := after[name]
			if !ok && len(bytes.TrimRight(want, "\x00")) == 0 {
				continue // made for later, never used
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s/%s was changed: %d bytes, there were %d", dir, name, len(got), len(want))
			}
		}
		for name := range after {
			if _, ok := before[name]; !ok {
				t.Errorf("%s/%s was not there before", dir, name)
			}
		}
	}
	for name, want := range contents(t, filepath.Join(original, "consumequeue")) {
		got := contents(t, filepath.Join(now, "consumequeue", filepath.Dir(name)))[filepath.Base(name)]
		if !bytes.HasPrefix(got, bytes.TrimRight(want, "\x00")) || len(got) != len(want) {
			t.Errorf("consumequeue/%s was changed, not only added to", name)
		}
	}
}

// contents reads all files below a directory, by their names in it.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir+"/")] = b
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
