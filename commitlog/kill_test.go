package commitlog

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// child starts this test binary as another process.
func child(t *testing.T, mode, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childMode+"="+mode, childStore+"="+dir)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(stdout)
}

// killOptions are those of the killed writer: segments small enough to roll.
func killOptions(dir string) Options {
	o := testOptions(dir)
	o.Flush, o.PopulateBytes = SyncFlush, 16<<10
	return o
}

// writeUntilKilled puts records from several goroutines, and says on stdout
// what was acknowledged: offset and body, after the flush.
func writeUntilKilled(dir string) error {
	l, err := Open(killOptions(dir))
	if err != nil {
		return err
	}
	failed := make(chan error)
	for g := range 3 {
		go func() {
			for i := 0; ; i++ {
				body := fmt.Sprintf("%d-%d-%s", g, i, strings.Repeat("k", (i*37)%1500))
				a, err := put(l, "topic", int32(g), []byte(body))
				if err == nil {
					err = l.Flush()
				}
				if err != nil {
					failed <- err
					return
				}
				// One write: lines of one process are not mixed.
				if _, err := fmt.Printf("%d %s\n", a.Offset, body); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

// A writer that is killed at random moments loses nothing it acknowledged, and
// its queues agree with its log.
func TestKilledWriterKeepsWhatItAcknowledged(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	dir := filepath.Join(t.TempDir(), "store")
	acknowledged := map[int64]string{}
	for round := range rounds {
		cmd, lines := child(t, "write", dir)
		// Killed after so many lines: at whatever it is doing then.
		for n := 1 + (round*7)%40; n > 0 && lines.Scan(); n-- {
			noteAcknowledged(t, acknowledged, lines.Text())
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			noteAcknowledged(t, acknowledged, lines.Text())
		}
		_ = cmd.Wait()
		if round%10 == 9 || round == rounds-1 {
			l := mustOpen(t, killOptions(dir))
			for at, body := range acknowledged {
				if r, err := l.Read(at); err != nil || string(r.Body) != body {
					t.Fatalf("round %d: the record at %d is gone: %v", round, at, err)
				}
			}
			checkRecords(t, l, -1)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(acknowledged) < rounds*5 {
		t.Errorf("only %d records were acknowledged in %d rounds", len(acknowledged), rounds)
	}
}

func noteAcknowledged(t *testing.T, all map[int64]string, line string) {
	t.Helper()
	offset, body, ok := strings.Cut(line, " ")
	at, err := strconv.ParseInt(offset, 10, 64)
	if !ok || err != nil {
		return // the kill cut it off
	}
	if old, seen := all[at]; seen && old != body {
		t.Fatalf("offset %d was given to %.20s and to %.20s", at, old, body)
	}
	all[at] = body
}

// holdStore opens a store and holds it until its standard input ends.
func holdStore(dir string) error {
	l, err := Open(testOptions(dir))
	if err != nil {
		return err
	}
	fmt.Println("held")
	time.Sleep(time.Minute)
	return l.Close()
}

// Fault 28: one store, one opener.
func TestSecondOpenIsRefusedWithTheHoldersProcess(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "store")
	link := filepath.Join(parent, "link")
	writeStore(t, testOptions(dir), 10, 100)
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	refused := func(path string, pid int) {
		t.Helper()
		_, err := Open(testOptions(path))
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), strconv.Itoa(pid)) {
			t.Errorf("open of %s: %v, want a refusal that names process %d", path, err, pid)
		}
	}
	reads := func() {
		t.Helper()
		l, err := OpenReadOnly(testOptions(dir))
		if err != nil {
			t.Fatal(err)
		}
		checkRecordsReadable(t, l, 10)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}

	l := mustOpen(t, testOptions(dir))
	refused(dir, os.Getpid())
	refused(link, os.Getpid())
	reads()
	refused(dir, os.Getpid()) // reading beside it has not freed the lock
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	cmd, lines := child(t, "hold", dir)
	if !lines.Scan() || lines.Text() != "held" {
		t.Fatal("the other process does not hold the store")
	}
	refused(dir, cmd.Process.Pid)
	refused(link, cmd.Process.Pid)
	reads()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	l = mustOpen(t, testOptions(link)) // no stale lock after a kill
	checkRecords(t, l, 10)
}
