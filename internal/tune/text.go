package tune

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the machine for people, a line for each part of it.
func (m Machine) Print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer tw.Flush()
	fmt.Fprintln(tw, "machine")
	line := func(name string, parts ...string) {
		kept := parts[:0]
		for _, p := range parts {
			if p != "" {
				kept = append(kept, p)
			}
		}
		fmt.Fprintf(tw, "  %s\t%s\n", name, strings.Join(kept, ", "))
	}
	c := m.CPU
	line("cpus", fmt.Sprintf("%d usable", c.Usable)+of(c.Online, " of %d"), c.quotaText(), fmt.Sprintf("GOMAXPROCS %d", c.GOMAXPROCS),
		choose(c.Virtual, "virtual machine", "no virtual machine"), of(c.NUMANodes, "NUMA nodes %d"),
		words("idle ", c.IdleDriver, c.IdleGovernor), words("frequency ", c.FrequencyGovernor))
	line("kernel", m.Kernel.Release, choose(m.Kernel.PopulateWrite, "can populate pages ahead", "cannot populate pages ahead"))
	line("memory", sizeOf(m.Memory.Total, ""), sizeOf(m.Memory.Available, " available"), sizeOf(m.Memory.Limit, " limit of the cgroup"),
		sizeOf(m.Memory.SwapTotal, " swap"), choose(&m.Memory.FreeReporting, "free pages are reported to the host", ""))
	s := m.Store
	disk := ""
	if s.Device != "" {
		disk = fmt.Sprintf("disk %s (%s)", s.Device, strings.Join(nonEmpty(choose(s.Rotational, "rotational", "not rotational"), s.Scheduler, s.WriteCache), ", "))
	}
	line("store", s.Directory, fmt.Sprintf("%s of %s at %s (%s)", s.Filesystem, s.Source, s.MountPoint, s.Options),
		sizeOf(s.Free, " free"), sizeOf(s.Total, " in all"), disk, segmentsText(s))
	n := m.Network
	line("network", n.Interface+" ("+n.Why+")", of(n.Speed, "%d Mbit/s"), of(n.MTU, "MTU %d"), choose(n.TSO, "tso", "no tso"), choose(n.GSO, "gso", "no gso"),
		choose(n.GRO, "gro", "no gro"))
	line("tcp", n.Congestion+" of "+strings.Join(n.Available, " "), words("may not set ", n.Refused...), sizeOf(n.TCPSendMax, " send buffer at most"),
		sizeOf(n.TCPReceiveMax, " receive buffer at most"))
	files, locked := "", sizeOf(m.Limits.LockedMemory, " locked memory")
	if f := m.Limits.OpenFiles; f != nil {
		files = "open files " + unlimited(*f)
	}
	if b := m.Limits.LockedMemory; b != nil && *b < 0 {
		locked = "locked memory unlimited"
	}
	line("limits", files, locked, of(m.Memory.MapCountMax, "mappings %d"))
}

// Print writes the figures for people; nothing if there are none.
func (g *Measured) Print(w io.Writer) {
	if g == nil {
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer tw.Flush()
	fmt.Fprintf(tw, "\nmeasured in %.1f s\n", g.Seconds)
	if s := g.Sync; s != nil {
		fmt.Fprintf(tw, "  fdatasync of 4 KiB\tp50 %.0f µs, longest %.3g ms, %d of them\n", s.P50, s.Max/1000, s.Count)
	}
	for _, r := range []struct {
		name string
		trip *RoundTrip
	}{{"round trip on loopback", g.Loopback}, {"connect to the peer", g.Peer}} {
		if r.trip != nil {
			fmt.Fprintf(tw, "  %s\tp50 %.4g µs blocking, %.4g µs polling\n", r.name, r.trip.Block, r.trip.Spin)
		}
	}
	for _, s := range g.Sendfile {
		fmt.Fprintf(tw, "  sendfile on loopback, %s\t%s/s (%s/s to %s/s)\n", s.Congestion, size(int64(s.BytesPerSecond)), size(int64(s.Least)), size(int64(s.Most)))
	}
	if t := g.FirstTouch; t != nil {
		fmt.Fprintf(tw, "  first touch of pages\t%s/s in a sparse file", size(int64(t.Sparse.BytesPerSecond)))
		if t.Allocated.BytesPerSecond > 0 {
			fmt.Fprintf(tw, ", %s/s in an allocated one", size(int64(t.Allocated.BytesPerSecond)))
		}
		if t.Populated.BytesPerSecond > 0 {
			fmt.Fprintf(tw, ", %s/s populated (and %.3g ms to sync 64 MiB of it)", size(int64(t.Populated.BytesPerSecond)), t.SyncAfter*1000)
		}
		fmt.Fprintln(tw)
	}
	if g.Busy {
		fmt.Fprintf(tw, "  nothing is concluded from this: other processes, or the host, used %.1f cpus meanwhile\n", *g.OtherCPUs)
	}
}

func (c CPU) quotaText() string {
	if c.Quota == nil {
		return ""
	}
	return fmt.Sprintf("quota of %.2g", *c.Quota)
}

func segmentsText(s Store) string {
	if !s.Exists {
		return "no log yet"
	}
	return fmt.Sprintf("segments %d, queue files %d", s.Segments, s.QueueFiles)
}

func of[T any](v *T, format string) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf(format, *v)
}

func sizeOf(n *int64, what string) string {
	if n == nil {
		return ""
	}
	return size(*n) + what
}

func choose(v *bool, yes, no string) string {
	switch {
	case v == nil:
		return ""
	case *v:
		return yes
	}
	return no
}

func nonEmpty(list ...string) (kept []string) {
	for _, s := range list {
		if s != "" {
			kept = append(kept, s)
		}
	}
	return kept
}

func words(what string, list ...string) string {
	if kept := nonEmpty(list...); len(kept) > 0 {
		return what + strings.Join(kept, " ")
	}
	return ""
}
