package tune

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/haengine/haengine/internal/fixture"
)

// adviceOn is the advice about a thing.
func adviceOn(t *testing.T, all []Advice, name string) Advice {
	t.Helper()
	i := slices.IndexFunc(all, func(a Advice) bool { return a.Name == name })
	if i < 0 {
		t.Fatalf("no advice on %s", name)
	}
	return all[i]
}

func rate(least, median, most float64) Rate {
	return Rate{BytesPerSecond: median, Least: least, Most: most}
}

// What was measured decides only where each round says the same, and never on a
// machine that was busy with other things.
func TestFiguresDecideOnlyWhenTheyAgree(t *testing.T) {
	others := 1.0
	for _, c := range []struct {
		name       string
		bbr, other Rate
		busy       bool
		verdict    Verdict
		value      string
	}{
		{"faster in each round", rate(2, 3, 4), rate(5, 6, 7), false, Set, "reno"},
		{"rounds overlap", rate(2, 3, 4), rate(3.9, 6, 7), false, Keep, ""},
		{"by less than a fifth", rate(2, 3, 3.1), rate(3.2, 3.5, 4), false, Keep, ""},
		{"slower", rate(5, 6, 7), rate(2, 3, 4), false, Keep, ""},
		{"busy: the rule decides", rate(2, 3, 4), rate(5, 6, 7), true, Set, "cubic"},
	} {
		m, _, plan := lookAt(t, "vm-2-cores")
		got := &Measured{OtherCPUs: &others, Busy: c.busy, Sendfile: []SendRate{{"bbr", c.bbr}, {"reno", c.other}}}
		a := adviceOn(t, Advise(m, got, plan), "tcp-congestion")
		if a.Verdict != c.verdict || a.Value != c.value {
			t.Errorf("%s: %s %q (%s), want %s %q", c.name, a.Verdict, a.Value, a.Reason, c.verdict, c.value)
		}
	}
}

// A long fat link needs buffers that hold what is under way.
func TestBuffersAreRaisedForLongLinks(t *testing.T) {
	m, got, plan := lookAt(t, "metal-64-cores")
	for _, c := range []struct {
		rttMicros float64
		want      string // in the command; empty: no advice
	}{{31, ""}, {600, ""}, {12_000, "net.ipv4.tcp_wmem=\"4096 131072 75000000\""}} {
		got.Peer.Spin = c.rttMicros
		all := Advise(m, got, plan)
		i := slices.IndexFunc(all, func(a Advice) bool { return a.Name == "net.ipv4.tcp_wmem" })
		if (i >= 0) != (c.want != "") || i >= 0 && !strings.Contains(all[i].Command, c.want) {
			t.Errorf("round trip of %v µs: %v, want %q", c.rttMicros, all, c.want)
		}
	}
}

func TestASlaveGivesAFarMasterTimeForItsHello(t *testing.T) {
	m, got, plan := lookAt(t, "metal-64-cores")
	plan.Role = Slave
	for rtt, want := range map[float64]Verdict{31: Keep, 299e3: Keep, 301e3: Set} {
		got.Peer.Spin = rtt
		if a := adviceOn(t, Advise(m, got, plan), "hello-wait"); a.Verdict != want {
			t.Errorf("round trip of %v µs: %s, want %s", rtt, a.Verdict, want)
		}
	}
}

// Two segments and more must fit into the free space.
func TestSegmentsOfANewStoreFitItsDisk(t *testing.T) {
	for free, want := range map[int64]string{8 << 30: "", 8<<30 - 1: "512MiB", 3 << 30: "256MiB", 100 << 20: "8MiB", 1 << 20: "128KiB", 0: ""} {
		m, _, plan := lookAt(t, "vm-2-cores")
		m.Store.Free = &free
		if a := adviceOn(t, Advise(m, nil, plan), "segment-bytes"); a.Value != want {
			t.Errorf("%d bytes free: %q, want %q", free, a.Value, want)
		}
	}
}

// Nothing can be read, and nothing is made up: no setting is changed for it.
func TestAMachineThatTellsNothingGetsNoAdviceToChange(t *testing.T) {
	m := Look(t.TempDir(), &fixture.System{UsableCPUs: 4, GOMAXPROCS: 4, OpenFiles: -1, LockedMemory: -1, Total: 1 << 40, Free: 1 << 40}, Place{Store: "/x"})
	for _, a := range Advise(m, nil, Plan{}) {
		if a.Verdict == Set {
			t.Errorf("%+v", a)
		}
	}
	if len(m.Unseen) < 5 {
		t.Errorf("what was not seen is not said: %q", m.Unseen)
	}
}

func TestRoutesGoByTheLongestPrefixAndTheLeastMetric(t *testing.T) {
	l := looker{root: t.TempDir(), system: &fixture.System{}, seen: new(Machine)}
	layOut(t, l.root, "proc/net/route", `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
slow	00000000	010200C0	0003	0	0	600	00000000	0	0	0
fast	00000000	010200C0	0003	0	0	100	00000000	0	0	0
hall	0000140A	00000000	0001	0	0	900	0000FFFF	0	0	0
rack	0005140A	00000000	0001	0	0	900	00FFFFFF	0	0	0
`)
	layOut(t, l.root, "proc/net/ipv6_route", `20010db8000000000000000000000000 20 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     six
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 00000400 00000001 00000000 00000001     far6
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
`)
	for to, want := range map[string]string{
		"10.20.5.7": "rack", "10.20.6.7": "hall", "203.0.113.1": "fast", "0.0.0.0": "fast", "2001:db8::7": "six", "2001:db9::7": "far6",
	} {
		if got := l.route(netip.MustParseAddr(to)); got != want {
			t.Errorf("to %s: %q, want %q", to, got, want)
		}
	}
}

// The mount that hides the others is the last one at the longest path.
func TestAStoreIsOnTheMountThatCoversIt(t *testing.T) {
	root := t.TempDir()
	layOut(t, root, "proc/self/mountinfo", `1 0 8:1 / / rw - ext4 /dev/a rw
2 1 8:2 / /srv rw - xfs /dev/b rw
3 1 8:3 / /srv/two\040words ro - btrfs /dev/c rw
4 1 8:4 / /srv rw shared:1 master:2 - f2fs /dev/d rw
`)
	layOut(t, root, "srv/two words/here", "")
	for store, want := range map[string]string{"/srv/x": "f2fs", "/srvx": "ext4", "/srv/two words/new": "btrfs", "/": "ext4"} {
		if m := Look(root, &fixture.System{}, Place{Store: store}); m.Store.Filesystem != want {
			t.Errorf("%s is on %s (%+v), want %s", store, m.Store.Filesystem, m.Store, want)
		}
	}
}

// The least quota of a cgroup and those around it holds.
func TestTheLeastQuotaHolds(t *testing.T) {
	root := t.TempDir()
	layOut(t, root, "proc/self/mountinfo", "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	layOut(t, root, "proc/self/cgroup", "0::/a/b\n")
	layOut(t, root, "sys/fs/cgroup/a/cpu.max", "150000 100000\n")
	layOut(t, root, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
	layOut(t, root, "sys/fs/cgroup/cpu.max", "400000 100000\n")
	layOut(t, root, "sys/fs/cgroup/a/b/memory.max", "5000\n")
	layOut(t, root, "sys/fs/cgroup/a/memory.max", "max\n")
	m := Look(root, &fixture.System{UsableCPUs: 8}, Place{Store: "/"})
	if m.CPU.Quota == nil || *m.CPU.Quota != 1.5 || m.CPU.Cores() != 1.5 {
		t.Errorf("quota %v, want 1.5", m.CPU.Quota)
	}
	if m.Memory.Limit == nil || *m.Memory.Limit != 5000 {
		t.Errorf("memory limit %v, want 5000", m.Memory.Limit)
	}
}
