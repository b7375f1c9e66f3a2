package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/haengine/haengine/remoting"
)

// Groups are the names of all consumer groups, in order, from the brokers' settings.
func (c *Client) Groups(ctx context.Context) ([]string, error) {
	brokers, err := c.Brokers(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i := range brokers {
		err := c.onNode(ctx, &brokers[i], func(addr string) error {
			answer, err := c.call(ctx, addr, &remoting.Command{Code: remoting.CodeGetAllGroups}, "list of groups", 0)
			if err != nil {
				return err
			}
			var list struct {
				Groups map[string]struct{} `json:"subscriptionGroupTable"`
			}
			if err := readJSON(answer.Body, "list of groups", &list); err != nil {
				return err
			}
			for name := range list.Groups {
				names[name] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// ErrNoGroup means that no broker knows a group.
var ErrNoGroup = errors.New("no broker knows it")

// DeleteGroup removes a group, with its offsets, from the masters of all brokers.
// While it has members it is refused: they would make it again.
func (c *Client) DeleteGroup(ctx context.Context, group string) error {
	masters, err := c.masters(ctx)
	if err != nil {
		return err
	}
	for _, addr := range masters {
		var online GroupState
		online.Group = group
		if err := c.groupMembers(ctx, addr, &online); err != nil {
			return err
		}
		if n := len(online.Members); n > 0 {
			return fmt.Errorf("group %s has members (%d), %s the first: stop them before it is deleted", group, n, online.Members[0].ClientID)
		}
	}
	ext := remoting.Ext{{Name: "groupName", Value: group}, {Name: "cleanOffset", Value: "true"}}
	for _, addr := range masters {
		if _, err := c.call(ctx, addr, &remoting.Command{Code: remoting.CodeDeleteGroup, Ext: ext}, "delete group "+group, 0); err != nil {
			return err
		}
	}
	return nil
}

// systemGroups are those that every broker of RocketMQ's has (MixAll,
// SubscriptionGroupManager).
var systemGroups = []string{
	toolsGroup, "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CLIENT_INNER_PRODUCER", "ONS_HTTP_PROXY_GROUP", "SELF_TEST_P_GROUP",
	"CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL", "CID_RMQ_SYS_TRANS", "CID_ONS-HTTP-PROXY",
}

// IsSystemGroup tells groups that are brokers' own.
func IsSystemGroup(name string) bool {
	return slices.Contains(systemGroups, name) || strings.HasPrefix(name, "CID_RMQ_SYS_") || strings.HasPrefix(name, "CID_ONS")
}

// GroupQueue is how far a group is in a queue.
type GroupQueue struct {
	Queue      Queue `json:"-"`
	End        int64 `json:"brokerOffset"`
	Offset     int64 `json:"consumerOffset"`
	LastStored int64 `json:"lastTimestamp"` // when the last message before Offset was stored, ms; 0: there is none
}

// Lag is how many messages are left.
func (q *GroupQueue) Lag() int64 { return max(q.End-q.Offset, 0) }

// GroupMember is one connection of a group.
type GroupMember struct {
	ClientID string `json:"clientId"`
	Address  string `json:"clientAddr"`
	Language string `json:"language"`
	Version  int32  `json:"version"`
}

// GroupState is a group at all brokers.
type GroupState struct {
	Group   string
	Model   string // CLUSTERING or BROADCASTING; empty: nobody is there
	Topics  []string
	Members []GroupMember
	Queues  []GroupQueue
}

// DescribeGroup asks all brokers how far a group is, and who is in it.
func (c *Client) DescribeGroup(ctx context.Context, group string) (*GroupState, error) {
	brokers, err := c.Brokers(ctx)
	if err != nil {
		return nil, err
	}
	g := &GroupState{Group: group}
	for i := range brokers {
		var here GroupState
		err := c.onNode(ctx, &brokers[i], func(addr string) error {
			here = GroupState{Group: group} // a node that did not answer to the end leaves nothing
			if err := c.groupQueues(ctx, addr, &here); err != nil {
				return err
			}
			return c.groupMembers(ctx, addr, &here)
		})
		if err != nil {
			return nil, err
		}
		g.Queues, g.Members, g.Topics = append(g.Queues, here.Queues...), append(g.Members, here.Members...), append(g.Topics, here.Topics...)
		g.Model = cmp.Or(g.Model, here.Model)
	}
	if len(g.Queues) == 0 && len(g.Members) == 0 {
		names, err := c.Groups(ctx)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, group) {
			return nil, fmt.Errorf("group %s: %w", group, ErrNoGroup)
		}
	}
	slices.SortFunc(g.Queues, func(a, b GroupQueue) int { return compareQueues(a.Queue, b.Queue) })
	slices.Sort(g.Topics)
	g.Topics = slices.Compact(g.Topics)
	// A member is connected to every broker.
	slices.SortFunc(g.Members, func(a, b GroupMember) int { return strings.Compare(a.ClientID, b.ClientID) })
	g.Members = slices.CompactFunc(g.Members, func(a, b GroupMember) bool { return a.ClientID == b.ClientID })
	return g, nil
}

func (c *Client) groupQueues(ctx context.Context, addr string, g *GroupState) error {
	what := "progress of group " + g.Group
	answer, err := c.call(ctx, addr, &remoting.Command{Code: remoting.CodeGetConsumeStats, Ext: remoting.Ext{{Name: "consumerGroup", Value: g.Group}}}, what, 0)
	if err != nil {
		return err
	}
	var stats struct {
		Offsets queueTable[GroupQueue] `json:"offsetTable"`
	}
	if err := readJSON(answer.Body, what, &stats); err != nil {
		return err
	}
	for q, s := range stats.Offsets {
		s.Queue = q
		g.Queues = append(g.Queues, s)
	}
	return nil
}

func (c *Client) groupMembers(ctx context.Context, addr string, g *GroupState) error {
	what := "members of group " + g.Group
	answer, err := c.call(ctx, addr, &remoting.Command{Code: remoting.CodeGetConsumerConnections, Ext: remoting.Ext{{Name: "consumerGroup", Value: g.Group}}}, what, 0)
	if codeOf(err) == remoting.ConsumerNotOnline {
		return nil
	}
	if err != nil {
		return err
	}
	var list struct {
		Members []GroupMember `json:"connectionSet"`
		Model   string        `json:"messageModel"`
		Topics  map[string]struct {
			Topic string `json:"topic"`
		} `json:"subscriptionTable"`
	}
	if err := readJSON(answer.Body, what, &list); err != nil {
		return err
	}
	g.Members, g.Model = append(g.Members, list.Members...), list.Model
	g.Topics = slices.AppendSeq(g.Topics, maps.Keys(list.Topics))
	return nil
}

// GroupReset is what a reset does to one queue.
type GroupReset struct {
	Queue   Queue
	From    int64 // where the group is; -1: it has no offset
	To      int64
	address string
}

// ResetPlan is a reset of a group's offsets of a topic.
type ResetPlan struct {
	Group, Topic string
	Position     Position
	Members      []GroupMember // who is told; none: the brokers' offsets are set
	Queues       []GroupReset
	all          bool // queues of the topic
}

// PlanReset finds what a reset would do; nothing is changed. queue is the queue of
// a position that is an offset, and -1 for all of them.
func (c *Client) PlanReset(ctx context.Context, group, topic string, to Position, queue int) (*ResetPlan, error) {
	route, err := c.Route(ctx, topic)
	if err != nil {
		return nil, err
	}
	p := &ResetPlan{Group: group, Topic: topic, Position: to, all: queue < 0}
	var online GroupState
	online.Group = group
	for i := range route.Brokers {
		b := &route.Brokers[i]
		if b.Master() == "" {
			return nil, fmt.Errorf("%w for broker %s: offsets are set at the master", ErrNoMaster, b)
		}
		if err := c.groupMembers(ctx, b.Master(), &online); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(online.Members, func(a, b GroupMember) int { return strings.Compare(a.ClientID, b.ClientID) })
	p.Members = slices.CompactFunc(online.Members, func(a, b GroupMember) bool { return a.ClientID == b.ClientID })
	if len(p.Members) > 0 && queue >= 0 {
		return nil, fmt.Errorf("group %s has members (%d), who can be told a time only, for all queues: stop them to set one queue", group, len(p.Members))
	}
	for _, q := range route.Readable() {
		if queue >= 0 && int(q.QueueID) != queue {
			continue
		}
		r := GroupReset{Queue: q, From: -1, address: route.Broker(q.BrokerName).Master()}
		at, ok, err := c.groupOffset(ctx, r.address, group, q)
		if err != nil {
			return nil, err
		}
		if ok {
			r.From = at
		}
		if r.To, err = c.resolveInside(ctx, r.address, q, to); err != nil {
			return nil, err
		}
		p.Queues = append(p.Queues, r)
	}
	if len(p.Queues) == 0 {
		return nil, fmt.Errorf("topic %s has no queue %d", topic, queue)
	}
	return p, nil
}

// resolveInside is resolve with an error for an offset that the queue does not have.
func (c *Client) resolveInside(ctx context.Context, addr string, q Queue, to Position) (int64, error) {
	at, err := c.resolve(ctx, addr, q, to)
	if err != nil || !to.IsOffset() {
		return at, err
	}
	first, err := c.resolve(ctx, addr, q, First())
	if err != nil {
		return 0, err
	}
	end, err := c.resolve(ctx, addr, q, Last())
	if err == nil && (at < first || at > end) {
		err = fmt.Errorf("topic %s queue %d has offsets %d to %d, not %d", q.Topic, q.QueueID, first, end, at)
	}
	return at, err
}

// Reset does what was planned, broker by broker (INVOKE_BROKER_TO_RESET_OFFSET).
// A broker tells its members, who go to the new offsets when they hear of it, which
// takes as long as a pull is held. Where a broker does it only for members and there
// are none, its offsets are set as a member would.
func (c *Client) Reset(ctx context.Context, p *ResetPlan) error {
	at := int64(-1) // the end
	queue, offset := int64(-1), int64(-1)
	switch p.Position.kind {
	case positionFirst:
		at = 0
	case positionTime:
		at = p.Position.at.UnixMilli()
	case positionOffset:
		queue, offset = int64(p.Queues[0].Queue.QueueID), p.Position.offset
	}
	all := p.Position.kind != positionOffset && p.all
	for _, r := range p.Queues {
		if r.From < 0 && len(p.Members) > 0 { // brokers reset only what is there
			if err := c.commitOffset(ctx, r.address, p.Group, r.Queue, r.To); err != nil {
				return err
			}
		}
	}
	outcomes := map[string]error{}
	for _, r := range p.Queues {
		err, asked := outcomes[r.address]
		if !asked && (all || offset >= 0) {
			request := &remoting.Command{
				Code: remoting.CodeInvokeResetOffset,
				Ext: remoting.Ext{{Name: "topic", Value: p.Topic}, {Name: "group", Value: p.Group}, {Name: "isForce", Value: "true"}}.
					WithInt("timestamp", at).WithInt("queueId", queue).WithInt("offset", offset),
			}
			_, err = c.call(ctx, r.address, request, "reset of group "+p.Group, 0)
			outcomes[r.address] = err
		}
		if err == nil && (all || offset >= 0) {
			continue
		}
		if err != nil && (len(p.Members) > 0 || codeOf(err) < 0) {
			return err
		}
		if err := c.commitOffset(ctx, r.address, p.Group, r.Queue, r.To); err != nil {
			return err
		}
	}
	return nil
}
