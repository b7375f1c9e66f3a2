package remoting

import (
	"strconv"

	"github.com/haengine/haengine/engine"
)

// codeOf maps a put's status to the code that clients are told
// (SendMessageProcessor.handlePutMessageResult).
func codeOf(s engine.PutStatus) int32 {
	switch s {
	case engine.PutOK:
		return Success
	case engine.PutFlushDiskTimeout:
		return FlushDiskTimeout
	case engine.PutFlushSlaveTimeout:
		return FlushSlaveTimeout
	case engine.PutSlaveNotAvailable:
		return SlaveNotAvailable
	case engine.PutMessageIllegal, engine.PutPropertiesSizeExceeded:
		return MessageIllegal
	case engine.PutServiceNotAvailable:
		return ServiceNotAvailable
	case engine.PutOSPageCacheBusy:
		return SystemBusy
	}
	return SystemError // CREATE_MAPPED_FILE_FAILED, IN_SYNC_REPLICAS_NOT_ENOUGH, UNKNOWN_ERROR
}

// sendAnswer is an answer with the room for its fields. One is enough for all: a
// single goroutine answers, and what it answers with is written at once.
type sendAnswer struct {
	Command
	about  []byte // the fields that every answer has, behind a comma
	fields []byte
}

// stored answers a send whose put has ended. Whatever the status, the message is
// in the log: clients read all of the fields for each of the codes.
func (s *Sends) stored(w *pendingSend, r engine.PutResult, err error) {
	s.messages.Add(int64(r.Messages))
	if w.back {
		s.storedBack(w, r, err)
		return
	}
	a := &s.answer
	a.fields = append(appendStored(a.fields[:0], s.o.Engine.StoreHost(), w, &r), a.about...)
	a.Command = Command{Code: codeOf(r.Status), fields: a.fields}
	if err != nil {
		a.Remark = err.Error()
	}
	w.r.replyWith(&a.Command)
	if cap(a.fields) > framesKept { // the ids of a large batch
		a.fields = nil
	}
	w.r.done()
}

// appendStored appends the fields of SendMessageResponseHeader, as JSON has them.
func appendStored(dst []byte, host engine.Host, w *pendingSend, r *engine.PutResult) []byte {
	dst = append(dst, `"msgId":"`...)
	at := r.Offset
	dst = appendOffsetID(dst, host, at)
	for i := range max(0, len(w.sizes)-1) {
		at += int64(w.sizes[i])
		dst = appendOffsetID(append(dst, ','), host, at)
	}
	dst = append(dst, `","queueId":"`...)
	dst = strconv.AppendInt(dst, int64(w.queueID), 10)
	dst = append(dst, `","queueOffset":"`...)
	dst = strconv.AppendInt(dst, r.QueueOffset, 10)
	dst = append(dst, '"')
	if w.unique != "" {
		dst = append(dst, `,"transactionId":`...)
		dst = appendJSONText(dst, w.unique)
	}
	return dst
}

const hexDigits = "0123456789ABCDEF"

// appendOffsetID appends RocketMQ's offset message id: the store host's address
// and port and the record's physical offset, in hexadecimal (MessageDecoder
// .createMessageId).
func appendOffsetID(dst []byte, host engine.Host, offset int64) []byte {
	a := [16]byte{} // an address that is not there is 0.0.0.0, as in the record
	n := 4
	switch {
	case host.Addr.Is6():
		a, n = host.Addr.As16(), 16
	case host.Addr.Is4():
		four := host.Addr.As4()
		copy(a[:], four[:])
	}
	for _, c := range a[:n] {
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	dst = appendHex(dst, uint64(uint32(host.Port)), 8)
	return appendHex(dst, uint64(offset), 16)
}

func appendHex(dst []byte, v uint64, digits int) []byte {
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[v>>shift&15])
	}
	return dst
}
