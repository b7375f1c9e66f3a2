package commitlog

import (
	"errors"
	"syscall"
	"testing"
)

// A replica whose queues cannot be written does not become a master, and says
// what keeps it from that.
func TestTakeOverSaysWhyRecordsAreNotQueued(t *testing.T) {
	master := mustOpen(t, twinOptions(NewTwin(1)))
	mustPut(t, master, "topic", 0, 100)
	disk := NewTwin(2)
	replica := mustOpen(t, twinOptions(disk))
	disk.Fail("write", &TwinFault{Err: syscall.EIO, Path: queuesDirectory})
	replicate(t, master, replica, master.EndOffset(), 1<<20)
	if _, err := replica.TakeOver(); !errors.Is(err, ErrNotQueued) || !errors.Is(err, syscall.EIO) {
		t.Errorf("taken over: %v", err)
	}
	disk.Fail("write", nil)
	eventually(t, "the queues are written again", func() bool {
		_, err := replica.TakeOver()
		return err == nil
	})
	must(t, replica.Close())
	must(t, master.Close())
}
