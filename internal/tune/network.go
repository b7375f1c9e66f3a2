package tune

import (
	"encoding/hex"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
)

// Network is the way to other nodes.
type Network struct {
	Interface string `json:"interface"`
	Why       string `json:"why"`     // what it is the interface of
	Address   string `json:"address"` // of this machine on it; empty: not known
	Loopback  bool   `json:"loopback"`
	Speed     *int64 `json:"speed_mbit_per_second"`
	MTU       *int64 `json:"mtu_bytes"`
	TSO       *bool  `json:"tso"` // the kernel hands over more than a packet at once, and
	GSO       *bool  `json:"gso"`
	GRO       *bool  `json:"gro"` // takes more than one at once

	Congestion string   `json:"congestion_control"`          // the default
	Available  []string `json:"congestion_controls"`         // loaded
	Refused    []string `json:"congestion_controls_refused"` // of these, to this process

	ReceiveMax    *int64 `json:"rmem_max_bytes"`     // that SO_RCVBUF is cut to
	SendMax       *int64 `json:"wmem_max_bytes"`     // and SO_SNDBUF
	TCPReceiveMax *int64 `json:"tcp_rmem_max_bytes"` // up to which the kernel sizes by itself
	TCPSendMax    *int64 `json:"tcp_wmem_max_bytes"`
	Backlog       *int64 `json:"somaxconn"`
	BusyPoll      *int64 `json:"busy_poll_us"`
	BusyRead      *int64 `json:"busy_read_us"`
}

func (l *looker) network(p Place) {
	n := &l.seen.Network
	l.way(p)
	if n.Interface != "" {
		l.link()
	}
	n.Congestion = l.want("proc/sys/net/ipv4/tcp_congestion_control")
	n.Available = strings.Fields(l.text("proc/sys/net/ipv4/tcp_available_congestion_control"))
	n.Refused = []string{}
	for _, name := range n.Available {
		if l.system.Congestion(name) != nil {
			n.Refused = append(n.Refused, name)
		}
	}
	n.ReceiveMax = l.number("proc/sys/net/core/rmem_max", 0)
	n.SendMax = l.number("proc/sys/net/core/wmem_max", 0)
	n.TCPReceiveMax = l.number("proc/sys/net/ipv4/tcp_rmem", 2)
	n.TCPSendMax = l.number("proc/sys/net/ipv4/tcp_wmem", 2)
	n.Backlog = l.number("proc/sys/net/core/somaxconn", 0)
	n.BusyPoll = l.number("proc/sys/net/core/busy_poll", 0)
	n.BusyRead = l.number("proc/sys/net/core/busy_read", 0)
}

// way chooses the interface: that of the route to the peer, or of the address
// where replicas are to connect.
func (l *looker) way(p Place) {
	n := &l.seen.Network
	switch {
	case p.Peer.IsValid():
		n.Why = "the route to " + p.Peer.String()
		l.routeTo(p.Peer.Addr())
	case !p.Listen.IsValid():
		n.Why = "the default route"
		l.routeTo(netip.IPv4Unspecified())
	case p.Listen.Addr().IsUnspecified():
		n.Why = "the default route, as --ha-listen " + p.Listen.String() + " is every interface"
		l.routeTo(p.Listen.Addr())
	default:
		n.Why = "--ha-listen " + p.Listen.String()
		if n.Interface = l.interfaceOf(p.Listen.Addr()); n.Interface == "" {
			l.unseen("the interface of %s: no address of this machine is that", p.Listen.Addr())
		}
		n.Address = p.Listen.Addr().String()
	}
}

func (l *looker) interfaceOf(a netip.Addr) string {
	if a.IsLoopback() {
		return "lo"
	}
	return l.system.InterfaceOf(a)
}

// routeTo finds the interface of the route to a: this machine's own addresses
// first, then the most special of the kernel's routes.
func (l *looker) routeTo(a netip.Addr) {
	n := &l.seen.Network
	if a.IsValid() && !a.IsUnspecified() {
		if n.Interface = l.interfaceOf(a); n.Interface != "" { // our own: the bytes never leave
			n.Interface, n.Address = "lo", a.String()
			return
		}
		n.Address = l.system.SourceFor(a)
	}
	if n.Interface = l.route(a); n.Interface == "" {
		l.unseen("the interface of %s: the kernel's routing table has none", n.Why)
	}
}

// route is the interface of the longest matching prefix, the least metric among
// equals. The main table is all that /proc shows.
func (l *looker) route(a netip.Addr) (name string) {
	best, bestMetric := -1, int64(0)
	take := func(prefix netip.Prefix, metric int64, iface string) {
		if prefix.Contains(a) || a.IsUnspecified() && prefix.Bits() == 0 {
			if prefix.Bits() > best || prefix.Bits() == best && metric < bestMetric {
				best, bestMetric, name = prefix.Bits(), metric, iface
			}
		}
	}
	if a.Is4() {
		for line := range strings.Lines(l.text("proc/net/route")) {
			w := strings.Fields(line)
			if len(w) < 8 || w[0] == "Iface" || w[0] == "lo" {
				continue
			}
			to, ok1 := hexAddr4(w[1])
			mask, ok2 := hexAddr4(w[7])
			metric := parse(w[6])
			if ok1 && ok2 && metric != nil {
				m := mask.As4()
				ones := 0
				for _, b := range m {
					ones += bits.OnesCount8(b)
				}
				take(netip.PrefixFrom(to, ones), *metric, w[0])
			}
		}
		return name
	}
	for line := range strings.Lines(l.text("proc/net/ipv6_route")) {
		w := strings.Fields(line)
		if len(w) < 10 || w[9] == "lo" {
			continue
		}
		to, err1 := hex.DecodeString(w[0])
		ones, err2 := strconv.ParseUint(w[1], 16, 8)
		metric, err3 := strconv.ParseInt(w[5], 16, 64)
		if addr, ok := netip.AddrFromSlice(to); ok && err1 == nil && err2 == nil && err3 == nil {
			take(netip.PrefixFrom(addr, int(ones)), metric, w[9])
		}
	}
	return name
}

// hexAddr4 reads an address as /proc/net/route writes it: the bytes of network
// order as a number of the machine's, which is little-endian wherever we run.
func hexAddr4(s string) (netip.Addr, bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 4 {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte{b[3], b[2], b[1], b[0]}), true
}

// link reads what the interface is.
func (l *looker) link() {
	n := &l.seen.Network
	dir := "sys/class/net/" + n.Interface
	n.Loopback = n.Interface == "lo"
	n.MTU = l.number(dir+"/mtu", 0)
	if n.Speed = l.number(dir+"/speed", 0); n.Speed != nil && *n.Speed <= 0 {
		n.Speed = nil // -1: virtual ones know none
	}
	if n.Speed == nil && !n.Loopback {
		l.unseen("the speed of %s: its driver tells none", n.Interface)
	}
	var err error
	if n.TSO, n.GSO, n.GRO, err = l.system.Offloads(n.Interface); err != nil {
		l.unseen("the offloads of %s: %v", n.Interface, err)
	}
}
