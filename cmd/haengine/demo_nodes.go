package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/haengine/haengine/commitlog"
)

// putTally counts the lines that the master's built-in producer prints.
type putTally struct {
	latency latencies
	mu      struct {
		sync.Mutex
		puts     int64
		statuses map[string]int64
		okEnd    int64 // highest end offset of a put that returned PUT_OK
		bad      error // a line that is none
	}
}

func (t *putTally) line(b []byte) {
	var l loadLine
	err := json.Unmarshal(b, &l)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.mu.bad = fmt.Errorf("the producer printed %q: %w", b, err)
		return
	}
	if t.mu.statuses == nil {
		t.mu.statuses = map[string]int64{}
	}
	t.mu.puts++
	t.mu.statuses[l.Status]++
	if l.Status == "PUT_OK" {
		t.mu.okEnd = max(t.mu.okEnd, l.EndOffset)
	}
	t.latency.add(time.Duration(l.LatencyUs * float64(time.Microsecond)))
}

func (t *putTally) ended() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.puts
}

// copyStore copies the log, its queues and its state files of --from-store.
func (d *demo) copyStore(ctx context.Context) error {
	l, err := commitlog.OpenReadOnly(commitlog.Options{Dir: d.fromStore})
	if err != nil {
		return fmt.Errorf("--from-store: %w", err)
	}
	d.segmentBytes = l.SegmentBytes()
	bytes := l.EndOffset() - l.MinOffset()
	if err := l.Close(); err != nil {
		return err
	}
	for _, name := range []string{"commitlog", "consumequeue", "checkpoint", "abort"} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := copyTree(filepath.Join(d.fromStore, name), filepath.Join(d.store("master"), name)); err != nil {
			return fmt.Errorf("copy the store: %w", err)
		}
	}
	d.view.event("copied %s of log from %s", shortBytes(bytes), d.fromStore)
	return nil
}

// copyTree copies a file or directory; one that is missing is no error.
func copyTree(from, to string) error {
	info, err := os.Stat(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// nodeArgs are the flags that all nodes of the demo share.
func (d *demo) nodeArgs(store string) []string {
	args := []string{"serve", "--store", d.store(store), "--admin-listen", "127.0.0.1:0", "--client-listen", "", "--log-format", "json"}
	if d.fromStore == "" || store != "master" {
		args = append(args, "--segment-bytes", fmt.Sprint(d.segmentBytes))
	}
	return args
}

func (d *demo) startMaster(ctx context.Context) error {
	rate := float64(d.messages) / d.putsFor.Seconds()
	args := append(d.nodeArgs("master"), "--role", "SYNC_MASTER", "--ha-listen", "127.0.0.1:0", "--plain-identity", "connection",
		"--plain-history", "first", "--load", fmt.Sprintf("%g,%d,%d", rate, d.size, d.messages), "--load-outstanding", "16",
		"--load-replicas", fmt.Sprint(d.replicas))
	master, err := startChild("master", d.tally.line, args...)
	if err != nil {
		return err
	}
	d.master, d.slaves = master, make([]*child, d.replicas)
	s, err := d.serving(ctx, master)
	if err != nil {
		return err
	}
	d.ha, d.admin = s.HAListen, s.AdminListen
	d.view.event("master serves replicas on %s, log %s to %s", d.ha, count(s.MinOffset), count(s.MaxOffset))
	return nil
}

func slaveName(i int) string { return fmt.Sprintf("slave%d", i+1) }

func (d *demo) startSlave(ctx context.Context, i int) error {
	args := append(d.nodeArgs(slaveName(i)), "--role", "SLAVE", "--master", d.ha)
	slave, err := startChild(slaveName(i), nil, args...)
	if err != nil {
		return err
	}
	d.slaves[i] = slave
	if _, err := d.serving(ctx, slave); err != nil {
		return err
	}
	d.view.slaveStarted(i)
	return nil
}

func (d *demo) serving(ctx context.Context, c *child) (servingLine, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return c.waitServing(ctx)
}

// stopAll ends the nodes cleanly, the master last.
func (d *demo) stopAll() error {
	errs := make([]error, len(d.slaves))
	var all sync.WaitGroup
	for i, s := range d.slaves {
		all.Go(func() { errs[i] = s.stop() })
	}
	all.Wait()
	return errors.Join(errors.Join(errs...), d.master.stop())
}

// killAll leaves no process behind, however the demo ended.
func (d *demo) killAll() {
	for _, c := range append([]*child{d.master}, d.slaves...) {
		if c != nil {
			c.kill()
		}
	}
}
