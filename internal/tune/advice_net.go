package tune

import (
	"fmt"
	"slices"
	"strings"
)

// congestion decides the congestion control. Only pacing on loopback was shown
// to cost; elsewhere it may be what the link needs.
func (a *adviser) congestion() {
	const name = "tcp-congestion"
	n := a.m.Network
	def := n.Congestion
	if def == "" {
		a.keep(name, "the kernel's", tuningDoc, "it could not be seen")
		return
	}
	settable := slices.DeleteFunc(slices.Clone(n.Available), func(c string) bool { return slices.Contains(n.Refused, c) })
	if best, gain := a.fastest(); n.Loopback && best != "" {
		a.set(name, def, best, measuredHere, "sendfile on loopback was %.1f times as fast as with %s, in each round; it has no effect on single puts", gain, def)
		return
	} else if n.Loopback && a.got != nil && len(a.got.Sendfile) > 0 {
		a.keep(name, def, measuredHere, "no other that this process may set was faster on loopback by a fifth and in each round")
		return
	}
	switch {
	case def != "bbr":
		a.keep(name, def, tuningDoc, "it does not pace on fast links")
	case !slices.Contains(settable, "cubic"):
		a.keep(name, def, tuneDoc, "it paces even on fast links, but this process may not set cubic: see below, outside")
		a.allowCubic()
	case n.Loopback:
		a.set(name, def, "cubic", tuneDoc, "%s paces even on loopback, where sendfile was 2.5 times as fast with cubic; it has no effect on single puts", def)
	default:
		a.add(Flag, Try, name, def, "cubic", tuneDoc, "%s paces: on loopback that halved the rate of a catch-up and more. On a short, fast link cubic may be faster; on a long or lossy one %s is there for a reason. Compare the time of a catch-up between the two machines", def, def).
			Command = "haengine status --watch on the master, while an empty slave copies with and without it"
	}
}

// fastest is what sendfile was fastest with, and how much faster than with the
// default; empty if that is not worth a change.
func (a *adviser) fastest() (name string, gain float64) {
	if a.got == nil {
		return "", 0
	}
	var best, def SendRate
	for _, s := range a.got.Sendfile {
		if s.BytesPerSecond > best.BytesPerSecond {
			best = s
		}
		if s.Congestion == a.m.Network.Congestion {
			def = s
		}
	}
	if !best.faster(def.Rate) {
		return "", 0
	}
	return best.Congestion, best.BytesPerSecond / def.BytesPerSecond
}

func (a *adviser) allowCubic() {
	n := a.m.Network
	if !slices.Contains(n.Available, "cubic") {
		a.outside(Try, "net.ipv4.tcp_available_congestion_control", strings.Join(n.Available, " "), "modprobe tcp_cubic", tuneDoc, "so that --tcp-congestion can choose one that does not pace")
		return
	}
	a.outside(Try, "net.ipv4.tcp_allowed_congestion_control", "without cubic",
		fmt.Sprintf("sysctl -w net.ipv4.tcp_allowed_congestion_control=%q, or AmbientCapabilities=CAP_NET_ADMIN in the systemd unit", strings.Join(n.Available, " ")),
		tuneDoc, "so that --tcp-congestion cubic is allowed; a node that may not set it says so once and goes on without")
}

// buffers leaves sizes to the kernel, and looks whether its bound is in the way.
func (a *adviser) buffers() {
	reason := "the kernel sizes them by itself, and stops when they are given"
	a.keep("sndbuf", "the kernel's", tuningDoc, "%s", reason)
	a.keep("rcvbuf", "the kernel's", tuningDoc, "%s", reason)
	n := a.m.Network
	if a.got == nil || a.got.Peer == nil || n.Speed == nil || n.TCPSendMax == nil || n.TCPReceiveMax == nil {
		return
	}
	rtt := a.got.Peer.Spin
	inFlight := int64(float64(*n.Speed) * 1e6 / 8 * rtt / 1e6) // bytes that fill the link
	for _, b := range []struct {
		name string
		max  int64
	}{{"net.ipv4.tcp_wmem", *n.TCPSendMax}, {"net.ipv4.tcp_rmem", *n.TCPReceiveMax}} {
		// Half of a buffer is bookkeeping at worst.
		if need := 2 * inFlight; need > b.max {
			a.outside(Set, b.name, fmt.Sprintf("at most %s", size(b.max)), fmt.Sprintf(`sysctl -w %s="4096 131072 %d"`, b.name, need), arithmetic,
				"%s is %d Mbit/s and the round trip %.3g ms: %s are under way when the link is full, twice that with the kernel's bookkeeping. On the node that sends it is wmem that counts, on the one that receives rmem",
				n.Interface, *n.Speed, rtt/1000, size(inFlight))
		}
	}
}

func (a *adviser) frames() {
	a.keep("frame-bytes", "32KiB to RocketMQ's slaves, 1MiB to ours", tuningDoc, "frames grow by themselves with what is to be sent")
	a.keep("sendfile-min-bytes", "16KiB", tuningDoc, "nothing about a machine says where the border lies; bench/knobs.sh measures it")
}

// pace offers to hold back a catch-up where it takes what the puts need.
func (a *adviser) pace() {
	const name, def, value = "catchup-rate", "0", "20MiB"
	switch {
	case !a.master():
		a.keep(name, def, paceDoc, "only who sends has a pace")
	case a.plan.Role == AsyncMaster:
		a.keep(name, def, paceDoc, "no put waits for a replica; shared links and disks may want a limit all the same")
	case a.m.CPU.Cores() <= 2:
		a.add(Flag, Try, name, def, value, paceDoc,
			"a replica that copies the whole log shares cores, disk and link with the puts: on two cores their p99 was 8 times as long without a limit and 1.3 times with this one. It has to be above what producers write").
			Command = "haengine pace --catchup " + value + " (on the running node; 0 takes it back)"
	default:
		a.keep(name, def, paceDoc, "shown to matter on two shared cores only; it can be changed while the node runs (haengine pace)")
	}
	a.keep("transfer-rate", "0", paceDoc, "a limit is for links that are shared or paid for")
}

// helloWait gives a far master the time to answer.
func (a *adviser) helloWait() {
	const name, def = "hello-wait", "1s"
	if a.got != nil && a.got.Peer != nil && a.got.Peer.Spin > 300e3 && !a.master() {
		a.set(name, def, "3s", arithmetic, "the round trip to the master is %.3g ms, and one that does not answer within this is taken for RocketMQ's", a.got.Peer.Spin/1000)
		return
	}
	a.keep(name, def, tuningDoc, "many round trips of any link but the longest")
}

func (a *adviser) networkOutside() {
	n := a.m.Network
	var off []string
	for _, o := range []struct {
		name string
		on   *bool
	}{{"tso", n.TSO}, {"gso", n.GSO}, {"gro", n.GRO}} {
		if o.on != nil && !*o.on {
			off = append(off, o.name)
		}
	}
	if len(off) > 0 {
		a.outside(Try, "offloads of "+n.Interface, strings.Join(off, " ")+" off", fmt.Sprintf("ethtool -K %s %s on", n.Interface, strings.Join(off, " on ")), notShown,
			"packet by packet costs the kernel more for each byte of a catch-up")
	}
	if b := n.Backlog; b != nil && *b < 1024 {
		a.outside(Try, "net.core.somaxconn", fmt.Sprint(*b), "sysctl -w net.core.somaxconn=4096", notShown, "so many connections may wait to be accepted; a node asks for 1024, and clients all come back at once after a restart")
	}
	if b := n.BusyRead; b != nil {
		a.outside(Keep, "net.core.busy_read, busy_poll", fmt.Sprint(*b), "", notShown, "loops wait in epoll for many sockets; --spin polls without it")
	}
	if n.ReceiveMax != nil && n.SendMax != nil {
		a.outside(Keep, "net.core.rmem_max, wmem_max", fmt.Sprintf("%s, %s", size(*n.ReceiveMax), size(*n.SendMax)), "", tuningDoc, "bounds of --rcvbuf and --sndbuf, which are best left to the kernel")
	}
}
