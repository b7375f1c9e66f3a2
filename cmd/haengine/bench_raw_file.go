package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	rawChunk    = 256 << 10 // one sendfile
	rawPopulate = 4 << 20   // pages made present at a time, ahead of the bytes
	rawAhead    = 32 << 20  // how far another thread may be ahead
)

// receiveMethod is how a raw peer gets bytes from a socket into a fresh file.
type receiveMethod string

const (
	receiveMap    receiveMethod = "map"    // read into the map, pages made present a window ahead
	receiveAhead  receiveMethod = "ahead"  // the same, by another thread
	receiveWrite  receiveMethod = "write"  // read into a buffer, pwrite
	receiveSplice receiveMethod = "splice" // socket to pipe to file
)

var receiveMethods = []receiveMethod{receiveMap, receiveAhead, receiveWrite, receiveSplice}

// String says it for people.
func (m receiveMethod) String() string {
	switch m {
	case receiveMap:
		return "read into the map of a fresh file, populated on the way"
	case receiveAhead:
		return "read into the map of a fresh file, populated by another thread"
	case receiveWrite:
		return "read into a buffer, pwrite to a fresh file"
	}
	return "splice into a fresh file"
}

// peerFile receives into a fresh preallocated file, and acknowledges after each
// read. Arguments: the file, its bytes, the method.
func peerFile(poll, fd int, args []string) error {
	if len(args) != 3 {
		return errors.New("a file, its bytes and a method are needed")
	}
	bytes, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	r := rawReceiver{poll: poll, fd: fd, bytes: bytes}
	switch method := receiveMethod(args[2]); method {
	case receiveMap, receiveAhead:
		return r.intoMap(args[0], method == receiveAhead)
	case receiveWrite, receiveSplice:
		return r.intoFile(args[0], method == receiveSplice)
	}
	return fmt.Errorf("there is no method %q", args[2])
}

// rawReceiver is the receiving end of a copy.
type rawReceiver struct {
	poll, fd  int
	at, bytes int64
	ack       [8]byte
}

// got acknowledges n more bytes.
func (r *rawReceiver) got(n int) error {
	if n == 0 {
		return errors.New("the sender ended in the middle")
	}
	r.at += int64(n)
	binary.BigEndian.PutUint64(r.ack[:], uint64(r.at))
	_, err := unix.Write(r.fd, r.ack[:])
	return os.NewSyscallError("write", err)
}

// intoMap reads into the map. Whoever touches its fresh pages pays for them, so
// they are made present before, here or by another thread.
func (r *rawReceiver) intoMap(path string, another bool) error {
	m, err := mapFresh(path, r.bytes)
	if err != nil {
		return err
	}
	defer unmap(m)
	if err := os.Remove(path); err != nil { // the map is all that is needed of it
		return err
	}
	next := func(ready int64) (int64, error) {
		end := min(ready+rawPopulate, r.bytes)
		return end, populate(m[ready:end])
	}
	if another {
		next = populatedAhead(next, r.bytes)
	}
	for ready := int64(0); r.at < r.bytes; {
		if ready-r.at < rawPopulate/2 && ready < r.bytes {
			if ready, err = next(ready); err != nil {
				return err
			}
		}
		n, err := readSome(r.poll, r.fd, false, m[r.at:min(r.at+1<<20, ready)])
		if err != nil {
			return err
		}
		if err := r.got(n); err != nil {
			return err
		}
	}
	return nil
}

// populatedAhead has populate called by a goroutine of its own, up to rawAhead
// before who asks. What it returns waits for the window that begins at ready.
func populatedAhead(populate func(ready int64) (int64, error), bytes int64) func(ready int64) (int64, error) {
	type window struct {
		end int64
		err error
	}
	windows := make(chan window, rawAhead/rawPopulate)
	go func() {
		defer close(windows)
		for ready := int64(0); ready < bytes; {
			end, err := populate(ready)
			windows <- window{end, err}
			if ready = end; err != nil {
				return
			}
		}
	}()
	return func(int64) (int64, error) {
		w := <-windows
		return w.end, w.err
	}
}

// intoFile writes what it reads, or has the kernel move the pages.
func (r *rawReceiver) intoFile(path string, splice bool) error {
	f, err := allocate(path, r.bytes)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Remove(path); err != nil {
		return err
	}
	move := r.writeTo(f)
	if splice {
		var closePipe func()
		if move, closePipe, err = r.spliceTo(f); err != nil {
			return err
		}
		defer closePipe()
	}
	for r.at < r.bytes {
		n, err := move()
		if err != nil {
			return err
		}
		if err := r.got(n); err != nil {
			return err
		}
	}
	return nil
}

// writeTo moves bytes through a buffer that stays in the processor's cache.
func (r *rawReceiver) writeTo(f *os.File) func() (int, error) {
	buffer := make([]byte, rawChunk)
	return func() (int, error) {
		n, err := readSome(r.poll, r.fd, false, buffer)
		if n <= 0 || err != nil {
			return n, err
		}
		return f.WriteAt(buffer[:n], r.at)
	}
}

// spliceTo moves bytes through a pipe, without a look at them.
func (r *rawReceiver) spliceTo(f *os.File) (move func() (int, error), closePipe func(), err error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	// A larger pipe is fewer calls; what the kernel refuses is left as it was.
	_, _ = unix.FcntlInt(uintptr(pipe[1]), unix.F_SETPIPE_SZ, 1<<20)
	closePipe = func() {
		unix.Close(pipe[0])
		unix.Close(pipe[1])
	}
	return func() (int, error) {
		for {
			n, err := unix.Splice(r.fd, nil, pipe[1], nil, 1<<20, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
			switch {
			case errors.Is(err, unix.EAGAIN):
				if err := waitFor(r.poll, r.fd, false); err != nil {
					return 0, err
				}
				continue
			case errors.Is(err, unix.EINTR):
				continue
			case err != nil:
				return 0, os.NewSyscallError("splice", err)
			}
			for offset, end := r.at, r.at+n; offset < end; {
				if _, err := unix.Splice(pipe[0], nil, int(f.Fd()), &offset, int(end-offset), unix.SPLICE_F_MOVE); err != nil && !errors.Is(err, unix.EINTR) {
					return 0, os.NewSyscallError("splice", err)
				}
			}
			return int(n), nil
		}
	}, closePipe, nil
}

// rawCopy sends files one after the other into a fresh file of a peer: a round
// from the first byte to the last acknowledgement.
func rawCopy(ctx context.Context, o benchOptions, method receiveMethod, files []string, sizes []int64) (r round, err error) {
	for _, n := range sizes {
		r.bytes += n
	}
	var p *rawPeer
	err = o.pins.startOnPeerCore(func() (err error) {
		p, err = startRawPeer(ctx, o.congestion, "file", o.dir+"/raw", strconv.FormatInt(r.bytes, 10), string(method))
		return err
	})
	if err != nil {
		return r, err
	}
	defer p.close()
	r.latency = new(latencies)
	before, own := cpuTime(p.child), cpuTime(nil)
	start := time.Now()
	for i, path := range files {
		if err := p.sendFile(path, sizes[i]); err != nil {
			return r, err
		}
	}
	for p.acked < r.bytes {
		if err := p.readAcks(true); err != nil {
			return r, err
		}
	}
	r.took = time.Since(start)
	r.cpu, r.masterCPU = cpuTime(p.child)-before, cpuTime(nil)-own
	r.memory = memoryWith(p.child) // the peer's may be gone
	return r, ctx.Err()
}

func (p *rawPeer) sendFile(path string, bytes int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for offset := int64(0); offset < bytes; {
		_, err := unix.Sendfile(p.fd, int(f.Fd()), &offset, int(min(rawChunk, bytes-offset)))
		switch {
		case errors.Is(err, unix.EAGAIN):
			if err := waitFor(p.poll, p.fd, true); err != nil {
				return err
			}
		case err != nil && !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("sendfile", err)
		}
		if err := p.readAcks(false); err != nil {
			return err
		}
	}
	return nil
}
