package tune

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System is what no file tells. Nothing in it changes the machine.
type System interface {
	// CPUs are how many this process may run on, and Go's GOMAXPROCS.
	CPUs() (usable, gomaxprocs int)
	// Space is what a directory's filesystem has for this user, used or free, and
	// what of that is free, in bytes.
	Space(dir string) (total, free int64, err error)
	// Limits are those of open files (hard) and of locked memory (soft, bytes);
	// -1 is none.
	Limits() (openFiles, lockedMemory int64, err error)
	// Congestion tells whether a socket may have a congestion control.
	Congestion(name string) error
	// InterfaceOf is the interface that has an address, or empty.
	InterfaceOf(a netip.Addr) string
	// SourceFor is the address from which this machine would talk to a, or empty.
	SourceFor(a netip.Addr) string
	// Offloads tells what an interface does for TCP.
	Offloads(name string) (tso, gso, gro *bool, err error)
}

// Here is the machine that this process runs on.
type Here struct{}

// CPUs implements System.
func (Here) CPUs() (usable, gomaxprocs int) { return runtime.NumCPU(), runtime.GOMAXPROCS(0) }

// Space implements System.
func (Here) Space(dir string) (total, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, os.NewSyscallError("statfs", err)
	}
	return int64(s.Blocks-s.Bfree+s.Bavail) * s.Bsize, int64(s.Bavail) * s.Bsize, nil
}

// Limits implements System.
func (Here) Limits() (openFiles, lockedMemory int64, err error) {
	var files, locked unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 0, 0, os.NewSyscallError("getrlimit", err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &locked); err != nil {
		return 0, 0, os.NewSyscallError("getrlimit", err)
	}
	return int64(files.Max), int64(locked.Cur), nil // RLIM_INFINITY is -1 then
}

// Congestion implements System. The socket is thrown away.
func (Here) Congestion(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	return os.NewSyscallError("setsockopt", unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name))
}

// InterfaceOf implements System.
func (Here) InterfaceOf(a netip.Addr) string {
	all, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, have := range addresses {
			if n, ok := have.(*net.IPNet); ok && n.IP.Equal(a.Unmap().AsSlice()) {
				return i.Name
			}
		}
	}
	return ""
}

// SourceFor implements System. A datagram socket that is connected sends nothing.
func (Here) SourceFor(a netip.Addr) string {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return ""
	}
	defer conn.Close()
	from, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return ""
	}
	return from.Addr().String()
}

// Offloads implements System, by the ioctls that need no privilege.
func (Here) Offloads(name string) (tso, gso, gro *bool, err error) {
	const getTSO, getGSO, getGRO = 0x1e, 0x23, 0x2b // ETHTOOL_G…
	if len(name) >= unix.IFNAMSIZ {
		return nil, nil, nil, fmt.Errorf("%q is no name of an interface", name)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	get := func(command uint32) *bool {
		value := struct{ command, data uint32 }{command: command}
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte // the rest of the kernel's union
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:], name)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			err = os.NewSyscallError("ethtool ioctl", errno)
			return nil
		}
		on := value.data != 0
		return &on
	}
	tso, gso, gro = get(getTSO), get(getGSO), get(getGRO)
	return tso, gso, gro, err
}
