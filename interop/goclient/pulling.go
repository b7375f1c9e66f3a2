package main

import (
	"errors"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// pullPoll polls what a group has, acknowledges it, and comes back.
func pullPoll(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
		return nil, err
	}
	if err := p.send(0, 20); err != nil {
		return nil, err
	}
	poll := func(group string, count int) (map[int]bool, rocketmq.PullConsumer, error) {
		c, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(p.resolver()), consumer.WithGroupName(group), consumer.WithInstance(instance()),
			consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
		if err != nil {
			return nil, nil, err
		}
		if err := c.Subscribe(p.topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}); err != nil {
			return nil, nil, err
		}
		if err := c.Start(); err != nil {
			return nil, nil, err
		}
		p.ends = append(p.ends, c.Shutdown)
		found := map[int]bool{}
		until(func() bool {
			r, err := c.Poll(background, time.Second)
			if errors.Is(err, consumer.ErrNoNewMsg) {
				return false
			}
			for _, m := range r.GetMsgList() {
				found[number(m)] = true
			}
			c.ACK(background, r, consumer.ConsumeSuccess)
			return len(found) >= count
		})
		return found, c, nil
	}
	first, c, err := poll(p.group, 20)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.PersistOffset(background, p.topic), c.Shutdown(), p.send(20, 30)); err != nil {
		return nil, err
	}
	second, _, err := poll(p.group, 10)
	return result{"all": whole(first, 0, 20), "then": whole(second, 20, 30)}, err
}

// pullQueue pulls by hand at each kind of offset.
func pullQueue(p *place) (result, error) {
	if err := p.createTopic(p.topic, 2); err != nil {
		return nil, err
	}
	before := time.Now().Add(-time.Second).UnixMilli()
	if err := p.send(0, 20); err != nil {
		return nil, err
	}
	c, err := p.reader(p.topic, p.group)
	if err != nil {
		return nil, err
	}
	queues, err := p.queues(p.topic)
	if err != nil {
		return nil, err
	}
	until(func() bool { // a broker answers a send before the message is in its queue
		r, err := c.PullFrom(background, queues[0], 9, 4)
		return err == nil && r.MaxOffset == 10
	})
	offsets := []int64{0, 3, 9, 10, 11, 500}
	pulls, failed := make([]result, len(offsets)), make([]error, len(offsets))
	var all sync.WaitGroup
	for i, offset := range offsets {
		all.Go(func() { pulls[i], failed[i] = pullAt(c, *queues[0], offset) }) // the one at the end waits for 20 s
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	byTime, err := c.OffsetForTimestamp(queues[0], before)
	return result{"pulls": pulls, "queues": len(queues), "by_time": byTime}, err
}

func pullAt(c rocketmq.PullConsumer, q primitive.MessageQueue, offset int64) (result, error) {
	r, err := c.PullFrom(background, &q, offset, 4)
	if err != nil {
		return nil, err
	}
	numbers := []int{}
	for _, m := range r.GetMessageExts() {
		numbers = append(numbers, number(m))
	}
	return result{
		"offset": offset, "status": pullStatus(r.Status), "next": r.NextBeginOffset, "min": r.MinOffset, "max": r.MaxOffset, "numbers": numbers,
	}, nil
}

func pullStatus(s primitive.PullStatus) string {
	return map[primitive.PullStatus]string{
		primitive.PullFound: "FOUND", primitive.PullNoNewMsg: "NO_NEW_MSG", primitive.PullNoMsgMatched: "NO_MATCHED_MSG",
		primitive.PullOffsetIllegal: "OFFSET_ILLEGAL", primitive.PullBrokerTimeout: "TIMEOUT",
	}[s]
}
