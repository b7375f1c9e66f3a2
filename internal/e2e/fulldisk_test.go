package e2e

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of its own in a file. ext4 reserves space as
// the file systems under real stores do.
func smallDisk(t *testing.T, bytes int64) string {
	t.Helper()
	needRoot(t)
	needTool(t, "mkfs.ext4")
	image, at := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, bytes); err != nil {
		t.Fatal(err)
	}
	system(t, "mkfs.ext4", "-q", "-m", "0", image)
	system(t, "mount", "-o", "loop", image, at)
	t.Cleanup(func() { system(t, "umount", at) })
	return at
}

// fill takes all free space of a file system but some, and returns the file
// that holds it.
func fill(t *testing.T, dir string, leave int64) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "somebody else's"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var free unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &free); err != nil {
		t.Fatal(err)
	}
	for n := int64(free.Bavail)*free.Bsize - leave; n > 0; n -= 64 << 10 {
		err := unix.Fallocate(int(f.Fd()), 0, 0, n)
		if err == nil {
			return f.Name()
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	return f.Name()
}

// The next segment has no place: puts are refused and say why, the process
// lives and reads go on, and when there is space again it goes on by itself.
func TestAFullDiskRefusesPutsUntilThereIsSpaceAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 48 MiB")
	}
	disk := smallDisk(t, 64<<20)
	t.Parallel()
	// The rate leaves time to take the space before a third segment does.
	d := daemon{store: filepath.Join(disk, "store"), args: masterArgs("--segment-bytes", "16MiB", "--retention", "0",
		"--load", "120,60KiB,0", "--load-outstanding", "4")}
	m := d.serve(t)
	eventually(t, "there are two segments, and the queues", func() bool {
		files, _ := filepath.Glob(filepath.Join(d.store, "commitlog", "*"))
		return len(files) == 2 && m.ended() > 10
	})
	taken := fill(t, disk, 256<<10)

	const full = "CREATE_MAPPED_FILE_FAILED"
	eventually(t, "puts are refused for want of a segment", func() bool { return m.count(full) > 20 })
	if code, body := m.ask("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	eventually(t, "the node is not ready", func() bool { return !m.ready() })
	before := m.count(putOK)
	end := m.status(t).Max
	mustHold(t, confirmed(m.puts()), readLog(t, d.store)) // reads go on
	for _, p := range m.puts() {
		if p.Status != putOK && (p.Status != full || p.Offset != -1) {
			t.Fatalf("put %+v", p)
		}
	}
	if lines := m.logLines(`"level":"WARN"`, "no next segment"); len(lines) != 1 {
		t.Errorf("%d warnings for one trouble: %q", len(lines), lines)
	}

	lines := len(m.logLines())
	if err := os.Remove(taken); err != nil {
		t.Fatal(err)
	}
	eventually(t, "puts go on", func() bool { return m.count(putOK) > before+100 })
	if now := m.status(t); now.Max <= end || now.State != "serving" || !m.ready() {
		t.Errorf("after the space came back: %+v, the log ended at %d", now, end)
	}
	if len(m.logLines()) == lines {
		t.Error("the trouble's end is not in the log")
	}
	m.stop(t)
	v := mustVerify(t, d.store)
	log := readLog(t, d.store)
	mustHold(t, confirmed(m.puts()), log)
	if int(v.Messages) != m.count(putOK) {
		t.Errorf("%d records for %d puts: a refused put left something", v.Messages, m.count(putOK))
	}
	log.mustCountQueues(t)
}

// A slave on a full disk stops taking the log, lives, and goes on when there
// is space; its master is not held up.
func TestASlaveOnAFullDiskGoesOnWhenThereIsSpaceAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 48 MiB")
	}
	disk := smallDisk(t, 64<<20)
	t.Parallel()
	m := serveMaster(t, "", "--segment-bytes", "16MiB", "--load", "120,60KiB,600", "--load-replicas", "1", "--load-outstanding", "4", "--housekeeping", "5s", "--heartbeat", "1s")
	s := serveSlave(t, filepath.Join(disk, "store"), m.serving.HAListen, "--segment-bytes", "16MiB", "--retention", "0", "--housekeeping", "5s", "--heartbeat", "1s")
	eventually(t, "there are two segments, and the queues", func() bool {
		files, _ := filepath.Glob(filepath.Join(s.store, "commitlog", "*"))
		return len(files) == 2 && s.status(t).Queued > 1<<20
	})
	taken := fill(t, disk, 256<<10)
	eventually(t, "the master has put all", func() bool { return m.count(putOK) == 600 })
	eventually(t, "the slave says what stops it", func() bool {
		st := s.status(t)
		return st.Max < m.status(t).Max && st.Master.State != "transferring" && st.Master.LastError != ""
	})
	if st := s.status(t); st.Max != 32<<20 || st.State != "serving" || s.ready() {
		t.Errorf("slave on a full disk: %+v, want an end at the border of the second segment, serving and not ready", st)
	}
	if err := os.Remove(taken); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the slave has the log", func() bool { return s.status(t).Queued == m.status(t).Max })
	s.stop(t)
	m.stop(t)
	mustEqual(t, m.store, s.store)
	mustVerify(t, s.store)
}
