package transfer

import "encoding/binary"

// ReportBytes is the size of a report.
// RocketMQ: DefaultHAClient.REPORT_HEADER_SIZE.
const ReportBytes = 8

// AppendReport appends a report to dst: the offset that the replica wants
// next, which is one past the last byte it holds.
func AppendReport(dst []byte, offset int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(offset))
}

// ParseReport reads a report; b holds at least ReportBytes. It judges
// nothing: the offset is what the peer wrote.
func ParseReport(b []byte) int64 {
	return int64(binary.BigEndian.Uint64(b))
}

// Range is what a log holds: the bytes [Min, End). It is empty when End is not
// above Min.
type Range struct{ Min, End int64 }

// Empty tells whether the log holds no byte.
func (r Range) Empty() bool { return r.End <= r.Min }

// Holds tells whether a replica that wants offset next can be served: every
// byte of the log and the place just past it.
func (r Range) Holds(offset int64) bool { return r.Min <= offset && offset <= r.End }
