package remoting

import (
	"cmp"
	"log/slog"
	"sync"
	"time"
)

// NameServerOptions are a name server's settings; zero values mean defaults.
type NameServerOptions struct {
	Expiry time.Duration // silence after which a broker is gone, unless it says otherwise; 0: 120 s (brokerNotActiveTimeout)
	Scan   time.Duration // between looks for those; 0: 5 s (scanNotActiveBrokerInterval)
	Logger *slog.Logger  // nil: slog.Default()
}

// NameServer knows which brokers there are and which topics they have
// (RouteInfoManager). It is the Handler of its codes; brokers of its own process
// call Register. All is in memory, key-value configuration, too. Any goroutine.
type NameServer struct {
	o     NameServerOptions
	stop  chan struct{}
	ended chan struct{}

	mu sync.RWMutex // guards what follows; held for short, no call leaves with it
	// topics are queues by topic and broker name.
	topics  map[string]map[string]Queues
	brokers map[string]*brokerEntry // by broker name
	live    map[brokerKey]*liveBroker
	peers   map[Peer]struct{} // whose end we asked to be told of
	kv      map[string]map[string]string
}

// Queues are one broker's queues of a topic, as routes tell them (QueueData).
type Queues struct {
	ReadQueues, WriteQueues, Perm, SysFlag int32
}

// Registration is all that a broker tells of itself.
type Registration struct {
	Cluster, Broker string
	ID              int64  // 0: master
	Address         string // HOST:PORT that clients are told
	HAAddress       string // HOST:PORT that slaves are told
	Version         DataVersion
	Topics          map[string]Queues
	// MaySubstitute: without a master the slave with the smallest id gives the
	// topics (enableActingMaster is there, whatever it says).
	MaySubstitute bool
	Timeout       time.Duration // silence after which it is gone; 0: NameServerOptions.Expiry
}

// Registered is what a slave learns from its registration; both are empty as
// long as there is no master, and to a master.
type Registered struct{ MasterAddress, MasterHAAddress string }

type brokerEntry struct {
	cluster string
	addrs   map[int64]string
}

// brokerKey names a process that registers (BrokerAddrInfo).
type brokerKey struct{ cluster, addr string }

type liveBroker struct {
	broker    string
	id        int64
	peer      Peer // nil: it is of this process, and never expires
	seen      time.Time
	timeout   time.Duration
	version   DataVersion
	haAddress string
}

// NewNameServer starts a name server. The caller must Close it.
func NewNameServer(o NameServerOptions) *NameServer {
	s := newNameServer(o)
	go s.scan()
	return s
}

// newNameServer makes one that does not look for silent brokers.
func newNameServer(o NameServerOptions) *NameServer {
	o.Expiry = cmp.Or(o.Expiry, 120*time.Second)
	o.Scan = cmp.Or(o.Scan, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return &NameServer{
		o: o, stop: make(chan struct{}), ended: make(chan struct{}),
		topics: map[string]map[string]Queues{}, brokers: map[string]*brokerEntry{}, live: map[brokerKey]*liveBroker{},
		peers: map[Peer]struct{}{}, kv: map[string]map[string]string{},
	}
}

// Close ends the search for silent brokers. It must be called once.
func (s *NameServer) Close() {
	close(s.stop)
	<-s.ended
}

func (s *NameServer) scan() {
	defer close(s.ended)
	tick := time.NewTicker(s.o.Scan)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-tick.C:
			s.expire(now)
		}
	}
}

// expire removes brokers that were silent for too long, and closes their
// connections.
func (s *NameServer) expire(now time.Time) {
	var gone []Peer
	s.mu.Lock()
	for key, l := range s.live {
		if l.peer == nil || now.Sub(l.seen) <= l.timeout {
			continue
		}
		s.o.Logger.Warn("broker is silent and no longer in routes", "broker", l.broker, "id", l.id, "address", key.addr, "silent", now.Sub(l.seen))
		gone = append(gone, l.peer)
		s.removeLocked(key, l.broker, l.id)
	}
	s.mu.Unlock()
	for _, p := range gone {
		p.Close(refuse(Idle, "the broker on this connection did not register again in time"))
	}
}

// Register takes a broker in or renews it, with all its topics: those that are
// missing stay in routes. A peer of nil is this process. It tells nothing, and
// ok is false, if the broker is new and has exactly one topic: that form is
// RocketMQ's for a single changed topic of a broker that is known.
func (s *NameServer) Register(r *Registration, peer Peer) (answer Registered, ok bool) {
	s.mu.Lock()
	answer, ok, watch := s.registerLocked(r, peer)
	s.mu.Unlock()
	if watch {
		peer.OnClose(func() { s.peerClosed(peer) })
	}
	return answer, ok
}

func (s *NameServer) registerLocked(r *Registration, peer Peer) (answer Registered, ok, watch bool) {
	b := s.brokers[r.Broker]
	isNew := b == nil
	if isNew {
		b = &brokerEntry{addrs: map[int64]string{}}
	}
	before, known := b.addrs[r.ID]
	if known && before != r.Address {
		old := s.live[brokerKey{r.Cluster, before}]
		if old != nil && old.version.StateVersion > r.Version.StateVersion {
			return Registered{}, true, false // the one that is there knows better
		}
		delete(s.live, brokerKey{r.Cluster, before})
	}
	if !known && len(r.Topics) == 1 {
		return Registered{}, false, false
	}
	for id, addr := range b.addrs {
		if addr == r.Address && id != r.ID {
			delete(b.addrs, id) // a slave that became master
		}
	}
	s.brokers[r.Broker], b.cluster, b.addrs[r.ID] = b, r.Cluster, r.Address

	key := brokerKey{r.Cluster, r.Address}
	last := s.live[key]
	if r.ID == 0 || r.MaySubstitute && b.smallest() == r.ID {
		s.takeTopicsLocked(r, last == nil || !known || last.version != r.Version)
	}
	s.live[key] = &liveBroker{
		broker: r.Broker, id: r.ID, peer: peer, seen: time.Now(), timeout: cmp.Or(r.Timeout, s.o.Expiry), version: r.Version, haAddress: r.HAAddress,
	}
	if last == nil {
		s.o.Logger.Info("broker registered", "broker", r.Broker, "cluster", r.Cluster, "id", r.ID, "address", r.Address)
	}
	if r.ID != 0 {
		if master, there := b.addrs[0]; there {
			if l := s.live[brokerKey{r.Cluster, master}]; l != nil {
				answer = Registered{MasterAddress: master, MasterHAAddress: l.haAddress}
			}
		}
	}
	if peer != nil {
		if _, asked := s.peers[peer]; !asked {
			s.peers[peer] = struct{}{}
			watch = true
		}
	}
	return answer, true, watch
}

func (b *brokerEntry) smallest() int64 {
	first := true
	var least int64
	for id := range b.addrs {
		if first || id < least {
			first, least = false, id
		}
	}
	return least
}

// takeTopicsLocked notes a broker's queues: all if they changed, else those that
// it is not known for.
func (s *NameServer) takeTopicsLocked(r *Registration, changed bool) {
	for topic, queues := range r.Topics {
		of := s.topics[topic]
		if of == nil {
			of = map[string]Queues{}
			s.topics[topic] = of
		}
		if _, there := of[r.Broker]; changed || !there {
			of[r.Broker] = queues
		}
	}
}

// Unregister removes a broker.
func (s *NameServer) Unregister(cluster, broker string, id int64, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.Logger.Info("broker unregistered", "broker", broker, "cluster", cluster, "id", id, "address", address)
	s.removeLocked(brokerKey{cluster, address}, broker, id)
}

// removeLocked takes an address out of routes, and with the last one of a broker
// name its topics.
func (s *NameServer) removeLocked(key brokerKey, broker string, id int64) {
	delete(s.live, key)
	b := s.brokers[broker]
	if b == nil || b.addrs[id] != key.addr {
		return // somebody else has the id by now
	}
	delete(b.addrs, id)
	if len(b.addrs) > 0 {
		return
	}
	delete(s.brokers, broker)
	for topic, of := range s.topics {
		delete(of, broker)
		if len(of) == 0 {
			delete(s.topics, topic)
		}
	}
}

// peerClosed removes what registered on a connection that is over: a broker that
// was killed is gone from routes at once.
func (s *NameServer) peerClosed(peer Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, peer)
	for key, l := range s.live {
		if l.peer == peer {
			s.o.Logger.Warn("broker's connection is over: it is no longer in routes", "broker", l.broker, "id", l.id, "address", key.addr)
			s.removeLocked(key, l.broker, l.id)
		}
	}
}

// heartbeat renews a broker that is known.
func (s *NameServer) heartbeat(cluster, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.live[brokerKey{cluster, address}]; l != nil {
		l.seen = time.Now()
	}
}
