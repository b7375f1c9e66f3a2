package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	firstPart = 20
	allParts  = 60
)

// prepared is what slavePrepare left running, by name servers and topic.
var prepared sync.Map

type standing struct {
	running rocketmq.PushConsumer
	heard   *heard
	reader  rocketmq.PullConsumer
	queues  []*primitive.MessageQueue
	out     rocketmq.Producer
}

func (p *place) key() string { return fmt.Sprint(p.servers, p.topic) }

func (p *place) prepared() (*standing, error) {
	s, ok := prepared.Load(p.key())
	if !ok {
		return nil, fmt.Errorf("slave-prepare was not run for %s", p.topic)
	}
	return s.(*standing), nil
}

// slavePrepare leaves a group running that has part of the messages.
func slavePrepare(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
		return nil, err
	}
	if err := p.send(0, firstPart); err != nil {
		return nil, err
	}
	stays := newPlace(p.cluster, p.topic) // what it opens does not end with this scenario
	s := &standing{heard: &heard{}}
	var err error
	if s.running, err = stays.push(p.group+"-running", "*", s.heard.as("member")); err != nil {
		return nil, err
	}
	if s.reader, err = stays.reader(p.topic, p.group+"-pull"); err != nil {
		return nil, err
	}
	if s.out, err = p.newProducer(p.group + "-producer"); err != nil {
		return nil, err
	}
	if s.queues, err = p.queues(p.topic); err != nil {
		return nil, err
	}
	all := until(func() bool { return s.heard.count() >= firstPart })
	s.running.Suspend()
	got := result{"heard": all, "distinct": len(s.heard.numbers())}
	// Pulls that wait already end with the next message: one for each queue, and the rest is left to
	// read. A queue without such a pull costs some seconds, and no more.
	next := firstPart + len(s.queues)
	if err := p.send(firstPart, next); err != nil {
		return nil, err
	}
	within(silence, func() bool { return s.heard.count() >= next })
	prepared.Store(p.key(), s)
	return got, p.send(next, allParts)
}

// slaveRunning has the group that was running go on at the slave.
func slaveRunning(p *place) (result, error) {
	s, err := p.prepared()
	if err != nil {
		return nil, err
	}
	before := s.heard.count()
	s.running.Resume()
	until(func() bool { return len(s.heard.numbers()) >= allParts })
	// A commit needs the master: what has been read may come twice.
	return result{"distinct": len(s.heard.numbers()), "some_from_slave": s.heard.count() > before}, s.running.Shutdown()
}

// slavePush starts a consumer after the master is gone: it asks the master for its
// offsets, and gets nothing.
func slavePush(p *place) (result, error) {
	var h heard
	_, err := p.push(p.group+"-new", "*", h.as("member"))
	if err == nil {
		within(silence, func() bool { return h.count() > 0 })
	}
	return result{"start": failure(err), "messages": h.count()}, nil
}

// slavePull pulls by hand with a consumer that was there before.
func slavePull(p *place) (result, error) {
	s, err := p.prepared()
	if err != nil {
		return nil, err
	}
	found, offsets := map[int]bool{}, map[int]int64{}
	var last error
	within(90*time.Second, func() bool { // it looks for routes each 30 s
		for _, q := range s.queues {
			r, err := s.reader.PullFrom(background, q, offsets[q.QueueId], 32)
			if err != nil {
				last = err
				continue
			}
			if r.Status == primitive.PullFound {
				for _, m := range r.GetMessageExts() {
					found[number(m)] = true
				}
			}
			offsets[q.QueueId] = r.NextBeginOffset
		}
		return len(found) >= allParts
	})
	if len(found) < allParts {
		return result{"distinct": len(found), "failure": failure(last)}, nil
	}
	return result{"distinct": len(found)}, nil
}

// slaveSend sends when there is no master.
func slaveSend(p *place) (result, error) {
	s, err := p.prepared()
	if err != nil {
		return nil, err
	}
	fails := func(out rocketmq.Producer, topic string) bool {
		m := primitive.NewMessage(topic, body(1000))
		m.Queue = &primitive.MessageQueue{Topic: topic, BrokerName: s.queues[0].BrokerName, QueueId: 0}
		_, err := out.SendSync(background, m)
		return err != nil
	}
	fresh, err := p.newProducer(p.group + "-late")
	if err != nil {
		return nil, err
	}
	return result{"known": fails(s.out, p.topic), "fresh": fails(fresh, p.topic), "new_topic": fails(fresh, p.topic+"-new")}, errors.Join(s.out.Shutdown(), fresh.Shutdown())
}
