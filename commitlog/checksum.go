package commitlog

import "hash/crc32"

// checksumBytes is how much is copied at once: it stays in a core's cache
// between the copy and the sum.
const checksumBytes = 128 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C of the bytes [from, to) of the log; of no byte it is
// 0. It reads them piece by piece, guarded against faults, and holds no lock:
// appends go on, but a truncation below to mixes two histories or ends it.
// Any goroutine; it takes the time of reading the bytes.
//
// [ErrOutOfRange]: from is above to, or one of them is outside [MinOffset,
// EndOffset], also if the log became shorter on the way.
func (l *Log) Checksum(from, to int64) (uint32, error) {
	if from > to || from < l.MinOffset() || to > l.end.Load() {
		if l.gone.Load() {
			return 0, ErrClosed
		}
		return 0, l.outOfRange(from, to)
	}
	sum, buf := uint32(0), make([]byte, min(to-from, checksumBytes))
	for at := from; at < to; {
		b := buf[:min(int64(len(buf)), to-at)]
		if err := l.readRange(b, at); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, b)
		at += int64(len(b))
	}
	return sum, nil
}
