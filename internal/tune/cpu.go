package tune

import (
	"math"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

func (l *looker) cpu() {
	c := &l.seen.CPU
	c.Usable, c.GOMAXPROCS = l.system.CPUs()
	if list := l.text("sys/devices/system/cpu/online"); list != "" {
		n := listed(list)
		c.Online = &n
	}
	l.quota()
	nodes, err := filepath.Glob(filepath.Join(l.root, "sys/devices/system/node/node[0-9]*"))
	if n := len(nodes); err == nil && n > 0 {
		c.NUMANodes = &n
	}
	c.Virtual = l.virtual()
	c.IdleDriver = l.text("sys/devices/system/cpu/cpuidle/current_driver")
	c.IdleGovernor = l.text("sys/devices/system/cpu/cpuidle/current_governor")
	if c.IdleGovernor == "" {
		c.IdleGovernor = l.text("sys/devices/system/cpu/cpuidle/current_governor_ro")
	}
	c.FrequencyGovernor = l.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
}

// listed counts the numbers in a list such as 0-3,8.
func listed(list string) (n int) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 == nil && err2 == nil && b >= a {
			n += b - a + 1
		}
	}
	return n
}

// virtual tells whether this is a virtual machine. x86 has a flag for it;
// elsewhere the firmware's names may tell.
func (l *looker) virtual() *bool {
	yes, no := true, false
	for line := range strings.Lines(l.want("proc/cpuinfo")) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "flags" {
			continue
		}
		for _, flag := range strings.Fields(value) {
			if flag == "hypervisor" {
				return &yes
			}
		}
		return &no
	}
	if l.text("sys/hypervisor/type") != "" {
		return &yes
	}
	firmware := l.text("sys/class/dmi/id/sys_vendor") + " " + l.text("sys/class/dmi/id/product_name")
	for _, name := range []string{"QEMU", "KVM", "VMware", "Xen", "VirtualBox", "Virtual Machine", "Google Compute Engine"} {
		if strings.Contains(firmware, name) {
			return &yes
		}
	}
	l.unseen("whether this is a virtual machine: /proc/cpuinfo has no flags, and the firmware names no known one")
	return nil
}

// quota reads the least cpu limit of the process's cgroup and those around it.
func (l *looker) quota() {
	c := &l.seen.CPU
	take := func(quota, period *int64) {
		if quota == nil || period == nil || *quota <= 0 || *period <= 0 {
			return // max, or -1: none
		}
		if q := float64(*quota) / float64(*period); c.Quota == nil || q < *c.Quota {
			c.Quota, c.QuotaPeriod = &q, period
		}
	}
	for _, dir := range l.cgroups("") {
		take(l.number(dir+"/cpu.max", 0), l.number(dir+"/cpu.max", 1))
	}
	for _, dir := range l.cgroups("cpu") {
		take(l.number(dir+"/cpu.cfs_quota_us", 0), l.number(dir+"/cpu.cfs_period_us", 0))
	}
}

func (l *looker) memoryLimit() (least *int64) {
	take := func(n *int64) {
		const none = math.MaxInt64 / 2 // version 1 writes the largest multiple of a page
		if n != nil && *n < none && (least == nil || *n < *least) {
			least = n
		}
	}
	for _, dir := range l.cgroups("") {
		take(l.number(dir+"/memory.max", 0))
	}
	for _, dir := range l.cgroups("memory") {
		take(l.number(dir+"/memory.limit_in_bytes", 0))
	}
	return least
}

// cgroups lists the directories of the process's cgroup and all around it, in
// version 2 (controller "") or in a hierarchy of version 1. In a container
// that sees the host's path but only its own part of the tree, that part's top
// is among them.
func (l *looker) cgroups(controller string) (dirs []string) {
	mount := l.cgroupMount(controller)
	if mount == "" {
		return nil
	}
	own := "/"
	for line := range strings.Lines(l.text("proc/self/cgroup")) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		names, at, _ := strings.Cut(rest, ":")
		for name := range strings.SplitSeq(names, ",") {
			if name == controller {
				own = at
			}
		}
	}
	for ; ; own = path.Dir(own) {
		dirs = append(dirs, path.Join(mount, own))
		if own == "/" || own == "." {
			return dirs
		}
	}
}

func (l *looker) cgroupMount(controller string) string {
	for _, m := range l.mounts() {
		if controller == "" && m.kind == "cgroup2" {
			return m.at
		}
		if controller != "" && m.kind == "cgroup" {
			for _, option := range strings.Split(m.superOptions, ",") {
				if option == controller {
					return m.at
				}
			}
		}
	}
	return ""
}
