package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Names at the store's root.
const (
	checkpointName = "checkpoint"
	abortName      = "abort"
	lockName       = "lock"
)

const (
	checkpointBytes  = 4096
	checkpointFields = 6

	// checkpointSlack is how far RocketMQ goes back from the times of the
	// checkpoint, because they may be ahead of what is on the disk.
	checkpointSlack = 3 * time.Second
)

// Checkpoint is RocketMQ's file of that name: six 64-bit fields at the start
// of 4096 bytes (StoreCheckpoint). Times are milliseconds; 0 is unknown. It is
// a hint about how much of the store is durable and may be ahead of the disk.
type Checkpoint struct {
	PhysicTimestamp int64 `json:"physic_timestamp"` // newest record covered by a thorough flush
	LogicsTimestamp int64 `json:"logics_timestamp"` // last record put into a consume queue
	IndexTimestamp  int64 `json:"index_timestamp"`  // end of the last full index file

	MasterFlushedOffset int64 `json:"master_flushed_offset"` // 5.x, otherwise 0
	ConfirmOffset       int64 `json:"confirm_offset"`        // 5.x: start of the last good record found by recovery
	LogicsOffset        int64 `json:"logics_offset"`         // 5.5: start of the last record put into a consume queue
}

// fields gives the fields in the file's order.
func (c *Checkpoint) fields() [checkpointFields]*int64 {
	return [...]*int64{
		&c.PhysicTimestamp, &c.LogicsTimestamp, &c.IndexTimestamp,
		&c.MasterFlushedOffset, &c.ConfirmOffset, &c.LogicsOffset,
	}
}

// encode gives the file's bytes.
func (c Checkpoint) encode() []byte {
	b := make([]byte, checkpointBytes)
	for i, f := range c.fields() {
		binary.BigEndian.PutUint64(b[8*i:], uint64(*f))
	}
	return b
}

// decodeCheckpoint reads the file's bytes; 4.x wrote only the first three
// fields and left the others zero.
func decodeCheckpoint(b []byte) (Checkpoint, error) {
	var c Checkpoint
	if len(b) < 8*checkpointFields {
		return c, fmt.Errorf("checkpoint of %d bytes, want %d", len(b), checkpointBytes)
	}
	for i, f := range c.fields() {
		*f = int64(binary.BigEndian.Uint64(b[8*i:]))
	}
	return c, nil
}

// checkPlausible says why the checkpoint cannot be believed: a negative field
// or a time after now. Whoever may not believe it scans the whole log.
func (c Checkpoint) checkPlausible(now time.Time) error {
	for i, f := range c.fields() {
		switch {
		case *f < 0:
			return fmt.Errorf("checkpoint field at byte %d is %d", 8*i, *f)
		case i < 3 && *f > now.Add(checkpointSlack).UnixMilli():
			return fmt.Errorf("checkpoint time at byte %d is %s, which is in the future",
				8*i, time.UnixMilli(*f).UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// minTimestamp is the time up to which log and queues are taken to be
// durable, in milliseconds (StoreCheckpoint.getMinTimestamp).
func (c Checkpoint) minTimestamp() int64 {
	return max(0, min(c.PhysicTimestamp, c.LogicsTimestamp)-checkpointSlack.Milliseconds())
}

// readCheckpoint reads the checkpoint of the store at root. A missing file is
// the zero Checkpoint. An error that is not a read failure wraps ErrCorrupt:
// the file is there and cannot be believed.
func readCheckpoint(disk Disk, root string, now time.Time) (Checkpoint, error) {
	path := filepath.Join(root, checkpointName)
	b, err := disk.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, nil
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	c, err := decodeCheckpoint(b)
	if err == nil {
		err = c.checkPlausible(now)
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%s: %w: %w", path, ErrCorrupt, err)
	}
	return c, nil
}

// writeCheckpoint replaces the checkpoint of the store at root, durably.
func writeCheckpoint(disk Disk, root string, c Checkpoint) error {
	if err := disk.WriteFileAtomic(filepath.Join(root, checkpointName), c.encode()); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}

// writeAbort leaves the mark that the store is in use, or was not closed
// cleanly: RocketMQ looks at its existence only, its text is the process id.
func writeAbort(disk Disk, root string) error {
	data := strconv.AppendInt(nil, int64(os.Getpid()), 10)
	path := filepath.Join(root, abortName)
	err := disk.WriteFileAtomic(path, data)
	if errors.Is(err, syscall.ENOSPC) {
		// An empty one takes no space, and an old one is as good.
		file, e := disk.Create(path, 0)
		if err = e; e == nil {
			err = errors.Join(file.Close(), disk.SyncDir(root))
		} else if errors.Is(e, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("write abort file: %w", err)
	}
	return nil
}

// readAbort says whether the mark is there, and the process id in it or 0.
func readAbort(disk Disk, root string) (pid int, exists bool, err error) {
	b, err := disk.ReadFile(filepath.Join(root, abortName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read abort file: %w", err)
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 0 {
		pid = 0 // 4.x leaves the file empty
	}
	return pid, true, nil
}

// removeAbort takes the mark away: from here on RocketMQ believes that the
// consume queues cover the log to its end.
func removeAbort(disk Disk, root string) error {
	err := disk.Remove(filepath.Join(root, abortName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove abort file: %w", err)
	}
	if err := disk.SyncDir(root); err != nil {
		return fmt.Errorf("remove abort file: %w", err)
	}
	return nil
}

// lockStore takes the store's lock: the record lock on byte 0 of its file
// `lock`, which also excludes a JVM and a second open in this process. The
// lock goes when the result is closed or the process ends. A refusal wraps
// ErrLocked and names the process that the abort file names.
func lockStore(disk Disk, root string) (io.Closer, error) {
	held, err := disk.Lock(filepath.Join(root, lockName))
	if !errors.Is(err, ErrLocked) {
		return held, err
	}
	holder := "another process"
	if pid, _, _ := readAbort(disk, root); pid > 0 {
		holder = "process " + strconv.Itoa(pid)
	}
	return nil, fmt.Errorf("%w: %s is in use by %s; stop it first, or read beside it with the log commands",
		ErrLocked, root, holder)
}
