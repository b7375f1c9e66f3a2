package reactor

import (
	"io"

	"golang.org/x/sys/unix"
)

// Readv reads once into the buffers, in order; the first 64 that are not
// empty count. It returns how many bytes came, at least 1, or 0 and
//   - ErrWouldBlock: nothing there now,
//   - io.EOF: the peer sends no more; Readable is not called again,
//   - an *OpError of kind ErrFault: a buffer cannot be written to; the bytes
//     stay in the socket,
//   - another *OpError: the connection is broken. If a write found the peer
//     gone, its error takes the place of io.EOF.
//
// It allocates nothing. Loop-confined.
func (c *Conn) Readv(bufs [][]byte) (int, error) {
	if c.state != connOpen {
		return 0, ErrClosed
	}
	if c.readErr != nil {
		return 0, c.readErr
	}
	v := &c.loop.vectors
	count := v.load(bufs)
	if count == 0 {
		return 0, ErrNoBytes
	}
	n, errno := v.read(c.fd, count)
	c.drained = errno == unix.EAGAIN || errno == 0 && n < v.bytes
	if errno == 0 && n > 0 {
		c.progress++
		return n, nil
	}
	return 0, c.readFailed("readv", errno)
}

// Drained tells whether the last Readv took all that was there, so that another
// would most likely get ErrWouldBlock; after Splice it is false. Loop-confined.
func (c *Conn) Drained() bool { return c.drained }

// Writev writes once from the buffers, in order; the first 64 that are not
// empty count. It returns how many bytes the socket took, at least 1, or 0
// and
//   - ErrWouldBlock: the socket is full; ask for Writable with WantWrite,
//   - an *OpError of kind ErrFault: a buffer cannot be read,
//   - another *OpError: the connection is broken.
//
// A peer that is gone may have left bytes that nobody has read yet. While
// Readable is on, this is therefore reported by Readv when those are read,
// and writes only return ErrWouldBlock. It allocates nothing. Loop-confined.
func (c *Conn) Writev(bufs [][]byte) (int, error) { return c.writev(bufs, 0) }

// WritevMore is Writev for bytes that others follow at once, by Writev or
// Sendfile: the kernel waits for those to fill the packet. Loop-confined.
func (c *Conn) WritevMore(bufs [][]byte) (int, error) { return c.writev(bufs, unix.MSG_MORE) }

func (c *Conn) writev(bufs [][]byte, flags int) (int, error) {
	if c.state != connOpen {
		return 0, ErrClosed
	}
	if c.writeErr != nil {
		return 0, c.gone()
	}
	v := &c.loop.vectors
	count := v.load(bufs)
	if count == 0 {
		return 0, ErrNoBytes
	}
	n, errno := v.send(c.fd, count, flags)
	if errno == 0 && n > 0 {
		c.progress++
		return n, nil
	}
	return 0, c.writeFailed("writev", errno)
}

// Sendfile sends up to n bytes of an open file from offset on, without
// copying them through user space. It returns how many bytes the socket took,
// at least 1, or 0 and
//   - ErrWouldBlock, and a broken connection, as for Writev,
//   - an *OpError of kind ErrShortFile: the file ends at or before offset,
//   - an *OpError of kind ErrFault: the file cannot be read.
//
// It allocates nothing. Loop-confined.
func (c *Conn) Sendfile(fd int, offset int64, n int) (int, error) {
	switch {
	case c.state != connOpen:
		return 0, ErrClosed
	case c.writeErr != nil:
		return 0, c.gone()
	case n <= 0:
		return 0, ErrNoBytes
	}
	sent, errno := c.loop.vectors.sendFile(c.fd, fd, offset, n)
	if sent > 0 {
		c.progress++
		return sent, nil
	}
	switch errno {
	case 0:
		return 0, &OpError{Op: "sendfile", Peer: c.peer, Kind: ErrShortFile}
	case unix.EIO, unix.EBADF, unix.EINVAL, unix.EOVERFLOW, unix.ESPIPE, unix.EUCLEAN:
		return 0, &OpError{Op: "sendfile", Peer: c.peer, Kind: ErrFault, Err: errno}
	}
	return 0, c.writeFailed("sendfile", errno)
}

// writeFailed turns the error number of a write into what the caller gets.
func (c *Conn) writeFailed(op string, errno unix.Errno) error {
	switch errno {
	case unix.EAGAIN:
		c.progress++
		return ErrWouldBlock
	case unix.EFAULT:
		return &OpError{Op: op, Peer: c.peer, Kind: ErrFault, Err: errno}
	case unix.EPIPE, unix.ECONNRESET, unix.ETIMEDOUT:
		// The kernel has ended the connection: it is readable from here on,
		// and reading gives the last bytes and then the end.
		c.writeErr = &OpError{Op: op, Peer: c.peer, Err: errno}
		c.apply()
		return c.gone()
	}
	return &OpError{Op: op, Peer: c.peer, Err: errno}
}

// readFailed turns the error number of a read into what the caller gets; 0 is the
// end of the stream.
func (c *Conn) readFailed(op string, errno unix.Errno) error {
	switch {
	case errno == unix.EAGAIN:
		c.progress++
		return ErrWouldBlock
	case errno == unix.EFAULT:
		return &OpError{Op: op, Peer: c.peer, Kind: ErrFault, Err: errno}
	case errno == unix.ENOMEM || errno == unix.ENOBUFS:
		return &OpError{Op: op, Peer: c.peer, Err: errno}
	case c.writeErr != nil:
		c.readErr = c.writeErr
	case errno == 0:
		c.progress++
		c.readErr = io.EOF
	default:
		c.readErr = &OpError{Op: op, Peer: c.peer, Err: errno}
	}
	c.apply() // a level-triggered end of stream would come back each turn
	return c.readErr
}

// gone is what a write returns when the peer is known to be gone.
func (c *Conn) gone() error {
	if c.wantRead && c.readErr == nil {
		return ErrWouldBlock
	}
	c.writeSeen = true
	return c.writeErr
}
