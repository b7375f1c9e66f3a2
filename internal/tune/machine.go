package tune

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Machine is where a node would run, as far as this process may see. A nil
// number or an empty text was not seen, or is not there.
type Machine struct {
	CPU     CPU      `json:"cpu"`
	Kernel  Kernel   `json:"kernel"`
	Memory  Memory   `json:"memory"`
	Store   Store    `json:"store"`
	Network Network  `json:"network"`
	Limits  Limits   `json:"limits"`
	Unseen  []string `json:"unseen"` // what could not be seen, and why
}

// CPU is what runs the node.
type CPU struct {
	Usable            int      `json:"usable_cpus"` // by affinity
	Online            *int     `json:"online_cpus"`
	Quota             *float64 `json:"quota_cpus"`      // cgroup: cpu time a second; nil: no limit
	QuotaPeriod       *int64   `json:"quota_period_us"` // within which the quota is counted
	GOMAXPROCS        int      `json:"gomaxprocs"`      // as Go chose it, or the environment
	NUMANodes         *int     `json:"numa_nodes"`      // with memory
	Virtual           *bool    `json:"virtual_machine"` // nil: not told
	IdleDriver        string   `json:"idle_driver"`     // what puts idle cores to sleep
	IdleGovernor      string   `json:"idle_governor"`   // and decides how deeply
	FrequencyGovernor string   `json:"frequency_governor"`
}

// Cores is how much the node can run at once: the usable cpus, or the quota if
// that is less.
func (c CPU) Cores() float64 {
	if c.Quota != nil {
		return min(*c.Quota, float64(c.Usable))
	}
	return float64(c.Usable)
}

// Kernel is its release and what it offers.
type Kernel struct {
	Release       string `json:"release"`
	PopulateWrite *bool  `json:"populate_write"` // MADV_POPULATE_WRITE, since 5.14
}

// Memory is what holds the log's pages.
type Memory struct {
	Total           *int64 `json:"total_bytes"`
	Available       *int64 `json:"available_bytes"`
	Limit           *int64 `json:"limit_bytes"` // cgroup; nil: none. Pages of the log count
	SwapTotal       *int64 `json:"swap_total_bytes"`
	Balloon         bool   `json:"balloon"`             // the host may take memory
	FreeReporting   bool   `json:"free_page_reporting"` // the host takes free memory by itself
	HugePagesShmem  string `json:"huge_pages_shmem"`    // as chosen in transparent_hugepage/shmem_enabled
	Swappiness      *int64 `json:"swappiness"`
	DirtyRatio      *int64 `json:"dirty_ratio_percent"`
	DirtyBackground *int64 `json:"dirty_background_ratio_percent"`
	MapCountMax     *int64 `json:"map_count_max"` // mappings of a process
}

// Limits are the process's own.
type Limits struct {
	OpenFiles    *int64 `json:"open_files"`          // hard: Go raises the soft one to it. -1: none
	LockedMemory *int64 `json:"locked_memory_bytes"` // soft; -1: none
}

// Place is what a node would be told, as far as it decides what to look at.
type Place struct {
	Store  string         // its directory; need not be there
	Listen netip.AddrPort // --ha-listen; zero: nowhere
	Peer   netip.AddrPort // another node; zero: unknown
}

// Root is the directory that holds proc and sys of this machine.
const Root = "/"

// looker reads a machine.
type looker struct {
	root   string // clean; holds proc and sys
	system System
	seen   *Machine
}

// Look reads what the machine tells of itself. root is Root, or a directory that
// holds another machine's proc and sys. It changes nothing.
func Look(root string, system System, p Place) Machine {
	m := Machine{Unseen: []string{}}
	l := looker{root: filepath.Clean(root), system: system, seen: &m}
	l.kernel()
	l.cpu()
	l.memory()
	l.store(p.Store)
	l.network(p)
	l.limits()
	return m
}

func (l *looker) unseen(format string, args ...any) {
	l.seen.Unseen = append(l.seen.Unseen, fmt.Sprintf(format, args...))
}

// text is a file's content without the line end, or empty.
func (l *looker) text(path string) string {
	b, err := os.ReadFile(filepath.Join(l.root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// want is text of a file that every machine should have.
func (l *looker) want(path string) string {
	s := l.text(path)
	if s == "" {
		l.unseen("/%s cannot be read", strings.TrimPrefix(path, "/"))
	}
	return s
}

// number is a file's only number, or the one at a place in its line.
func (l *looker) number(path string, at int) *int64 {
	words := strings.Fields(l.text(path))
	if at >= len(words) {
		return nil
	}
	return parse(words[at])
}

func parse(s string) *int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// chosen is the word in brackets: "always [madvise] never".
func chosen(s string) string {
	_, rest, ok := strings.Cut(s, "[")
	if !ok {
		return s
	}
	word, _, _ := strings.Cut(rest, "]")
	return word
}

func (l *looker) kernel() {
	k := &l.seen.Kernel
	k.Release = l.want("proc/sys/kernel/osrelease")
	var major, minor int
	if n, _ := fmt.Sscanf(k.Release, "%d.%d", &major, &minor); n != 2 {
		return
	}
	can := major > 5 || major == 5 && minor >= 14
	k.PopulateWrite = &can
}

// without takes the root off a path below it.
func (l *looker) without(path string) string {
	rest, err := filepath.Rel(l.root, path)
	if err != nil {
		return path // both are absolute, or both are not
	}
	return "/" + rest
}

func (l *looker) memory() {
	m := &l.seen.Memory
	for line := range strings.Lines(l.want("proc/meminfo")) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		n := parse(words[1])
		if n == nil {
			continue
		}
		*n <<= 10 // KiB
		switch words[0] {
		case "MemTotal:":
			m.Total = n
		case "MemAvailable:":
			m.Available = n
		case "SwapTotal:":
			m.SwapTotal = n
		}
	}
	m.Limit = l.memoryLimit()
	m.HugePagesShmem = chosen(l.text("sys/kernel/mm/transparent_hugepage/shmem_enabled"))
	m.Swappiness = l.number("proc/sys/vm/swappiness", 0)
	m.DirtyRatio = l.number("proc/sys/vm/dirty_ratio", 0)
	m.DirtyBackground = l.number("proc/sys/vm/dirty_background_ratio", 0)
	m.MapCountMax = l.number("proc/sys/vm/max_map_count", 0)
	l.balloon()
}

// balloon looks for the device by which a host takes memory back.
func (l *looker) balloon() {
	const balloonDevice, reporting = "0x0005", 5 // virtio's device id, and its feature bit for free page reporting
	devices, err := filepath.Glob(filepath.Join(l.root, "sys/bus/virtio/devices/*"))
	if err != nil {
		return
	}
	for _, d := range devices {
		at := l.without(d)
		if l.text(at+"/device") != balloonDevice {
			continue
		}
		l.seen.Memory.Balloon = true
		if bits := l.text(at + "/features"); len(bits) > reporting && bits[reporting] == '1' {
			l.seen.Memory.FreeReporting = true
		}
	}
}

func (l *looker) limits() {
	files, locked, err := l.system.Limits()
	if err != nil {
		l.unseen("limits of open files and locked memory: %v", err)
		return
	}
	l.seen.Limits = Limits{OpenFiles: &files, LockedMemory: &locked}
}
