package remoting

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed means that a client's connection is over.
var ErrClosed = errors.New("remoting client is closed")

// ErrUnsent means that nothing of a request has left: the other side cannot have
// acted on it.
var ErrUnsent = errors.New("the request was not sent")

// unsentError is why a request has not left.
type unsentError struct{ error }

func (e unsentError) Is(target error) bool { return target == ErrUnsent }

func (e unsentError) Unwrap() error { return e.error }

// Client is one connection to a broker or name server. It has one goroutine,
// which reads. All methods may be called from any goroutine.
type Client struct {
	conn   net.Conn
	h      Handler
	opaque atomic.Int32
	done   chan struct{} // closed when the connection is over
	write  sync.Mutex    // a frame goes out whole
	mu     struct {
		sync.Mutex
		waiting map[int32]chan *Command
		err     error // why the connection is over
		over    bool
		onClose []func()
	}
}

// writeTimeout is how long the other side may not read before a client gives up.
const writeTimeout = 10 * time.Second

// Dial connects to a HOST:PORT. Requests of the other side go to h, which runs
// on the reading goroutine and must not block; without h they are answered as
// not supported. The caller must Close the client.
func Dial(ctx context.Context, addr string, h Handler) (*Client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if h == nil {
		h = &Mux{}
	}
	c := &Client{conn: conn, h: h, done: make(chan struct{})}
	c.mu.waiting = map[int32]chan *Command{}
	go c.read()
	return c, nil
}

// Call sends a request and waits for its answer, whatever its code is; see
// Command.Err. Opaque, Flag, and an empty Language and Version are filled in.
// The error is ctx's, a *RefusalError if the request is too long, or says why the
// connection is over: it is also when only a part of the request could be written
// before ctx's deadline. It is ErrUnsent, too, if nothing of the request has left.
func (c *Client) Call(ctx context.Context, request *Command) (*Command, error) {
	if err := ctx.Err(); err != nil {
		return nil, unsentError{fmt.Errorf("code %d at %s: %w", request.Code, c.conn.RemoteAddr(), err)}
	}
	answer := make(chan *Command, 1)
	request.Opaque, request.Flag = c.opaque.Add(1), 0
	c.mu.Lock()
	if c.mu.over {
		defer c.mu.Unlock()
		return nil, unsentError{c.mu.err}
	}
	c.mu.waiting[request.Opaque] = answer
	c.mu.Unlock()
	deadline, _ := ctx.Deadline()
	if err := c.send(request, deadline); err != nil {
		c.forget(request.Opaque)
		return nil, err
	}
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		c.forget(request.Opaque)
		return nil, fmt.Errorf("code %d at %s: %w", request.Code, c.conn.RemoteAddr(), ctx.Err())
	case <-c.done:
	}
	select {
	case a := <-answer: // it came before the end
		return a, nil
	default:
		return nil, c.Err()
	}
}

// Push sends a request that is not answered.
func (c *Client) Push(request *Command) error {
	request.Opaque, request.Flag = c.opaque.Add(1), FlagOneway
	return c.send(request, time.Time{})
}

// Done is closed when the connection is over.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err says why the connection is over, nil while it is not.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// RemoteAddr is the address of the other side.
func (c *Client) RemoteAddr() netip.AddrPort {
	a, _ := netip.ParseAddrPort(c.conn.RemoteAddr().String())
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// LocalAddr is our own.
func (c *Client) LocalAddr() netip.AddrPort {
	a, _ := netip.ParseAddrPort(c.conn.LocalAddr().String())
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Close ends the connection and waits for the reading goroutine, so that a
// handler must not call it (Peer.Close may be). Calls that wait get ErrClosed.
func (c *Client) Close() error {
	_ = c.end(ErrClosed)
	<-c.done
	return nil
}

func (c *Client) forget(opaque int32) {
	c.mu.Lock()
	delete(c.mu.waiting, opaque)
	c.mu.Unlock()
}

func (c *Client) send(r *Command, deadline time.Time) error {
	if r.Language == "" {
		r.Language = "GO"
	}
	if r.Version == 0 {
		r.Version = Version
	}
	return c.sendBefore(AppendFrame(nil, r), deadline)
}

func (c *Client) sendFrame(frame []byte) error { return c.sendBefore(frame, time.Time{}) }

// sendBefore writes a frame until a deadline, if there is one, but no longer than
// writeTimeout.
func (c *Client) sendBefore(frame []byte, deadline time.Time) error {
	if len(frame) > FrameBytesMax {
		return unsentError{refuse(FrameTooLong, "a frame of %d bytes, want at most %d", len(frame), FrameBytesMax)}
	}
	c.write.Lock()
	defer c.write.Unlock()
	now := time.Now()
	if !deadline.IsZero() && !now.Before(deadline) { // others were written until now: the connection is well
		return unsentError{fmt.Errorf("to %s: %w", c.conn.RemoteAddr(), context.DeadlineExceeded)}
	}
	if most := now.Add(writeTimeout); deadline.IsZero() || most.Before(deadline) {
		deadline = most
	}
	if err := c.conn.SetWriteDeadline(deadline); err != nil {
		return unsentError{c.end(err)}
	}
	switch n, err := c.conn.Write(frame); {
	case err != nil && n == 0:
		return unsentError{c.end(err)}
	case err != nil:
		return c.end(err) // the rest of the frame is missing
	}
	return nil
}

// end closes the connection for its first reason, which it returns.
func (c *Client) end(why error) error {
	c.mu.Lock()
	if c.mu.err == nil {
		c.mu.err = why
		if !errors.Is(why, ErrClosed) {
			c.mu.err = fmt.Errorf("connection to %s: %w", c.conn.RemoteAddr(), why)
		}
	}
	why = c.mu.err
	c.mu.over = true
	c.mu.Unlock()
	c.conn.Close()
	return why
}

func (c *Client) read() {
	in := bufio.NewReaderSize(c.conn, 64<<10)
	for {
		frame, err := readFrame(in)
		if err != nil {
			_ = c.end(err)
			break
		}
		r := &Request{Peer: clientPeer{c}}
		if err := ParseFrame(frame, &r.Command); err != nil {
			_ = c.end(err)
			break
		}
		if r.IsResponse() {
			c.answer(&r.Command)
			continue
		}
		r.reply = func(a *Command) { _ = c.sendFrame(AppendFrame(nil, a)) }
		c.h.Serve(r)
	}
	c.mu.Lock()
	all := c.mu.onClose
	c.mu.onClose = nil
	close(c.done) // under the lock: OnClose either adds or sees it
	c.mu.Unlock()
	for _, do := range all {
		do()
	}
}

// answer hands a response to the call that waits for it, if one still does.
func (c *Client) answer(a *Command) {
	c.mu.Lock()
	waits := c.mu.waiting[a.Opaque]
	delete(c.mu.waiting, a.Opaque)
	c.mu.Unlock()
	if waits != nil {
		waits <- a
	}
}

// readFrame reads one frame into memory of its own.
func readFrame(in *bufio.Reader) ([]byte, error) {
	head, err := in.Peek(frameHead)
	if err != nil {
		if len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	size, err := frameBytes(head, FrameBytesMax)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(in, frame); err != nil {
		return nil, err
	}
	return frame, nil
}

// clientPeer is the other side of a client's connection as a handler sees it.
type clientPeer struct{ c *Client }

func (p clientPeer) RemoteAddr() netip.AddrPort { return p.c.RemoteAddr() }

func (p clientPeer) Push(r *Command) { _ = p.c.Push(r) }

func (p clientPeer) Close(why error) { _ = p.c.end(why) }

func (p clientPeer) OnClose(do func()) {
	p.c.mu.Lock()
	select {
	case <-p.c.done:
		p.c.mu.Unlock()
		do()
		return
	default:
	}
	p.c.mu.onClose = append(p.c.mu.onClose, do)
	p.c.mu.Unlock()
}

// ResponseError is an answer that is not a success.
type ResponseError struct {
	Code   int32
	Remark string
}

func (e *ResponseError) Error() string { return fmt.Sprintf("answer %d: %s", e.Code, e.Remark) }

// Err is a *ResponseError unless the command's code is Success.
func (c *Command) Err() error {
	if c.Code == Success {
		return nil
	}
	return &ResponseError{Code: c.Code, Remark: c.Remark}
}
