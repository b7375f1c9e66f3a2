package reactor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// SocketOptions are set on every socket before it is used. TCP_NODELAY is
// always on. Zero values leave the kernel's defaults.
type SocketOptions struct {
	// SendBuffer and ReceiveBuffer are in bytes; the kernel doubles them for
	// its own bookkeeping and stops tuning the size itself.
	SendBuffer, ReceiveBuffer int
	// Congestion names a congestion control. One that is not there or not
	// allowed is noted in the log once, and the default used.
	Congestion string
	// UserTimeout is how long sent bytes may stay unacknowledged.
	UserTimeout time.Duration
	// KeepAlive is the silence after which the kernel probes the peer; it
	// gives up after three probes, a third of this apart. Whole seconds.
	KeepAlive time.Duration
}

const backlog = 1024 // the kernel caps it at net.core.somaxconn

func newSocket(domain int) (int, error) {
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	return fd, nil
}

// applyOptions sets o on a socket. Buffers must be set before the socket
// connects or listens: the window scale is settled in the handshake.
func (g *Group) applyOptions(fd int, o SocketOptions) error {
	type option struct {
		name              string
		level, opt, value int
	}
	options := []option{{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}}
	if o.SendBuffer > 0 {
		options = append(options, option{"SO_SNDBUF", unix.SOL_SOCKET, unix.SO_SNDBUF, o.SendBuffer})
	}
	if o.ReceiveBuffer > 0 {
		options = append(options, option{"SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, o.ReceiveBuffer})
	}
	if o.UserTimeout > 0 {
		ms := max(1, int(o.UserTimeout.Milliseconds()))
		options = append(options, option{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms})
	}
	if o.KeepAlive > 0 {
		idle := max(1, int(o.KeepAlive/time.Second))
		options = append(options,
			option{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			option{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, idle},
			option{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, max(1, idle/3)},
			option{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3})
	}
	for _, x := range options {
		if err := unix.SetsockoptInt(fd, x.level, x.opt, x.value); err != nil {
			return fmt.Errorf("set %s to %d: %w", x.name, x.value, err)
		}
	}
	if o.Congestion != "" {
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, o.Congestion); err != nil {
			g.congestionOnce.Do(func() {
				g.logger.Warn("congestion control not available, the kernel's default is used",
					"congestion", o.Congestion, "error", err)
			})
		}
	}
	return nil
}

// listenSocket binds and listens. An empty host is every address, IPv6 and
// IPv4 on one socket where the machine has IPv6.
func (g *Group) listenSocket(addr string, o SocketOptions) (int, error) {
	resolved, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return -1, err
	}
	port := uint16(resolved.Port)
	ip, ok := netip.AddrFromSlice(resolved.IP)
	if ok {
		return g.bindAndListen(netip.AddrPortFrom(ip.Unmap().WithZone(resolved.Zone), port), o)
	}
	fd, err := g.bindAndListen(netip.AddrPortFrom(netip.IPv6Unspecified(), port), o)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
		return g.bindAndListen(netip.AddrPortFrom(netip.IPv4Unspecified(), port), o)
	}
	return fd, err
}

func (g *Group) bindAndListen(addr netip.AddrPort, o SocketOptions) (int, error) {
	sa, domain, err := toSockaddr(addr)
	if err != nil {
		return -1, err
	}
	fd, err := newSocket(domain)
	if err != nil {
		return -1, err
	}
	err = g.applyOptions(fd, o)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil && domain == unix.AF_INET6 {
		only := 0
		if !addr.Addr().IsUnspecified() {
			only = 1
		}
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only)
	}
	if err == nil {
		if err = unix.Bind(fd, sa); err != nil {
			err = fmt.Errorf("bind: %w", err)
		}
	}
	if err == nil {
		if err = unix.Listen(fd, backlog); err != nil {
			err = fmt.Errorf("listen: %w", err)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// dialSocket makes a socket and starts to connect it.
func (g *Group) dialSocket(addr netip.AddrPort, o SocketOptions) (int, error) {
	sa, domain, err := toSockaddr(addr)
	if err != nil {
		return -1, err
	}
	fd, err := newSocket(domain)
	if err != nil {
		return -1, err
	}
	if err = g.applyOptions(fd, o); err == nil {
		err = unix.Connect(fd, sa)
		// An interrupted connect goes on by itself.
		if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
			err = nil
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// socketError takes the error that is waiting on a socket, if any.
func socketError(fd int) error {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if code != 0 {
		return unix.Errno(code)
	}
	return nil
}

func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	return fromSockaddr(sa), err
}

func peerAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getpeername(fd)
	return fromSockaddr(sa), err
}

func toSockaddr(addr netip.AddrPort) (unix.Sockaddr, int, error) {
	ip := addr.Addr().Unmap()
	switch {
	case ip.Is4():
		return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: ip.As4()}, unix.AF_INET, nil
	case ip.Is6():
		sa := &unix.SockaddrInet6{Port: int(addr.Port()), Addr: ip.As16()}
		if zone := ip.Zone(); zone != "" {
			index, err := zoneIndex(zone)
			if err != nil {
				return nil, 0, err
			}
			sa.ZoneId = index
		}
		return sa, unix.AF_INET6, nil
	}
	return nil, 0, fmt.Errorf("no valid address: %w", unix.EAFNOSUPPORT)
}

func zoneIndex(zone string) (uint32, error) {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("zone %s: %w", zone, err)
	}
	return uint32(ifi.Index), nil
}

// fromSockaddr returns the zero AddrPort for what is not TCP. An IPv4 peer of
// a socket for both is an IPv4 address.
func fromSockaddr(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		ip := netip.AddrFrom16(sa.Addr).Unmap()
		if sa.ZoneId != 0 && ip.Is6() {
			ip = ip.WithZone(strconv.FormatUint(uint64(sa.ZoneId), 10))
		}
		return netip.AddrPortFrom(ip, uint16(sa.Port))
	}
	return netip.AddrPort{}
}
