package engine

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/haengine/haengine/commitlog"
)

// gatedDisk is the operating system's, where the first segment's syncs wait for
// a gate, but for the one that belongs to its making.
type gatedDisk struct {
	commitlog.Disk
	gate chan struct{} // closed: open
}

func (d *gatedDisk) Create(path string, size int64) (commitlog.File, error) {
	f, err := d.Disk.Create(path, size)
	return d.gated(path, f, err, 1)
}

func (d *gatedDisk) Open(path string, write bool) (commitlog.File, error) {
	f, err := d.Disk.Open(path, write)
	return d.gated(path, f, err, 0)
}

func (d *gatedDisk) gated(path string, f commitlog.File, err error, free int32) (commitlog.File, error) {
	if err != nil || !strings.HasSuffix(path, "commitlog/00000000000000000000") {
		return f, err
	}
	g := &gatedFile{File: f, gate: d.gate}
	g.free.Store(free)
	return g, nil
}

type gatedFile struct {
	commitlog.File
	gate chan struct{}
	free atomic.Int32 // syncs that pass
}

func (f *gatedFile) Sync() error {
	if f.free.Add(-1) < 0 {
		<-f.gate
	}
	return f.File.Sync()
}

// A first report acknowledges, too: a slave that answers for its disk must have
// synced what it held when the last connection ended.
func TestFirstReportOfAFlushedAcknowledgementIsDurable(t *testing.T) {
	log := recordsOf(t, 400, Options{})
	end := int64(len(log))
	disk := &gatedDisk{Disk: commitlog.OSDisk(), gate: make(chan struct{})}
	slave := make(chan *Engine, 1)
	lost, again := make(chan struct{}), make(chan [2]int64, 1)
	m := listenRaw(t, func(n int64, c net.Conn) {
		first, err := readReport(c)
		if err != nil {
			return
		}
		s := <-slave
		slave <- s
		if n == 1 {
			_, _ = c.Write(append(header(first, int32(end-first)), log[first:]...))
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			_ = s.WaitFor(ctx, end) // the test looks at the end itself
			close(lost)
			return
		}
		select {
		case again <- [2]int64{first, s.log.FlushedOffset()}:
		default:
		}
		_, _ = io.Copy(io.Discard, c)
	})
	s := slaveOf(t, m, Options{Ack: AckFlushed, Disk: disk})
	slave <- s
	<-lost
	var got [2]int64
	select {
	case got = <-again: // before anything is durable
		close(disk.gate)
	case <-time.After(300 * time.Millisecond):
		close(disk.gate)
		got = <-again
	}
	if first, flushed := got[0], got[1]; first > flushed {
		t.Fatalf("reported %d at the connect, only %d is durable", first, flushed)
	}
}
