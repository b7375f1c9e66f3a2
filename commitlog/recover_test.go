package commitlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/haengine/haengine/internal/fixture"
)

// noted is a logger that keeps its warnings and errors.
type noted struct {
	infos bool // keeps information, too
	mu    sync.Mutex
	lines []string
}

func (n *noted) logger() *slog.Logger {
	least := slog.LevelWarn
	if n.infos {
		least = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: least}))
}

func (n *noted) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, string(b))
	return len(b), nil
}

func (n *noted) count(parts ...string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, line := range n.lines {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			count++
		}
	}
	return count
}

func (n *noted) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.lines, "")
}

// logSum is the SHA-256 of the log's bytes.
func logSum(t testing.TB, l *Log) string {
	t.Helper()
	sum := sha256.New()
	buf := make([]byte, 1<<20)
	for at := l.MinOffset(); at < l.EndOffset(); {
		n, err := l.copyRange(buf, at)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(buf[:n])
		at += int64(n)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func fixtureOptions(dir string) Options {
	return Options{Dir: dir, Logger: discard, Preallocate: true}
}

func TestRocketMQsStoresRecoverToItsEndAndBytes(t *testing.T) {
	for _, name := range []string{"mixed", "killed"} {
		t.Run(name, func(t *testing.T) {
			dir := fixture.Unpack(t, name)
			want := fixture.Recovery(t, name)
			check := func(when string, l *Log) {
				t.Helper()
				if l.MinOffset() != want.Min || l.EndOffset() != want.Max {
					t.Errorf("%s: log is [%d, %d), want [%d, %d)", when, l.MinOffset(), l.EndOffset(), want.Min, want.Max)
				}
				if sum := logSum(t, l); sum != want.SHA256 {
					t.Errorf("%s: sha256 %s, want %s", when, sum, want.SHA256)
				}
			}
			for _, when := range []string{"first", "second", "third"} {
				reader, err := OpenReadOnly(fixtureOptions(dir))
				if err != nil {
					t.Fatal(err)
				}
				check(when+" time, reading only", reader)
				if clean := reader.Info().CleanShutdown; clean != (name == "mixed" || when != "first") {
					t.Errorf("%s time: clean shutdown is %v", when, clean)
				}
				if err := reader.Close(); err != nil {
					t.Fatal(err)
				}
				l := mustOpen(t, fixtureOptions(dir))
				check(when+" time, opened", l)
				if got := l.DispatchedOffset(); got != want.Max {
					t.Errorf("dispatched to %d, want %d", got, want.Max)
				}
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
				if l.Info().Created {
					t.Error("RocketMQ's store counts as ours")
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			entries, err := os.ReadDir(filepath.Join(dir, segmentsDirectory))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if info, _ := e.Info(); len(e.Name()) != 20 || info.Size() != 1<<20 {
					t.Errorf("RocketMQ would refuse %s of %d bytes", e.Name(), info.Size())
				}
			}
		})
	}
}

// writeStore makes a store of ours with records of n body bytes each, closes
// it, and gives what was appended.
func writeStore(t *testing.T, o Options, records, n int) []Appended {
	t.Helper()
	l := mustOpen(t, o)
	var all []Appended
	for i := range records {
		all = append(all, mustPut(t, l, "topic", int32(i%3), n))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// patch writes bytes into a store's segment at an offset of the log.
func patch(t testing.TB, dir string, segmentBytes, offset int64, b []byte) {
	t.Helper()
	path := filepath.Join(dir, segmentsDirectory, segmentName(offset-offset%segmentBytes))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, offset%segmentBytes); err != nil {
		t.Fatal(err)
	}
}

// crashed makes a closed store look as after a crash, with a hint that knows
// the log up to an offset only. With asRocketMQ there is no hint.
func crashed(t testing.TB, dir string, flushed int64, asRocketMQ bool) {
	t.Helper()
	crashedOn(t, OSDisk(), dir, flushed, asRocketMQ)
}

func crashedOn(t testing.TB, disk Disk, dir string, flushed int64, asRocketMQ bool) {
	t.Helper()
	if err := writeAbort(disk, dir); err != nil {
		t.Fatal(err)
	}
	if asRocketMQ {
		if err := disk.Remove(filepath.Join(dir, hintName)); err != nil {
			t.Fatal(err)
		}
		return
	}
	h, err := readHint(disk, dir)
	if err != nil || h == nil {
		t.Fatal(h, err)
	}
	h.Flushed, h.Queued, h.TailBytes, h.Queues = flushed, flushed, 0, queueEnds{}
	if err := writeHint(disk, dir, h); err != nil {
		t.Fatal(err)
	}
}

// Fault 11 of the list: the last record torn at each of its bytes.
func TestTornLastRecordEndsTheLogAtItsStart(t *testing.T) {
	disk := NewTwin(11)
	o := twinOptions(disk)
	all := writeStore(t, o, 20, 100)
	last := all[len(all)-1]
	segment := filepath.Join(o.Dir, segmentsDirectory, segmentName(last.Offset-last.Offset%o.SegmentBytes))
	record := make([]byte, last.EndOffset-last.Offset)
	readTwin(t, disk, segment, last.Offset%o.SegmentBytes, record)
	random := rand.New(rand.NewPCG(11, 11))
	for _, asRocketMQ := range []bool{false, true} {
		for k := range record {
			torn := bytes.Clone(record)
			clear(torn[k:])
			if k%2 == 1 {
				for i := k; i < len(torn); i++ {
					torn[i] = byte(random.Uint32())
				}
			}
			// RocketMQ's checksum covers the body: a tear inside the properties
			// leaves a record, unless zeros tell that its end never came.
			want := last.Offset
			if k > len(record)-len("TAGS\x01TagA\x02") && k%2 == 1 {
				want = last.EndOffset
			}
			o.Disk = disk.clone()
			crashedOn(t, o.Disk, o.Dir, all[10].Offset, asRocketMQ)
			writeTwin(t, o.Disk, segment, last.Offset%o.SegmentBytes, torn)
			l, err := Open(o)
			if err != nil {
				t.Fatalf("byte %d: %v", k, err)
			}
			if end := l.EndOffset(); end != want {
				t.Errorf("torn at byte %d, RocketMQ's %v: the log ends at %d, want %d", k, asRocketMQ, end, want)
			}
			if a := mustPut(t, l, "topic", 1, 10); a.Offset != want {
				t.Errorf("the next record is at %d, want %d", a.Offset, want)
			}
			checkRecords(t, l, -1)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func readTwin(t testing.TB, disk Disk, path string, at int64, b []byte) {
	t.Helper()
	f, err := disk.Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func writeTwin(t testing.TB, disk Disk, path string, at int64, b []byte) {
	t.Helper()
	f, err := disk.Open(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// A cut tail is not lost: it is in cut/, and zeros are in its place.
func TestTornTailIsKeptAsideAndZeroed(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	all := writeStore(t, o, 20, 100)
	bad := all[15]
	crashed(t, o.Dir, all[10].Offset, false)
	patch(t, o.Dir, 64<<10, bad.Offset+90, []byte{1, 2, 3})
	warned := &noted{}
	o.Logger = warned.logger()
	l := mustOpen(t, o)
	if l.EndOffset() != bad.Offset {
		t.Fatalf("the log ends at %d, want %d", l.EndOffset(), bad.Offset)
	}
	kept, err := filepath.Glob(filepath.Join(o.Dir, cutDirectory, fmt.Sprintf("%d-*", bad.Offset)))
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	if warned.count("kept aside", kept[0]) != 1 {
		t.Errorf("warnings: %s", warned.text())
	}
	b, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CheckRecord(b[all[16].Offset-bad.Offset:], all[16].Offset, true); err != nil {
		t.Errorf("the record behind the bad one is not in the kept file: %v", err)
	}
	rest := make([]byte, 64<<10-bad.Offset)
	if n := l.peek(rest, bad.Offset); n != len(rest) || !bytes.Equal(rest, make([]byte, n)) {
		t.Error("the segment is not zero behind the end")
	}
}

// checkRecords reads the log through and compares the queues with it.
func checkRecords(t testing.TB, l *Log, want int) {
	t.Helper()
	awaitOffset(t, l, l.EndOffset())
	next := map[QueueID]int64{}
	n, at := 0, l.MinOffset()
	for r, err := range l.Records(at) {
		if err != nil {
			t.Fatalf("record %d: %v", n, err)
		}
		n++
		if !queued(r.SysFlag) {
			continue
		}
		id := QueueID{r.Topic, r.QueueID}
		if index, seen := next[id]; seen && index != r.QueueOffset {
			t.Errorf("record at %d has queue offset %d, want %d", r.PhysicalOffset, r.QueueOffset, index)
		}
		next[id] = r.QueueOffset + 1
		var e [1]QueueEntry
		if m, err := l.ReadQueue(id, r.QueueOffset, e[:]); err != nil || m != 1 || e[0].Offset != r.PhysicalOffset || e[0].Size != r.Size {
			t.Errorf("queue %v holds %v (%d, %v) for the record at %d", id, e, m, err, r.PhysicalOffset)
		}
	}
	if n != want && want >= 0 {
		t.Errorf("%d records, want %d", n, want)
	}
	for id, end := range next {
		if _, got, _ := l.QueueBounds(id); got != end {
			t.Errorf("queue %v ends at %d, want %d", id, got, end)
		}
	}
}

// Fault 14: offsets in the checkpoint that lie beyond the log.
func TestWatermarksBeyondTheLogAreClampedAndSaid(t *testing.T) {
	dir := fixture.Unpack(t, "killed")
	end := fixture.Recovery(t, "killed").Max
	c := Checkpoint{ConfirmOffset: 1 << 40, MasterFlushedOffset: 1 << 41}
	if err := writeCheckpoint(OSDisk(), dir, c); err != nil {
		t.Fatal(err)
	}
	warned := &noted{}
	o := fixtureOptions(dir)
	o.Logger = warned.logger()
	l := mustOpen(t, o)
	if l.EndOffset() != end {
		t.Errorf("the log ends at %d, want %d", l.EndOffset(), end)
	}
	for _, field := range []string{"confirm_offset", "master_flushed_offset"} {
		if warned.count("checkpoint is beyond", field) != 1 {
			t.Errorf("%s is not said: %s", field, warned.text())
		}
	}
	a := mustPut(t, l, "topic-0", 1, 10)
	if r, err := l.Read(a.Offset); err != nil || len(r.Body) != 10 {
		t.Errorf("the new record is hidden: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := readCheckpoint(OSDisk(), dir, l.opts.Now())
	if err != nil || c.ConfirmOffset > a.EndOffset || c.MasterFlushedOffset > a.EndOffset {
		t.Errorf("checkpoint is %+v (%v), the log ends at %d", c, err, a.EndOffset)
	}
}

// A store that RocketMQ has used since our hint was written is recovered by its
// rules: what looks like damage to us is where it ended the log.
func TestHintIsIgnoredAfterRocketMQ(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	all := writeStore(t, o, 20, 100)
	patch(t, o.Dir, 64<<10, all[15].Offset, make([]byte, 64))
	broken, err := OpenReadOnly(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := broken.Writable(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("with the hint: %v, want damage", err)
	}
	broken.Close()
	// A broker writes the lock file when it starts.
	if err := os.WriteFile(filepath.Join(o.Dir, lockName), []byte("lock"), 0o644); err != nil {
		t.Fatal(err)
	}
	l := mustOpen(t, o)
	if l.EndOffset() != all[15].Offset || l.Writable() != nil {
		t.Errorf("the log ends at %d, want %d; %v", l.EndOffset(), all[15].Offset, l.Writable())
	}
	if !l.Info().Created {
		t.Error("the store is ours, whoever used it since")
	}
}

// Invariant 10: bad bytes below the flushed offset are damage.
func TestBadBytesBelowTheFlushedOffsetAreDamage(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	all := writeStore(t, o, 100, 1000)
	bad := all[len(all)-1]
	patch(t, o.Dir, 64<<10, bad.EndOffset-500, []byte("not what was written"))
	before := storeFiles(t, o.Dir)
	l := mustOpen(t, o)
	err := l.Writable()
	var where *CorruptError
	if !errors.Is(err, ErrReadOnly) || !errors.As(err, &where) || where.Offset != bad.Offset || where.Kind != KindCRC || where.Path != l.SegmentPath(bad.Offset) {
		t.Fatalf("%v (%+v), want the record at %d", err, where, bad.Offset)
	}
	e, eerr := l.Encode(&Message{Topic: "topic", Body: []byte("x")})
	if eerr != nil {
		t.Fatal(eerr)
	}
	if _, err := l.Append(e, nil); !errors.Is(err, ErrReadOnly) {
		t.Errorf("append: %v", err)
	}
	e.Release()
	if _, err := l.Reserve(1); !errors.Is(err, ErrReadOnly) {
		t.Errorf("reserve: %v", err)
	}
	if _, err := l.Read(all[0].Offset); err != nil {
		t.Errorf("good records must be readable: %v", err)
	}
	if l.EndOffset() != bad.EndOffset {
		t.Errorf("the log ends at %d, want %d", l.EndOffset(), bad.EndOffset)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if after := storeFiles(t, o.Dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("segments were changed:\n%v\n%v", before, after)
	}
}

// A read that meets damage below the flushed offset stops the puts, too.
func TestReadThatMeetsDamageMakesTheLogReadOnly(t *testing.T) {
	o := testOptions(filepath.Join(t.TempDir(), "store"))
	all := writeStore(t, o, 100, 1000)
	patch(t, o.Dir, 64<<10, all[3].EndOffset-500, []byte("not what was written"))
	told := make(chan error, 1)
	o.OnTrouble = func(err error) { told <- err }
	l := mustOpen(t, o)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := l.Writable(); err != nil {
		t.Fatalf("nobody has looked yet: %v", err)
	}
	if _, err := l.Read(all[3].Offset + 1); !errors.Is(err, ErrCorrupt) || l.Writable() != nil {
		t.Errorf("an offset inside a record is no damage: %v, %v", err, l.Writable())
	}
	if _, err := l.Read(all[3].Offset); !errors.Is(err, ErrCorrupt) {
		t.Errorf("read: %v", err)
	}
	if err := <-told; !errors.Is(err, ErrReadOnly) || !errors.Is(l.Writable(), ErrCorrupt) {
		t.Errorf("told %v, writable %v", err, l.Writable())
	}
}

func checkRecordsReadable(t testing.TB, l *Log, least int) {
	t.Helper()
	n := 0
	for _, err := range l.Records(l.MinOffset()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n < least {
		t.Errorf("%d records, want at least %d", n, least)
	}
}

// Damage in the middle of what only RocketMQ vouches for ends the log, as it
// does there; nothing of what follows is lost.
func TestSegmentsBehindTheEndAreMovedAside(t *testing.T) {
	for _, asRocketMQ := range []bool{false, true} {
		o := testOptions(filepath.Join(t.TempDir(), "store"))
		all := writeStore(t, o, 170, 1000) // three segments
		var bad Appended
		for _, a := range all {
			if a.Offset > 70<<10 {
				bad = a
				break
			}
		}
		crashed(t, o.Dir, all[10].Offset, asRocketMQ)
		patch(t, o.Dir, 64<<10, bad.Offset, []byte{0, 0, 0, 0, 0, 0})
		warned := &noted{}
		o.Logger = warned.logger()
		l := mustOpen(t, o)
		if l.EndOffset() != bad.Offset || len(*l.list.Load()) != 2 {
			t.Errorf("the log ends at %d in %d segments, want %d", l.EndOffset(), len(*l.list.Load()), bad.Offset)
		}
		kept, _ := filepath.Glob(filepath.Join(o.Dir, cutDirectory, "131072-196608-*"))
		if len(kept) != 1 || warned.count("kept aside", kept[0]) != 1 {
			t.Errorf("kept %v; %s", kept, warned.text())
		}
		mustPut(t, l, "topic", 0, 1000)
		checkRecords(t, l, -1)
	}
}
