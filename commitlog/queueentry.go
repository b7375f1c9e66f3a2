package commitlog

import "encoding/binary"

// QueueID names a consume queue.
type QueueID struct {
	Topic string
	ID    int32
}

// QueueEntry is one unit of a consume queue: where a record is.
type QueueEntry struct {
	Offset   int64 // of the record in the log
	Size     int32 // bytes
	TagsCode int64
}

// blank says that the unit stands for no record.
func (e QueueEntry) blank() bool { return e.Offset == 0 && e.Size == queueBlankSize }

// valid says that the unit was written (ConsumeQueue.recover).
func (e QueueEntry) valid() bool { return e.Offset >= 0 && e.Size > 0 }

// appendQueueEntry and decodeQueueEntry are the unit's codec.
func appendQueueEntry(dst []byte, e QueueEntry) []byte {
	return appendInt64(appendInt32(appendInt64(dst, e.Offset), e.Size), e.TagsCode)
}

func decodeQueueEntry(b []byte) QueueEntry {
	return QueueEntry{
		Offset:   int64(binary.BigEndian.Uint64(b)),
		Size:     int32(binary.BigEndian.Uint32(b[8:])),
		TagsCode: int64(binary.BigEndian.Uint64(b[12:])),
	}
}
