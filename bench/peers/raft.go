package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// raftPeer is HashiCorp's Raft library: three nodes, with their logs in memory
// or, if durable, in raft-wal.
type raftPeer struct {
	name    string
	durable bool
}

func (p *raftPeer) Name() string { return p.name }

func (p *raftPeer) About() About {
	a := About{
		Version:      "hashicorp/raft " + moduleVersion("github.com/hashicorp/raft"),
		Nodes:        "leader and two followers, three processes, TCP; log in memory (InmemStore). The second follower is sent everything, too, and no put waits for it",
		Acknowledged: "in the leader's and one follower's memory, and applied on the leader by a state machine that only counts",
		Load:         "in the leader's process: it is a library",
		Settings:     "BatchApplyCh, MaxAppendEntries 512 (pipelined puts are some two times as fast here as with the default of 64), no snapshots; election timeouts of 2 and 5 s, so that a busy machine elects nobody else",
		CatchUp:      "a voter that was away from the beginning, with an empty log; until its last index is the leader's",
	}
	if p.durable {
		a.Version += ", raft-wal " + moduleVersion("github.com/hashicorp/raft-wal")
		a.Nodes = "leader and two followers, three processes, TCP; log in raft-wal. The second follower is sent everything, too, and no put waits for it"
		a.Acknowledged = "fsynced by the leader and one follower: more than ours, which is in memory"
	}
	return a
}

// moduleVersion is that of a module that this program is built with.
func moduleVersion(path string) string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == path })
	if i < 0 {
		return ""
	}
	return info.Deps[i].Version
}

func (*raftPeer) Prepare(context.Context) error { return nil }

func (p *raftPeer) Start(ctx context.Context, plan Plan) (_ *System, err error) {
	s := new(System)
	defer closeUnless(s, &err)
	const members = 3
	ports, err := freePorts(members)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, port := range ports {
		all = append(all, address(port))
	}
	start := func(i int) (*process, error) {
		args := []string{"--id", strconv.Itoa(i), "--members", strings.Join(all, ","), "--dir", filepath.Join(plan.Dir, strconv.Itoa(i))}
		if p.durable {
			args = append(args, "--durable")
		}
		n, err := launchNode(fmt.Sprintf("%s node %d", p.name, i), "raft", args...)
		if err != nil {
			return nil, err
		}
		_, err = n.await(ctx, "serving")
		return n, err
	}
	here := members
	if plan.Late {
		here--
	}
	// The one that elects itself comes last, when the others are there to vote.
	for i := here - 1; i >= 0; i-- {
		if s.driver, err = s.add(start(i)); err != nil {
			return nil, err
		}
	}
	s.join = func(context.Context) (*process, error) { return start(members - 1) }
	return s, s.waitInSync(ctx)
}

// raftNode is a member. The first of the cluster makes it.
type raftNode struct {
	raft      *raft.Raft
	transport *raft.NetworkTransport
	log       io.Closer // nil: in memory
}

func startRaft(_ context.Context, o nodeOptions) (node, string, error) {
	self, err := strconv.Atoi(o.id)
	if err != nil || self >= len(o.members) {
		return nil, "", fmt.Errorf("no member %q of %v", o.id, o.members)
	}
	logger := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Warn})
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(o.id)
	config.Logger = logger
	config.BatchApplyCh = true
	config.MaxAppendEntries = 512
	patience := 5 * time.Second
	if self == 0 {
		patience = 2 * time.Second // it is how long it waits before it elects itself, too
	}
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = patience, patience, patience
	config.SnapshotInterval, config.SnapshotThreshold = time.Hour, 1<<62
	config.NoLegacyTelemetry = true
	n := new(raftNode)
	var log raft.LogStore
	var stable raft.StableStore
	if o.durable {
		if err := os.MkdirAll(o.dir, 0o700); err != nil {
			return nil, "", err
		}
		w, err := wal.Open(o.dir, wal.WithLogger(logger))
		if err != nil {
			return nil, "", err
		}
		log, stable, n.log = w, w, w
	} else {
		memory := raft.NewInmemStore()
		log, stable = memory, memory
	}
	const connections = 3
	n.transport, err = raft.NewTCPTransportWithLogger(o.members[self], nil, connections, 10*time.Second, logger)
	if err != nil {
		n.close()
		return nil, "", err
	}
	if n.raft, err = raft.NewRaft(config, new(counter), log, stable, raft.NewDiscardSnapshotStore(), n.transport); err != nil {
		n.close()
		return nil, "", err
	}
	if self == 0 {
		var servers []raft.Server
		for i, member := range o.members {
			servers = append(servers, raft.Server{ID: raft.ServerID(strconv.Itoa(i)), Address: raft.ServerAddress(member)})
		}
		if err := n.raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
			n.close()
			return nil, "", err
		}
	}
	return n, o.members[self], nil
}

func (n *raftNode) status(context.Context) (event, error) {
	return event{MaxOffset: int64(n.raft.LastIndex())}, nil
}

func (n *raftNode) close() {
	if n.raft != nil {
		_ = n.raft.Shutdown().Error() // the process ends
	}
	if n.transport != nil {
		_ = n.transport.Close()
	}
	if n.log != nil {
		_ = n.log.Close()
	}
}

// wait waits until this node leads and a majority holds all.
func (n *raftNode) wait(ctx context.Context) error {
	return poll(ctx, 5*time.Millisecond, "this node leads", func() (bool, error) {
		if n.raft.State() != raft.Leader {
			return false, fmt.Errorf("it is %v, the leader %q", n.raft.State(), n.raft.Leader())
		}
		err := n.raft.Barrier(time.Second).Error()
		return err == nil, err
	})
}

func (n *raftNode) producer(size, outstanding int) (producer, error) {
	if size > raft.SuggestedMaxDataSize {
		return nil, fmt.Errorf("a record of %d bytes, %d are advised at most", size, raft.SuggestedMaxDataSize)
	}
	return &raftProducer{raft: n.raft, body: newBody(size), outstanding: outstanding}, nil
}

type raftProducer struct {
	raft        *raft.Raft
	body        []byte
	outstanding int
}

func (p *raftProducer) put() error { return p.raft.Apply(p.body, time.Minute).Error() }

func (p *raftProducer) pipeline(more func() bool, ended func(begun time.Time)) error {
	return inOrder(p.outstanding, more,
		func() (raft.ApplyFuture, error) { return p.raft.Apply(p.body, time.Minute), nil },
		func(f raft.ApplyFuture) error { return f.Error() }, ended)
}

func (p *raftProducer) close() {}

// counter is a state machine that only counts: what is replicated is the log.
type counter struct{ applied uint64 }

func (c *counter) Apply(*raft.Log) any { c.applied++; return nil }

// ApplyBatch makes it a raft.BatchingFSM, which costs the library less.
func (c *counter) ApplyBatch(logs []*raft.Log) []any {
	c.applied += uint64(len(logs))
	return make([]any, len(logs))
}

var errNoSnapshots = errors.New("there are no snapshots here")

func (c *counter) Snapshot() (raft.FSMSnapshot, error) { return nil, errNoSnapshots }
func (c *counter) Restore(io.ReadCloser) error         { return errNoSnapshots }
