package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// memoryUse is what a process has in memory now. Mapped pages are those of
// files, shared memory included: a node's segments, which the kernel takes back
// when it needs them. A page that a node wrote to and that is not yet on the
// disk is one of them, too.
type memoryUse struct {
	Anonymous int64 `json:"anonymous_bytes"`
	Mapped    int64 `json:"mapped_bytes"`
}

// benchMemory is the most that was seen at the end of a round. Slave is nil
// where it is no process of its own.
type benchMemory struct {
	Master *memoryUse `json:"master"` // the load included
	Slave  *memoryUse `json:"slave"`
}

// memoryOf reads /proc/PID/smaps_rollup; nil if the process is gone or the
// kernel does not tell. The kernel walks all of the process's pages for it, so
// it has no place inside a measurement.
func memoryOf(pid int) *memoryUse {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return nil
	}
	resident, anonymous := rollupField(text, "Rss:"), rollupField(text, "Anonymous:")
	if resident < 0 || anonymous < 0 {
		return nil
	}
	return &memoryUse{Anonymous: anonymous, Mapped: max(resident-anonymous, 0)}
}

// rollupField is a field of smaps_rollup in bytes; -1 if it is not there.
func rollupField(text []byte, name string) int64 {
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) == 3 && string(f[0]) == name && string(f[2]) == "kB" {
			n, err := strconv.ParseInt(string(f[1]), 10, 64)
			if err == nil {
				return n << 10
			}
		}
	}
	return -1
}

// memoryWith is the memory of this process and of a child, if there is one.
func memoryWith(c *child) benchMemory {
	m := benchMemory{Master: memoryOf(os.Getpid())}
	if c != nil {
		m.Slave = memoryOf(c.cmd.Process.Pid)
	}
	return m
}

// atLeast takes in another round's memory.
func (m *benchMemory) atLeast(other benchMemory) {
	m.Master, m.Slave = larger(m.Master, other.Master), larger(m.Slave, other.Slave)
}

func larger(a, b *memoryUse) *memoryUse {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return &memoryUse{max(a.Anonymous, b.Anonymous), max(a.Mapped, b.Mapped)}
}

func (m *memoryUse) print(w io.Writer, who string) {
	if m != nil {
		fmt.Fprintf(w, "%s %s anonymous, %s mapped", who, shortBytes(m.Anonymous), shortBytes(m.Mapped))
	}
}

// String is both processes' in one line.
func (m benchMemory) String() string {
	var b bytes.Buffer
	m.Master.print(&b, "master")
	if m.Master != nil && m.Slave != nil {
		b.WriteString("; ")
	}
	m.Slave.print(&b, "slave")
	return b.String()
}

// runTime is how long a process's threads have run, in nanoseconds where
// /proc/PID/stat counts hundredths of a second: a pair at rest uses less than
// one of those in a second. Threads that are gone are not in it.
func runTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended meanwhile
		}
		f := bytes.Fields(text)
		if len(f) < 3 {
			return 0, fmt.Errorf("%s: %q, want three numbers", file, text)
		}
		ns, err := strconv.ParseInt(string(f[0]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += time.Duration(ns)
	}
	if sum == 0 {
		return 0, fmt.Errorf("process %d: the kernel counts no run time (/proc/%d/task/*/schedstat)", pid, pid)
	}
	return sum, nil
}
