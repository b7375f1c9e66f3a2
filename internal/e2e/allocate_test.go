package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// File systems answer a reservation of space in their own ways.
func TestSegmentsGetTheirSpaceWhateverTheFileSystemSays(t *testing.T) {
	if testing.Short() {
		t.Skip("runs daemons under strace")
	}
	needTool(t, "strace")
	const none = "CREATE_MAPPED_FILE_FAILED"
	for _, c := range []struct {
		name, inject string
		status       string
		warnings     int // about the file system
	}{
		{"not supported", "error=EOPNOTSUPP", putOK, 1},
		{"invalid argument", "error=EINVAL", putOK, 1},
		{"interrupted", "error=EINTR:when=1..3", putOK, 0},
		{"no space", "error=ENOSPC", none, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := daemon{
				wrap: []string{
					"strace", "-D", "-f", "-qq", "-o", filepath.Join(t.TempDir(), "trace"),
					"-e", "trace=fallocate", "-e", "inject=fallocate:" + c.inject,
				},
				args: masterArgs("--segment-bytes", "64KiB", "--load", "0,1000,200"),
			}.serve(t)
			eventually(t, "the puts have ended", func() bool { return m.ended() == 200 })
			if got := m.count(c.status); got != 200 {
				t.Errorf("%d of 200 puts ended with %s: %+v", got, c.status, m.puts()[0])
			}
			if got := m.logLines(`"level":"WARN"`, "cannot reserve"); len(got) != c.warnings {
				t.Errorf("%d warnings about the file system, want %d: %q", len(got), c.warnings, got)
			}
			if c.status == none {
				if got := m.logLines(`"level":"WARN"`, "no space left on device"); len(got) != 1 {
					t.Errorf("%d warnings about the full disk, want one", len(got))
				}
			}
			mustBeReserved(t, m.store)
			m.stop(t)
			if c.status == putOK {
				mustVerify(t, m.store)
				mustHold(t, m.puts(), readLog(t, m.store))
			}
		})
	}
}

// mustBeReserved wants no segment to be sparse.
func mustBeReserved(t *testing.T, store string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "commitlog", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		i, err := os.Stat(name)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if held := i.Sys().(*syscall.Stat_t).Blocks * 512; held < i.Size() {
			t.Errorf("%s has %d bytes and holds the space of %d", name, i.Size(), held)
		}
	}
}

func TestANodeRunsOnATmpfs(t *testing.T) {
	needRoot(t)
	t.Parallel()
	at := t.TempDir()
	system(t, "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", at)
	t.Cleanup(func() { system(t, "umount", at) })
	store := filepath.Join(at, "store")
	for range 2 {
		m := serveMaster(t, store, "--segment-bytes", "64KiB", "--flush", "SYNC_FLUSH", "--load", "0,1000,300", "--load-outstanding", "4")
		eventually(t, "the puts are confirmed", func() bool { return m.count(putOK) == 300 })
		mustBeReserved(t, store)
		m.kill()
		mustHold(t, m.puts(), readLog(t, store))
	}
	serveMaster(t, store, "--segment-bytes", "64KiB").stop(t)
	mustVerify(t, store)
}
