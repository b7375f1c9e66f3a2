package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The limits do to a file what commitlog does to a segment, with the bare
// system calls: that is what the engine is measured against. They are all here.

// populatedMap maps memory and makes its pages present.
func populatedMap(bytes int64) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	if err := populate(m); err != nil {
		unmap(m)
		return nil, err
	}
	return m, nil
}

// mapFresh makes a new file of so many allocated bytes and maps it. The map
// stays when the file is closed and removed.
func mapFresh(path string, bytes int64) ([]byte, error) {
	f, err := allocate(path, bytes)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return m, os.NewSyscallError("mmap", err)
}

// allocate makes a new file of so many bytes.
func allocate(path string, bytes int64) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, bytes); err != nil {
		f.Close()
		return nil, fmt.Errorf("allocate %d bytes for %s: %w", bytes, path, err)
	}
	return f, nil
}

func populate(m []byte) error {
	return os.NewSyscallError("madvise", unix.Madvise(m, unix.MADV_POPULATE_WRITE))
}

func unmap(m []byte) {
	_ = unix.Munmap(m) // an error would mean that m is no map of ours
}
