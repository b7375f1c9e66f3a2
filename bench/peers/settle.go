package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// leaveFree is how much memory stays free, and fillStep how much is given to the
// page cache before it is looked at again.
const (
	leaveFree = 192 << 20
	fillStep  = 64 << 20
)

// settle writes out what is dirty on the directory's file system, and fills free
// memory with the pages of a file there, as bench/memory.sh does and says why;
// not with WARM=0 in the environment.
func settle(ctx context.Context, dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return os.NewSyscallError("syncfs", err)
	}
	if os.Getenv("WARM") == "0" {
		return nil
	}
	total, _, err := machineMemory()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "memory"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(total); err != nil {
		return err
	}
	for at := int64(0); at < total; at += fillStep {
		if _, free, err := machineMemory(); err != nil || free < leaveFree+fillStep {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, io.NewSectionReader(f, at, fillStep)); err != nil {
			return err
		}
	}
	return nil
}

// machineMemory gives the machine's memory and what of it is free, in bytes.
func machineMemory() (total, free int64, err error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan() && (total == 0 || free == 0); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "MemTotal":
			total = kib << 10
		case "MemFree":
			free = kib << 10
		}
	}
	if total == 0 {
		return 0, 0, fmt.Errorf("%s does not tell the memory there is", f.Name())
	}
	return total, free, nil
}
