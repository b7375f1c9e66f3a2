package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/interop/rocketmq"
	"github.com/haengine/haengine/remoting"
)

const segmentBytes = "16777216"

// cluster is a synchronous master with its slave.
type cluster struct {
	name          string
	names         string // the name server's address
	master, slave string // for clients
	kill          func() // the master, and all that share its process
	sync          func() // has a slave of RocketMQ's ask its master at once
	deafToOffsets bool   // its slave does not follow the groups' offsets
}

func address(port int) string { return fmt.Sprint("127.0.0.1:", port) }

// ourCluster is two nodes of ours. The name server is the slave's, as it has to
// outlive the master.
func ourCluster(t testing.TB) *cluster {
	t.Helper()
	dir, ha := t.TempDir(), address(rocketmq.FreePort(t))
	c := &cluster{name: ours, names: address(rocketmq.FreePort(t)), master: address(rocketmq.FreePort(t)), slave: address(rocketmq.FreePort(t)), sync: func() {}}
	serve(t, "our slave", "--store", filepath.Join(dir, "slave"), "--role", "SLAVE", "--master", ha, "--client-listen", c.slave, "--namesrv-listen", c.names,
		"--slave-reads", "--broker-name", "interop", "--broker-cluster", "interop")
	c.kill = serve(t, "our master", "--store", filepath.Join(dir, "master"), "--role", "SYNC_MASTER", "--ha-listen", ha, "--client-listen", c.master, "--namesrv", c.names,
		"--slave-timeout", "30s", "--broker-name", "interop", "--broker-cluster", "interop").kill
	return c
}

// group is RocketMQ's servers in two processes: those that stay, and masters, which
// are killed together.
type group struct {
	version rocketmq.Version
	stay    *rocketmq.Process
	masters *rocketmq.Process
	pending []*rocketmq.Process // that have yet to say that a broker is up
}

// quick has a JVM compile less: these live for minutes.
const quick = "INTEROP_JVM=-XX:TieredStopAtLevel=1"

func startGroup(t testing.TB, v rocketmq.Version) *group {
	t.Helper()
	kit := rocketmq.Kit{Version: v, Broker: true, Env: []string{quick}}
	return &group{version: v, stay: kit.Launch(t, "group"), masters: kit.Launch(t, "group")}
}

// ready waits until all brokers are up.
func (g *group) ready() {
	for _, p := range g.pending {
		p.Await("listening")
	}
	g.pending = nil
}

func (g *group) nameServer(t testing.TB) string {
	t.Helper()
	port := rocketmq.FreePort(t)
	g.ready() // its own word is awaited
	g.stay.Ask(fmt.Sprint("namesrv --port ", port), "listening")
	return address(port)
}

// broker begins to start a broker in one of the group's processes. It refuses nothing
// because the machine is busy.
func (g *group) broker(p *rocketmq.Process, store, role, listen, ha, names string, more ...string) {
	p.Order(strings.Join(append([]string{
		"broker --store", store, "--role", role, "--listen", port(listen), "--ha-port", port(ha), "--namesrv", names, "--segment-bytes", segmentBytes, "--small",
		"--conf slaveTimeout=30000 --conf osPageCacheBusyTimeOutMills=60000 --broker-conf slaveReadEnable=true --broker-conf brokerFastFailureEnable=false",
	}, more...), " "))
	g.pending = append(g.pending, p)
}

func port(addr string) string { return addr[strings.IndexByte(addr, ':')+1:] }

// slave begins to start a slave of RocketMQ's.
func (g *group) slave(t testing.TB, c *cluster, store, ha string) {
	t.Helper()
	g.broker(g.stay, store, "SLAVE", c.slave, address(rocketmq.FreePort(t)), c.names, "--broker-id 1 --master", ha)
	c.sync = func() { g.stay.Ask("sync --listen "+port(c.slave), "synced") }
}

// cluster is RocketMQ's own: the control.
func (g *group) cluster(t testing.TB, names string) *cluster {
	t.Helper()
	dir, ha := t.TempDir(), address(rocketmq.FreePort(t))
	c := &cluster{name: control, names: names, master: address(rocketmq.FreePort(t)), slave: address(rocketmq.FreePort(t)), kill: g.masters.Kill}
	// A slave of 5.5.0 cannot read its master's offsets when they have a field that it
	// does not know, with numbers as keys: its JSON library refuses them there.
	c.deafToOffsets = g.version == rocketmq.V5
	g.broker(g.masters, filepath.Join(dir, "master"), "SYNC_MASTER", c.master, ha, c.names)
	g.slave(t, c, filepath.Join(dir, "slave"), ha)
	return c
}

// ourMaster is our master with RocketMQ's slave, at RocketMQ's name server.
func (g *group) ourMaster(t testing.TB, names string) *cluster {
	t.Helper()
	dir, ha := t.TempDir(), address(rocketmq.FreePort(t))
	c := &cluster{name: oursReal, names: names, master: address(rocketmq.FreePort(t)), slave: address(rocketmq.FreePort(t))}
	c.kill = serve(t, "our master of RocketMQ's slave", "--store", filepath.Join(dir, "master"), "--role", "SYNC_MASTER", "--ha-listen", ha, "--client-listen", c.master,
		"--namesrv", c.names, "--slave-timeout", "30s", "--broker-name", "interop", "--broker-cluster", "interop", "--plain-history", "first").kill
	g.slave(t, c, filepath.Join(dir, "slave"), ha)
	return c
}

// ourSlave is RocketMQ's master with our slave, at RocketMQ's name server.
func (g *group) ourSlave(t testing.TB, names string) *cluster {
	t.Helper()
	dir, ha := t.TempDir(), address(rocketmq.FreePort(t))
	c := &cluster{name: realOurs, names: names, master: address(rocketmq.FreePort(t)), slave: address(rocketmq.FreePort(t)), kill: g.masters.Kill, sync: func() {}}
	g.broker(g.masters, filepath.Join(dir, "master"), "SYNC_MASTER", c.master, ha, c.names)
	serve(t, "our slave of RocketMQ's master", "--store", filepath.Join(dir, "slave"), "--role", "SLAVE", "--master", ha, "--client-listen", c.slave, "--namesrv", c.names,
		"--slave-reads", "--broker-name", "interop", "--broker-cluster", "interop")
	return c
}

// call asks a broker in the clients' protocol.
func call(addr string, code int32) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := remoting.Dial(ctx, addr, nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	answer, err := c.Call(ctx, &remoting.Command{Code: code})
	if err != nil {
		return nil, err
	}
	return answer.Body, answer.Err()
}

// registered waits until name servers know master and slave. A producer that begins
// while there is only a slave never gets a route for a topic that it is to make.
func (c *cluster) registered(t testing.TB) {
	t.Helper()
	c.eventually(t, 100*time.Millisecond, func() (missing string) {
		body, err := call(c.names, remoting.CodeGetClusterInfo)
		if strings.Contains(string(body), c.master) && strings.Contains(string(body), c.slave) {
			return ""
		}
		return fmt.Sprintf("the name server knows %s: %v", body, err)
	})
}

// eventually asks so often until nothing is missing any more.
func (c *cluster) eventually(t testing.TB, often time.Duration, missing func() string) {
	t.Helper()
	tick := time.NewTicker(often)
	defer tick.Stop()
	for end := time.Now().Add(rocketmq.Patience); ; <-tick.C {
		switch what := missing(); {
		case what == "":
			return
		case time.Now().After(end):
			t.Fatalf("%s: not within %v: %s", c.name, rocketmq.Patience, what)
		}
	}
}

// followed waits until the slave has all that its master has: the log, the topics
// and the groups' offsets.
func (c *cluster) followed(t testing.TB) {
	t.Helper()
	c.eventually(t, 500*time.Millisecond, func() (missing string) {
		c.sync()
		if differ := c.difference(); differ != "" {
			return "the slave has not " + differ
		}
		return ""
	})
}

// difference is what the slave does not have; empty if it has all.
func (c *cluster) difference() string {
	for _, what := range []struct {
		name string
		code int32
		find func([]byte) ([]string, error)
	}{
		{"log", remoting.CodeGetBrokerRuntimeInfo, logEnd},
		{"topics", remoting.CodeGetAllTopicConfig, table("topicConfigTable")},
		{"offsets", remoting.CodeGetAllConsumerOffset, table("offsetTable")},
	} {
		if c.deafToOffsets && what.code == remoting.CodeGetAllConsumerOffset {
			continue
		}
		var found [2][]string
		for i, addr := range []string{c.master, c.slave} {
			body, err := call(addr, what.code)
			if err == nil {
				found[i], err = what.find(body)
			}
			if err != nil {
				return fmt.Sprintf("%s of %s: %v", what.name, addr, err)
			}
		}
		for _, line := range found[0] {
			if !slices.Contains(found[1], line) {
				return fmt.Sprintf("%s: %s", what.name, line)
			}
		}
	}
	return ""
}

func logEnd(body []byte) ([]string, error) {
	var info struct {
		Table map[string]string `json:"table"`
	}
	err := json.Unmarshal(body, &info)
	return []string{info.Table["commitLogMaxOffset"]}, err
}

// table gives the entries of a table of RocketMQ's JSON that the clients made;
// topics by their names only.
func table(name string) func([]byte) ([]string, error) {
	return func(body []byte) (lines []string, err error) {
		var all map[string]json.RawMessage
		if err := json.Unmarshal(quoteKeys(body), &all); err != nil {
			return nil, err
		}
		var entries map[string]json.RawMessage
		if err := json.Unmarshal(all[name], &entries); err != nil {
			return nil, err
		}
		for key, value := range entries {
			if !strings.HasPrefix(key, "J") && !strings.HasPrefix(key, "G") {
				continue
			}
			if name == "topicConfigTable" {
				value = nil
			}
			var offsets map[string]int64 // in another order on each side
			if err := json.Unmarshal(value, &offsets); value != nil && err != nil {
				return nil, err
			}
			lines = append(lines, fmt.Sprint(key, offsets))
		}
		return lines, nil
	}
}

var bareKey = regexp.MustCompile(`([{,])(-?[0-9]+):`)

// quoteKeys makes JSON of what RocketMQ writes: its numbers as keys have no quotes.
// No text in these tables looks like one.
func quoteKeys(body []byte) []byte { return bareKey.ReplaceAll(body, []byte(`$1"$2":`)) }
