package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// filledStore makes a store with some puts in it and a clean shutdown.
func filledStore(t *testing.T, puts int, args ...string) string {
	t.Helper()
	m := serveMaster(t, "", append(args, "--load", fmt.Sprintf("0,1000,%d", puts), "--load-outstanding", "8")...)
	eventually(t, "the store is filled", func() bool { return m.count(putOK) == puts })
	m.stop(t)
	return m.store
}

// mustRefuse wants a daemon to end by itself with exit code 1 or 2 and a reason.
func (d daemon) mustRefuse(t *testing.T, parts ...string) {
	t.Helper()
	n := d.start(t)
	code := n.waitExit(t)
	text := strings.Join(n.tail(20), "\n")
	if code != 1 && code != 2 {
		t.Errorf("exit code %d, want a refusal:\n%s", code, text)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("the refusal does not name %q:\n%s", part, text)
		}
	}
}

func TestASecondDaemonOnAStoreIsRefusedWithTheHoldersProcess(t *testing.T) {
	t.Parallel()
	m := serveMaster(t, "", "--load", "0,100,50")
	eventually(t, "there is something to read", func() bool { return m.count(putOK) == 50 })
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(m.store, link); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(m.pid())
	for _, name := range []string{m.store, link} {
		daemon{store: name, args: masterArgs()}.mustRefuse(t, name, pid)
		if v := mustVerify(t, name); v.Messages != 50 { // reading beside it works
			t.Errorf("%d messages beside the running node, want 50", v.Messages)
		}
	}
	if !m.ready() {
		t.Error("the node that holds the store is not ready any more")
	}
	m.kill()
	serveMaster(t, link).stop(t) // no stale lock
}

func TestAnotherSegmentSizeThanTheStoresIsRefusedWithBoth(t *testing.T) {
	t.Parallel()
	store := filledStore(t, 20)
	before := info(t, store)
	daemon{store: store, args: masterArgs("--segment-bytes", "2MiB")}.mustRefuse(t, "1048576", "2097152")
	if after := info(t, store); after != before {
		t.Errorf("the refused start changed the store: %+v, was %+v", after, before)
	}
	serveMaster(t, store).stop(t)
}

func TestForeignFilesAmongTheSegmentsAreLeftAloneWithOneWarning(t *testing.T) {
	t.Parallel()
	store := filledStore(t, 20)
	dir := filepath.Join(store, "commitlog")
	names := []string{".DS_Store", "00000000000000000000.bak", "0000000000000000000", "notes.txt"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("not a segment"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "00000000000009437184"), 0o600); err != nil {
		t.Fatal(err)
	}
	names = append(names, "lost+found", "00000000000009437184")

	m := serveMaster(t, store, "--load", "0,1000,20")
	eventually(t, "puts go on", func() bool { return m.count(putOK) == 20 })
	if warnings := m.logLines(`"level":"WARN"`, names[0]); len(warnings) != 1 {
		t.Errorf("%d warnings name a foreign file, want one: %q", len(warnings), warnings)
	} else {
		for _, name := range names {
			if !strings.Contains(warnings[0], name) {
				t.Errorf("the warning does not name %s: %s", name, warnings[0])
			}
		}
	}
	m.stop(t)
	for _, name := range names[:4] {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != "not a segment" {
			t.Errorf("%s was changed: %q, %v", name, b, err)
		}
	}
	for name, mode := range map[string]fs.FileMode{"lost+found": fs.ModeDir, "00000000000009437184": fs.ModeNamedPipe} {
		if i, err := os.Lstat(filepath.Join(dir, name)); err != nil || i.Mode().Type() != mode {
			t.Errorf("%s was changed: %v, %v", name, i, err)
		}
	}
	mustVerify(t, store)
}

func TestASegmentWithAMisplacedNameIsRefused(t *testing.T) {
	t.Parallel()
	store := filledStore(t, 20)
	if err := os.WriteFile(filepath.Join(store, "commitlog", "00000000000001000000"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon{store: store, args: masterArgs()}.mustRefuse(t, "00000000000001000000", "1048576")
}

// The node's user may read the store and not write it.
func TestAReadOnlyStoreIsRefusedWithItsNameAndStillReadable(t *testing.T) {
	t.Parallel()
	store := filledStore(t, 20)
	openToAll(t, store)
	nobody := unprivileged()
	forEach(t, store, func(path string, d fs.DirEntry) error {
		if d.IsDir() {
			return os.Chmod(path, 0o555)
		}
		return os.Chmod(path, 0o444)
	})
	defer forEach(t, store, func(path string, _ fs.DirEntry) error { return os.Chmod(path, 0o755) })
	before := contents(t, store)
	daemon{store: store, args: masterArgs(), user: nobody}.mustRefuse(t, store, "permission denied")
	daemon{store: filepath.Join(store, "below"), args: masterArgs(), user: nobody}.mustRefuse(t, store, "permission denied")
	if r := runAs(t, nobody, "log", "verify", "--store", store); r.code != 0 {
		t.Errorf("log verify of a store that can only be read: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	mustHaveContents(t, store, before)
}

func TestAStoreOnAReadOnlyMountIsRefusedAndStillReadable(t *testing.T) {
	needRoot(t)
	t.Parallel()
	store := filledStore(t, 20)
	before := contents(t, store)
	at := t.TempDir()
	system(t, "mount", "--bind", store, at)
	t.Cleanup(func() { system(t, "umount", at) })
	system(t, "mount", "-o", "remount,bind,ro", at)
	daemon{store: at, args: masterArgs()}.mustRefuse(t, at, "read-only file system")
	mustVerify(t, at)
	mustHaveContents(t, at, before)
}

// The first segments are gone, as after a clean-up by hand while the node was
// down: the log and its queues begin where there is something, without a flood
// of complaints, and a slave gets what there is.
func TestAStoreWhoseFirstSegmentsAreGoneBeginsWithTheFirstThere(t *testing.T) {
	t.Parallel()
	store := filledStore(t, 400, "--segment-bytes", "64KiB")
	const begin = 5 * 64 << 10
	for base := 0; base < begin; base += 64 << 10 {
		if err := os.Remove(filepath.Join(store, "commitlog", fmt.Sprintf("%020d", base))); err != nil {
			t.Fatal(err)
		}
	}
	m := serveMaster(t, store, "--segment-bytes", "64KiB", "--plain-history", "first", "--load", "0,1000,40")
	if m.serving.MinOffset != begin || m.serving.State != "" {
		t.Fatalf("serving %+v, want a log that begins at %d", m.serving, begin)
	}
	eventually(t, "puts go on", func() bool { return m.count(putOK) == 40 })
	s := serveSlave(t, "", m.serving.HAListen, "--segment-bytes", "64KiB")
	eventually(t, "the slave has the log", func() bool { return s.status(t).Queued == m.status(t).Max })
	for _, n := range []*node{m, s} {
		if lines := n.logLines(`"level":"WARN"`); len(lines) > 5 {
			t.Errorf("%d warnings: %q", len(lines), lines)
		}
		n.stop(t)
		mustVerify(t, n.store)
	}
	mustEqual(t, m.store, s.store)
	next := map[int32]int64{}
	for _, r := range readLog(t, store).records {
		if want, seen := next[r.queue]; seen && r.queueOffset != want {
			t.Errorf("record at %d has queue offset %d, want %d", r.offset, r.queueOffset, want)
		}
		next[r.queue] = r.queueOffset + 1
	}
	for queue, end := range next {
		if end != 110 {
			t.Errorf("queue %d ends at %d, want 110: 400 puts before and 40 after in 4 queues", queue, end)
		}
	}
}

func forEach(t *testing.T, dir string, do func(string, fs.DirEntry) error) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return do(path, d)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func mustHaveContents(t *testing.T, dir string, want map[string][]byte) {
	t.Helper()
	got := contents(t, dir)
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s was not there before", name)
		}
	}
	for name, b := range want {
		if string(got[name]) != string(b) {
			t.Errorf("%s was changed", name)
		}
	}
}

// unprivileged is a user who may do nothing; nil if the test has no rights to
// give up.
func unprivileged() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	const nobody = 65534
	return &syscall.Credential{Uid: nobody, Gid: nobody}
}

// openToAll lets every user come to a directory of the test's.
func openToAll(t *testing.T, dir string) {
	t.Helper()
	for dir = filepath.Dir(dir); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a file system")
	}
}

// needTool skips where a program is not installed.
func needTool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("needs %s: %v", name, err)
	}
}

// system runs a program that must succeed.
func system(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
