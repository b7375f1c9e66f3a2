package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// network is two hosts, each a network namespace, and a router between them
// that can be told to drop without a word what comes from either side.
type network struct {
	t            *testing.T
	master       []string // runs a command on the master's host
	slave        []string
	masterAt     string
	router       string
	fromM, fromS string // the router's interfaces
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	needRoot(t)
	needTool(t, "ip")
	name := fmt.Sprintf("hae%d", os.Getpid())
	m, s, r := name+"m", name+"s", name+"r"
	n := &network{
		t: t, router: r, masterAt: "10.77.1.2",
		master: []string{"ip", "netns", "exec", m}, slave: []string{"ip", "netns", "exec", s},
		fromM: "m0", fromS: "s0",
	}
	if out, err := exec.Command("ip", "netns", "add", r).CombinedOutput(); err != nil {
		t.Skipf("needs network namespaces: %v: %s", err, out)
	}
	t.Cleanup(func() { system(t, "ip", "netns", "del", r) })
	for i, host := range []string{m, s} {
		system(t, "ip", "netns", "add", host)
		t.Cleanup(func() { system(t, "ip", "netns", "del", host) })
		inside := []string{n.fromM, n.fromS}[i]
		system(t, "ip", "-n", host, "link", "add", "eth0", "type", "veth", "peer", "name", inside, "netns", r)
		for _, c := range [][]string{
			{host, "addr", "add", fmt.Sprintf("10.77.%d.2/24", i+1), "dev", "eth0"},
			{host, "link", "set", "eth0", "up"},
			{host, "link", "set", "lo", "up"},
			{r, "addr", "add", fmt.Sprintf("10.77.%d.1/24", i+1), "dev", inside},
			{r, "link", "set", inside, "up"},
			{host, "route", "add", "default", "via", fmt.Sprintf("10.77.%d.1", i+1)},
		} {
			system(t, "ip", append([]string{"-n"}, c...)...)
		}
	}
	n.forward(n.fromM, true)
	n.forward(n.fromS, true)
	return n
}

// forward has the router pass on or drop what comes in at an interface.
func (n *network) forward(from string, pass bool) {
	n.t.Helper()
	value := "0"
	if pass {
		value = "1"
	}
	system(n.t, "ip", "netns", "exec", n.router, "sh", "-c", fmt.Sprintf("echo %s > /proc/sys/net/ipv4/conf/%s/forwarding", value, from))
}

// A peer vanishes without a word, in either direction or both, under load or
// while it connects: the master notices in the time that it is given, puts do not
// wait for who is gone, and the slave follows again when the network is back.
func TestAPeerThatVanishesIsGivenUpInTimeAndComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	n := newNetwork(t)
	const housekeeping = 3 * time.Second
	timing := []string{"--housekeeping", housekeeping.String(), "--heartbeat", "500ms"}
	m := daemon{wrap: n.master, args: append([]string{
		"--ha-listen", n.masterAt + ":10912", "--role", "SYNC_MASTER", "--slave-timeout", "1s", "--load", "200,500,0",
	}, timing...)}.serve(t)
	n.forward(n.fromS, false)
	s := daemon{wrap: n.slave, args: append(slaveArgs(n.masterAt+":10912"), timing...)}.serve(t)
	s.runFor(t, housekeeping) // its first packets are lost
	n.forward(n.fromS, true)
	back := func() {
		t.Helper()
		before := m.count(putOK)
		eventually(t, "puts have a replica", func() bool { return m.count(putOK) > before+50 })
	}
	back()
	for _, lost := range [][]string{{n.fromM, n.fromS}, {n.fromM}, {n.fromS}} {
		none, begun := m.count("SLAVE_NOT_AVAILABLE"), time.Now()
		for _, from := range lost {
			n.forward(from, false)
		}
		eventually(t, "the master gives the slave up", func() bool { return m.count("SLAVE_NOT_AVAILABLE") > none })
		if took := time.Since(begun); took > 3*housekeeping {
			t.Errorf("with %v dropped the master gave the slave up after %v, it is given %v", lost, took, housekeeping)
		}
		none = m.count("SLAVE_NOT_AVAILABLE")
		eventually(t, "puts do not wait for who is gone", func() bool { return m.count("SLAVE_NOT_AVAILABLE") > none+50 })
		for _, from := range lost {
			n.forward(from, true)
		}
		back()
	}
	m.signal(t, os.Interrupt)
	m.waitExit(t)
	eventually(t, "the slave holds the log", func() bool { return info(t, s.store).Max == info(t, m.store).Max })
	s.stop(t)
	mustEqual(t, m.store, s.store)
}
