package main

import (
	"bytes"
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// reportedKiB counts what the kernel has told its host to be free. The file is
// there in virtual machines whose host takes free memory back.
const reportedKiB = "/sys/module/page_reporting/parameters/reported_kib"

// settle writes out what is dirty on the directory's file system, and then
// waits until all free memory is reported to the host, or 10 s, so
// that nobody finds the pages of the one before in hand; see
// docs/benchmarks.md.
func settle(ctx context.Context, dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return os.NewSyscallError("syncfs", err)
	}
	before, err := os.ReadFile(reportedKiB)
	if err != nil {
		return nil // memory stays with this machine, or nobody can tell
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for quiet, n := 0, 0; quiet < 6 && n < 20; n++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		now, err := os.ReadFile(reportedKiB)
		if err != nil {
			return err
		}
		if quiet++; !bytes.Equal(now, before) {
			quiet = 0
		}
		before = now
	}
	return nil
}
