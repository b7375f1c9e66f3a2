package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/engine"
)

// haengine is ours: a master with the load in it, and a slave in a process of
// its own, over the haengine protocol.
type haengine struct{}

func (*haengine) Name() string { return "haengine" }

func (*haengine) About() About {
	return About{
		Version:      "this tree" + revision(),
		Nodes:        "SYNC_MASTER and one slave, two processes; asynchronous flush, page cache",
		Acknowledged: "in the master's and one replica's page cache",
		Load:         "in the master's process: it is a library",
		Settings:     "all default but for a put's patience of 10 s",
		CatchUp:      "an ASYNC_MASTER's log from its first byte, to an empty slave; until the slave has published the last byte",
	}
}

// revision is the commit that this program was built from, if that is known.
func revision() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	text := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 7:
			text = ", commit " + s.Value[:7]
		case s.Key == "vcs.modified" && s.Value == "true" && text != "":
			text += " with changes"
		}
	}
	return text
}

func (*haengine) Prepare(context.Context) error { return nil }

func (*haengine) Start(ctx context.Context, p Plan) (_ *System, err error) {
	s := new(System)
	defer closeUnless(s, &err)
	args := []string{"--dir", filepath.Join(p.Dir, "master")}
	if p.Late {
		args = append(args, "--alone")
	}
	if s.driver, err = s.add(launchNode("haengine's master", "haengine", args...)); err != nil {
		return nil, err
	}
	up, err := s.driver.await(ctx, "serving")
	if err != nil {
		return nil, err
	}
	s.join = func(ctx context.Context) (*process, error) {
		slave, err := launchNode("haengine's slave", "haengine", "--dir", filepath.Join(p.Dir, "slave"), "--master", up.Address)
		if err != nil {
			return nil, err
		}
		_, err = slave.await(ctx, "serving")
		return slave, err
	}
	if p.Late {
		return s, nil
	}
	if _, err := s.add(s.join(ctx)); err != nil {
		return nil, err
	}
	return s, s.waitInSync(ctx)
}

// closeUnless ends a system whose start failed.
func closeUnless(s *System, err *error) {
	if *err != nil {
		s.Close()
	}
}

// haengineNode is an engine in this process.
type haengineNode struct {
	engine *engine.Engine
	queue  atomic.Int32 // of the next producer
}

func startHaengine(_ context.Context, o nodeOptions) (node, string, error) {
	options := engine.Options{
		Store: o.dir, Role: engine.SyncMaster, HAListen: "127.0.0.1:0", SlaveTimeout: 10 * time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	switch {
	case o.master != "":
		options.Role, options.HAListen, options.Master = engine.Slave, "", o.master
	case o.alone:
		options.Role = engine.AsyncMaster
	}
	e, err := engine.Open(options)
	if err != nil {
		return nil, "", err
	}
	return &haengineNode{engine: e}, e.HAAddr().String(), nil
}

func (n *haengineNode) status(context.Context) (event, error) {
	return event{MaxOffset: n.engine.EndOffset()}, nil
}

func (n *haengineNode) close() {
	now, cancel := context.WithCancel(context.Background())
	cancel() // nobody waits for the puts that are left
	_ = n.engine.Close(now)
}

func (n *haengineNode) wait(ctx context.Context) error {
	return poll(ctx, 5*time.Millisecond, "a replica in sync", func() (bool, error) {
		s := n.engine.Status()
		for _, r := range s.Replicas {
			if r.InSync && r.AckedOffset >= s.MaxOffset {
				return true, nil
			}
		}
		return false, fmt.Errorf("%d replicas: %+v", len(s.Replicas), s.Replicas)
	})
}

func (n *haengineNode) producer(size, outstanding int) (producer, error) {
	if size > n.engine.MaxBody() {
		return nil, fmt.Errorf("a body of %d bytes, at most %d", size, n.engine.MaxBody())
	}
	return &haengineProducer{
		engine: n.engine, outstanding: outstanding,
		message: engine.Message{Topic: "bench", QueueID: n.queue.Add(1) % 4, Body: newBody(size)},
	}, nil
}

type haengineProducer struct {
	engine      *engine.Engine
	message     engine.Message
	outstanding int
}

func (p *haengineProducer) put() error {
	_, err := p.engine.Put(context.Background(), &p.message)
	return err
}

// pipeline puts as long as there are free tags, and pulls what has ended.
func (p *haengineProducer) pipeline(more func() bool, ended func(begun time.Time)) error {
	ctx := context.Background()
	queue := p.engine.NewCompletions(p.outstanding)
	begun, done := make([]time.Time, p.outstanding), make([]engine.Completion, p.outstanding)
	var free []uint64
	for i := range p.outstanding {
		free = append(free, uint64(i))
	}
	var failed error
	for putting := true; ; {
		for len(free) > 0 && putting {
			if putting = failed == nil && more(); !putting {
				break
			}
			tag := free[len(free)-1]
			begun[tag] = time.Now()
			if err := queue.Put(ctx, &p.message, tag); err != nil {
				failed = err
				break
			}
			free = free[:len(free)-1]
		}
		if len(free) == p.outstanding {
			return failed
		}
		n, err := queue.Pull(ctx, done)
		if err != nil {
			return err
		}
		for _, c := range done[:n] {
			free = append(free, c.Tag)
			if c.Err != nil {
				failed = c.Err
				continue
			}
			ended(begun[c.Tag])
		}
	}
}

func (p *haengineProducer) close() {}
