package main

import (
	"context"
	"os"
	"time"
)

// reportedKiB counts what the kernel has told its host to be free. The file is
// there in virtual machines whose host takes free memory back.
const reportedKiB = "/sys/module/page_reporting/parameters/reported_kib"

// settledBytes is the least amount of fresh memory that settleMemory is worth its
// time for.
const settledBytes = 256 << 20

// settleMemory waits until all free memory is reported to the host, or half a
// minute. Whoever touches a page after that faults into the host, which costs
// more than a copy; so what is measured second, on what the first has freed,
// would look the faster one. Elsewhere, and before few bytes, it returns at once.
func settleMemory(ctx context.Context, bytes byteSize) error {
	if bytes < settledBytes {
		return nil
	}
	before, err := os.ReadFile(reportedKiB)
	if err != nil {
		return nil // memory stays with this machine, or nobody can tell
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for quiet, n := 0, 0; quiet < 6 && n < 60; n++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now, err := os.ReadFile(reportedKiB)
		if err != nil {
			return err
		}
		if quiet++; string(now) != string(before) {
			quiet = 0
		}
		before = now
	}
	return nil
}
