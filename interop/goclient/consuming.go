package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

// heard is what the members of a group heard.
type heard struct {
	mu      sync.Mutex
	all     []*primitive.MessageExt
	members map[string]int
}

func (h *heard) as(member string) listener {
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, messages...)
		if h.members == nil {
			h.members = map[string]int{}
		}
		h.members[member] += len(messages)
		return consumer.ConsumeSuccess, nil
	}
}

func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

func (h *heard) of(member string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.members[member]
}

func (h *heard) numbers() map[int]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	set := map[int]bool{}
	for _, m := range h.all {
		set[number(m)] = true
	}
	return set
}

// first is the smallest number heard; -1 if there is none.
func (h *heard) first() int {
	set := h.numbers()
	if len(set) == 0 {
		return -1
	}
	return slices.Min(slices.Collect(maps.Keys(set)))
}

// push starts a push consumer that begins at the first offset.
func (p *place) push(group, tags string, l listener, o ...consumer.Option) (rocketmq.PushConsumer, error) {
	c, err := rocketmq.NewPushConsumer(append([]consumer.Option{
		consumer.WithNsResolver(p.resolver()), consumer.WithGroupName(group), consumer.WithInstance(instance()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerModel(consumer.Clustering),
	}, o...)...)
	if err != nil {
		return nil, err
	}
	if err := c.Subscribe(p.topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tags}, l); err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	p.ends = append(p.ends, c.Shutdown)
	return c, nil
}

// pushGroup has two members share the messages, and one take over all when the
// other leaves.
func pushGroup(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
		return nil, err
	}
	var h heard
	if _, err := p.push(p.group, "*", h.as("first")); err != nil {
		return nil, err
	}
	second, err := p.push(p.group, "*", h.as("second"))
	if err != nil {
		return nil, err
	}
	// The client tells nobody which queues it has: rounds of messages tell when both
	// have half of them.
	rounds, shared := 0, false
	for ; rounds < 60 && !shared; rounds++ {
		a, b := h.of("first"), h.of("second")
		if err := p.send(rounds*4, rounds*4+4); err != nil {
			return nil, err
		}
		until(func() bool { return len(h.numbers()) == rounds*4+4 })
		shared = h.of("first")-a == 2 && h.of("second")-b == 2
		if !shared {
			time.Sleep(500 * time.Millisecond)
		}
	}
	if err := second.Shutdown(); err != nil {
		return nil, err
	}
	before := h.of("second")
	if err := p.send(1000, 1020); err != nil {
		return nil, err
	}
	all := until(func() bool { return len(h.numbers()) == rounds*4+20 })
	return result{"shared": shared, "all": all, "second_after_it_left": h.of("second") - before}, nil
}

func pushBroadcast(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
		return nil, err
	}
	if err := p.send(0, 20); err != nil {
		return nil, err
	}
	var h heard
	for _, member := range []string{"first", "second"} {
		if _, err := p.push(p.group, "*", h.as(member), consumer.WithConsumerModel(consumer.BroadCasting)); err != nil {
			return nil, err
		}
	}
	until(func() bool { return h.count() >= 40 })
	return result{"messages": h.count(), "distinct": len(h.numbers()), "first": h.of("first"), "second": h.of("second")}, nil
}

func pushTags(p *place) (result, error) {
	if err := p.createTopic(p.topic, 2); err != nil {
		return nil, err
	}
	out, err := p.producer()
	if err != nil {
		return nil, err
	}
	queues, err := p.queues(p.topic)
	if err != nil {
		return nil, err
	}
	tags := []string{"a", "b", "c", "Aa", "BB"} // the last two have one hash code
	for n := range 25 {
		m := primitive.NewMessage(p.topic, body(n)).WithTag(tags[n%5])
		m.Queue = queues[n%2]
		if _, err := out.SendSync(background, m); err != nil {
			return nil, err
		}
	}
	r := result{}
	for i, s := range []struct {
		expression string
		want       int
	}{{"a || b", 10}, {"Aa", 5}, {"none", 0}, {"*", 25}} {
		var h heard
		if _, err := p.push(fmt.Sprint(p.group, "-", i), s.expression, h.as("member")); err != nil {
			return nil, err
		}
		until(func() bool { return h.count() >= s.want })
		if s.want == 0 {
			within(silence, func() bool { return h.count() > 0 })
		}
		counts := map[string]int{}
		h.mu.Lock()
		for _, m := range h.all {
			counts[m.GetTags()]++
		}
		h.mu.Unlock()
		r[s.expression] = counts
	}
	return r, nil
}

// pushRetry has messages come three times, and be in the dead-letter topic then.
func pushRetry(p *place) (result, error) {
	if err := p.createTopic(p.topic, 1); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	times := map[int][]int32{}
	if _, err := p.push(p.group, "*", func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range messages {
			times[number(m)] = append(times[number(m)], m.ReconsumeTimes)
		}
		if c, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			c.DelayLevelWhenNextConsume = 1 // 1 s, where the broker delays
		}
		return consumer.ConsumeRetryLater, nil
	}, consumer.WithMaxReconsumeTimes(2)); err != nil {
		return nil, err
	}
	if err := p.send(0, 3); err != nil {
		return nil, err
	}
	dead, err := p.read("%DLQ%"+p.group, 3)
	if err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
	numbers := map[int]bool{}
	for _, m := range dead {
		numbers[number(m)] = true
	}
	for _, all := range times {
		slices.Sort(all)
	}
	return result{"times": maps.Clone(times), "dead": len(dead), "dead_all": whole(numbers, 0, 3)}, nil
}

// settled tells whether a consumer's own offsets are at the end of all its queues.
func settled(c rocketmq.PushConsumer) bool {
	for _, behind := range c.GetOffsetDiffMap() {
		if behind != 0 {
			return false
		}
	}
	return true
}

// pushContinue has a group come back and go on where it stopped.
func pushContinue(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
		return nil, err
	}
	if err := p.send(0, 20); err != nil {
		return nil, err
	}
	var before, after heard
	c, err := p.push(p.group, "*", before.as("member"))
	if err != nil {
		return nil, err
	}
	until(func() bool { return before.count() >= 20 && settled(c) })
	if err := c.Shutdown(); err != nil { // stores its offsets
		return nil, err
	}
	if err := p.send(20, 40); err != nil {
		return nil, err
	}
	if _, err := p.push(p.group, "*", after.as("member")); err != nil {
		return nil, err
	}
	until(func() bool { return len(after.numbers()) >= 20 })
	return result{"before": before.count(), "after": after.count(), "first_after": after.first()}, nil
}

// pushLast has a new group want to begin at the end. Of a topic whose first message
// is in memory still it gets everything: the broker tells it to begin at 0.
func pushLast(p *place) (result, error) {
	if err := p.createTopic(p.topic, 1); err != nil {
		return nil, err
	}
	if err := p.send(0, 20); err != nil {
		return nil, err
	}
	var h heard
	if _, err := p.push(p.group, "*", h.as("member"), consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset)); err != nil {
		return nil, err
	}
	until(func() bool { return len(h.numbers()) == 20 })
	return result{"messages": h.count(), "distinct": len(h.numbers())}, nil
}

// pushTime has a new group want to begin at a time, whose text has whole seconds,
// to the same effect.
func pushTime(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
		return nil, err
	}
	if err := p.send(0, 20); err != nil {
		return nil, err
	}
	time.Sleep(2100 * time.Millisecond)
	at := time.Now().Format("20060102150405")
	time.Sleep(1100 * time.Millisecond)
	if err := p.send(20, 40); err != nil {
		return nil, err
	}
	var h heard
	if _, err := p.push(p.group, "*", h.as("member"), consumer.WithConsumeFromWhere(consumer.ConsumeFromTimestamp), consumer.WithConsumeTimestamp(at)); err != nil {
		return nil, err
	}
	until(func() bool { return len(h.numbers()) == 40 })
	return result{"messages": h.count(), "distinct": len(h.numbers())}, nil
}

// orderlyGroup has the messages of a queue come in their order, whoever has it.
func orderlyGroup(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
		return nil, err
	}
	if err := p.send(0, 40); err != nil {
		return nil, err
	}
	var h heard
	for _, member := range []string{"first", "second"} {
		if _, err := p.push(p.group, "*", h.as(member), consumer.WithConsumerOrder(true)); err != nil {
			return nil, err
		}
	}
	until(func() bool { return len(h.numbers()) >= 40 })
	if err := p.send(40, 80); err != nil {
		return nil, err
	}
	until(func() bool { return len(h.numbers()) >= 80 })
	h.mu.Lock()
	defer h.mu.Unlock()
	last, inOrder := map[int]int{}, true
	for _, m := range h.all {
		if before, ok := last[m.Queue.QueueId]; ok {
			inOrder = inOrder && before < number(m)
		}
		last[m.Queue.QueueId] = number(m)
	}
	return result{"messages": len(h.all), "in_order": inOrder, "queues": len(last)}, nil
}
