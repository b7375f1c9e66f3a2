package commitlog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/haengine/haengine/internal/fixture"
	"pgregory.net/rapid"
)

// memoryScanner scans a log that is a slice of bytes, which begins at offset
// base and ends at end; what is behind is in the files and not in the log.
func memoryScanner(log []byte, base, end, segmentBytes int64) *scanner {
	read := func(dst []byte, from int64) (int, error) { return copy(dst, log[from-base:end-base]), nil }
	return &scanner{
		read: read, path: func(offset int64) string { return segmentName(offset - offset%segmentBytes) },
		peek: func(dst []byte, from int64) int {
			if from-base >= int64(len(log)) {
				return 0
			}
			return copy(dst, log[from-base:])
		},
		segmentBytes: segmentBytes, end: end, at: base, to: end,
	}
}

// items runs a scan as Log.Scan does.
func (s *scanner) items(low, from, to int64) []Item {
	return slices.Collect(scanItems(s, low, from, to))
}

func TestScanOfTheFixturesIsRocketMQsDump(t *testing.T) {
	for _, name := range []string{"mixed", "killed"} {
		t.Run(name, func(t *testing.T) {
			log, lines := fixtureLog(t, name)
			end := *lines[len(lines)-1].End
			items := memoryScanner(log, 0, end, fixtureSegmentBytes).items(0, 0, end)
			if len(items) != len(lines) {
				t.Fatalf("%d items, want %d", len(items), len(lines))
			}
			for i, line := range lines {
				item := items[i]
				switch {
				case line.End != nil:
					if item.Kind != ItemEnd || item.Offset != *line.End || item.SizeWord != line.SizeWord ||
						fmt.Sprintf("0x%08x", item.MagicWord) != line.MagicWord {
						t.Errorf("end is %+v, want %+v", item, line)
					}
				case line.Blank != nil:
					if item.Kind != ItemFiller || item.Offset != *line.Blank || item.Size != int64(line.Size) {
						t.Errorf("item %d is %+v, want the filler at %d", i, item, *line.Blank)
					}
				case item.Kind != ItemRecord || fmt.Sprintf("%+v", lineOf(item.Record)) != fmt.Sprintf("%+v", line):
					t.Errorf("item %d is %+v, want %+v", i, item, line)
				}
			}
		})
	}
}

// drawLog makes a log of small records in small segments and gives its bytes
// and the offsets of what is in it.
func drawLog(t *rapid.T, base, segmentBytes int64) (log []byte, starts []int64) {
	for n := rapid.IntRange(1, 40).Draw(t, "records"); n > 0; n-- {
		m := &Message{
			Topic: "t", PhysicalOffset: base + int64(len(log)), QueueOffset: int64(n),
			Body: make([]byte, rapid.IntRange(0, 300).Draw(t, "body")),
		}
		for i := range m.Body {
			m.Body[i] = byte(i * n)
		}
		record := AppendRecord(nil, m)
		starts = append(starts, base+int64(len(log)))
		if room := segmentBytes - int64(len(log))%segmentBytes; int64(len(record))+fillerHeaderBytes > room {
			log = append(log, append(AppendFiller(nil, int(room)), make([]byte, room-fillerHeaderBytes)...)...)
			n++ // the record is for the next segment
			continue
		}
		log = append(log, record...)
	}
	return log, starts
}

// Every record that is whole is found, whatever was done to the others, and
// the items lie one behind the other over the whole log.
func TestScanFindsEachWholeRecordAfterDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const base, segmentBytes = 4096, 1024
		log, starts := drawLog(t, base, segmentBytes)
		end := base + int64(len(log))
		starts = append(starts, end)
		bad := make([]bool, len(log))
		for range rapid.IntRange(0, 4).Draw(t, "damages") {
			at := rapid.IntRange(0, len(log)-1).Draw(t, "at")
			n := min(rapid.IntRange(1, 400).Draw(t, "bytes"), len(log)-at)
			for i := at; i < at+n; i++ {
				log[i], bad[i] = rapid.Byte().Draw(t, "byte"), true
			}
		}
		found := make(map[int64]bool)
		at := int64(base)
		items := memoryScanner(log, base, end, segmentBytes).items(base, base, end)
		for i, item := range items {
			if item.Offset != at || (item.Size <= 0) != (i == len(items)-1) || (item.Kind == ItemEnd) != (i == len(items)-1 && item.Size == 0) {
				if item.Kind != ItemEnd || i != len(items)-1 || item.Offset != at {
					t.Fatalf("item %d is %+v, want one at %d", i, item, at)
				}
			}
			if (item.Kind == ItemDamage) != (item.Err != nil) || (item.Kind == ItemRecord) != (item.Record != nil) {
				t.Fatalf("item %d is %+v", i, item)
			}
			if item.Kind == ItemDamage && (item.Err.Offset != item.Offset || item.Err.Path != item.Segment || item.Err.Kind == "") {
				t.Fatalf("item %d is damage without its place: %v", i, item.Err)
			}
			found[item.Offset] = item.Kind == ItemRecord || item.Kind == ItemFiller
			at += item.Size
		}
		if at != end {
			t.Fatalf("the items end at %d, the log at %d", at, end)
		}
		for i, start := range starts[:len(starts)-1] {
			if whole := !slices.Contains(bad[start-base:starts[i+1]-base], true); whole && !found[start] {
				t.Fatalf("the record or filler at %d is whole and was not found", start)
			}
		}
	})
}

func TestScanBeginsAtTheNextBorderAndEndsAtOne(t *testing.T) {
	const segmentBytes = 4096
	var log []byte
	var starts []int64
	for range 5 {
		starts = append(starts, int64(len(log)))
		log = AppendRecord(log, &Message{Topic: "t", Body: make([]byte, 100), PhysicalOffset: int64(len(log))})
	}
	end := int64(len(log))
	for _, c := range []struct {
		name     string
		from, to int64
		end      int64 // of the log
		want     []int64
		partial  int64
	}{
		{"all", 0, end, end, []int64{0, 192, 384, 576, 768, 960}, 0},
		{"from inside a record", 1, end, end, []int64{192, 384, 576, 768, 960}, 0},
		{"from the last byte", end - 1, end, end, []int64{960}, 0},
		{"from the end", end, end, end, []int64{960}, 0},
		{"to a border", 192, 576, end, []int64{192, 384, 576}, 0},
		{"to the inside of a record", 192, 577, end, []int64{192, 384, 576, 768}, 0},
		{"nothing", 192, 192, end, []int64{192}, 0},
		{"last record not all there", 384, end, end - 1, []int64{384, 576, 768}, 191},
		{"last record hardly there", 576, end, 768 + 5, []int64{576, 768}, 5},
	} {
		s := memoryScanner(log, 0, c.end, segmentBytes)
		var got []int64
		items := s.items(0, c.from, c.to)
		for _, item := range items {
			got = append(got, item.Offset)
			if item.Kind == ItemDamage {
				t.Errorf("%s: %v", c.name, item.Err)
			}
		}
		last := items[len(items)-1]
		if !slices.Equal(got, c.want) || last.Kind != ItemEnd || last.Size != c.partial {
			t.Errorf("%s: items at %v, the last of %d bytes; want %v, %d", c.name, got, last.Size, c.want, c.partial)
		}
	}
	if starts[4] != 768 {
		t.Fatalf("records at %v: the table is wrong", starts)
	}
}

// A place that cannot be read is damage to the end of its segment; the scan
// goes on in the next one.
func TestScanGoesOnBehindASegmentThatCannotBeRead(t *testing.T) {
	const segmentBytes = 256
	record := func(at int64) []byte {
		b := AppendRecord(nil, &Message{Topic: "t", Body: make([]byte, 100), PhysicalOffset: at})
		return append(append(b, AppendFiller(nil, segmentBytes-len(b))...), make([]byte, segmentBytes-len(b)-8)...)
	}
	log := append(append(record(0), record(256)...), record(512)...)
	s := memoryScanner(log, 0, 768, segmentBytes)
	read := s.read
	s.read = func(dst []byte, from int64) (int, error) {
		if from >= 256 && from < 512 {
			return 0, io.ErrUnexpectedEOF
		}
		return read(dst, from)
	}
	var kinds []ItemKind
	for _, item := range s.items(0, 0, 768) {
		kinds = append(kinds, item.Kind)
		if item.Kind == ItemDamage && (item.Offset != 256 || item.Size != 256 || item.Err.Kind != KindFault || !errors.Is(item.Err, ErrCorrupt)) {
			t.Errorf("damage is %+v %v", item, item.Err)
		}
	}
	if want := []ItemKind{ItemRecord, ItemFiller, ItemDamage, ItemRecord, ItemFiller, ItemEnd}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
}

// The log's own scan, of a store that nobody else has open, leaves the store
// as it is and ends where RocketMQ's recovery does.
func TestScanOfAClosedStoreEndsAtItsRecoveredEnd(t *testing.T) {
	for _, name := range []string{"mixed", "killed"} {
		dir, lines := fixture.Unpack(t, name), fixture.Expected(t, name)
		l, err := OpenReadOnly(Options{Dir: dir, Logger: discard})
		if err != nil {
			t.Fatal(err)
		}
		var last Item
		items := 0
		for last = range l.Scan(0, math.MaxInt64) {
			items++
			if last.Kind == ItemDamage {
				t.Errorf("%s: %v", name, last.Err)
			}
		}
		want := lines[len(lines)-1]
		if items != len(lines) || last.Kind != ItemEnd || last.Offset != *want.End || last.SizeWord != want.SizeWord || last.MagicWord != 0 {
			t.Errorf("%s: %d items, the last %+v; want %d, the end at %d", name, items, last, len(lines), *want.End)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
