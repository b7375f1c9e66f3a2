package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/haengine/haengine/remoting"
)

const (
	balanceInterval = 20 * time.Second // RocketMQ's rebalance.waitInterval
	commitInterval  = 5 * time.Second  // persistConsumerOffsetInterval
)

// join makes the reader a member of its group.
func (r *Reader) join(ctx context.Context) error {
	r.c.mu.Lock()
	if r.c.mu.members[r.o.Group] != nil {
		r.c.mu.Unlock()
		return fmt.Errorf("this client is in group %s already", r.o.Group)
	}
	r.c.mu.members[r.o.Group] = r
	r.c.mu.Unlock()
	if err := r.balance(ctx); err != nil {
		r.leave(context.WithoutCancel(ctx)) // some brokers may have heard of it
		return fmt.Errorf("join group %s: %w", r.o.Group, err)
	}
	r.ended.Go(r.stay)
	return nil
}

// leave tells brokers that the reader is a member no more.
func (r *Reader) leave(ctx context.Context) {
	r.c.mu.Lock()
	delete(r.c.mu.members, r.o.Group)
	r.c.mu.Unlock()
	r.c.leave(ctx, "consumerGroup", r.o.Group)
}

// stay shares out queues again when members come and go, and stores offsets.
func (r *Reader) stay() {
	balance, commit := time.NewTicker(balanceInterval), time.NewTicker(commitInterval)
	defer balance.Stop()
	defer commit.Stop()
	for {
		var err error
		select {
		case <-r.ctx.Done():
			return
		case <-r.wake:
			err = r.balance(r.ctx)
		case <-balance.C:
			err = r.balance(r.ctx)
		case <-commit.C:
			err = r.commit(r.ctx, false)
		}
		if err != nil && r.ctx.Err() == nil {
			r.c.o.Logger.Warn("in a group; trying again", "group", r.o.Group, "error", err)
		}
	}
}

// poke has the group balanced; from any goroutine.
func (r *Reader) poke() { signal(r.wake) }

// heartbeat is what brokers are told of the member.
func (r *Reader) heartbeat() groupHeartbeat {
	from := "CONSUME_FROM_FIRST_OFFSET"
	switch r.o.From.kind {
	case positionLast:
		from = "CONSUME_FROM_LAST_OFFSET"
	case positionTime:
		from = "CONSUME_FROM_TIMESTAMP"
	}
	return groupHeartbeat{
		groupName: groupName{r.o.Group}, Type: "CONSUME_PASSIVELY", Model: "CLUSTERING", From: from, Subscriptions: r.subscriptions(),
	}
}

// balance tells all brokers of the member, learns from one who the others are, and
// takes its share of each topic's queues (RebalanceImpl).
func (r *Reader) balance(ctx context.Context) error {
	r.refresh(ctx, routeInterval)
	retry := remoting.RetryPrefix + r.o.Group
	r.mu.Lock()
	_, known := r.mu.routes[retry]
	route := r.mu.routes[r.o.Topic]
	r.mu.Unlock()
	var errs []error
	beats := 0
	for i := range route.Brokers {
		for _, addr := range route.Brokers[i].Nodes {
			if err := r.c.beat(ctx, addr); err != nil {
				errs = append(errs, err)
				continue
			}
			beats++
		}
	}
	if beats == 0 {
		return errors.Join(errs...)
	}
	if !known { // the heartbeat has made it
		if route, err := r.c.Route(ctx, retry); err == nil {
			r.mu.Lock()
			r.mu.routes[retry] = route
			r.mu.Unlock()
		}
	}
	r.mu.Lock()
	routes := maps.Clone(r.mu.routes)
	r.mu.Unlock()
	mine := map[Queue]bool{}
	for _, route := range routes {
		members, err := r.members(ctx, route)
		if err != nil {
			return err
		}
		for _, q := range allocate(route.Readable(), members, r.c.o.ID) {
			mine[q] = true
		}
	}
	return r.assign(ctx, mine)
}

// members are the ids of the group's members, as a broker of the topic knows them.
func (r *Reader) members(ctx context.Context, route *Route) ([]string, error) {
	var last error
	for i := range route.Brokers {
		nodes := route.Brokers[i].Nodes
		for _, id := range slices.Sorted(maps.Keys(nodes)) {
			request := &remoting.Command{Code: remoting.CodeGetConsumerList, Ext: remoting.Ext{{Name: "consumerGroup", Value: r.o.Group}}}
			answer, err := r.c.call(ctx, nodes[id], request, "members of group "+r.o.Group, 0)
			if err != nil {
				last = err
				continue
			}
			var list struct {
				IDs []string `json:"consumerIdList"`
			}
			if err := readJSON(answer.Body, "members of group "+r.o.Group, &list); err != nil {
				return nil, err
			}
			slices.Sort(list.IDs)
			return slices.Compact(list.IDs), nil
		}
	}
	return nil, last
}

// allocate gives a member's queues: consecutive ones, as many as any other's or one
// more (AllocateMessageQueueAveragely). Both lists are sorted.
func allocate(queues []Queue, members []string, own string) []Queue {
	at := slices.Index(members, own)
	if at < 0 {
		return nil
	}
	share, more := len(queues)/len(members), len(queues)%len(members)
	from := at*share + min(at, more)
	if at < more {
		share++
	}
	return queues[from : from+share]
}

// assign begins the queues that are new, and gives up those that are another's,
// after it has stored how far they are.
func (r *Reader) assign(ctx context.Context, mine map[Queue]bool) error {
	r.mu.Lock()
	var gone []*stint
	var fresh []Queue
	for q, s := range r.mu.stints {
		if !mine[q] {
			gone = append(gone, s)
			delete(r.mu.stints, q)
		}
	}
	for q := range mine {
		if r.mu.stints[q] == nil {
			fresh = append(fresh, q)
		}
	}
	r.mu.joined = true
	r.mu.Unlock()
	var errs []error
	for _, s := range gone {
		s.cancel()
		if err := r.store(ctx, s); !errors.Is(err, ErrSlaveCommit) { // there the next member reads, too
			errs = append(errs, err)
		}
	}
	for _, q := range fresh {
		from := r.o.From
		if q.Topic != r.o.Topic { // the group's retry topic is its own, and read from its beginning
			from = First()
		}
		r.begin(q, from, -1, nil)
	}
	signal(r.ready)
	return errors.Join(errs...)
}

// commit stores how far the group is in all queues of this member.
func (r *Reader) commit(ctx context.Context, last bool) error {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.mu.stints))
	r.mu.Unlock()
	var errs []error
	var slave error
	for _, s := range all {
		err := r.store(ctx, s)
		if errors.Is(err, ErrSlaveCommit) {
			if slave = err; last {
				continue // it is said once, not for every queue
			}
			err = nil // while it goes on, the master may come back and be told
		}
		if err != nil {
			errs = append(errs, err)
			if !last {
				break
			}
		}
	}
	if last {
		errs = append(errs, slave)
	}
	return errors.Join(errs...)
}

// store stores how far a queue is, again if nothing has changed: a master that
// crashed has lost the last seconds, and what a slave was told while there was no
// master is replaced by what the master has.
func (r *Reader) store(ctx context.Context, s *stint) error {
	r.mu.Lock()
	at, some := s.consumed, s.consumed > s.begun
	r.mu.Unlock()
	if at < 0 {
		return nil
	}
	addr, id, err := r.node(ctx, s.queue, 0)
	if err != nil {
		return err
	}
	err = r.c.commitOffset(ctx, addr, r.o.Group, s.queue, at)
	r.answered(addr, err)
	if err == nil && id != 0 && some {
		err = fmt.Errorf("slave %s has taken %w", addr, ErrSlaveCommit)
	}
	return err
}

// ErrSlaveCommit means that a group's offsets are at a slave only, because no master
// answers. They count when it is promoted, and are gone when the old master is back:
// what was read since then comes again.
var ErrSlaveCommit = errors.New("the group's offsets, and no master has: unless it is promoted, the messages come again")

// told takes an administrator's new offsets: the broker has sent them to all
// members, and each goes there with the queues that it has (ResetOffsetBody). On the
// goroutine of a connection.
func (r *Reader) told(request *remoting.Request) {
	offsets, err := resetOffsets(request.Body)
	if err != nil {
		r.c.o.Logger.Warn("a reset of offsets cannot be read", "group", r.o.Group, "error", err)
		return
	}
	for q, offset := range offsets {
		r.mu.Lock()
		s := r.mu.stints[q]
		r.mu.Unlock()
		if s == nil {
			continue
		}
		r.begin(q, s.position, offset, s)
		r.c.o.Logger.Info("an administrator has set the group's offset", "group", r.o.Group, "topic", q.Topic, "queue", q.QueueID, "to_offset", offset)
	}
}

// resetOffsets reads a table of queues, or the list of them that is sent to clients
// of other languages.
func resetOffsets(body []byte) (map[Queue]int64, error) {
	text := plainJSON(body)
	var table struct {
		Offsets queueTable[int64] `json:"offsetTable"`
	}
	if err := json.Unmarshal(text, &table); err == nil {
		return table.Offsets, nil
	}
	var list struct {
		Offsets []struct {
			Queue
			Offset int64 `json:"offset"`
		} `json:"offsetTable"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	offsets := map[Queue]int64{}
	for _, o := range list.Offsets {
		offsets[o.Queue] = o.Offset
	}
	return offsets, nil
}
