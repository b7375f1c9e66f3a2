package clients

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/haengine/haengine/interop/rocketmq"
)

// Clusters.
const (
	ours     = "haengine"
	control  = "RocketMQ"
	oursReal = "haengine master, RocketMQ slave"
	realOurs = "RocketMQ master, haengine slave"
)

// TestClientsFindTheSame runs every scenario at every cluster, all side by side: most
// of one is waiting.
func TestClientsFindTheSame(t *testing.T) {
	rocketmq.Need(t)
	begun := time.Now()
	f := newField(t)
	t.Logf("all are up after %v", time.Since(begun))
	f.run(0, atMaster, prepare, false)
	f.admin(1, mqadmin)
	t.Logf("scenarios at masters ended after %v", time.Since(begun))
	for _, c := range f.clusters {
		c.followed(t)
	}
	t.Logf("slaves have it all after %v", time.Since(begun))
	for _, c := range f.clusters {
		c.kill()
	}
	f.run(2, atSlave, prepare, true)
	f.admin(3, mqadminAtSlave)
	t.Logf("scenarios at slaves ended after %v", time.Since(begun))
	f.results.check(t, f.want)
	if *tableFlag != "" && !t.Failed() {
		if err := f.results.write(*tableFlag); err != nil {
			t.Error(err)
		}
	}
}

// field is all that runs.
type field struct {
	t        *testing.T
	results  *results
	want     map[string]string // testdata/results.txt
	clusters []*cluster
	players  []player
}

// player is a client and the clusters that it plays at.
type player struct {
	*client
	version rocketmq.Version // of mqadmin; empty: it has none
	at      []*cluster
	mixed   []*cluster // only for scenarios that say so
}

// newField starts the clusters and the clients.
func newField(t *testing.T) *field {
	t.Helper()
	t.TempDir() // the first call has them removed last, when what writes there is gone
	f := &field{t: t, results: newResults(), want: readResults(t)}
	group5, java5 := startGroup(t, rocketmq.V5), startJava(t, rocketmq.V5)
	var group4 *group
	var java4 *client
	if *fullFlag {
		group4, java4 = startGroup(t, rocketmq.V4Broker), startJava(t, rocketmq.V4Broker)
	}
	us := ourCluster(t)
	names := []string{group5.nameServer(t)}
	if *fullFlag {
		names = append(names, group5.nameServer(t), group5.nameServer(t), group4.nameServer(t))
	}
	control5 := group5.cluster(t, names[0])
	f.clusters = []*cluster{us, control5}
	f.players = []player{{client: java5, version: rocketmq.V5, at: []*cluster{us, control5}}}
	if *fullFlag {
		control4 := group4.cluster(t, names[3])
		f.players[0].mixed = []*cluster{group5.ourMaster(t, names[1]), group5.ourSlave(t, names[2])}
		f.players = append(f.players,
			player{client: java4, version: rocketmq.V4Broker, at: []*cluster{us, control4}},
			player{client: startGo(t), at: []*cluster{us, control5}})
		f.clusters = append(f.clusters, control4, f.players[0].mixed[0], f.players[0].mixed[1])
		group4.ready()
	}
	group5.ready()
	for _, c := range f.clusters {
		c.registered(t)
	}
	f.warm()
	return f
}

// warm waits until each cluster stores a message twice.
func (f *field) warm() {
	f.t.Helper()
	var all sync.WaitGroup
	for _, p := range f.players {
		if p.version == "" {
			continue
		}
		for _, c := range append(p.at[:len(p.at):len(p.at)], p.mixed...) {
			all.Go(func() {
				if o := p.client.run(c, "warm", "warm"); o.result != `{"last":"SEND_OK","up":true}` {
					f.t.Errorf("%s does not come up: %s %s", c.name, o.result, o.text)
				}
			})
		}
	}
	all.Wait()
	if f.t.Failed() {
		f.t.FailNow()
	}
}

// run runs scenarios. Their topics have their name, or all one.
func (f *field) run(part int, scenarios []scenario, name string, one bool) {
	var all sync.WaitGroup
	for i, s := range scenarios {
		for _, p := range f.players {
			if !s.has(p.client) || !*fullFlag && !s.small {
				continue
			}
			at := p.at[:len(p.at):len(p.at)]
			if s.mixed {
				at = append(at, p.mixed...)
			}
			topic := s.name
			if one {
				topic = name
			}
			for _, c := range at {
				all.Go(func() {
					o := p.client.run(c, s.name, topic)
					if again := topic + "-again"; c.name == control && !one && f.unusual(part, s, p.client, o) {
						// Not what it was when it was written down: the machine was too busy
						// for RocketMQ's time limits. It is not what is on trial.
						o = p.client.run(c, s.name, again)
					}
					f.results.put(key{part, i, s.name, p.name, c.name}, note{s.title, s.reason(p.client), s.apart(p.client)}, o)
				})
			}
		}
	}
	all.Wait()
}

// unusual tells whether a result of RocketMQ's own is not the one in testdata.
func (f *field) unusual(part int, s scenario, c *client, o outcome) bool {
	want, known := f.want[key{part, 0, s.name, c.name, control}.line()]
	return known && !s.apart(c) && s.name != prepare && o.result != want
}

// admin runs mqadmin's commands, in their order.
func (f *field) admin(part int, commands []command) {
	var all sync.WaitGroup
	for _, p := range f.players {
		if p.version == "" {
			continue
		}
		for _, at := range append(p.at[:len(p.at):len(p.at)], p.mixed...) {
			all.Go(func() {
				for i, c := range commands {
					if !c.knows(string(p.version)) || !*fullFlag && !c.small {
						continue
					}
					arguments := strings.NewReplacer("MASTER", at.master, "SLAVE", at.slave, "TOPIC", p.prefix+"-"+prepare).Replace(c.text)
					o := p.client.mqadmin(at, arguments, prepare)
					b, err := json.Marshal(canonical(c.text, p.prefix, at, o.text))
					if err != nil {
						f.t.Error(err)
					}
					o.result = string(b)
					f.results.put(key{part, i, c.text, p.name, at.name}, note{"`" + c.text + "`", c.why, c.why == deaf && p.version == rocketmq.V5}, o)
				}
			})
		}
	}
	all.Wait()
}
