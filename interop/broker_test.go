package interop

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/interop/rocketmq"
)

func TestABrokerGroupOfRocketMQsWithUs(t *testing.T) {
	runChecks(t, "7. Whole brokers", []check{
		{name: "our slave in a group of RocketMQ's brokers", direction: realToOurs, versions: brokerVersions, run: ourSlaveOfABroker},
		{name: "a broker of RocketMQ's is our slave", direction: oursToReal, newest: true, versions: brokerVersions, run: brokerIsOurSlave},
	})
}

func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// nameServer starts RocketMQ's name server.
func (v version) nameServer(t testing.TB) (address string) {
	t.Helper()
	port := rocketmq.FreePort(t)
	v.launch(t, true, "namesrv", "--port", fmt.Sprint(port)).Await("serving")
	return fmt.Sprint("127.0.0.1:", port)
}

// ourSlaveOfABroker has RocketMQ's client send through RocketMQ's broker, which
// waits for our slave.
func ourSlaveOfABroker(c *trial) {
	names, ha := c.version.nameServer(c), rocketmq.FreePort(c)
	store := filepath.Join(c.TempDir(), "broker")
	args := []string{"broker", "--store", store, "--role", "SYNC_MASTER", "--listen", fmt.Sprint(rocketmq.FreePort(c)), "--ha-port", fmt.Sprint(ha),
		"--namesrv", names, "--topic", "orders", "--segment-bytes", fmt.Sprint(segmentBytes)}
	if c.version == v5 {
		args = append(args, "--conf", "inSyncReplicas=2", "--conf", "totalReplicas=2")
	}
	b := c.version.launch(c, true, args...)
	b.Await("serving")
	s := openSlave(c, fmt.Sprint("127.0.0.1:", ha), engine.Options{})
	client := c.version.launch(c, true, "client", "--namesrv", names)
	const count = 500
	sent := client.Ask(fmt.Sprintf("send topic=orders,count=%d,size=2000", count), "sent")
	if status := sent["status"].(map[string]any); len(status) != 1 || fmt.Sprint(status["SEND_OK"]) != fmt.Sprint(count) {
		c.Errorf("sends ended with %v", sent)
	}
	consumed := client.Ask(fmt.Sprintf("consume topic=orders,count=%d,seconds=40", count), "consumed")
	if n := consumed.Number("messages"); n != count {
		c.Errorf("%d messages were consumed, want %d", n, count)
	}
	client.EndInput()
	<-client.Exited()
	end := b.Quit().Number("max_offset")
	s.has(end)
	s.close()
	c.figure("%d SEND_OK, p50 %.0f µs; %d messages equal", count, sent.Float("p50_us"), c.version.mustMatch(c, store, s.store))
}

func brokerIsOurSlave(c *trial) {
	m := openMaster(c, engine.Options{Role: engine.SyncMaster, PlainHistory: engine.HistoryFirst})
	store := filepath.Join(c.TempDir(), "broker")
	b := c.version.launch(c, true, "broker", "--store", store, "--role", "SLAVE", "--broker-id", "1", "--listen", fmt.Sprint(rocketmq.FreePort(c)), "--ha-port", fmt.Sprint(rocketmq.FreePort(c)),
		"--namesrv", c.version.nameServer(c), "--master", m.address(), "--segment-bytes", fmt.Sprint(segmentBytes))
	b.Await("serving")
	eventually(c, "the broker has reported", func() bool { return len(m.Status().Replicas) == 1 })
	newMixer(c, c.version).fill(m, 3<<20) // each put must return PUT_OK
	m.acked(1)
	b.Quit()
	m.close()
	c.figure("%d messages equal", c.version.mustMatch(c, store, m.store))
}
