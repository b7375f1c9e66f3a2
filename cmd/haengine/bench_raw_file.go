package main

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	rawChunk    = 256 << 10 // one sendfile
	rawPopulate = 4 << 20   // pages made present ahead of the bytes
)

// peerFile receives bytes into the map of a fresh preallocated file, whose
// pages it makes present a window ahead, and acknowledges after each read.
func peerFile(poll, fd int, path string, bytes int64) error {
	m, err := mapFresh(path, bytes)
	if err != nil {
		return err
	}
	defer unmap(m)
	if err := os.Remove(path); err != nil { // the map is all that is needed of it
		return err
	}
	var ack [8]byte
	ready, at := int64(0), int64(0)
	for at < bytes {
		if ready-at < rawPopulate/2 && ready < bytes {
			next := min(ready+rawPopulate, bytes)
			if err := populate(m[ready:next]); err != nil {
				return err
			}
			ready = next
		}
		n, err := readSome(poll, fd, m[at:min(at+1<<20, ready)])
		if err != nil {
			return err
		}
		if n == 0 {
			return errors.New("the sender ended in the middle")
		}
		at += int64(n)
		binary.BigEndian.PutUint64(ack[:], uint64(at))
		if _, err := unix.Write(fd, ack[:]); err != nil {
			return os.NewSyscallError("write", err)
		}
	}
	return nil
}

// rawCopy sends files one after the other into a fresh file of a peer, and
// returns the time from the first byte to the last acknowledgement and the CPU
// time of both processes.
func rawCopy(ctx context.Context, o benchOptions, files []string, sizes []int64) (took, cpu time.Duration, err error) {
	var total int64
	for _, n := range sizes {
		total += n
	}
	p, err := startRawPeer(ctx, o.congestion, "file", o.dir+"/raw", strconv.FormatInt(total, 10))
	if err != nil {
		return 0, 0, err
	}
	defer p.close()
	before := cpuTime(p.child)
	start := time.Now()
	for i, path := range files {
		if err := p.sendFile(path, sizes[i]); err != nil {
			return 0, 0, err
		}
	}
	for p.acked < total {
		if err := p.readAcks(true); err != nil {
			return 0, 0, err
		}
	}
	return time.Since(start), cpuTime(p.child) - before, ctx.Err()
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
