package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// killedAt gives a command line under which the daemon is killed in a system
// call: in the nth of its kind that one of its threads makes.
func killedAt(t *testing.T, calls string, n int) []string {
	t.Helper()
	return []string{
		"strace", "-D", "-f", "-qq", "-o", os.DevNull,
		"-e", "trace=" + calls, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", calls, n),
	}
}

// An old master whose log goes on over three segments' borders comes back and
// has to cut all of that. It is killed in each system call that removes, cuts,
// renames or syncs a file, until one run ends without. Every start after it
// works without help, finds the old log or the cut one, perhaps with what was
// received since, and ends with the new master's log and no segment too many.
func TestACutThatIsKilledInAnySystemCallIsFinishedByTheNextStart(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a hundred processes")
	}
	needTool(t, "strace")
	t.Parallel()
	const segment = "64KiB"
	a := serveMaster(t, "", "--segment-bytes", segment, "--load", "0,1000,10")
	b := serveSlave(t, "", a.serving.HAListen, "--segment-bytes", segment)
	eventually(t, "the slave has all", func() bool { return a.ended() == 10 && b.status(t).Max == a.status(t).Max })
	common := b.status(t).Max
	b.stop(t)
	a.stop(t)
	a = serveMaster(t, a.store, "--segment-bytes", segment, "--load", "0,1000,230", "--load-outstanding", "8")
	eventually(t, "the old master has more", func() bool { return a.ended() == 230 })
	end := a.status(t).Max
	a.stop(t)
	if segments(t, a.store) < 4 {
		t.Fatalf("the old log has %d segments", segments(t, a.store))
	}
	b = serveMaster(t, b.store, "--segment-bytes", segment, "--load", "0,1000,3")
	eventually(t, "the new master has its own", func() bool { return b.ended() == 3 })
	ends := b.status(t).Max

	caughtUp := func() bool {
		r := b.status(t).Replicas
		return len(r) == 1 && r[0].Acked == ends
	}
	kills, whole, cut := 0, 0, 0
	for _, calls := range []string{"unlinkat,unlink", "ftruncate", "renameat,renameat2,rename", "fsync", "fdatasync"} {
		for n := 1; ; n++ {
			eventually(t, "nobody is left of the last run", func() bool { return len(b.status(t).Replicas) == 0 })
			store := filepath.Join(t.TempDir(), "store")
			system(t, "cp", "-a", a.store, store)
			args := slaveArgs(b.serving.HAListen, "--segment-bytes", segment, "--replica-id", "the-old-master")
			s := daemon{store: store, args: args, wrap: killedAt(t, calls, n)}.start(t)
			eventually(t, "it is killed, or has finished", func() bool { return s.gone() || caughtUp() })
			if !s.gone() {
				s.kill()
				break
			}
			kills++
			switch now := logMax(t, store); {
			case now == end:
				whole++
			case now >= common && now <= ends:
				cut++
			default:
				t.Errorf("killed in %s number %d: the log ends at %d, it was %d, the cut is at %d", calls, n, now, end, common)
			}
			s = daemon{store: store, args: args}.serve(t)
			eventually(t, "it has the new master's log", caughtUp)
			s.stop(t)
			mustVerify(t, store)
			mustEqual(t, b.store, store)
			if got, want := segments(t, store), segments(t, b.store); got > want {
				t.Errorf("killed in %s number %d: %d segments are left, the master has %d", calls, n, got, want)
			}
			if err := os.RemoveAll(store); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d kills: %d found the whole log after it, %d the cut one", kills, whole, cut)
	if kills < 20 || whole == 0 || cut == 0 {
		t.Error("too few kills, or all on one side")
	}
}

func logMax(t *testing.T, store string) int64 {
	t.Helper()
	var info logInfo
	ask(t, &info, "log", "info", "--store", store)
	return info.Max
}

func segments(t *testing.T, store string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "commitlog", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
