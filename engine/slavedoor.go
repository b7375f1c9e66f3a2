package engine

import "sync"

// slaveDoor keeps replicas out of a slave whose log is known to differ from its
// master's: they would get what is not the master's. Any goroutine, but no loop.
type slaveDoor struct {
	master *master // nil: nobody may come anyway

	mu      sync.Mutex
	release func() // guarded by mu; nil: open
}

func (d *slaveDoor) close(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.master != nil && d.release == nil {
		d.release = d.master.closeDoor(why)
	}
}

func (d *slaveDoor) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.release != nil {
		d.release()
		d.release = nil
	}
}
