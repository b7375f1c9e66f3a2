package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/remoting"
)

// freePorts is a port that is free, with the one two below it.
func freePorts(t *testing.T) (port int) {
	t.Helper()
	for range 100 {
		upper, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port = upper.Addr().(*net.TCPAddr).Port
		lower, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port-2))
		upper.Close()
		if err == nil {
			lower.Close()
			return port
		}
	}
	t.Fatal("no two free ports")
	return 0
}

// ask sends one request to an address.
func ask(t *testing.T, addr string, request *remoting.Command) *remoting.Command {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := remoting.Dial(ctx, addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer, err := c.Call(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func askRoute(t *testing.T, addr, topic string) string {
	t.Helper()
	a := ask(t, addr, &remoting.Command{Code: remoting.CodeGetRouteInfo, Ext: remoting.Ext{{Name: "topic", Value: topic}}})
	if a.Code != remoting.Success {
		return a.Remark
	}
	return string(a.Body)
}

func TestClientsFindTheNodeByItsOwnNameServer(t *testing.T) {
	port, names := freePorts(t), freePorts(t)
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	m := startNode(t, "--ha-listen", "127.0.0.1:0", "--client-listen", listen, "--namesrv-listen", fmt.Sprintf("127.0.0.1:%d", names), "--broker-name", "b-1", "--broker-cluster", "C")
	if m.ClientListen != listen || m.NamesrvListen != fmt.Sprintf("127.0.0.1:%d", names) || m.Advertised != listen {
		t.Errorf("the line that says that it serves: %+v", m.servingLine)
	}
	waitUntil(t, func() bool {
		return strings.Contains(askRoute(t, m.NamesrvListen, "TBW102"), `{"brokerAddrs":{"0":"`+listen+`"},"brokerName":"b-1","cluster":"C",`)
	})
	for _, addr := range []string{listen, fmt.Sprintf("127.0.0.1:%d", port-2)} {
		if a := ask(t, addr, &remoting.Command{Code: 99999}); a.Code != remoting.RequestCodeNotSupported {
			t.Errorf("%s answers %+v", addr, a)
		}
	}
	mustContain(t, get(t, m.AdminListen, "/metrics"), "haengine_client_connections ", `haengine_client_refusals_total{reason="frame-too-long"} 0`)

	// A slave registers at it, and leaves it when it stops.
	s := startNode(t, "--role", "SLAVE", "--master", m.HAListen, "--client-listen", "127.0.0.1:0", "--namesrv", m.NamesrvListen, "--broker-name", "b-1", "--broker-cluster", "C", "--broker-id", "3", "--advertise", "localhost")
	if s.NamesrvListen != "" {
		t.Errorf("it has a name server of its own at %s", s.NamesrvListen)
	}
	mustContain(t, s.Advertised, "localhost:")
	waitUntil(t, func() bool { return strings.Contains(askRoute(t, m.NamesrvListen, "TBW102"), `"3":"`+s.Advertised+`"`) })
	s.stopCleanly(t)
	if got := askRoute(t, m.NamesrvListen, "TBW102"); strings.Contains(got, "localhost") {
		t.Errorf("a slave that was stopped is in the route %s", got)
	}

	taken := fmt.Sprintf("127.0.0.1:%d", port)
	free := fmt.Sprintf("127.0.0.1:%d", freePorts(t))
	for _, test := range []struct {
		want string
		args []string
	}{
		{"--client-listen " + taken, []string{"--client-listen", taken}},
		{fmt.Sprintf("--client-listen 127.0.0.1:%d (always two below 127.0.0.1:%d)", names, names+2), []string{"--client-listen", fmt.Sprintf("127.0.0.1:%d", names+2)}},
		{"--namesrv-listen " + m.NamesrvListen, []string{"--client-listen", free, "--namesrv-listen", m.NamesrvListen}},
	} {
		o := expect(t, exitFailed, append([]string{"serve", "--store", t.TempDir(), "--ha-listen", "127.0.0.1:0", "--admin-listen", "", "--segment-bytes", "1MiB"}, test.args...)...)
		mustContain(t, o.stderr, test.want+": ", "address already in use", "give another address")
	}
	m.stopCleanly(t)
}

func TestPromotedNodeIsSoonTheMasterOfItsRoute(t *testing.T) {
	m := startNode(t, "--ha-listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0")
	s := startNode(t, "--role", "SLAVE", "--master", m.HAListen, "--ha-listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", "--namesrv", m.NamesrvListen)
	waitUntil(t, func() bool { return strings.Contains(askRoute(t, m.NamesrvListen, "TBW102"), `"1":"`+s.Advertised+`"`) })
	waitUntil(t, func() bool { return len(m.status(t).Replicas) == 1 })
	expect(t, exitDone, "promote", "--admin", s.AdminListen)
	waitUntil(t, func() bool { return strings.Contains(askRoute(t, m.NamesrvListen, "TBW102"), `"0":"`+s.Advertised+`"`) })
}

func TestWrongSettingsForClientsAreNamed(t *testing.T) {
	for _, test := range []struct {
		want string
		args []string
	}{
		{"--client-listen: ", []string{"--client-listen", "x"}},
		{"--namesrv: ", []string{"--namesrv", "127.0.0.1"}},
		{"--namesrv: ", []string{"--namesrv", "a:1;:9876"}},
		{"--namesrv-listen: ", []string{"--namesrv-listen", "127.0.0.1:99999"}},
		{"--broker-name: ", []string{"--broker-name", "a b"}},
		{"--broker-cluster: ", []string{"--broker-cluster", strings.Repeat("c", 128)}},
		{"--advertise HOST is missing: ", []string{"--client-listen", "0.0.0.0:10911"}},
		{"--advertise HOST is missing: ", []string{"--client-listen", ":10911"}},
		{"--broker-id 2 is a slave's", []string{"--broker-id", "2"}},
		{"--broker-id 0 is a master's", []string{"--broker-id", "0", "--role", "SLAVE", "--master", "127.0.0.1:1"}},
	} {
		o := expect(t, exitUsage, append([]string{"serve", "--store", t.TempDir()}, test.args...)...)
		mustContain(t, o.stderr, test.want)
	}
}

func TestRecordsCarryTheAddressThatClientsAreTold(t *testing.T) {
	for _, test := range []struct {
		want string
		args []string
	}{
		{"127.0.0.1|10911", nil},
		{"127.0.0.1|20911", []string{"--client-listen", "127.0.0.1:20911"}},
		{"10.1.2.3|20911", []string{"--client-listen", ":20911", "--advertise", "10.1.2.3"}},
		{"10.9.9.9|1", []string{"--client-listen", ":20911", "--advertise", "10.1.2.3", "--store-host", "10.9.9.9:1"}},
	} {
		n, _, err := resolveSettings(t, "", nil, test.args)
		if err != nil {
			t.Errorf("%v: %v", test.args, err)
			continue
		}
		if got := n.StoreHost.String(); got != test.want {
			t.Errorf("%v: records carry %s, want %s", test.args, got, test.want)
		}
	}
}

// The variable that a shell has for put and tail keeps a node from being a name server.
func TestAVariableThatMakesNoNameServerIsNamed(t *testing.T) {
	const variable = "HAENGINE_NAMESRV=h:1"
	for _, c := range []struct {
		want, environ string
		args          []string
	}{
		{"HAENGINE_NAMESRV", variable, nil},
		{"", "", nil},
		{"", "", []string{"--namesrv", "h:1"}},
		{"", variable, []string{"--namesrv", "h:2"}},
		{"", variable, []string{"--namesrv-listen", "127.0.0.1:0"}},
		{"", variable, []string{"--client-listen", ""}},
	} {
		n, _, err := resolveSettings(t, "", []string{c.environ}, append(c.args, "--store", "x"))
		if err != nil {
			t.Fatal(err)
		}
		if got := n.namesFromEnvironment(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
