package interop

import (
	"fmt"
	"testing"

	"github.com/haengine/haengine/interop/rocketmq"
)

// version is a version of RocketMQ.
type version rocketmq.Version

const (
	v5       = version(rocketmq.V5)
	v4       = version(rocketmq.V4)
	v4broker = version(rocketmq.V4Broker)
)

var (
	storeVersions  = []version{v5, v4}
	brokerVersions = []version{v5, v4broker}
)

func (v version) readsV2() bool { return v == v5 }

// java is a running process of the real RocketMQ.
type java = rocketmq.Process

// event is a line that it prints.
type event = rocketmq.Event

func (v version) kit(broker bool) rocketmq.Kit {
	return rocketmq.Kit{Version: rocketmq.Version(v), Broker: broker}
}

// start runs a command of run.sh. It is killed at the end of the test if it is
// still there.
func (v version) start(t testing.TB, args ...string) *java { return v.launch(t, false, args...) }

func (v version) launch(t testing.TB, broker bool, args ...string) *java {
	t.Helper()
	return v.kit(broker).Launch(t, args...)
}

// output runs a command of run.sh to its end.
func (v version) output(t testing.TB, args ...string) []byte {
	t.Helper()
	return v.kit(false).Output(t, args...)
}

const segmentBytes = 1 << 20

// realMaster is RocketMQ's store as a master.
type realMaster struct {
	*java
	t       testing.TB
	store   string
	port    int
	address string
	end     int64 // of the log that it found
}

// master starts a master that waits for nobody, unless args say otherwise.
func (v version) master(t testing.TB, store string, args ...string) *realMaster {
	t.Helper()
	return v.masterAt(t, store, rocketmq.FreePort(t), args...)
}

func (v version) masterAt(t testing.TB, store string, port int, args ...string) *realMaster {
	t.Helper()
	m := &realMaster{t: t, store: store, port: port, address: fmt.Sprintf("127.0.0.1:%d", port)}
	m.java = v.start(t, append([]string{
		"master", "--store", store, "--ha-port", fmt.Sprint(port), "--segment-bytes", fmt.Sprint(segmentBytes), "--role", "ASYNC_MASTER",
	}, args...)...)
	m.end = m.Await("serving").Number("max_offset")
	return m
}

// mixed puts traffic of many shapes, at least bytes of it.
func (m *realMaster) mixed(v version, seed uint64, bytes int) event {
	m.t.Helper()
	v2 := 0
	if v.readsV2() {
		v2 = 1
	}
	return m.Ask(fmt.Sprintf("mixed seed=%d,bytes=%d,max_body=200000,v2=%d,v6=1", seed, bytes, v2), "mixed")
}

// followedBy waits until so many slaves are connected and hold everything.
func (m *realMaster) followedBy(slaves int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%d slaves of RocketMQ's master hold everything", slaves), func() bool {
		s := m.Ask("status", "status")
		connections, _ := s["acked"].([]any)
		for _, c := range connections {
			if event(c.(map[string]any)).Number("acked_offset") < s.Number("max_offset") {
				return false
			}
		}
		return len(connections) == slaves
	})
}

// inSync waits until a slave has acknowledged everything.
func (m *realMaster) inSync() {
	m.t.Helper()
	if e := m.Ask("wait 60", "wait"); e["in_sync"] != true {
		m.t.Fatalf("no slave follows: %v", e)
	}
}

// realSlave is RocketMQ's store as a slave.
type realSlave struct {
	*java
	store string
}

func (v version) slave(t testing.TB, store, master string, args ...string) *realSlave {
	t.Helper()
	s := &realSlave{store: store}
	s.java = v.start(t, append([]string{"slave", "--store", store, "--master", master, "--segment-bytes", fmt.Sprint(segmentBytes)}, args...)...)
	s.Await("serving")
	return s
}
