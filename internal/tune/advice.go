package tune

import (
	"fmt"
	"net/netip"
)

// Verdict is what a rule came to.
type Verdict string

// Verdicts.
const (
	Set  Verdict = "set"  // change it
	Try  Verdict = "try"  // it depends on the load, or was not shown: measure before and after
	Keep Verdict = "keep" // the default is right here, or nothing was shown to be better
)

// Kind is where an advice is carried out.
type Kind string

// Kinds.
const (
	Flag        Kind = "flag"        // of haengine serve
	Environment Kind = "environment" // of the process
	Outside     Kind = "outside"     // by the operator, outside haengine
)

// Advice is one rule's answer.
type Advice struct {
	Kind    Kind    `json:"kind"`
	Name    string  `json:"name"` // of the flag or variable, without --; of the thing outside
	Verdict Verdict `json:"verdict"`
	Default string  `json:"default"`           // or what is there now, outside
	Value   string  `json:"value,omitempty"`   // to set or to try
	Command string  `json:"command,omitempty"` // outside: that does it; to try: that shows it
	Reason  string  `json:"reason"`
	Source  string  `json:"source"` // where that was shown
}

// Sources of rules.
const (
	tuningDoc     = "docs/tuning.md"
	tuneDoc       = "docs/tuning.md#what-the-machine-decides"
	paceDoc       = "docs/tuning.md#pace"
	benchmarksDoc = "docs/benchmarks.md"
	measuredHere  = "measured now"
	arithmetic    = "arithmetic"
	definition    = "by definition"
	notShown      = "not measured by this project"
)

// Role is a node's role, as far as rules care.
type Role int

// Roles.
const (
	AsyncMaster Role = iota
	SyncMaster
	Slave
)

// Plan is what the node is to be.
type Plan struct {
	Place
	Role Role
}

// adviser applies the rules. Each rule is a method that adds what it has to say.
type adviser struct {
	m    Machine
	got  *Measured // nil: nothing was measured that says something
	plan Plan
	all  []Advice
}

// Advise says what to set, to try, to keep, and to change outside, in the order
// of importance within each. got may be nil.
func Advise(m Machine, got *Measured, plan Plan) []Advice {
	a := &adviser{m: m, got: got, plan: plan}
	if got != nil && got.Busy {
		a.got = nil
	}
	a.address()
	a.processors()
	a.spin()
	a.pinning()
	a.congestion()
	a.buffers()
	a.frames()
	a.pace()
	a.helloWait()
	a.segments()
	a.pages()
	a.locking()
	a.flushing()

	a.cpuOutside()
	a.memoryOutside()
	a.storeOutside()
	a.networkOutside()
	a.limitsOutside()
	return a.all
}

func (a *adviser) add(kind Kind, v Verdict, name, def, value, source, reason string, args ...any) *Advice {
	if len(args) > 0 {
		reason = fmt.Sprintf(reason, args...)
	}
	a.all = append(a.all, Advice{Kind: kind, Name: name, Verdict: v, Default: def, Value: value, Source: source, Reason: reason})
	return &a.all[len(a.all)-1]
}

func (a *adviser) keep(name, def, source, reason string, args ...any) {
	a.add(Flag, Keep, name, def, "", source, reason, args...)
}

func (a *adviser) set(name, def, value, source, reason string, args ...any) {
	a.add(Flag, Set, name, def, value, source, reason, args...)
}

func (a *adviser) outside(v Verdict, name, now, command, source, reason string, args ...any) {
	a.add(Outside, v, name, now, "", source, reason, args...).Command = command
}

// master tells whether the node sends to replicas of its own.
func (a *adviser) master() bool { return a.plan.Role != Slave }

// address finds a master that its peer cannot reach.
func (a *adviser) address() {
	const def = "127.0.0.1:10912"
	if !a.master() || !a.plan.Peer.IsValid() || a.m.Network.Loopback || !a.plan.Listen.Addr().IsLoopback() {
		return
	}
	own, err := netip.ParseAddr(a.m.Network.Address)
	if err != nil {
		return
	}
	to := netip.AddrPortFrom(own, a.plan.Listen.Port())
	a.set("ha-listen", def, to.String(), tuningDoc,
		"%s is another machine, and %s is reached from this one only; %s is this machine's address on the way there", a.plan.Peer.Addr(), a.plan.Listen, own)
}

// size writes bytes for people.
func size(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes {
			return fmt.Sprintf("%.3g %s", float64(n)/float64(u.bytes), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// flagSize writes bytes as a flag takes them; n is a power of two of at least 1 KiB.
func flagSize(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%dGiB", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%dMiB", n>>20)
	}
	return fmt.Sprintf("%dKiB", n>>10)
}
