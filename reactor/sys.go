package reactor

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxVectors is how many buffers one readv or writev takes; the kernel's
// limit is 1,024.
const maxVectors = 64

// vectors is the scratch memory of a loop's vectored calls. They are not
// those of x/sys because these allocate nothing, and because sendmsg raises
// no SIGPIPE in the program that embeds this. Loop-confined.
//
// Calls of sockets, which never block here, are made without a word to Go's
// scheduler, as RawSyscall does. The first system call that it hears of after all
// processors were idle wakes the runtime's monitor, which then looks every 20 µs
// whether to take the processor away from who is in the kernel, and takes up to a
// tenth of a core. A page of a mapping that is not in memory is waited for with the
// processor in hand, as it is by whoever copies from or to it. Sendfile, which is
// for what may have to be read from a disk, is told.
type vectors struct {
	iov    [maxVectors]unix.Iovec
	bytes  int // of what was loaded
	msg    unix.Msghdr
	offset int64 // of sendfile
}

// load points the vectors at the buffers that are not empty, at most
// maxVectors of them, and returns their number.
func (v *vectors) load(bufs [][]byte) int {
	n := 0
	v.bytes = 0
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if n == maxVectors {
			break
		}
		v.iov[n].Base = &b[0]
		v.iov[n].SetLen(len(b))
		v.bytes += len(b)
		n++
	}
	return n
}

// read is readv(2) into what was loaded.
func (v *vectors) read(fd, count int) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&v.iov[0])), uintptr(count))
		if errno == unix.EINTR {
			continue
		}
		clear(v.iov[:count]) // keeps no buffer alive
		return int(n), errno
	}
}

// send is sendmsg(2) of what was loaded.
func (v *vectors) send(fd, count, flags int) (int, unix.Errno) {
	v.msg.Iov = &v.iov[0]
	v.msg.SetIovlen(count)
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.msg)), uintptr(flags|unix.MSG_NOSIGNAL))
		if errno == unix.EINTR {
			continue
		}
		clear(v.iov[:count])
		return int(n), errno
	}
}

// sendFile is sendfile(2), which leaves the file's own position alone.
func (v *vectors) sendFile(to, from int, offset int64, n int) (int, unix.Errno) {
	for {
		v.offset = offset
		sent, err := unix.Sendfile(to, from, &v.offset, n)
		errno := errnoOf(err)
		if errno == unix.EINTR {
			continue
		}
		return sent, errno
	}
}

// pollEvents is epoll_wait(2) that does not wait.
func pollEvents(fd int, events []unix.EpollEvent) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		return int(n), errno
	}
}

// discard drops up to a MiB of what was received, without copying it: on a
// TCP socket MSG_TRUNC throws the bytes away.
func discard(fd int) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 1<<20, unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		return int(n), errno
	}
}

// errnoOf returns the error number in err, which comes from x/sys; 0 for nil.
func errnoOf(err error) unix.Errno {
	if err == nil {
		return 0
	}
	// Straight from the call, so not wrapped; errors.As would allocate for
	// each socket that is full.
	errno, ok := err.(unix.Errno) //nolint:errorlint // see above
	if !ok {
		return unix.EIO
	}
	return errno
}

// pinThread binds the calling thread to one CPU.
func pinThread(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	return nil
}
