package remoting

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// NameServerOptions are a name server's settings; zero values mean defaults.
type NameServerOptions struct {
	Expiry time.Duration // silence after which a broker is gone, unless it says otherwise; 0: 120 s (brokerNotActiveTimeout)
	Scan   time.Duration // between looks for those; 0: 5 s (scanNotActiveBrokerInterval)

	// What others may register; a broker of this process always may.
	Brokers int // addresses at most; 0: 1024
	Topics  int // at most, each counting once for each broker that has it; 0: 262,144

	Logger *slog.Logger // nil: slog.Default()
}

// NameServer knows which brokers there are and which topics they have
// (RouteInfoManager). It is the Handler of its codes; brokers of its own process
// call Register. All is in memory, key-value configuration, too. Any goroutine.
type NameServer struct {
	o     NameServerOptions
	work  *lane // what takes long
	stop  chan struct{}
	ended chan struct{}

	mu sync.RWMutex // guards what follows; held for short, no call leaves with it
	// topics are queues by topic and broker name.
	topics  map[string]map[string]Queues
	count   int                     // of Queues in topics
	brokers map[string]*brokerEntry // by broker name; each address is in live, too, under this name
	live    map[string]*liveBroker  // by address, which stands for a process that registers
	peers   map[Peer]struct{}       // whose end we asked to be told of
	kv      map[string]map[string]string
	kvBytes int
	askers  map[Peer]*asker // connections with requests for work
	waiting int64           // bytes of those
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
	masters contest
}

// contest notes when a broker's master has another address than the last one that
// registered. Once is a new master; again and again, two nodes believe to be it.
type contest struct{ last []time.Time }

const (
	contestTimes  = 3 // a new master, and back, is still nothing strange
	contestWithin = 5 * time.Minute
)

// another notes one, and tells whether it is time to warn; it is then begun anew.
func (c *contest) another(now time.Time) bool {
	c.last = append(c.last, now)
	if len(c.last) < contestTimes {
		return false
	}
	warn := now.Sub(c.last[0]) < contestWithin
	c.last = c.last[1:]
	if warn {
		c.last = nil
	}
	return warn
}

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
	s.work = newLane(1, 1, nil)
	go s.scan()
	return s
}

// newNameServer makes one without goroutines: it does not look for silent brokers,
// and Serve is not for it.
func newNameServer(o NameServerOptions) *NameServer {
	o.Expiry = cmp.Or(o.Expiry, 120*time.Second)
	o.Scan = cmp.Or(o.Scan, 5*time.Second)
	o.Brokers = cmp.Or(o.Brokers, 1024)
	o.Topics = cmp.Or(o.Topics, 256<<10)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return &NameServer{
		o: o, stop: make(chan struct{}), ended: make(chan struct{}),
		topics: map[string]map[string]Queues{}, brokers: map[string]*brokerEntry{}, live: map[string]*liveBroker{},
		peers: map[Peer]struct{}{}, kv: map[string]map[string]string{}, askers: map[Peer]*asker{},
	}
}

// Close ends the search for silent brokers, after all that waits is answered. It
// must be called once.
func (s *NameServer) Close() {
	close(s.stop)
	<-s.ended
	s.work.stop()
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
	for addr, l := range s.live {
		if l.peer == nil || now.Sub(l.seen) <= l.timeout {
			continue
		}
		s.o.Logger.Warn("broker is silent and no longer in routes", "broker", l.broker, "id", l.id, "address", addr, "silent", now.Sub(l.seen))
		gone = append(gone, l.peer)
		s.removeLocked(addr)
	}
	s.mu.Unlock()
	for _, p := range gone {
		p.Close(refuse(Idle, "the broker on this connection did not register again in time"))
	}
}

// errOneTopic refuses a broker whose first registration is RocketMQ's form for one
// changed topic of a broker that is known.
var errOneTopic = errors.New("register broker failed: a new broker has one topic, want none or at least two")

// Register takes a broker in or renews it, with all its topics: those that are
// missing stay in routes. A peer of nil is this process. A broker that is refused,
// with errOneTopic or ErrTooMany, changes nothing.
func (s *NameServer) Register(r *Registration, peer Peer) (Registered, error) {
	s.mu.Lock()
	answer, watch, err := s.registerLocked(r, peer)
	s.mu.Unlock()
	if watch {
		peer.OnClose(func() { s.peerClosed(peer) })
	}
	return answer, err
}

func (s *NameServer) registerLocked(r *Registration, peer Peer) (answer Registered, watch bool, err error) {
	b := s.brokers[r.Broker]
	if b == nil {
		b = &brokerEntry{addrs: map[int64]string{}}
	}
	before, known := b.addrs[r.ID]
	moved := known && before != r.Address
	if moved && r.ID == 0 && b.masters.another(time.Now()) {
		s.o.Logger.Warn("two nodes register as the same broker's master: clients go to one or the other; start one of them as the other's slave",
			"broker", r.Broker, "address", r.Address, "other", before)
	}
	if old := s.live[before]; moved && old != nil && old.version.StateVersion > r.Version.StateVersion {
		return Registered{}, false, nil // the one that has the id knows better
	}
	if !known && len(r.Topics) == 1 {
		return Registered{}, false, errOneTopic
	}
	if err := s.roomLocked(r, peer); err != nil {
		return Registered{}, false, err
	}
	if moved {
		delete(s.live, before)
	}
	last := s.live[r.Address]
	if last != nil && last.broker != r.Broker {
		s.removeLocked(r.Address) // it has another name now
		last = nil
	}
	for id, addr := range b.addrs {
		if addr == r.Address && id != r.ID {
			delete(b.addrs, id) // a slave that became master
		}
	}
	s.brokers[r.Broker], b.cluster, b.addrs[r.ID] = b, r.Cluster, r.Address
	if r.ID == 0 || r.MaySubstitute && b.smallest() == r.ID {
		s.takeTopicsLocked(r, last == nil || !known || last.version != r.Version)
	}
	s.live[r.Address] = &liveBroker{
		broker: r.Broker, id: r.ID, peer: peer, seen: time.Now(), timeout: cmp.Or(r.Timeout, s.o.Expiry), version: r.Version, haAddress: r.HAAddress,
	}
	if last == nil {
		s.o.Logger.Info("broker registered", "broker", r.Broker, "cluster", r.Cluster, "id", r.ID, "address", r.Address)
	}
	if r.ID != 0 {
		if master, there := b.addrs[0]; there {
			answer = Registered{MasterAddress: master, MasterHAAddress: s.live[master].haAddress}
		}
	}
	if peer != nil {
		if _, asked := s.peers[peer]; !asked {
			s.peers[peer] = struct{}{}
			watch = true
		}
	}
	return answer, watch, nil
}

// roomLocked refuses what would be too much. Nobody knows who registers.
func (s *NameServer) roomLocked(r *Registration, peer Peer) error {
	if peer == nil {
		return nil
	}
	if s.live[r.Address] == nil && len(s.live) >= s.o.Brokers {
		return fmt.Errorf("%w: there are %d brokers of at most %d", ErrTooMany, len(s.live), s.o.Brokers)
	}
	count := s.count
	for topic := range r.Topics {
		if _, there := s.topics[topic][r.Broker]; !there {
			count++
		}
	}
	if count > s.o.Topics {
		return fmt.Errorf("%w: there would be %d topics of brokers, at most %d may be", ErrTooMany, count, s.o.Topics)
	}
	return nil
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
		_, there := of[r.Broker]
		if changed || !there {
			of[r.Broker] = queues
		}
		if !there {
			s.count++
		}
	}
}

// Unregister removes a broker, if the address has registered under that name.
func (s *NameServer) Unregister(cluster, broker string, id int64, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.live[address]; l == nil || l.broker != broker {
		return
	}
	s.o.Logger.Info("broker unregistered", "broker", broker, "cluster", cluster, "id", id, "address", address)
	s.removeLocked(address)
}

// removeLocked takes an address that is live out of routes, whatever its id, and
// with the last one of a broker name its topics.
func (s *NameServer) removeLocked(address string) {
	broker := s.live[address].broker
	delete(s.live, address)
	b := s.brokers[broker]
	maps.DeleteFunc(b.addrs, func(_ int64, addr string) bool { return addr == address })
	if len(b.addrs) > 0 {
		return
	}
	delete(s.brokers, broker)
	for topic := range s.topics {
		s.forgetLocked(topic, broker)
	}
}

// forgetLocked takes a topic of a broker's out of routes.
func (s *NameServer) forgetLocked(topic, broker string) {
	of := s.topics[topic]
	if _, there := of[broker]; !there {
		return
	}
	delete(of, broker)
	s.count--
	if len(of) == 0 {
		delete(s.topics, topic)
	}
}

// peerClosed removes what registered on a connection that is over: a broker that
// was killed is gone from routes at once.
func (s *NameServer) peerClosed(peer Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, peer)
	for addr, l := range s.live {
		if l.peer == peer {
			s.o.Logger.Warn("broker's connection is over: it is no longer in routes", "broker", l.broker, "id", l.id, "address", addr)
			s.removeLocked(addr)
		}
	}
}

// heartbeat renews a broker that is known.
func (s *NameServer) heartbeat(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.live[address]; l != nil {
		l.seen = time.Now()
	}
}
