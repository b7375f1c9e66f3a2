package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// The raw limits: the same bytes moved by the same system calls, with no log,
// no protocol and no scheduler in between. The other end is a process of its
// own (the hidden verb "bench peer"), which acknowledges as a slave does: after
// each read, with the number of bytes it holds.

// rawPeer is a connection to a peer process.
type rawPeer struct {
	child *child
	fd    int
	poll  int
	spin  bool    // it asks the socket again and again in place of the poller
	acked int64   // bytes that the peer said it holds, over all runs
	part  [8]byte // an acknowledgement that has come in part
	held  int     // bytes of part
}

// newBenchPeer is the peer's verb. It is no part of the contract.
func newBenchPeer() *cobra.Command {
	return &cobra.Command{
		Use: "peer stream|spin|file|replicas|fill WHERE [ARGUMENTS]", Hidden: true, Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "replicas":
				return peerReplicas(args[1], args[2:])
			case "fill":
				return peerFill(args[1:])
			}
			poll, fd, err := dialRaw(args[1])
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			defer unix.Close(poll)
			switch args[0] {
			case "stream":
				return peerStream(poll, fd, false)
			case "spin":
				return peerStream(poll, fd, true)
			case "file":
				return peerFile(poll, fd, args[2:])
			}
			return fmt.Errorf("there is no peer %q", args[0])
		},
	}
}

// startRawPeer starts a peer and waits for its connection.
func startRawPeer(ctx context.Context, congestion string, args ...string) (*rawPeer, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	c, err := startChild("raw peer", nil, append([]string{"bench", "peer", args[0], listener.Addr().String()}, args[1:]...)...)
	if err != nil {
		return nil, err
	}
	err = listener.SetDeadline(time.Now().Add(10 * time.Second))
	if err != nil {
		c.kill()
		return nil, err
	}
	conn, err := listener.AcceptTCP()
	if err != nil {
		c.kill()
		return nil, c.failure(err)
	}
	defer conn.Close()
	fd, err := ownSocket(conn)
	if err != nil {
		c.kill()
		return nil, err
	}
	if congestion != "" {
		// As the engine does: what the kernel refuses is left as it was.
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion)
	}
	poll, err := pollFor(fd)
	if err != nil {
		unix.Close(fd)
		c.kill()
		return nil, err
	}
	return &rawPeer{child: c, fd: fd, poll: poll}, ctx.Err()
}

func (p *rawPeer) close() {
	unix.Close(p.fd)
	unix.Close(p.poll)
	p.child.kill()
}

func dialRaw(address string) (poll, fd int, err error) {
	conn, err := net.Dial("tcp4", address)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	if fd, err = ownSocket(conn.(*net.TCPConn)); err != nil {
		return 0, 0, err
	}
	if poll, err = pollFor(fd); err != nil {
		unix.Close(fd)
	}
	return poll, fd, err
}

// ownSocket takes a connection's socket away from Go's own poller.
func ownSocket(conn *net.TCPConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	fd := -1
	err2 := raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(err, err2); err != nil {
		return 0, os.NewSyscallError("dup", err)
	}
	return fd, nil
}

func pollFor(fd int) (int, error) {
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return 0, os.NewSyscallError("epoll_create1", err)
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		unix.Close(poll)
		return 0, os.NewSyscallError("epoll_ctl", err)
	}
	return poll, nil
}

// waitFor blocks until fd is readable, or writable too if asked.
func waitFor(poll, fd int, writable bool) error {
	var events [1]unix.EpollEvent
	if writable {
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT, Fd: int32(fd)}
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_MOD, fd, &event); err != nil {
			return err
		}
		defer func() {
			event.Events = unix.EPOLLIN
			_ = unix.EpollCtl(poll, unix.EPOLL_CTL_MOD, fd, &event) // cannot fail where it just did not
		}()
	}
	for {
		n, err := unix.EpollWait(poll, events[:], -1)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("epoll_wait", err)
		}
	}
}

// rawSpins is how often a spinning end asks for nothing, for some 10 ms, before it
// waits in the poller: it is not to have a core while the engine is measured.
const rawSpins = 50_000

// readSome reads what there is, waiting until there is something, in the poller
// or spinning; 0 is the end.
func readSome(poll, fd int, spin bool, dst []byte) (int, error) {
	for tries := 0; ; tries++ {
		n, err := unix.Read(fd, dst)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EAGAIN) && spin && tries < rawSpins:
		case errors.Is(err, unix.EAGAIN):
			if err := waitFor(poll, fd, false); err != nil {
				return 0, err
			}
		case !errors.Is(err, unix.EINTR):
			return 0, os.NewSyscallError("read", err)
		}
	}
}

// readAcks takes in what the peer has acknowledged, waiting for something if
// asked.
func (p *rawPeer) readAcks(wait bool) error {
	var buf [4096]byte
	copy(buf[:], p.part[:p.held])
	for {
		n, err := unix.Read(p.fd, buf[p.held:])
		switch {
		case n > 0:
			n += p.held
			if p.held = n % 8; n >= 8 {
				p.acked = int64(binary.BigEndian.Uint64(buf[n-p.held-8:]))
			}
			copy(p.part[:], buf[n-p.held:n])
			return nil
		case errors.Is(err, unix.EAGAIN):
			if !wait {
				return nil
			}
			if err := waitFor(p.poll, p.fd, false); err != nil {
				return err
			}
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("read", err)
		default:
			p.child.kill() // so that all that it said is known
			return p.child.failure(errors.New("ended in the middle"))
		}
	}
}

// peerStream reads into a map and acknowledges after each read. Spinning, it
// asks the socket again and again in place of the poller.
func peerStream(poll, fd int, spin bool) error {
	const room = 4 << 20
	m, err := populatedMap(room)
	if err != nil {
		return err
	}
	defer unmap(m)
	var total int64
	var ack [8]byte
	for at := 0; ; {
		if !spin {
			if err := waitFor(poll, fd, false); err != nil {
				return err
			}
		}
		n, err := readSome(poll, fd, spin, m[at:min(at+256<<10, room)])
		if n == 0 || err != nil {
			return err
		}
		if at += n; at == room {
			at = 0
		}
		total += int64(n)
		binary.BigEndian.PutUint64(ack[:], uint64(total))
		if _, err := unix.Write(fd, ack[:]); err != nil {
			return os.NewSyscallError("write", err)
		}
	}
}
