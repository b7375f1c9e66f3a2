package tune

import "fmt"

const reactorsMax = 4 // that a node starts by itself

// processors decides loops and GOMAXPROCS. A node counts the cpus that it may run
// on, Go the quota too, but never below two.
func (a *adviser) processors() {
	c := a.m.CPU
	reason := "a loop serves many connections; more of them than busy connections only move work between cores"
	if c.Quota != nil && *c.Quota < float64(min(c.Usable, reactorsMax)) {
		reason = "counted by the cpus that may be used, whatever the quota is: fewer loops were not faster under one"
	}
	a.keep("reactors", fmt.Sprint(min(c.Usable, reactorsMax)), tuneDoc, "%s", reason)
	one := c.Cores() <= 1
	switch {
	case c.GOMAXPROCS == 1:
		a.add(Environment, Keep, "GOMAXPROCS", "1", "", tuneDoc, "woken producers run on the loop's own core; where clients are served, serve takes one more for each of their loops, unless the environment says how many")
	case one:
		why := "with one busy producer a woken goroutine then runs on the loop's own core, which took less than half the time in a bare loop"
		if c.Quota != nil {
			why = "Go takes two threads even where less than one cpu is given; " + why
		}
		a.add(Environment, Try, "GOMAXPROCS", fmt.Sprint(c.GOMAXPROCS), "1", tuneDoc, "%s", why).Command = "haengine bench sync --producers 1; GOMAXPROCS=1 haengine bench sync --producers 1 (and with --producers 64)"
	default:
		a.add(Environment, Keep, "GOMAXPROCS", fmt.Sprint(c.GOMAXPROCS), "", tuneDoc, "as many as the cores that may be used, and one more for each loop of clients on a node that serves them, which serve takes by itself")
	}
}

// spinCores is how many cores make room for two spinning loops beside producers
// and the rest of a node.
const spinCores = 4

// spin decides whether loops poll before they block.
func (a *adviser) spin() {
	const def, value = "0s", "50us"
	cores, w := a.m.CPU.Cores(), a.wakeUps()
	saved := "the halt and wake-up of a core are most of a single producer's wait"
	if w != nil {
		saved = fmt.Sprintf("a round trip on loopback took %.1f µs with both sides blocking and %.1f µs with both polling", w.Block, w.Spin)
	}
	switch {
	case w != nil && w.Spin > 0.7*w.Block:
		a.keep("spin", def, measuredHere, "%s: there is little to save, or the machine is busy", saved)
	case cores < spinCores:
		a.keep("spin", def, tuneDoc, "%s, but with %.2g cores polling takes one that a producer or another thread needs: p99.9 suffers where pollers outnumber cores", saved, cores)
	default:
		a.add(Flag, Try, "spin", def, value, tuneDoc,
			"%s, and there are cores to spare. Worth it on both nodes when few producers wait for replicas; it costs a core while messages come. Compare p99.9, not only p50", saved).
			Command = "haengine bench sync --producers 1; haengine bench sync --producers 1 --spin " + value
	}
}

func (a *adviser) wakeUps() *RoundTrip {
	if a.got == nil {
		return nil
	}
	return a.got.Loopback
}

func (a *adviser) pinning() {
	reason := "helps with cores that are set aside for it; where producers share them it hurts"
	if n := a.m.CPU.NUMANodes; n != nil && *n > 1 {
		reason += fmt.Sprintf(". There are %d NUMA nodes: what it gives to pin loops to the node of the network card was not measured", *n)
	}
	a.keep("pin-cpus", "none", tuningDoc, "%s", reason)
}

func (a *adviser) cpuOutside() {
	c := a.m.CPU
	if c.Quota != nil && *c.Quota < 2 {
		period := "each period"
		if c.QuotaPeriod != nil {
			period = fmt.Sprintf("each %g ms", float64(*c.QuotaPeriod)/1000)
		}
		a.outside(Set, "cpu quota", fmt.Sprintf("%.2g cpus", *c.Quota), "systemctl set-property UNIT CPUQuota=200%, docker update --cpus 2 NAME, or limits.cpu of the pod", tuneDoc,
			"when the quota is used up all threads stand still for the rest of %s, and so do the puts that wait, and with a slave those of its master", period)
	}
	if g := c.FrequencyGovernor; g == "powersave" || g == "schedutil" || g == "ondemand" || g == "conservative" {
		a.outside(Try, "cpu frequency", g, "cpupower frequency-set -g performance", notShown, "cores that wait for replicas are idle most of the time, and slow when they wake")
	}
	if c.IdleDriver != "" && c.IdleDriver != "none" && (c.Virtual == nil || !*c.Virtual) {
		a.outside(Try, "cpu idle states", c.IdleDriver+", "+c.IdleGovernor, "cpupower idle-set -D 10", notShown, "deep idle states take longer to leave than a message to be replicated; --spin avoids them without a change for the whole machine")
	}
}
