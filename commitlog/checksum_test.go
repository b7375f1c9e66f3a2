package commitlog

import (
	"errors"
	"hash/crc32"
	"testing"
)

func TestChecksumIsThatOfTheBytes(t *testing.T) {
	o := twinOptions(NewTwin(1))
	o.SegmentBytes = 64 << 10
	l := mustOpen(t, o)
	for i := range 150 {
		mustPut(t, l, "topic", 0, i*37%4000)
	}
	end := l.EndOffset()
	if end < 2*checksumBytes-100 {
		t.Fatalf("the log ends at %d", end)
	}
	all := make([]byte, end)
	if _, err := l.ReadAt(all, 0); err != nil {
		t.Fatal(err)
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	for _, c := range [][2]int64{
		{0, end}, {0, 0}, {end, end}, {0, 1}, {end - 1, end}, {17, 17}, {17, 70001},
		{o.SegmentBytes - 1, o.SegmentBytes + 1}, {1, checksumBytes + 1}, {0, checksumBytes},
	} {
		got, err := l.Checksum(c[0], c[1])
		if want := crc32.Checksum(all[c[0]:c[1]], table); err != nil || got != want {
			t.Errorf("of %v: %08x, %v; want %08x", c, got, err, want)
		}
	}
	for _, c := range [][2]int64{{0, end + 1}, {-1, 5}, {end + 1, end + 1}, {6, 5}} {
		if _, err := l.Checksum(c[0], c[1]); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("of %v: %v", c, err)
		}
	}
	// The standard's check value.
	if got := crc32.Update(0, castagnoli, []byte("123456789")); got != 0xE3069283 {
		t.Errorf("CRC-32C of the digits: %08x", got)
	}
	must(t, l.Close())
	if _, err := l.Checksum(0, 100); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed log: %v", err)
	}
}

// A file that somebody has cut is an error, not the end of the process.
func TestChecksumOverAFileThatWasCutIsAnError(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	for range 100 {
		mustPut(t, l, "topic", 0, 1000)
	}
	must(t, l.Flush())
	awaitDispatch(t, l)
	f, err := OSDisk().Open(l.SegmentPath(0), true)
	must(t, err)
	must(t, errors.Join(f.Truncate(4096), f.Close()))
	_, err = l.Checksum(0, l.EndOffset())
	var bad *CorruptError
	if !errors.As(err, &bad) || bad.Kind != KindFault || bad.Path != l.SegmentPath(0) {
		t.Errorf("checksum: %v", err)
	}
}
