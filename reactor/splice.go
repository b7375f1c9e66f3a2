package reactor

import "golang.org/x/sys/unix"

// pipeBytes is the size asked for a loop's pipe: more in one call, and what a
// program without privileges gets at most unless told otherwise (pipe(7)).
const pipeBytes = 1 << 20

// pipe is what bytes go through from a socket to a file; splice(2) wants one of
// its ends to be a pipe. Empty between calls. Loop-confined.
type pipe struct {
	from, to int // descriptors to read from and to write to
	open     bool
}

// prepare opens the pipe, once.
func (p *pipe) prepare() error {
	if p.open {
		return nil
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return err
	}
	// A size that is refused leaves the pipe as it is: smaller, and slower.
	_, _ = unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, pipeBytes)
	p.from, p.to, p.open = ends[0], ends[1], true
	return nil
}

// close closes the pipe, with what is in it.
func (p *pipe) close() {
	if p.open {
		_ = unix.Close(p.from)
		_ = unix.Close(p.to)
		p.open = false
	}
}

// take moves up to n bytes from a socket into the pipe; without a word to the
// scheduler, see vectors.
func (p *pipe) take(socket, n int) (int, unix.Errno) {
	for {
		moved, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(socket), 0, uintptr(p.to), 0, uintptr(n), unix.SPLICE_F_NONBLOCK)
		if errno == unix.EINTR {
			continue
		}
		return int(moved), errno
	}
}

// give moves the n bytes in the pipe into a file, and returns how many of them are there.
func (p *pipe) give(fd int, offset int64, n int) (int, unix.Errno) {
	given := 0
	for given < n {
		at := offset + int64(given)
		// Copied, never SPLICE_F_MOVE: the sender may be on this machine, and its file's
		// pages be what came.
		moved, err := unix.Splice(p.from, nil, fd, &at, n-given, 0)
		switch errno := errnoOf(err); {
		case errno == unix.EINTR:
		case errno != 0:
			return given, errno
		case moved == 0:
			return given, unix.EIO
		}
		given += max(int(moved), 0)
	}
	return given, 0
}

// Splice moves up to n bytes of what came to an open file at an offset, by
// splice(2): they are copied once, from where the network put them to the
// file's pages, and not mapped. It waits for the file as a write does. It returns
// how many bytes it moved, at least 1, or 0 and
//   - ErrWouldBlock, io.EOF, and a broken connection, as for Readv,
//   - an *OpError of kind ErrNotSpliced: nothing has happened, because there is no
//     pipe, for want of descriptors, or no splice from sockets. Read instead.
//
// Or it returns how many bytes are in the file, which may be none, and an *OpError:
// others that came are lost, so close the connection. Its kind is ErrFault if the
// file cannot be written to, ErrUnsupported if its file system has no splice.
// Nothing is allocated but the loop's pipe, once. Loop-confined.
func (c *Conn) Splice(fd int, offset int64, n int) (int, error) {
	switch {
	case c.state != connOpen:
		return 0, ErrClosed
	case c.readErr != nil:
		return 0, c.readErr
	case n <= 0:
		return 0, ErrNoBytes
	}
	c.drained = false // less may be for want of room in the pipe
	p := &c.loop.pipe
	if err := p.prepare(); err != nil {
		return 0, &OpError{Op: "pipe", Peer: c.peer, Kind: ErrNotSpliced, Err: err}
	}
	moved, errno := p.take(c.fd, n)
	switch {
	case noSplice(errno) || errno == unix.EPERM: // a sandbox
		return 0, &OpError{Op: "splice", Peer: c.peer, Kind: ErrNotSpliced, Err: errno}
	case errno != 0 || moved == 0:
		return 0, c.readFailed("splice", errno)
	}
	c.progress++
	given, errno := p.give(fd, offset, moved)
	if errno == 0 {
		return given, nil
	}
	p.close() // with what is lost
	e := &OpError{Op: "splice", Peer: c.peer, Err: errno}
	switch {
	case noSplice(errno):
		e.Kind = ErrUnsupported
	case errno != unix.ENOMEM && errno != unix.EAGAIN: // these pass
		e.Kind = ErrFault
	}
	return given, e
}

// noSplice tells the answers of a kernel or a file system that cannot do it.
func noSplice(errno unix.Errno) bool {
	return errno == unix.EINVAL || errno == unix.ENOSYS || errno == unix.EOPNOTSUPP
}
