package commitlog

import (
	"fmt"
	"strings"
	"testing"
)

// A replica that dies inside a record has the front of it, and zeros behind. It
// must not be taken for a whole one, wherever it was cut off: its bytes would
// not be the master's.
func TestReplicaThatDiesInsideARecordHasNoneOfIt(t *testing.T) {
	for _, properties := range []string{"", "KEYS\x01abc\x02TAGS\x01x\x02"} {
		o := twinOptions(NewTwin(3))
		master := mustOpen(t, o)
		for i := range 2 {
			e, err := master.Encode(&Message{Topic: "orders", Body: fmt.Appendf(nil, "body %d", i), Properties: properties})
			must(t, err)
			_, err = master.Append(e, nil)
			must(t, err)
			e.Release()
		}
		all := make([]byte, master.EndOffset())
		_, err := master.ReadAt(all, 0)
		must(t, err)
		first := recordSizeWord(all)
		must(t, master.Close())
		for received := first + 1; received < int64(len(all)); received++ {
			disk := NewTwin(4)
			o.Disk = disk
			replica := mustOpen(t, o)
			copy(mustReserve(t, replica), all[:received])
			must(t, replica.Publish(int(received)))
			disk.PowerOffAfter(0) // the dying process does nothing more
			_ = replica.Close()
			disk.Kill()
			replica = mustOpen(t, o)
			want := first
			if zeros(all[received:]) { // what stands there is what would have come
				want = int64(len(all))
			}
			if end := replica.EndOffset(); end != want {
				t.Errorf("%d of %d bytes came, and the log ends at %d, want %d", received, len(all), end, want)
			}
			must(t, replica.Close())
		}
	}
}

// A record of somebody else's whose last byte is a zero and ends the last segment
// has nothing behind it to be looked at.
func TestARecordUpToTheBorderOfTheLastSegment(t *testing.T) {
	const segment = 8192
	m := &Message{Topic: "orders", Properties: "k\x01v\x00"}
	m.Body = make([]byte, segment-len(AppendRecord(nil, m)))
	record := AppendRecord(nil, m)
	if len(record) != segment {
		t.Fatal(len(record))
	}
	disk := NewTwin(4)
	o := twinOptions(disk)
	o.SegmentBytes, o.Limits.BodyBytes = segment, segment
	l := mustOpen(t, o)
	if err := publish(t, l, record, segment); err != nil {
		t.Fatal(err)
	}
	disk.PowerOffAfter(0)
	_ = l.Close()
	disk.Kill()
	l = mustOpen(t, o)
	if l.EndOffset() != segment {
		t.Errorf("the log ends at %d", l.EndOffset())
	}
	must(t, l.Close())
}

// A replica whose segments are larger than its master's may have been stopped by a
// filler that it had whole, before anything came behind it. Its store is refused as
// one in which records follow; a filler whose size was damaged is cut off.
func TestStoreThatEndsWithAnotherSegmentSizesFillerIsRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		end     int64 // of the filler
		behind  int   // bytes of the record that follows
		refused bool
	}{
		{"where a segment can end", 8192, 0, true},
		{"where a segment can end, a record follows", 8192, 1000, true},
		{"where a segment can end, a record's front follows", 8192, 40, true},
		{"where none can", 8200, 0, false},
		{"where none can, a record follows", 8200, 1000, true},
		{"where none can, a record's front follows", 8200, 40, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions(t.TempDir())
			last := writeStore(t, o, 7, 1000)[6]
			patch(t, o.Dir, o.SegmentBytes, last.EndOffset, AppendFiller(nil, int(c.end-last.EndOffset)))
			record := AppendRecord(nil, &Message{Topic: "topic", Body: []byte("behind"), PhysicalOffset: c.end})
			patch(t, o.Dir, o.SegmentBytes, c.end, record[:min(c.behind, len(record))])
			patch(t, o.Dir, o.SegmentBytes, c.end+4000, []byte("what another window would show"))
			l, err := Open(o)
			if !c.refused {
				must(t, err)
				defer l.Close()
				if l.EndOffset() != last.EndOffset {
					t.Errorf("ends at %d, want %d", l.EndOffset(), last.EndOffset)
				}
				return
			}
			if err == nil {
				_ = l.Close()
				t.Fatal("opened")
			}
			for _, part := range []string{"65536 bytes", fmt.Sprint("ends at ", c.end), "smaller"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}
