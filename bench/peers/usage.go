package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Usage is what the processes of a peer have used, or hold.
type Usage struct {
	CPUSeconds     float64 `json:"cpu_seconds"`      // all processes, user and system
	LoadCPUSeconds float64 `json:"load_cpu_seconds"` // of these, processes that only put
	// Memory of all but these, at the end: what belongs to nobody else, and with
	// mapped files.
	AnonymousBytes int64 `json:"anonymous_bytes"`
	ResidentBytes  int64 `json:"resident_bytes"`
}

// usageOf adds up the processes; one that is gone counts as nothing.
func usageOf(processes []*process) (u Usage) {
	for _, p := range processes {
		pid := p.cmd.Process.Pid
		cpu := cpuTime(pid).Seconds()
		u.CPUSeconds += cpu
		if p.load {
			u.LoadCPUSeconds += cpu
			continue
		}
		anonymous, resident := memory(pid)
		u.AnonymousBytes += anonymous
		u.ResidentBytes += resident
	}
	return u
}

// since leaves of the CPU time what came after a moment before; memory is as
// it is.
func (u Usage) since(before Usage) Usage {
	u.CPUSeconds -= before.CPUSeconds
	u.LoadCPUSeconds -= before.LoadCPUSeconds
	return u
}

// ticksPerSecond is the unit of /proc/PID/stat, USER_HZ, which is 100 on every
// architecture that Go runs on.
const ticksPerSecond = 100

func cpuTime(pid int) (used time.Duration) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may hold anything; the fields behind it are 3, 4, …
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const utime, stime = 14 - 3, 15 - 3
	if len(fields) <= stime {
		return 0
	}
	for _, i := range []int{utime, stime} {
		ticks, _ := strconv.ParseInt(string(fields[i]), 10, 64)
		used += time.Duration(ticks) * time.Second / ticksPerSecond
	}
	return used
}

// memory reads what a process holds, in bytes.
func memory(pid int) (anonymous, resident int64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(value)
		if len(fields) == 0 {
			continue
		}
		kib, _ := strconv.ParseInt(string(fields[0]), 10, 64)
		switch string(name) {
		case "VmRSS":
			resident = kib << 10
		case "RssAnon":
			anonymous = kib << 10
		}
	}
	return anonymous, resident
}
