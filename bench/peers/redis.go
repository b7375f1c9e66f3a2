package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	redigo "github.com/gomodule/redigo/redis"
)

// redis is a Redis master and a replica; a put is SET and WAIT in one round
// trip.
type redis struct {
	program, version string
}

func (*redis) Name() string { return "redis" }

func (p *redis) About() About {
	return About{
		Version:      p.version,
		Nodes:        "master and one replica, two processes; no persistence",
		Acknowledged: "in one replica's memory: SET of a new key and WAIT 1 0, sent together",
		Load:         "a client process over loopback (redigo), a connection for each producer; pipelined puts are 4 connections, each with 250 SET and one WAIT",
		Settings: `save "", appendonly no, since an acknowledgement is about memory; repl-diskless-sync-delay 0, repl-diskless-load on-empty-db, ` +
			"rdbcompression no; no io-threads, which its documentation advises from 4 cores on. SET of new keys, which is two to three times as fast here as XADD to a stream",
		CatchUp: "a full synchronization of all keys to an empty replica; until the replica counts all keys",
	}
}

func (p *redis) Prepare(ctx context.Context) (err error) {
	if p.program, err = exec.LookPath("redis-server"); err != nil {
		return fmt.Errorf("%w: redis-server, in Debian the package of that name: %w", ErrAbsent, err)
	}
	out, err := exec.CommandContext(ctx, p.program, "--version").Output()
	if err != nil {
		return fmt.Errorf("%w: redis-server --version: %w", ErrAbsent, err)
	}
	p.version = "Redis"
	for word := range strings.FieldsSeq(string(out)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			p.version += " " + v
		}
	}
	return nil
}

// server starts a redis-server that keeps everything in memory.
func (p *redis) server(ctx context.Context, name, dir string, port int, args ...string) (*process, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	server, err := launch(name, nil, p.program, append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no",
		"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-diskless-load", "on-empty-db", "--rdbcompression", "no",
	}, args...)...)
	if err != nil {
		return nil, err
	}
	if err := reached(ctx, server, address(port)); err != nil {
		server.kill()
		return nil, err
	}
	return server, nil
}

func (p *redis) Start(ctx context.Context, plan Plan) (_ *System, err error) {
	s := new(System)
	defer closeUnless(s, &err)
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	master, replica := address(ports[0]), address(ports[1])
	if _, err := s.add(p.server(ctx, "Redis master", filepath.Join(plan.Dir, "master"), ports[0])); err != nil {
		return nil, err
	}
	args := []string{"--master", master}
	if plan.Late {
		args = append(args, "--alone")
	}
	if s.driver, err = s.add(launchNode("Redis client", "redis-load", args...)); err != nil {
		return nil, err
	}
	s.driver.load = true
	if _, err := s.driver.await(ctx, "serving"); err != nil {
		return nil, err
	}
	s.join = func(ctx context.Context) (*process, error) {
		return p.server(ctx, "Redis replica", filepath.Join(plan.Dir, "replica"), ports[1], "--replicaof", "127.0.0.1 "+strconv.Itoa(ports[0]))
	}
	s.held = func() (int64, error) { return redisKeys(replica) }
	if plan.Late {
		return s, nil
	}
	if _, err := s.add(s.join(ctx)); err != nil {
		return nil, err
	}
	return s, s.waitInSync(ctx)
}

// redisKeys counts the keys of a server, while it loads them, too.
func redisKeys(addr string) (int64, error) {
	c, err := redigo.Dial("tcp4", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	info, err := redigo.Bytes(c.Do("INFO", "keyspace"))
	if err != nil {
		return 0, err
	}
	_, rest, found := bytes.Cut(info, []byte("db0:keys="))
	if !found {
		return 0, nil
	}
	digits, _, _ := bytes.Cut(rest, []byte(","))
	return strconv.ParseInt(string(digits), 10, 64)
}

// redisLoad is the client.
type redisLoad struct {
	master string
	alone  bool
	next   atomic.Int64 // key
}

func startRedisLoad(_ context.Context, o nodeOptions) (node, string, error) {
	return &redisLoad{master: o.master, alone: o.alone}, "", nil
}

func (l *redisLoad) status(context.Context) (event, error) {
	keys, err := redisKeys(l.master)
	return event{MaxOffset: keys}, err
}

func (l *redisLoad) close() {}

func (l *redisLoad) wait(ctx context.Context) error {
	p, err := l.producer(1, 1)
	if err != nil {
		return err
	}
	defer p.close()
	return poll(ctx, 5*time.Millisecond, "a replica that acknowledges", func() (bool, error) {
		p := p.(*redisProducer)
		err := p.putMany(1, 100*time.Millisecond)
		return err == nil, err
	})
}

// redisConnections are those of a producer with puts under way: WAIT blocks a
// connection, so that more than one is needed for the server to have work.
const redisConnections = 4

func (l *redisLoad) producer(size, outstanding int) (producer, error) {
	p := &redisProducer{load: l, body: newBody(size), each: max(outstanding/redisConnections, 1)}
	n := 1
	if outstanding > 1 {
		n = min(redisConnections, outstanding)
	}
	for range n {
		c, err := redigo.Dial("tcp4", l.master, redigo.DialReadTimeout(time.Minute), redigo.DialWriteTimeout(time.Minute))
		if err != nil {
			p.close()
			return nil, err
		}
		p.connections = append(p.connections, c)
	}
	return p, nil
}

type redisProducer struct {
	load        *redisLoad
	connections []redigo.Conn
	body        []byte
	each        int // puts under way on a connection of a pipeline
}

var errNotAcknowledged = errors.New("no replica acknowledged")

func (p *redisProducer) put() error { return p.putMany(1, 0) }

func (p *redisProducer) putMany(n int, timeout time.Duration) error {
	return p.putOn(p.connections[0], n, timeout)
}

// putOn sets so many new keys, waits for a replica to have them, and reads all
// answers. A timeout of 0 is none.
func (p *redisProducer) putOn(c redigo.Conn, n int, timeout time.Duration) error {
	for range n {
		if err := c.Send("SET", strconv.FormatInt(p.load.next.Add(1), 36), p.body); err != nil {
			return err
		}
	}
	if !p.load.alone {
		if err := c.Send("WAIT", 1, timeout.Milliseconds()); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for range n {
		if _, err := c.Receive(); err != nil {
			return err
		}
	}
	if p.load.alone {
		return nil
	}
	replicas, err := redigo.Int(c.Receive())
	if err == nil && replicas == 0 {
		err = errNotAcknowledged
	}
	return err
}

// pipeline has a goroutine for each connection, with an equal part of the puts.
func (p *redisProducer) pipeline(more func() bool, ended func(begun time.Time)) error {
	var mu sync.Mutex // one call of more and ended at a time, and failed
	var failed error
	var all sync.WaitGroup
	for _, c := range p.connections {
		all.Go(func() {
			for {
				mu.Lock()
				n := 0
				for n < p.each && failed == nil && more() {
					n++
				}
				mu.Unlock()
				if n == 0 {
					return
				}
				begun := time.Now()
				err := p.putOn(c, n, 0)
				mu.Lock()
				failed = errors.Join(failed, err)
				for i := 0; i < n && err == nil; i++ {
					ended(begun)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed
}

func (p *redisProducer) close() {
	for _, c := range p.connections {
		_ = c.Close() // nothing is under way
	}
}
