package tune

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// pair is two ends of one TCP connection on loopback, without Go's poller.
type pair struct{ a, b int }

func newPair() (pair, error) {
	l, err := tcpSocket(unix.AF_INET)
	if err != nil {
		return pair{}, err
	}
	defer unix.Close(l)
	if err := unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return pair{}, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(l, 1); err != nil {
		return pair{}, os.NewSyscallError("listen", err)
	}
	at, err := unix.Getsockname(l)
	if err != nil {
		return pair{}, os.NewSyscallError("getsockname", err)
	}
	a, err := tcpSocket(unix.AF_INET)
	if err != nil {
		return pair{}, err
	}
	if err := unix.Connect(a, at); err != nil {
		unix.Close(a)
		return pair{}, os.NewSyscallError("connect", err)
	}
	b, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
	if err != nil {
		unix.Close(a)
		return pair{}, os.NewSyscallError("accept", err)
	}
	p := pair{a, b}
	for _, fd := range []int{a, b} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			p.close()
			return pair{}, os.NewSyscallError("setsockopt", err)
		}
	}
	return p, nil
}

func (p pair) close() {
	unix.Close(p.a)
	unix.Close(p.b)
}

func tcpSocket(domain int) (int, error) {
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	return fd, os.NewSyscallError("socket", err)
}

// receive reads exactly one message, blocking or polling. false is the end.
func receive(fd int, b []byte, poll bool) (bool, error) {
	flags := 0
	if poll {
		flags = unix.MSG_DONTWAIT
	}
	for got := 0; got < len(b); {
		n, _, err := unix.Recvfrom(fd, b[got:], flags)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return false, os.NewSyscallError("recv", err)
		case n == 0:
			return false, nil
		default:
			got += n
		}
	}
	return true, nil
}

// measureLoopback takes turns between a ping-pong of two threads that block and
// one of two that poll.
func measureLoopback(ctx context.Context) (*RoundTrip, error) {
	const turns = 8
	var block, spin []float64
	for turn := 0; turn < turns && ctx.Err() == nil; turn++ {
		poll := turn%2 == 1
		took, err := pingPong(poll, tripsFor/turns)
		if err != nil {
			return nil, err
		}
		if poll {
			spin = append(spin, took)
		} else {
			block = append(block, took)
		}
	}
	if len(spin) == 0 {
		return nil, ctx.Err()
	}
	return &RoundTrip{Block: median(block), Spin: median(spin)}, nil
}

// pingPong is the median time of 1 KiB one way and 8 bytes back, in µs.
func pingPong(poll bool, d time.Duration) (float64, error) {
	p, err := newPair()
	if err != nil {
		return 0, err
	}
	defer p.close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // both sides have a thread each
		defer runtime.UnlockOSThread()
		message, answer := make([]byte, 1024), make([]byte, 8)
		for {
			more, err := receive(p.b, message, poll)
			if err == nil && more {
				_, err = unix.Write(p.b, answer)
			}
			if err != nil || !more {
				done <- err
				return
			}
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	message, answer := make([]byte, 1024), make([]byte, 8)
	var took []float64
	var failed error
	for begun, end := time.Now(), time.Now().Add(d); begun.Before(end); {
		if _, failed = unix.Write(p.a, message); failed != nil {
			break
		}
		if _, failed = receive(p.a, answer, poll); failed != nil {
			break
		}
		now := time.Now()
		took = append(took, micros(now.Sub(begun)))
		begun = now
	}
	shut := unix.Shutdown(p.a, unix.SHUT_WR) // the other side sees the end
	return median(took), errors.Join(failed, shut, <-done)
}

// measureSendfile sends a file that is in memory to a thread that reads it into
// a buffer, taking turns between congestion controls.
func measureSendfile(ctx context.Context, congestion []string) ([]SendRate, error) {
	const bytes, turns = 32 << 20, 4
	fd, err := unix.MemfdCreate("haengine-tune", unix.MFD_CLOEXEC)
	if err != nil {
		return []SendRate{}, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "a file in memory")
	defer f.Close()
	piece := make([]byte, 1<<20)
	for at := int64(0); at < bytes; at += int64(len(piece)) {
		if _, err := f.WriteAt(piece, at); err != nil {
			return []SendRate{}, err
		}
	}
	rates := make([][]float64, len(congestion))
	each := sendfileFor / time.Duration(turns*len(congestion))
	for range turns {
		for i, name := range congestion {
			if ctx.Err() != nil {
				break
			}
			rate, err := sendRate(f, bytes, name, each)
			if err != nil {
				return []SendRate{}, fmt.Errorf("with %s: %w", name, err)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	list := []SendRate{}
	for i, name := range congestion {
		if len(rates[i]) > 0 {
			list = append(list, SendRate{name, newRate(rates[i])})
		}
	}
	return list, ctx.Err()
}

// sendRate sends the file again and again for d.
func sendRate(f *os.File, bytes int64, congestion string, d time.Duration) (float64, error) {
	p, err := newPair()
	if err != nil {
		return 0, err
	}
	defer p.close()
	if err := unix.SetsockoptString(p.a, unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	type read struct {
		bytes int64
		err   error
	}
	done := make(chan read, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		buffer := make([]byte, 1<<20)
		var r read
		for {
			n, err := unix.Read(p.b, buffer)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if r.bytes += int64(max(n, 0)); n <= 0 {
				r.err = os.NewSyscallError("read", err)
				done <- r
				return
			}
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var failed error
	start := time.Now()
	for end := start.Add(d); time.Now().Before(end) && failed == nil; {
		failed = sendAll(p.a, f, bytes, end)
	}
	shut := unix.Shutdown(p.a, unix.SHUT_WR)
	r := <-done
	return float64(r.bytes) / time.Since(start).Seconds(), errors.Join(failed, shut, r.err)
}

func sendAll(fd int, f *os.File, bytes int64, until time.Time) error {
	for at := int64(0); at < bytes && time.Now().Before(until); {
		_, err := unix.Sendfile(fd, int(f.Fd()), &at, int(min(256<<10, bytes-at)))
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return os.NewSyscallError("sendfile", err)
		}
	}
	return nil
}

// measurePeer connects and closes, taking turns between blocking and polling
// until the peer's kernel answers. Eight times: a node that listens there sees
// as many connections that say nothing.
func measurePeer(ctx context.Context, peer netip.AddrPort) (*RoundTrip, error) {
	const times = 8
	var block, spin []float64
	end := time.Now().Add(peerFor)
	for i := range times {
		if i >= 2 && !time.Now().Before(end) || ctx.Err() != nil {
			break
		}
		took, err := connectTime(peer, i%2 == 1)
		if err != nil {
			return nil, err
		}
		if i%2 == 1 {
			spin = append(spin, micros(took))
		} else {
			block = append(block, micros(took))
		}
	}
	if len(spin) == 0 {
		return nil, ctx.Err()
	}
	return &RoundTrip{Block: median(block), Spin: median(spin)}, nil
}

// peerWait is how long a connect may take: one lost SYN is sent again after 1 s.
const peerWait = 1500 * time.Millisecond

func connectTime(peer netip.AddrPort, poll bool) (time.Duration, error) {
	var to unix.Sockaddr
	domain := unix.AF_INET
	if a := peer.Addr().Unmap(); a.Is4() {
		to = &unix.SockaddrInet4{Port: int(peer.Port()), Addr: a.As4()}
	} else {
		domain = unix.AF_INET6
		to = &unix.SockaddrInet6{Port: int(peer.Port()), Addr: a.As16()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := time.Now()
	if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return 0, os.NewSyscallError("connect", err)
	}
	for {
		left := peerWait - time.Since(start)
		if left <= 0 {
			return 0, fmt.Errorf("no answer within %v", peerWait)
		}
		wait := int(left.Milliseconds()) + 1
		if poll {
			wait = 0
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, os.NewSyscallError("poll", err)
		}
		if n > 0 {
			break
		}
	}
	took := time.Since(start)
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = os.NewSyscallError("connect", unix.Errno(errno))
	}
	return took, err
}
