package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const sendCount = 20

// sent is what a producer was told, to be compared with what stands in the topic.
type sent struct {
	mu       sync.Mutex
	status   map[string]int
	offsets  map[int][]int64 // by queue
	ids      map[string]bool // where the messages are, as the broker says
	complete bool            // every answer had what it has to have
}

func newSent() *sent {
	return &sent{status: map[string]int{}, offsets: map[int][]int64{}, ids: map[string]bool{}, complete: true}
}

func (s *sent) answer(r *primitive.SendResult, err error, messages int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.status[failure(err)] += messages
		return
	}
	s.status[statusName(r.Status)] += messages
	for i := range messages {
		s.offsets[r.MessageQueue.QueueId] = append(s.offsets[r.MessageQueue.QueueId], r.QueueOffset+int64(i))
	}
	all := strings.Split(r.OffsetMsgID, ",")
	s.complete = s.complete && len(all) == messages && r.MsgID != ""
	for _, id := range all {
		s.complete = s.complete && len(id) == 32 && !s.ids[id]
		s.ids[id] = true
	}
}

func statusName(s primitive.SendStatus) string {
	return [...]string{"SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE", "UNKNOWN"}[s]
}

func (s *sent) answers() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.status {
		n += c
	}
	return n
}

// result reads the topic and compares: the messages [0, sendCount), each once, at
// the offsets that were told.
func (s *sent) result(p *place) (result, error) {
	found, err := p.read(p.topic, sendCount)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored, distinct, unique := map[int][]int64{}, map[int]bool{}, map[string]bool{}
	identified := true
	for _, m := range found {
		stored[m.Queue.QueueId] = append(stored[m.Queue.QueueId], m.QueueOffset)
		distinct[number(m)] = true
		unique[m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex)] = true
		identified = identified && (len(s.ids) == 0 || s.ids[m.OffsetMsgId])
	}
	dense := true
	for _, offsets := range stored {
		slices.Sort(offsets)
		dense = dense && offsets[0] == 0 && offsets[len(offsets)-1] == int64(len(offsets)-1)
	}
	for _, offsets := range s.offsets {
		slices.Sort(offsets)
	}
	return result{
		"status": s.status, "answers_complete": s.complete, "stored": len(found), "bodies_equal": whole(distinct, 0, sendCount), "offsets_dense": dense,
		"offsets_as_told": len(s.offsets) == 0 || maps.EqualFunc(s.offsets, stored, slices.Equal[[]int64]), "ids_as_told": identified, "distinct_ids": len(unique),
	}, nil
}

// whole tells whether a set has just the numbers in [from, to).
func whole(set map[int]bool, from, to int) bool {
	for n := from; n < to; n++ {
		if !set[n] {
			return false
		}
	}
	return len(set) == to-from
}

// sendSync sends to a topic that the first send makes.
func sendSync(p *place) (result, error) {
	out, err := p.newProducer(p.group+"-producer", producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	if err != nil {
		return nil, err
	}
	p.ends = append(p.ends, out.Shutdown)
	s := newSent()
	for n := range sendCount {
		r, err := out.SendSync(background, p.message(n))
		s.answer(r, err, 1)
	}
	return s.result(p)
}

func sendAsync(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
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
	s := newSent()
	for n := range sendCount {
		m := p.message(n)
		m.Queue = queues[n%len(queues)]
		if err := out.SendAsync(background, func(_ context.Context, r *primitive.SendResult, err error) { s.answer(r, err, 1) }, m); err != nil {
			return nil, err
		}
	}
	until(func() bool { return s.answers() == sendCount })
	return s.result(p)
}

func sendOneWay(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
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
	for n := range sendCount {
		m := p.message(n)
		m.Queue = queues[n%len(queues)]
		if err := out.SendOneWay(background, m); err != nil {
			return nil, err
		}
	}
	return newSent().result(p)
}

func sendBatch(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
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
	s := newSent()
	for from := 0; from < sendCount; from += 10 {
		var batch []*primitive.Message
		for n := from; n < from+10; n++ {
			m := p.message(n)
			m.Queue = queues[from/10]
			batch = append(batch, m)
		}
		r, err := out.SendSync(background, batch...)
		s.answer(r, err, 10)
	}
	return s.result(p)
}

// sendOrderly has messages of one key go to one queue, in their order.
func sendOrderly(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
		return nil, err
	}
	out, err := p.newProducer(p.group+"-producer", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return nil, err
	}
	p.ends = append(p.ends, out.Shutdown)
	s := newSent()
	for n := range sendCount {
		m := p.message(n)
		m.WithShardingKey(fmt.Sprint("key ", n%5))
		r, err := out.SendSync(background, m)
		s.answer(r, err, 1)
	}
	r, err := s.result(p)
	if err != nil {
		return nil, err
	}
	found, err := p.read(p.topic, sendCount)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *primitive.MessageExt) int { return int(a.QueueOffset - b.QueueOffset) })
	keys, queues, last := map[string]int{}, map[string]int{}, map[string]int{}
	inOrder := true
	for _, m := range found {
		key := m.GetShardingKey()
		if q, ok := queues[key]; ok {
			inOrder = inOrder && q == m.Queue.QueueId && last[key] < number(m)
		}
		queues[key], last[key] = m.Queue.QueueId, number(m)
		keys[key]++
	}
	r["keys"], r["in_order"] = keys, inOrder
	return r, nil
}

func sendCompressed(p *place) (result, error) {
	if err := p.createTopic(p.topic, 1); err != nil {
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
	noise := make([]byte, 300_000)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise)
	bodies := [][]byte{bytes.Repeat([]byte("a line that comes again and again\n"), 10_000), noise, {0}}
	for _, b := range bodies {
		m := primitive.NewMessage(p.topic, b)
		m.Queue = queues[0]
		if _, err := out.SendSync(background, m); err != nil {
			return nil, err
		}
	}
	found, err := p.read(p.topic, len(bodies))
	if err != nil {
		return nil, err
	}
	var messages []result
	for _, m := range found {
		b := bodies[m.QueueOffset]
		messages = append(messages, result{"smaller": int(m.StoreSize) < len(b), "equal": bytes.Equal(b, m.Body), "sys_flag": m.SysFlag})
	}
	return result{"messages": messages}, nil
}

func sendProperties(p *place) (result, error) {
	if err := p.createTopic(p.topic, 1); err != nil {
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
	m := primitive.NewMessage(p.topic, body(0)).WithTag("tag").WithKeys([]string{"one", "two"})
	m.WithProperty("plain", "value")
	m.WithProperty("Unicode ключ", "日本語 😀 = & ; ,")
	m.WithProperty("long", strings.Repeat("x", 20_000))
	m.Flag, m.Queue = 7, queues[0]
	if _, err := out.SendSync(background, m); err != nil {
		return nil, err
	}
	found, err := p.read(p.topic, 1)
	if err != nil {
		return nil, err
	}
	one := found[0]
	return result{
		"topic": one.Topic == p.topic, "tags": one.GetTags(), "keys": one.GetKeys(), "flag": one.Flag, "plain": one.GetProperty("plain"),
		"unicode": one.GetProperty("Unicode ключ"), "long": len(one.GetProperty("long")), "names": slices.Sorted(maps.Keys(one.GetProperties())),
		"reconsume_times": one.ReconsumeTimes, "messages": len(found),
	}, nil
}

// sendRefused sends what every broker says no to.
func sendRefused(p *place) (result, error) {
	if err := p.createTopic(p.topic, 4); err != nil {
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
	try := func(m *primitive.Message, queue int) string {
		m.Queue = &primitive.MessageQueue{Topic: m.Topic, BrokerName: queues[0].BrokerName, QueueId: queue}
		_, err := out.SendSync(background, m)
		return failure(err)
	}
	noise := make([]byte, 5<<20)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(noise)
	many := p.message(0)
	many.WithProperty("many", strings.Repeat("x", 40_000))
	r := result{
		"body_too_large": try(primitive.NewMessage(p.topic, noise), 0), "properties_too_long": try(many, 0), "queue_beyond": try(p.message(0), 99),
	}
	return p.nothing(r)
}

// sendUnsupported sends what RocketMQ takes and haengine does not yet.
func sendUnsupported(p *place) (result, error) {
	if err := p.createTopic(p.topic, 1); err != nil {
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
	m := p.message(0).WithDelayTimeLevel(1)
	m.Queue = queues[0]
	_, err = out.SendSync(background, m)
	r := result{"delayed": failure(err)}
	return p.nothing(r)
}

// nothing adds how many messages are in a topic that none was meant to be stored in:
// one that is sent now tells.
func (p *place) nothing(r result) (result, error) {
	if err := p.send(0, 1); err != nil {
		return nil, err
	}
	found, err := p.read(p.topic, 1)
	r["stored"] = len(found) - 1
	return r, err
}
