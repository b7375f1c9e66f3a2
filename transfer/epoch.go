package transfer

import "math"

// Epoch is a master's term: which bytes of the log were first written in it.
// Number grows from term to term; ID is random, so that two masters that took
// the same number are told apart. Number 0 is no epoch: bytes from before there
// were any. RocketMQ: EpochEntry, which has no ID.
type Epoch struct {
	Number int32
	ID     uint64 // 0: not known
	Start  int64  // offset of the term's first byte
}

// epochAt returns the epoch that the byte at offset belongs to and where the
// next one begins.
func epochAt(list []Epoch, offset int64) (e Epoch, end int64) {
	end = math.MaxInt64
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Start <= offset {
			return list[i], end
		}
		end = list[i].Start
	}
	return Epoch{}, end
}

// same tells whether two entries can be one term.
func (e Epoch) same(o Epoch) bool {
	return e.Number == o.Number && e.Start == o.Start && (e.ID == o.ID || e.ID == 0 || o.ID == 0)
}
