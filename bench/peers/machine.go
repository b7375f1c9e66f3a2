package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is where a run took place.
type Machine struct {
	CPUs        int    `json:"cpus"`
	Kernel      string `json:"kernel"`
	MemoryBytes int64  `json:"memory_bytes"`
	FileSystem  string `json:"file_system"` // of the stores
	Go          string `json:"go"`
}

func (m Machine) String() string {
	return fmt.Sprintf("%d cores, %.0f GiB of memory, Linux %s, stores on %s, %s", m.CPUs, float64(m.MemoryBytes)/(1<<30), m.Kernel, m.FileSystem, m.Go)
}

// thisMachine describes what it can find out; the rest stays empty.
func thisMachine(dir string) Machine {
	m := Machine{CPUs: runtime.NumCPU(), Kernel: "unknown", FileSystem: "unknown", Go: runtime.Version()}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(release))
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
	}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil {
		m.FileSystem = fileSystemName(fs.Type)
	}
	return m
}

func fileSystemName(magic int64) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	}
	return fmt.Sprintf("file system %#x", magic)
}
