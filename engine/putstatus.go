package engine

import (
	"errors"
	"fmt"

	"github.com/haengine/haengine/commitlog"
)

// PutStatus says how a put ended (RocketMQ PutMessageStatus, same names).
//
// Refused before the append, nothing was written: MESSAGE_ILLEGAL,
// PROPERTIES_SIZE_EXCEEDED, CREATE_MAPPED_FILE_FAILED, OS_PAGE_CACHE_BUSY,
// SERVICE_NOT_AVAILABLE, IN_SYNC_REPLICAS_NOT_ENOUGH. After the append, the
// record is in this log: PUT_OK, and FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT,
// SLAVE_NOT_AVAILABLE, UNKNOWN_ERROR, which say what is not known of it.
type PutStatus uint8

// The statuses.
const (
	PutOK PutStatus = iota
	PutFlushDiskTimeout
	PutFlushSlaveTimeout
	PutSlaveNotAvailable
	PutServiceNotAvailable
	PutCreateMappedFileFailed
	PutMessageIllegal
	PutPropertiesSizeExceeded
	PutOSPageCacheBusy
	PutUnknownError
	PutInSyncReplicasNotEnough
)

var putNames = names{
	"PUT_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE", "SERVICE_NOT_AVAILABLE",
	"CREATE_MAPPED_FILE_FAILED", "MESSAGE_ILLEGAL", "PROPERTIES_SIZE_EXCEEDED", "OS_PAGE_CACHE_BUSY",
	"UNKNOWN_ERROR", "IN_SYNC_REPLICAS_NOT_ENOUGH",
}

// String is RocketMQ's name of the status.
func (s PutStatus) String() string { return putNames.of(int(s)) }

// MarshalText writes RocketMQ's name.
func (s PutStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// PutStatuses lists all statuses, for counters that name each.
func PutStatuses() []PutStatus {
	all := make([]PutStatus, len(putNames))
	for i := range all {
		all[i] = PutStatus(i)
	}
	return all
}

// PutResult says where a put stands in the log and how it ended. Offsets are
// -1 when it was refused before the append.
type PutResult struct {
	Status         PutStatus
	Offset         int64 // of the record's first byte (physical offset)
	EndOffset      int64 // one past its last byte; of a batch: past the last record
	QueueOffset    int64 // of the first record in its queue
	StoreTimestamp int64 // ms
	Messages       int32 // 1, or the batch's number
}

// Appended tells whether the record is in this log.
func (r PutResult) Appended() bool { return r.Offset >= 0 }

func refused(s PutStatus) PutResult {
	return PutResult{Status: s, Offset: -1, EndOffset: -1, QueueOffset: -1}
}

// Errors of puts; each is matched with errors.Is.
var (
	ErrNotMaster       = errors.New("not a master")
	ErrClosed          = errors.New("engine is closed")
	ErrRingFull        = errors.New("too many puts are waiting")
	ErrRoleChanging    = errors.New("the role is being changed; try again")
	ErrNotReplicated   = errors.New("not confirmed by enough replicas")
	ErrNotFlushed      = errors.New("not confirmed by the disk")
	ErrNoReplica       = errors.New("no replica in sync")
	ErrNotEnoughInSync = errors.New("fewer replicas in sync than min-in-sync-replicas")
)

// PutError is the error of every put whose status is not PUT_OK.
type PutError struct {
	Status PutStatus
	Offset int64 // -1: refused before the append, nothing was written
	Err    error
}

func (e *PutError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("put refused, nothing written: %s: %v", e.Status, e.Err)
	}
	return fmt.Sprintf("put stored at offset %d but %v: %s", e.Offset, e.Err, e.Status)
}

// Unwrap gives the cause.
func (e *PutError) Unwrap() error { return e.Err }

// refusalOf maps an error before the append to its status.
func refusalOf(err error) PutStatus {
	switch {
	case errors.Is(err, commitlog.ErrPropertiesTooLong):
		return PutPropertiesSizeExceeded
	case errors.Is(err, commitlog.ErrMessageIllegal):
		return PutMessageIllegal
	case errors.Is(err, commitlog.ErrSegmentUnavailable):
		return PutCreateMappedFileFailed
	case errors.Is(err, commitlog.ErrBusy):
		return PutOSPageCacheBusy
	case errors.Is(err, ErrNotEnoughInSync):
		return PutInSyncReplicasNotEnough
	}
	return PutServiceNotAvailable
}
