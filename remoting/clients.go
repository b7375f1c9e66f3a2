package remoting

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// ClientsOptions are the settings of Clients. Groups and Topics must be given; a
// zero limit is its default.
type ClientsOptions struct {
	Groups *Groups
	Topics *Topics
	Master func() bool   // false: no topic is made here, the master's are followed; nil: always true
	Expiry time.Duration // after a client's last heartbeat; 0: 120 s

	Clients         int // connections that send heartbeats; 0: 65536
	GroupsPerClient int // of producers and consumers; 0: 256
	TopicsPerGroup  int // subscriptions of a group; 0: 1024
	HeartbeatBytes  int // of a heartbeat's body; 0: 1 MiB
	HeldBytes       int // of the largest heartbeats of all clients together; 0: 256 MiB

	Logger *slog.Logger
	Now    func() time.Time // nil: time.Now
}

func (o *ClientsOptions) setDefaults() {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Clients, 65536)
	def(&o.GroupsPerClient, 256)
	def(&o.TopicsPerGroup, 1024)
	def(&o.HeartbeatBytes, 1<<20)
	def(&o.HeldBytes, 256<<20)
	if o.Expiry == 0 {
		o.Expiry = 120 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Clients are the producers and consumers that send heartbeats to this broker,
// and what the consumers want (ClientManageProcessor, ConsumerManager,
// ProducerManager). A member is a connection, as in RocketMQ: it ends with it,
// on request, or when no heartbeat comes for Expiry. Any goroutine.
//
// One goroutine ends what has expired and tells the members of a group that it
// has changed: several changes at once are told once.
type Clients struct {
	o  ClientsOptions
	mu struct {
		sync.RWMutex
		peers     map[Peer]*client
		consumers map[string]*consumerGroup
		producers map[string]map[Peer]*client
		changed   map[string]bool // groups to tell
		held      int             // bytes of heartbeats
	}
	wake chan struct{} // capacity 1: a group has changed
	stop chan struct{}
	done chan struct{}
}

// client is one connection; under the lock.
type client struct {
	peer      Peer
	id        string
	language  string
	version   int32
	seen      time.Time
	held      int             // bytes of its largest heartbeat: about what is kept of it
	consumers map[string]bool // groups
	producers map[string]bool
}

// consumerGroup is a group with members; under the lock.
type consumerGroup struct {
	members       map[Peer]*client
	subscriptions map[string]subscribed // by topic
	kind          string                // CONSUME_PASSIVELY or another
	model         string                // CLUSTERING or BROADCASTING
	from          string                // CONSUME_FROM_LAST_OFFSET or another
}

type subscribed struct {
	Subscription
	client string // whose heartbeat it came with
}

// NewClients begins to keep clients. The caller must Close it.
func NewClients(o ClientsOptions) *Clients {
	o.setDefaults()
	c := &Clients{o: o, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	c.mu.peers = map[Peer]*client{}
	c.mu.consumers = map[string]*consumerGroup{}
	c.mu.producers = map[string]map[Peer]*client{}
	c.mu.changed = map[string]bool{}
	go c.run()
	return c
}

// Close ends the goroutine. The clients stay to be looked at.
func (c *Clients) Close() {
	close(c.stop)
	<-c.done
}

// scanInterval is how often expired clients are looked for (ClientHousekeepingService).
const scanInterval = 10 * time.Second

func (c *Clients) run() {
	defer close(c.done)
	tick := time.NewTicker(scanInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.expire()
		case <-c.wake:
			c.tell()
		case <-c.stop:
			return
		}
	}
}

// expire ends the clients that have not been heard of, and their connections.
func (c *Clients) expire() {
	now := c.o.Now()
	var over []*client
	c.mu.Lock()
	for _, m := range c.mu.peers {
		if now.Sub(m.seen) > c.o.Expiry && len(m.consumers)+len(m.producers) > 0 {
			c.endLocked(m)
			over = append(over, m)
		}
	}
	c.mu.Unlock()
	for _, m := range over {
		m.peer.Close(fmt.Errorf("client %s has sent no heartbeat for %v", m.id, c.o.Expiry))
	}
}

// tell sends NOTIFY_CONSUMER_IDS_CHANGED to the members of the groups that have
// changed, unless the group's settings or broadcasting make it pointless.
func (c *Clients) tell() {
	c.mu.Lock()
	changed := c.mu.changed
	c.mu.changed = map[string]bool{}
	c.mu.Unlock()
	for group := range changed {
		if config, ok := c.o.Groups.Peek(group); ok && !config.NotifyConsumersChanged {
			continue
		}
		for _, p := range c.listeners(group) {
			p.Push(&Command{Code: CodeNotifyConsumersChanged, Ext: Ext{{"consumerGroup", group}}})
		}
	}
}

// listeners are the connections of a group that balances its queues.
func (c *Clients) listeners(group string) []Peer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	g := c.mu.consumers[group]
	if g == nil || g.model == broadcasting {
		return nil
	}
	return slices.Collect(maps.Keys(g.members))
}

// TellMembers sends a request that is not answered to all connections of a
// consumer group, and tells how many there are.
func (c *Clients) TellMembers(group string, request Command) int {
	c.mu.RLock()
	var peers []Peer
	if g := c.mu.consumers[group]; g != nil {
		peers = slices.Collect(maps.Keys(g.members))
	}
	c.mu.RUnlock()
	for _, p := range peers {
		one := request // a peer numbers it
		p.Push(&one)
	}
	return len(peers)
}

// changedLocked has the goroutine tell a group's members.
func (c *Clients) changedLocked(group string) {
	c.mu.changed[group] = true
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// endLocked removes a client from everything.
func (c *Clients) endLocked(m *client) {
	for group := range m.consumers {
		c.leaveConsumersLocked(m, group)
	}
	for group := range m.producers {
		c.leaveProducersLocked(m, group)
	}
	delete(c.mu.peers, m.peer)
	c.mu.held -= m.held
}

func (c *Clients) leaveConsumersLocked(m *client, group string) {
	delete(m.consumers, group)
	g := c.mu.consumers[group]
	if g == nil {
		return
	}
	delete(g.members, m.peer)
	if len(g.members) == 0 {
		delete(c.mu.consumers, group)
	}
	c.changedLocked(group)
}

func (c *Clients) leaveProducersLocked(m *client, group string) {
	delete(m.producers, group)
	delete(c.mu.producers[group], m.peer)
	if len(c.mu.producers[group]) == 0 {
		delete(c.mu.producers, group)
	}
}

// gone ends a client whose connection is over.
func (c *Clients) gone(p Peer) {
	c.mu.Lock()
	if m := c.mu.peers[p]; m != nil {
		c.endLocked(m)
	}
	c.mu.Unlock()
}

// Members gives the ids of a group's consumers, each once, in order.
func (c *Clients) Members(group string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	g := c.mu.consumers[group]
	if g == nil {
		return nil
	}
	ids := make([]string, 0, len(g.members))
	for _, m := range g.members {
		ids = append(ids, m.id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Subscription gives what a group wants of a topic; false if the group has no
// members or does not subscribe to it.
func (c *Clients) Subscription(group, topic string) (Subscription, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	g := c.mu.consumers[group]
	if g == nil {
		return Subscription{}, false
	}
	s, ok := g.subscriptions[topic]
	return s.Subscription, ok
}

// subscription is Subscription, and whether the group's members broadcast, even if
// they do not subscribe to the topic.
func (c *Clients) subscription(group, topic string) (s Subscription, broadcast, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	g := c.mu.consumers[group]
	if g == nil {
		return Subscription{}, false, false
	}
	found, ok := g.subscriptions[topic]
	return found.Subscription, g.model == broadcasting, ok
}

// Subscribers gives the groups with members that subscribe to a topic, in order.
func (c *Clients) Subscribers(topic string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var groups []string
	for name, g := range c.mu.consumers {
		if _, ok := g.subscriptions[topic]; ok {
			groups = append(groups, name)
		}
	}
	slices.Sort(groups)
	return groups
}

// ConsumerGroup is a group as it is now, for administrators.
type ConsumerGroup struct {
	Type, Model, From string
	Connections       []ConsumerConnection
	Subscriptions     []Subscription
}

// ConsumerConnection is one member.
type ConsumerConnection struct {
	ClientID, Address, Language string
	Version                     int32
}

// Consumers gives a group's members and subscriptions; false if nobody is there.
func (c *Clients) Consumers(group string) (ConsumerGroup, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	g := c.mu.consumers[group]
	if g == nil {
		return ConsumerGroup{}, false
	}
	now := ConsumerGroup{Type: g.kind, Model: g.model, From: g.from}
	for _, m := range g.members {
		now.Connections = append(now.Connections, ConsumerConnection{m.id, m.peer.RemoteAddr().String(), m.language, m.version})
	}
	for _, topic := range slices.Sorted(maps.Keys(g.subscriptions)) {
		now.Subscriptions = append(now.Subscriptions, g.subscriptions[topic].Subscription)
	}
	slices.SortFunc(now.Connections, func(a, b ConsumerConnection) int {
		if a.ClientID+a.Address < b.ClientID+b.Address {
			return -1
		}
		return 1
	})
	return now, true
}
