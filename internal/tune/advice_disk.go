package tune

import (
	"fmt"
	"math/bits"
	"slices"
)

const segmentDefault = 1 << 30

// segments keeps two segments of a new store within its disk: the one that is
// written and the next, both allocated.
func (a *adviser) segments() {
	const name, def = "segment-bytes", "1GiB"
	s := a.m.Store
	switch {
	case s.Exists:
		a.keep(name, "the store's own", tuningDoc, "an existing store keeps its segment size")
	case !a.master():
		a.keep(name, "the master's", tuningDoc, "a new slave takes over its master's segment size")
	case s.Free != nil && *s.Free < 8*segmentDefault && *s.Free >= 1<<20:
		to := int64(1) << (bits.Len64(uint64(*s.Free/8)) - 1) // an eighth of the room, or a little less
		to = max(min(to, segmentDefault/2), 64<<10)
		a.set(name, def, flagSize(to), arithmetic, "two segments are allocated at once, and retention removes whole ones: with %s free only a few of %s would fit. Slaves of RocketMQ's must be given the same (mappedFileSizeCommitLog)",
			size(*s.Free), def)
	default:
		a.keep(name, def, tuningDoc, "it is RocketMQ's too, and there is room for many")
	}
}

// noAllocation are filesystems that cannot reserve space for a file.
var noAllocation = []string{"ext3", "ext2", "zfs", "nfs", "vfat", "9p", "fuse.sshfs"}

// pages decides how a segment's pages come into being.
func (a *adviser) pages() {
	s := a.m.Store
	reserve := "a full disk is then an error when a segment is made, not in the middle of a put"
	switch {
	case a.got != nil && a.got.FirstTouch != nil && !a.got.FirstTouch.Reserved, slices.Contains(noAllocation, s.Filesystem):
		a.keep("preallocate", "true", tuningDoc, "%s cannot reserve space, so new segments are written full of zeros; %s", s.Filesystem, reserve)
	default:
		a.keep("preallocate", "true", tuneDoc, "%s, and the first touch of a page costs a fifth of that in a sparse file", reserve)
	}
	switch t := a.firstTouch(); {
	case a.cannotPopulate():
		a.keep("populate", "4MiB", tuneDoc, "without effect on this kernel, see outside")
	case t != nil && t.Allocated.faster(t.Populated):
		a.add(Flag, Try, "populate", "4MiB", "0", measuredHere, "making pages present ahead went at %s/s here, touching them one by one at %s/s", size(int64(t.Populated.BytesPerSecond)), size(int64(t.Allocated.BytesPerSecond))).
			Command = "haengine bench async; haengine bench async --set populate=0"
	case t != nil && t.Populated.faster(t.Allocated):
		a.keep("populate", "4MiB", measuredHere, "pages made present ahead came at %s/s, touched one by one at %s/s; a larger window would make syncs slow, because its pages are dirty", size(int64(t.Populated.BytesPerSecond)), size(int64(t.Allocated.BytesPerSecond)))
	default:
		a.keep("populate", "4MiB", tuneDoc, "page faults are the largest cost of a fresh segment; a larger window would make syncs slow, because its pages are dirty")
	}
}

func (a *adviser) cannotPopulate() bool {
	can := a.m.Kernel.PopulateWrite
	return can != nil && !*can
}

func (a *adviser) firstTouch() *FirstTouch {
	if a.got == nil {
		return nil
	}
	return a.got.FirstTouch
}

func (a *adviser) locking() {
	reason := "it told no difference on a machine with memory to spare; the log's newest pages stay in memory by themselves unless something else takes it all"
	if n := a.m.Limits.LockedMemory; n != nil && *n >= 0 && *n < 2*segmentDefault {
		reason += fmt.Sprintf(". It would be refused for all but small segments: two may be locked at once, and RLIMIT_MEMLOCK is %s (LimitMEMLOCK=infinity in a systemd unit, ulimit -l in a shell)", size(*n))
	}
	a.keep("mlock", "false", tuningDoc, "%s", reason)
	a.keep("ring-size", "65536", tuningDoc, "a limit of how many puts may wait, not of speed")
}

func (a *adviser) flushing() {
	for _, f := range [][2]string{{"flush-interval", "500ms"}, {"flush-pages", "4"}, {"flush-thorough", "10s"}} {
		a.keep(f[0], f[1], tuningDoc, "what a machine crash may take with ASYNC_FLUSH; nothing about the machine says how much that may be")
	}
	for _, f := range [][2]string{{"heartbeat", "5s"}, {"housekeeping", "20s"}} {
		a.keep(f[0], f[1], tuningDoc, "RocketMQ's peers expect it")
	}
	if a.got == nil || a.got.Sync == nil {
		a.keep("flush", "ASYNC_FLUSH", tuningDoc, "a choice of safety; --measure tells what SYNC_FLUSH would cost here")
		return
	}
	t := a.got.Sync
	a.keep("flush", "ASYNC_FLUSH", measuredHere, "a choice of safety. Here an fdatasync of 4 KiB took %.0f µs (p50; the longest %.3g ms): with SYNC_FLUSH one producer puts less than %.0f messages a second, and N producers, who share syncs and wait for up to two, about N/2 times that",
		t.P50, t.Max/1000, 1e6/t.P50)
}

func (a *adviser) storeOutside() {
	s := a.m.Store
	switch {
	case s.Filesystem == "tmpfs" || s.Filesystem == "ramfs":
		a.outside(Set, "filesystem of the store", s.Filesystem, "haengine serve --store DIR on a disk", definition, "it is memory: the log is gone after a restart of the machine, and no sync means anything")
	case s.Filesystem == "overlay":
		a.outside(Set, "filesystem of the store", s.Filesystem, "docker run -v VOLUME:DIR, or volumeMounts of the pod", definition, "it is the container's own layer: the log goes with the container")
	case slices.Contains(networkFilesystems, s.Filesystem):
		a.outside(Try, "filesystem of the store", s.Filesystem, "haengine serve --store DIR on a local disk", notShown, "every sync, and the lock that keeps a second node out, is up to another machine")
	}
	if o := s.option("sync", "dirsync"); o != "" {
		a.outside(Try, "mount option of "+s.MountPoint, o, fmt.Sprintf("mount -o remount,async %s, and /etc/fstab", s.MountPoint), notShown, "every write waits for the disk; a node syncs by itself when that is needed (--flush)")
	}
	if o := s.option("nobarrier", "barrier=0"); o != "" {
		a.outside(Set, "mount option of "+s.MountPoint, o, fmt.Sprintf("mount -o remount,barrier=1 %s, and /etc/fstab", s.MountPoint), definition, "syncs do not reach the disk itself: what SYNC_FLUSH and --ack flushed promise does not hold when the power fails, unless the disk's cache outlives that")
	}
	if s.option("ro") != "" {
		a.outside(Set, "mount option of "+s.MountPoint, "ro", fmt.Sprintf("mount -o remount,rw %s", s.MountPoint), definition, "a node cannot write there")
	}
	if s.Device != "" {
		a.outside(Keep, "I/O scheduler of "+s.Device, s.Scheduler, "", notShown, "a log is written in order, by one flusher")
		if n := s.ReadAhead; n != nil && *n > readAheadMax {
			a.outside(Try, "read-ahead of "+s.Device, fmt.Sprint(*n, " KiB"), fmt.Sprintf("echo %d > /sys/block/%s/queue/read_ahead_kb", readAheadMax, s.Device), benchmarksDoc+"#memory",
				"the first touch of a fresh segment's page makes as much present at once, and whoever appends there waits: with 8 MiB p99.9 of 64 producers was 20 ms, with 128 KiB 5 ms, where the host lends memory page by page")
		}
	}
	if n := s.Free; n != nil && s.Total != nil && *s.Total > 0 {
		if used := 100 - *n*100 / *s.Total; used >= 85 {
			a.outside(Set, "free space of "+s.MountPoint, size(*n), "remove what is not needed, or give --retention-disk", tuningDoc, "%d %% are used: above --retention-disk (85) the oldest segments go early, whatever --retention says", used)
		}
	}
}

func (a *adviser) memoryOutside() {
	m := a.m.Memory
	if m.FreeReporting {
		a.outside(Set, "free page reporting", "on", "for the host: without free-page-reporting at the guest's balloon (QEMU: -device virtio-balloon-pci,free-page-reporting=off)", benchmarksDoc+"#memory",
			"the host takes free memory back at once, and the next touch of each page faults into it: a catch-up of 1 GiB was 2.3 times as fast on memory that was still there")
	}
	if n := m.Limit; n != nil && m.Total != nil && *n < *m.Total && *n < 1<<30 {
		a.outside(Try, "memory limit", size(*n), "systemctl set-property UNIT MemoryMax=…, docker update --memory … NAME, or limits.memory of the pod", notShown,
			"the log's pages in memory count, too: a replica that is further behind than this is served from the disk")
	}
	if a.cannotPopulate() {
		a.outside(Try, "kernel", a.m.Kernel.Release, "5.14 or later", tuneDoc, "it cannot make pages present ahead of the end (MADV_POPULATE_WRITE); 1 GiB touched one by one took three times as long")
	}
	for _, k := range []struct {
		name string
		now  *int64
		why  string
	}{
		{"vm.swappiness", m.Swappiness, "a log's pages are a file's, not swap's"},
		{"vm.dirty_ratio", m.DirtyRatio, "a node flushes every --flush-interval, long before the kernel would"},
		{"vm.dirty_background_ratio", m.DirtyBackground, "a node flushes every --flush-interval, long before the kernel would"},
	} {
		if k.now != nil {
			a.outside(Keep, k.name, fmt.Sprint(*k.now), "", notShown, "%s", k.why)
		}
	}
	if m.HugePagesShmem != "" {
		a.outside(Keep, "transparent huge pages (shmem)", m.HugePagesShmem, "", notShown, "for memory filesystems only; how large the pages of a file are is up to its filesystem")
	}
}

// readAheadMax is the kernel's default, in KiB.
const readAheadMax = 128

// clients is how many connections a node should have room for.
const clients = 10_000

func (a *adviser) limitsOutside() {
	s, l := a.m.Store, a.m.Limits
	if n := a.m.Memory.MapCountMax; n != nil {
		if need := int64(2 * s.Segments); need > *n {
			a.outside(Set, "vm.max_map_count", fmt.Sprint(*n), fmt.Sprintf("sysctl -w vm.max_map_count=%d", 2*need), arithmetic, "the store has %d segments to map, and must be able to grow; beyond the limit a node cannot map the next one", s.Segments)
		} else {
			a.outside(Keep, "vm.max_map_count", fmt.Sprint(*n), "", arithmetic, "the store has %d segments to map", s.Segments)
		}
	}
	if n := l.OpenFiles; n != nil {
		files := s.Segments + s.QueueFiles
		need := int64(files + clients + 1000)
		if *n >= 0 && *n < need {
			a.outside(Set, "open files (hard limit)", fmt.Sprint(*n), "LimitNOFILE=65536 in the systemd unit, ulimit -Hn 65536 in a shell, --ulimit nofile=65536 for docker", arithmetic,
				"%d clients and %d files of the store need one each", clients, files)
		} else {
			a.outside(Keep, "open files (hard limit)", unlimited(*n), "", arithmetic, "room for %d clients and %d files of the store", clients, files)
		}
	}
}

func unlimited(n int64) string {
	if n < 0 {
		return "unlimited"
	}
	return fmt.Sprint(n)
}
