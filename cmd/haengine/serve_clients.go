package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/remoting"
)

// clientSettings are what serve may be told about RocketMQ's clients.
type clientSettings struct {
	listen        string
	nameServers   []string
	namesrvListen string
	broker        string
	cluster       string
	id            int
	advertise     string
	visible       engine.Visible
	slaveReads    bool
	autoTopics    bool
	autoGroups    bool
}

const (
	defaultClientListen  = "127.0.0.1:10911"
	defaultNamesrvListen = "127.0.0.1:9876"
)

// loops is how many loops of gnet's serve clients. Each keeps one of Go's processors while
// it waits for them, until the runtime's monitor takes it away, and what the log and its replicas
// have to do would wait for that: a node takes as many more.
func (c *clientSettings) loops() int {
	if c.listen == "" {
		return 0
	}
	return remoting.DefaultLoops()
}

func (c *clientSettings) define(s *settings) {
	s.add("client-listen", "ADDR", defaultClientListen, "where RocketMQ's clients connect, and on the port two below; empty: no clients", toListen(&c.listen))
	s.add("namesrv", "LIST", "", "name servers to register at, as HOST:PORT;HOST:PORT (default: this node's own)", c.setNameServers)
	s.add("namesrv-listen", "ADDR", defaultNamesrvListen, "where this node's own name server listens; empty, and with --namesrv unless it is given: none", toListen(&c.namesrvListen))
	s.add("broker-name", "NAME", "broker-a", "the name that a master and its slaves share", toName(&c.broker))
	s.add("broker-cluster", "NAME", "DefaultCluster", "the cluster that clients see", toName(&c.cluster))
	s.add("broker-id", "N", "", "0 on a master, from 1 on a slave (default: 0 or 1)", toInt(&c.id, 0, math.MaxInt32))
	s.add("visible", "WHAT", "appended", "what consumers may see: appended, flushed (on this node's disk) or confirmed (what a put's answer would wait for)", toEnum(&c.visible, engine.ParseVisible))
	s.add("slave-reads", "bool", "false", "a slave serves consumers", toBool(&c.slaveReads))
	s.add("auto-create-topics", "bool", "true", "a send to a topic that is not there makes it", toBool(&c.autoTopics))
	s.add("auto-create-groups", "bool", "true", "a consumer group that is not there is made when it is first heard of", toBool(&c.autoGroups))
	s.add("advertise", "HOST", "", "the host that clients and slaves are told (default: that of --client-listen)", toString(&c.advertise))
}

func toListen(v *string) func(string) error {
	return func(s string) error {
		*v = s
		return checkListen(s)
	}
}

// toName takes a name that clients put into JSON, paths and topics.
func toName(v *string) func(string) error {
	return func(s string) error {
		if *v = s; s == "" || len(s) > 127 {
			return fmt.Errorf("a name has 1 to 127 characters, not %d", len(s))
		}
		for _, r := range s {
			if !strings.ContainsRune("-_%|", r) && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z') {
				return fmt.Errorf("%q: %q is no letter, digit, or one of - _ %% |", s, r)
			}
		}
		return nil
	}
}

func (c *clientSettings) setNameServers(s string) error {
	c.nameServers = nil
	for addr := range strings.SplitSeq(s, ";") {
		if addr = strings.TrimSpace(addr); addr == "" {
			continue
		}
		if err := checkListen(addr); err != nil {
			return err
		}
		if host, port, _ := net.SplitHostPort(addr); host == "" || port == "0" {
			return fmt.Errorf("%q: want HOST:PORT of a name server", addr)
		}
		c.nameServers = append(c.nameServers, addr)
	}
	return nil
}

// resolveClients completes the settings for clients once all are read.
func (n *nodeSettings) resolveClients() error {
	c := &n.clients
	if n.table.bad["client-listen"] || c.listen == "" {
		return nil
	}
	var wrong []error
	if slave := n.Role == engine.Slave; n.table.given("broker-id") && slave == (c.id == 0) && !n.table.bad["broker-id"] && !n.table.bad["role"] {
		if slave {
			wrong = append(wrong, errors.New("--broker-id 0 is a master's, a SLAVE needs one from 1"))
		} else {
			wrong = append(wrong, fmt.Errorf("--broker-id %d is a slave's, a master needs 0", c.id))
		}
	}
	if len(c.nameServers) > 0 && !n.table.given("namesrv-listen") {
		c.namesrvListen = ""
	}
	host := c.advertise
	if host == "" {
		var err error
		if host, err = remoting.AdvertisedHost(c.listen); err != nil {
			return errors.Join(append(wrong, fmt.Errorf("--advertise HOST is missing: %w", err))...)
		}
	}
	if !n.table.given("store-host") {
		if err := n.storeHostFrom(host); err != nil {
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}

// namesFromEnvironment is the variable because of which the node is no name server, as
// it would be without; empty if there is none. Shells have it for clients.
func (n *nodeSettings) namesFromEnvironment() string {
	from := n.table.from["namesrv"]
	if c := &n.clients; c.listen == "" || len(c.nameServers) == 0 || c.namesrvListen != "" || !strings.HasPrefix(from, envPrefix) {
		return ""
	}
	return from
}

// storeHostFrom has records carry the address that clients are told: message ids
// hold it, and tools ask there for the message.
func (n *nodeSettings) storeHostFrom(host string) error {
	_, text, _ := net.SplitHostPort(n.clients.listen)
	port, _ := strconv.Atoi(text)
	if port == 0 {
		return nil // any port: it is not known before the store is open
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		addrs, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip", host)
		if err != nil || len(addrs) == 0 {
			return fmt.Errorf("--advertise %s: %w; give an address, or --store-host", host, err)
		}
		addr = addrs[0]
		for _, a := range addrs {
			if a.Unmap().Is4() { // what every client can read in a message id
				addr = a
				break
			}
		}
	}
	n.StoreHost = commitlog.Host{Addr: addr.Unmap().WithZone(""), Port: int32(port)}
	return nil
}

// openClients serves clients of an open node; nil without an address for them.
func openClients(n *nodeSettings, node *engine.Engine, logger *slog.Logger) (*remoting.Broker, error) {
	c := &n.clients
	if c.listen == "" {
		return nil, nil
	}
	broker, err := remoting.OpenBroker(remoting.BrokerOptions{
		Engine: node, Store: n.Store, Listen: c.listen, Advertise: c.advertise, Cluster: c.cluster, Name: c.broker, ID: int64(c.id),
		NameServers: c.nameServers, NameServerListen: c.namesrvListen, Logger: logger,
		Visible: c.visible, SlaveReads: c.slaveReads, NoAutoTopics: !c.autoTopics, NoAutoGroups: !c.autoGroups,
	})
	if listen := (*remoting.ListenError)(nil); errors.As(err, &listen) {
		return nil, listenError(listen.Setting, listen.Addr, listen.Err)
	}
	return broker, err
}
