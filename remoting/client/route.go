package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/haengine/haengine/remoting"
)

// ErrNoTopic means that no name server knows a topic.
var ErrNoTopic = errors.New("no name server knows this topic")

// ErrNoMaster means that nobody can take messages: a topic has no broker whose
// master is registered.
var ErrNoMaster = errors.New("no master is registered")

// Broker are the nodes of one broker name: a master and its slaves (RocketMQ
// BrokerData). It never changes.
type Broker struct {
	Cluster string           `json:"cluster"`
	Name    string           `json:"brokerName"`
	Nodes   map[int64]string `json:"brokerAddrs"` // HOST:PORT by id; 0 is the master
}

// Master is its address, empty if none is registered.
func (b *Broker) Master() string { return b.Nodes[0] }

// inOrder are the addresses of its nodes, the master's first.
func (b *Broker) inOrder() []string {
	var all []string
	for _, id := range slices.Sorted(maps.Keys(b.Nodes)) {
		all = append(all, b.Nodes[id])
	}
	return all
}

// String names it with its nodes, for people.
func (b *Broker) String() string {
	var nodes []string
	for _, id := range slices.Sorted(maps.Keys(b.Nodes)) {
		kind := "master"
		if id != 0 {
			kind = fmt.Sprint("slave ", id)
		}
		nodes = append(nodes, kind+" "+b.Nodes[id])
	}
	return b.Name + " (" + strings.Join(nodes, ", ") + ")"
}

// TopicQueues says how many queues of a topic a broker has (RocketMQ QueueData).
type TopicQueues struct {
	Broker      string `json:"brokerName"`
	ReadQueues  int32  `json:"readQueueNums"`
	WriteQueues int32  `json:"writeQueueNums"`
	Perm        int32  `json:"perm"` // remoting.PermRead, PermWrite
}

// Route is where a topic is (RocketMQ TopicRouteData). It never changes.
type Route struct {
	Topic   string        `json:"-"`
	Brokers []Broker      `json:"brokerDatas"`
	Queues  []TopicQueues `json:"queueDatas"`
}

// Broker gives a broker by its name; nil if the route has no such.
func (r *Route) Broker(name string) *Broker {
	for i := range r.Brokers {
		if r.Brokers[i].Name == name {
			return &r.Brokers[i]
		}
	}
	return nil
}

// Readable are the queues that can be read, in order.
func (r *Route) Readable() []Queue {
	return r.queues(func(q *TopicQueues) int32 {
		if q.Perm&remoting.PermRead == 0 {
			return 0
		}
		return q.ReadQueues
	})
}

// Writable are the queues that take messages, in order: those of brokers with a
// master.
func (r *Route) Writable() []Queue {
	return r.queues(func(q *TopicQueues) int32 {
		if b := r.Broker(q.Broker); q.Perm&remoting.PermWrite == 0 || b == nil || b.Master() == "" {
			return 0
		}
		return q.WriteQueues
	})
}

func (r *Route) queues(count func(*TopicQueues) int32) (all []Queue) {
	for i := range r.Queues {
		for id := range count(&r.Queues[i]) {
			all = append(all, Queue{BrokerName: r.Queues[i].Broker, QueueID: id, Topic: r.Topic})
		}
	}
	slices.SortFunc(all, compareQueues)
	return all
}

// complete tells whether every broker of the route has a master.
func (r *Route) complete() bool { return r.masters() == len(r.Brokers) }

func (r *Route) masters() (n int) {
	for i := range r.Brokers {
		if r.Brokers[i].Master() != "" {
			n++
		}
	}
	return n
}

// Limits of a route, for whoever registers at a name server may say any number: each
// queue that is read or written costs memory here.
const (
	queuesMax   = 65535   // of a topic at one broker
	routeQueues = 1 << 17 // of a topic at all of them
)

// check refuses a route with more queues than can be worked with.
func (r *Route) check() error {
	all := int64(0)
	for i := range r.Queues {
		q := &r.Queues[i]
		most := max(q.ReadQueues, q.WriteQueues, 0)
		if all += int64(most); most > queuesMax || all > routeQueues {
			return fmt.Errorf("broker %.100s has %d queues to read and %d to write, with those before it %d: at most %d of a broker and %d in all are used",
				q.Broker, q.ReadQueues, q.WriteQueues, all, queuesMax, routeQueues)
		}
	}
	return nil
}

// Route asks where a topic is. A name server that does not know it, or knows no
// master, may know less than another one, which is asked then. The error is
// ErrNoTopic if all that answer do not know it.
func (c *Client) Route(ctx context.Context, topic string) (*Route, error) {
	var best *Route
	err := c.eachName(ctx, &remoting.Command{Code: remoting.CodeGetRouteInfo, Ext: remoting.Ext{{Name: "topic", Value: topic}}}, "route of topic "+topic, func(body []byte, from string) (bool, error) {
		r := &Route{}
		if err := readJSON(body, "route of topic "+topic+" from name server "+from, r); err != nil {
			return false, err
		}
		r.Topic = topic
		if err := r.check(); err != nil {
			return false, fmt.Errorf("route of topic %s from name server %s: %w", topic, from, err)
		}
		if best == nil || r.masters() > best.masters() {
			best = r
		}
		return best.complete(), nil
	})
	if best != nil {
		return best, nil
	}
	if codeOf(err) == remoting.TopicNotExist {
		return nil, fmt.Errorf("topic %s: %w", topic, ErrNoTopic)
	}
	return nil, err
}

// Brokers are all brokers that the name server knows, by name.
func (c *Client) Brokers(ctx context.Context) ([]Broker, error) {
	var info struct {
		Brokers map[string]Broker `json:"brokerAddrTable"`
	}
	if err := c.askNames(ctx, &remoting.Command{Code: remoting.CodeGetClusterInfo}, "list of brokers", &info); err != nil {
		return nil, err
	}
	var all []Broker
	for _, name := range slices.Sorted(maps.Keys(info.Brokers)) {
		if b := info.Brokers[name]; len(b.Nodes) > 0 {
			all = append(all, b)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no broker is registered at name server %s", strings.Join(c.o.NameServers, "; "))
	}
	return all, nil
}
