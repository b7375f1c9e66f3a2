package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/haengine/haengine/engine"
	"golang.org/x/sys/unix"
)

// Cheap replicas: connections that speak RocketMQ's protocol, acknowledge what
// they read and throw it away. One thread serves all of them, in a process of
// its own, so that what many replicas cost a master can be seen on a machine
// that has not the cores for many nodes.

// startReplicas starts so many of them, and so many more that say hello and then
// read nothing, in place of a slave. It waits until all are in sync.
func (p *benchPair) startReplicas(ctx context.Context, reading, stuck int) error {
	// A replica of an empty log is held until there is a byte.
	if p.master.Status().MaxOffset == 0 {
		if _, err := p.master.PutWaiting(ctx, &engine.Message{Topic: "bench", Body: make([]byte, p.options.size)}, engine.Waits{Copies: 1}); err != nil {
			return err
		}
	}
	err := p.options.pins.startOnPeerCore(func() (err error) {
		p.child, err = startChild("replicas", nil, "bench", "peer", "replicas", p.master.HAAddr().String(),
			strconv.FormatInt(p.master.Status().MaxOffset, 10), strconv.Itoa(reading), strconv.Itoa(stuck))
		return err
	})
	if err != nil {
		return err
	}
	late, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if !waitForReplicas(late, p.master, reading+stuck) {
		return p.child.failure(fmt.Errorf("of %d replicas not all connect: %w", reading+stuck, late.Err()))
	}
	return nil
}

// peerReplicas is the process. Arguments: the offset to begin at, how many read,
// how many do not.
func peerReplicas(address string, args []string) error {
	var n [3]int64
	if len(args) != len(n) {
		return errors.New("an offset and two numbers of replicas are needed")
	}
	for i, a := range args {
		var err error
		if n[i], err = strconv.ParseInt(a, 10, 64); err != nil {
			return err
		}
	}
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	byFd := map[int32]*cheapReplica{}
	for i := range n[1] + n[2] {
		r, err := connectReplica(address, n[0])
		if err != nil {
			return err
		}
		if i >= n[1] {
			continue // stuck: its socket stays open, and nobody looks at it
		}
		byFd[int32(r.fd)] = r
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(r.fd)}
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, r.fd, &event); err != nil {
			return os.NewSyscallError("epoll_ctl", err)
		}
	}
	return serveReplicas(poll, byFd)
}

func serveReplicas(poll int, byFd map[int32]*cheapReplica) error {
	events := make([]unix.EpollEvent, 128)
	buffer := make([]byte, 256<<10)
	for {
		n, err := unix.EpollWait(poll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("epoll_wait", err)
		}
		for _, e := range events[:max(n, 0)] {
			if err := byFd[e.Fd].take(buffer); err != nil {
				return err
			}
		}
	}
}

// cheapReplica is one connection. A frame is an offset, a length and a body; one
// without a body is a heartbeat, which is answered as well.
type cheapReplica struct {
	fd     int
	header [rawFrameHeader]byte
	held   int   // bytes of header
	body   int64 // bytes of the frame's body that are to come
	next   int64 // where the frame ends
	end    int64 // of the last whole frame
}

// connectReplica connects and makes the first report.
func connectReplica(address string, offset int64) (*cheapReplica, error) {
	conn, err := net.Dial("tcp4", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	fd, err := ownSocket(conn.(*net.TCPConn))
	if err != nil {
		return nil, err
	}
	r := &cheapReplica{fd: fd, end: offset}
	return r, r.report()
}

func (r *cheapReplica) report() error {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(r.end))
	_, err := unix.Write(r.fd, b[:])
	return os.NewSyscallError("write", err)
}

// take reads once, and reports if a frame has come to its end.
func (r *cheapReplica) take(buffer []byte) error {
	n, err := unix.Read(r.fd, buffer)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return os.NewSyscallError("read", err)
	case n == 0:
		return errors.New("the master closed the connection")
	}
	if !r.parse(buffer[:n]) {
		return nil
	}
	return r.report()
}

// parse walks over the frames; true if one ended.
func (r *cheapReplica) parse(b []byte) (ended bool) {
	for len(b) > 0 {
		if r.body > 0 {
			n := min(r.body, int64(len(b)))
			r.body, b = r.body-n, b[n:]
		} else {
			n := copy(r.header[r.held:], b)
			r.held, b = r.held+n, b[n:]
			if r.held < len(r.header) {
				return ended
			}
			r.held = 0
			r.body = int64(binary.BigEndian.Uint32(r.header[8:]))
			r.next = int64(binary.BigEndian.Uint64(r.header[:])) + r.body
		}
		if r.body == 0 {
			r.end, ended = r.next, true
		}
	}
	return ended
}
