package transfer

import "encoding/binary"

// Sizes of the plain wire format, in bytes.
const (
	// FrameHeaderBytes is what stands before a frame's body.
	// RocketMQ: DefaultHAConnection.TRANSFER_HEADER_SIZE.
	FrameHeaderBytes = 12
	// FrameBytesMax is the largest body a real slave can take: its read buffer
	// of 4 MiB has to hold header and body together, and a frame that does not
	// fit makes it wait, close and ask for the same frame again for ever.
	FrameBytesMax = 4<<20 - FrameHeaderBytes
)

// Frame is a piece of log on its way from the master to a replica: Bytes
// bytes of the log from Offset follow the header. With Bytes 0 it is a
// heartbeat, and Offset is where the next frame will begin.
type Frame struct {
	Offset int64
	Bytes  int32
}

// End returns one past the last offset that the frame carries.
func (f Frame) End() int64 { return f.Offset + int64(f.Bytes) }

// AppendFrame appends the frame's header to dst.
func AppendFrame(dst []byte, f Frame) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.Offset))
	return binary.BigEndian.AppendUint32(dst, uint32(f.Bytes))
}

// ParseFrame reads a frame's header; b holds at least FrameHeaderBytes. It
// judges nothing: offset and size are what the peer wrote, negative or not.
func ParseFrame(b []byte) Frame {
	return Frame{
		Offset: int64(binary.BigEndian.Uint64(b)),
		Bytes:  int32(binary.BigEndian.Uint32(b[8:FrameHeaderBytes])),
	}
}
