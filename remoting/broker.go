package remoting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/haengine/haengine/engine"
)

// BrokerOptions are what a node is to its clients. The zero value of a field
// means its default; Engine, Store and Listen must be given.
type BrokerOptions struct {
	Engine *engine.Engine
	Store  string // the engine's directory: topics, groups and offsets are in config/ below
	Listen string // HOST:PORT; the port two below is served, too (fastListenPort), if there is one
	// Advertise is the host that clients and slaves are told; empty: Listen's,
	// which then must not stand for all addresses (brokerIP1).
	Advertise string

	Cluster string // empty: DefaultCluster (brokerClusterName)
	Name    string // empty: broker-a; master and slaves of one group share it (brokerName)
	ID      int64  // what it registers with while it is a slave; 0: 1. A master is always 0 (brokerId)

	NameServers      []string // HOST:PORT of others to register at (namesrvAddr)
	NameServerListen string   // of this process's own; empty: none

	Visible      engine.Visible // what consumers may see
	SlaveReads   bool           // a slave serves pulls (slaveReadEnable)
	NoAutoTopics bool           // no topic is made by a send to it (autoCreateTopicEnable)
	NoAutoGroups bool           // no group is made by its consumers (autoCreateSubscriptionGroup)

	Server ServerOptions
	Logger *slog.Logger // nil: slog.Default()
}

// ErrAdvertise means that clients would be told an address that they cannot
// connect to.
var ErrAdvertise = errors.New("no address that clients can be told")

// ListenError says which of a broker's addresses cannot be listened on.
type ListenError struct {
	Setting string // client-listen or namesrv-listen
	Addr    string
	Err     error
}

func (e *ListenError) Error() string { return fmt.Sprintf("%s %s: %v", e.Setting, e.Addr, e.Err) }

// Unwrap is net.Listen's error.
func (e *ListenError) Unwrap() error { return e.Err }

// vipDistance is how far below a broker's port is the one that slaves ask for
// some metadata on, and clients with the VIP channel (MixAll.brokerVIPChannel).
const vipDistance = 2

// Broker serves a node's clients: its handlers, its server, and its place in name
// servers. All methods may be called from any goroutine.
type Broker struct {
	o BrokerOptions
	brokerParts
	mux        Mux
	server     *Server
	names      *NameServer               // nil: there are real ones, or none
	namesAddr  net.Addr                  // nil: as names
	registrar  atomic.Pointer[Registrar] // nil until it listens: handlers run before it is there
	stopRoles  func()
	stopSync   context.CancelFunc
	traffic    traffic
	disk       atomic.Pointer[diskState] // nil: not looked at yet
	background sync.WaitGroup
}

// OpenBroker serves a node that is open. The error is a *ListenError if an
// address is in use. The caller must Close the broker before the engine.
func OpenBroker(o BrokerOptions) (*Broker, error) {
	o.Cluster = cmp.Or(o.Cluster, "DefaultCluster")
	o.Name = cmp.Or(o.Name, "broker-a")
	o.ID = cmp.Or(o.ID, 1)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Server.Logger = cmp.Or(o.Server.Logger, o.Logger)
	if o.Advertise == "" {
		host, err := AdvertisedHost(o.Listen)
		if err != nil {
			return nil, err
		}
		o.Advertise = host
	}
	b := &Broker{o: o, stopRoles: func() {}, stopSync: func() {}}
	err := b.open()
	if err == nil {
		err = b.listen()
	}
	if err != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // nothing is worth waiting for
		return nil, errors.Join(err, b.Close(ctx))
	}
	b.register()
	return b, nil
}

// AdvertisedHost is the host of a HOST:PORT that clients can be told.
func AdvertisedHost(addr string) (string, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return "", fmt.Errorf("%w: %s stands for all addresses of this host, say which one", ErrAdvertise, addr)
	}
	return host, nil
}

func (b *Broker) listen() (err error) {
	if b.server, err = Listen(b.o.Listen, &b.mux, b.o.Server); err != nil {
		return &ListenError{"client-listen", b.o.Listen, err}
	}
	if vip, ok := vipAddress(b.o.Listen); ok {
		if _, err := b.server.Also(vip, &b.mux); err != nil {
			return &ListenError{"client-listen", vip + " (always two below " + b.o.Listen + ")", err}
		}
	}
	if b.o.NameServerListen == "" {
		return nil
	}
	b.names = NewNameServer(NameServerOptions{Logger: b.o.Logger})
	if b.namesAddr, err = b.server.Also(b.o.NameServerListen, b.names); err != nil {
		return &ListenError{"namesrv-listen", b.o.NameServerListen, err}
	}
	// A list of all, given to every node, names its own, too.
	own := b.namesAddr.String()
	b.o.NameServers = slices.DeleteFunc(slices.Clone(b.o.NameServers), func(addr string) bool { return addr == own })
	return nil
}

// vipAddress is the second address that a broker listens on. One that listens on
// any port has none.
func vipAddress(addr string) (string, bool) {
	host, text, err := net.SplitHostPort(addr)
	port, portErr := strconv.Atoi(text)
	if err != nil || portErr != nil || port <= vipDistance {
		return "", false
	}
	return net.JoinHostPort(host, strconv.Itoa(port-vipDistance)), true
}

// register keeps the broker in name servers, and tells them at once when its role
// changes.
func (b *Broker) register() {
	follow := newMasterSync(b)
	registrar := StartRegistrar(RegistrarOptions{
		NameServers: b.o.NameServers, Local: b.names,
		Cluster: b.o.Cluster, Broker: b.o.Name, ID: b.id, Address: b.Address(), HAAddress: b.haAddress(),
		Topics: b.topics.AppendJSON, OnMaster: follow.told, Logger: b.o.Logger,
	})
	b.registrar.Store(registrar)
	var ctx context.Context
	ctx, b.stopSync = context.WithCancel(context.Background())
	b.background.Go(func() { follow.run(ctx) })
	b.background.Go(func() { b.sample(ctx) })
	b.background.Go(func() { b.watchDisk(ctx) })
	events, stop := b.o.Engine.Subscribe(64)
	b.stopRoles = stop
	slave := b.o.Engine.Role() == engine.Slave
	b.background.Go(func() {
		for e := range events {
			if e.Kind != engine.RoleChanged && e.Missed == 0 {
				continue
			}
			was := slave
			if slave = b.o.Engine.Role() == engine.Slave; was && !slave {
				b.raiseTopics()
			}
			registrar.Poke()
		}
	})
}

// id is what the broker registers with now.
func (b *Broker) id() int64 {
	if b.o.Engine.Role() == engine.Slave {
		return b.o.ID
	}
	return 0
}

// Address is the HOST:PORT that clients are told.
func (b *Broker) Address() string {
	return net.JoinHostPort(b.o.Advertise, portOf(b.server.Addr().String()))
}

// haAddress is the HOST:PORT that slaves are told; a node that does not listen for
// them tells the usual one, as the field must be there.
func (b *Broker) haAddress() string {
	if ha := b.o.Engine.Status().HAListen; ha != "" {
		return net.JoinHostPort(b.o.Advertise, portOf(ha))
	}
	port, _ := strconv.Atoi(portOf(b.server.Addr().String()))
	return net.JoinHostPort(b.o.Advertise, strconv.Itoa(port+1))
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// Announce tells all name servers the topics as they are now, and waits until
// they have answered or ctx is over. It may take as long as a dial: not for a loop.
func (b *Broker) Announce(ctx context.Context) error {
	if r := b.registrar.Load(); r != nil {
		return r.Register(ctx)
	}
	return nil // the first registration is yet to come, and tells them
}

// Server is what clients are connected to.
func (b *Broker) Server() *Server { return b.server }

// NameServerAddr is where the name server of this process listens; nil if there
// is none.
func (b *Broker) NameServerAddr() net.Addr { return b.namesAddr }

// Close takes the broker out of name servers, refuses pulls that are held, waits
// as Server.Close does until all else is answered, and ends all that serves.
func (b *Broker) Close(ctx context.Context) error {
	b.stopRoles()
	b.stopSync()
	b.background.Wait()
	if r := b.registrar.Load(); r != nil {
		r.Close()
	}
	if b.pulls != nil {
		b.pulls.Close() // who is held would keep the server open until its time is over
	}
	var err error
	if b.server != nil {
		err = b.server.Close(ctx)
	}
	err = errors.Join(err, b.closeParts())
	if b.names != nil {
		b.names.Close()
	}
	return err
}
