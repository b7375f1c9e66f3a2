package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/haengine/haengine/remoting"
)

// stint is the reading of one queue, from when a reader gets it until it gives it
// up. Its goroutine pulls, at most two answers ahead of what the reader has taken.
type stint struct {
	r      *Reader
	queue  Queue
	ctx    context.Context
	cancel context.CancelFunc

	position Position // where it begins, unless the group has an offset
	next     int64    // its goroutine's: where to pull next; -1: not known yet
	prefer   int64    // the node that the broker suggested
	batches  chan batch

	// The reader's, under its lock.
	heads    []*Received
	seen     int64 // up to where the queue was looked at
	known    bool  // end is known
	begun    int64 // where it was begun
	end      int64 // of the queue when it was begun
	waits    bool  // it makes no progress, and others need not wait for it
	over     bool
	failed   error
	out      int   // messages that were given and are not consumed
	consumed int64 // up to where messages were dealt with; -1: none was
}

// batch is an answer to a pull: messages, and where the queue goes on.
type batch struct {
	messages []*Received
	next     int64
	over     bool // it was the last
}

const (
	pullSuspend     = 15 * time.Second // RocketMQ's brokerSuspendMaxTimeMillis of push consumers
	pullTimeout     = 30 * time.Second // consumerTimeoutMillisWhenSuspend: brokers may be 5 s late
	pullMessages    = 32
	flagSuspend     = 2
	flagSubscribed  = 4
	warnAfter       = 3 * time.Second // without progress; a slave takes over sooner
	refusedFor      = 5 * time.Second // an address that does not answer is left alone
	routeWhileSlave = 5 * time.Second // and the route is asked for, to go back to the master
)

// fill takes what has come. Reader's lock.
func (s *stint) fill() {
	for len(s.heads) == 0 {
		select {
		case b := <-s.batches:
			s.heads, s.seen, s.over = b.messages, b.next, b.over
			s.settle()
		default:
			return
		}
	}
}

// settle notes that what was looked at and not wanted is dealt with, too, once
// nothing is out. Reader's lock.
func (s *stint) settle() {
	if s.known && s.out == 0 && len(s.heads) == 0 {
		s.consumed = max(s.consumed, s.seen)
	}
}

// behind tells that there are messages that were stored before the reader began.
func (s *stint) behind() bool { return !s.waits && (!s.known || s.seen < s.end) }

func (s *stint) run() {
	defer s.cancel()
	stuck := time.Time{} // since when there has been no progress
	wait, told := retryLeast, false
	for s.ctx.Err() == nil {
		progress, err := s.step()
		if s.ctx.Err() != nil {
			return
		}
		if progress {
			stuck, wait, told = time.Time{}, retryLeast, false
			s.note(func() { s.waits = false })
			if s.finished() {
				return
			}
			continue
		}
		if stuck.IsZero() {
			stuck = time.Now()
		}
		if s.hopeless(err) {
			s.note(func() { s.failed = err })
			return
		}
		if err != nil && !told && time.Since(stuck) > warnAfter {
			told = true
			s.r.c.o.Logger.Warn("no messages come from a queue; trying again", "topic", s.queue.Topic, "queue", s.queue.QueueID, "broker", s.queue.BrokerName, "error", err)
		}
		if !s.r.o.Follow && time.Since(stuck) > s.r.o.Patience {
			if err == nil {
				err = fmt.Errorf("topic %s queue %d at broker %s: nobody gives the messages from offset %d to %d: a slave may be behind its master", s.queue.Topic, s.queue.QueueID, s.queue.BrokerName, s.next, s.end)
			}
			s.note(func() { s.failed = err })
			return
		}
		s.note(func() { s.waits = true })
		if !pause(s.ctx, wait) {
			return
		}
		wait = min(2*wait, retryMost)
		s.r.refresh(s.ctx, retryMost)
	}
}

// errBeyond means that an offset is beyond the end of its queue.
var errBeyond = errors.New("there is no such offset")

// hopeless tells an answer that time does not change.
func (s *stint) hopeless(err error) bool {
	if errors.Is(err, errBeyond) {
		return true
	}
	switch codeOf(err) {
	case remoting.NoPermission, remoting.GroupNotExist, remoting.InvalidParameter, remoting.RequestCodeNotSupported, subscriptionParseFailed:
		return true
	}
	return false
}

func (s *stint) note(do func()) {
	s.r.mu.Lock()
	do()
	s.r.mu.Unlock()
	signal(s.r.ready)
}

// finished tells, and notes, that the queue has been read to its end.
func (s *stint) finished() bool {
	if s.r.o.Follow || s.next < s.end {
		return false
	}
	s.give(batch{next: s.next, over: true})
	return true
}

// step makes one request. It made progress if it may be followed at once by
// another; without an error, the other side has nothing new to say.
func (s *stint) step() (progress bool, err error) {
	addr, id, err := s.r.node(s.ctx, s.queue, s.prefer)
	if err != nil {
		return false, err
	}
	if s.next < 0 || !s.known {
		err := s.start(addr, id)
		s.r.answered(addr, err)
		return err == nil, err
	}
	if !s.r.o.Follow && s.next >= s.end {
		return true, nil
	}
	began := time.Now()
	answer, err := s.r.c.call(s.ctx, addr, s.request(), fmt.Sprintf("pull from topic %s queue %d", s.queue.Topic, s.queue.QueueID), pullTimeout)
	s.r.answered(addr, err)
	s.prefer = 0 // unless the answer says otherwise
	if answer == nil {
		return false, err
	}
	switch answer.Code {
	case remoting.Success, remoting.PullNotFound, remoting.PullRetryImmediately, remoting.PullOffsetMoved:
		return s.take(addr, id, answer, time.Since(began))
	case remoting.SystemBusy:
		if id != 0 {
			return false, fmt.Errorf("slave %s does not serve reads (slaveReadEnable; haengine's --slave-reads), and broker %s has no master that answers: %w", addr, s.queue.BrokerName, err)
		}
	}
	return false, err
}

// start finds where the queue begins and where it ends now.
func (s *stint) start(addr string, id int64) error {
	from, err := s.next, error(nil)
	if from < 0 && s.r.o.Group != "" {
		from, err = s.groupOffset(addr, id)
	}
	if err == nil && from < 0 {
		from, err = s.r.c.resolve(s.ctx, addr, s.queue, s.position)
	}
	if err != nil {
		return err
	}
	end, err := s.r.c.resolve(s.ctx, addr, s.queue, Last())
	if err != nil {
		return err
	}
	if s.position.IsOffset() && id == 0 && from > end && !s.r.o.Follow { // of a slave, its master may have it
		return fmt.Errorf("topic %s queue %d: %w: it ends at %d, and was to be read from %d", s.queue.Topic, s.queue.QueueID, errBeyond, end, from)
	}
	s.next = from
	s.note(func() {
		s.seen, s.begun, s.end, s.known = from, from, end, true
		s.settle() // the group is here, if nothing comes, too
	})
	return nil
}

// groupOffset is where the group goes on, -1 if it has no offset. A slave may not
// have heard of the master's latest, or of none at all: without one the queue would
// be begun elsewhere, perhaps behind messages that nobody has read. While there is a
// master, only that is believed to have none.
func (s *stint) groupOffset(addr string, id int64) (int64, error) {
	from, ok, err := s.r.c.groupOffset(s.ctx, addr, s.r.o.Group, s.queue)
	switch {
	case err != nil:
		return 0, err
	case ok:
		return from, nil
	case id != 0 && s.r.hasMaster(s.queue):
		return 0, fmt.Errorf("slave %s knows no offset of group %s in topic %s queue %d, and the master of broker %s does not answer",
			addr, s.r.o.Group, s.queue.Topic, s.queue.QueueID, s.queue.BrokerName)
	}
	return -1, nil
}

func (s *stint) request() *remoting.Command {
	text := "*"
	if s.queue.Topic == s.r.o.Topic {
		text = s.r.o.Tags
	}
	ext := remoting.Ext{
		{Name: "consumerGroup", Value: s.r.group}, {Name: "topic", Value: s.queue.Topic}, {Name: "bname", Value: s.queue.BrokerName},
		{Name: "subscription", Value: text}, {Name: "expressionType", Value: "TAG"},
	}
	return &remoting.Command{
		Code: remoting.CodePullMessage,
		Ext: ext.WithInt("queueId", int64(s.queue.QueueID)).WithInt("queueOffset", s.next).WithInt("maxMsgNums", pullMessages).
			WithInt("sysFlag", flagSuspend|flagSubscribed).WithInt("commitOffset", 0).
			WithInt("suspendTimeoutMillis", int64(pullSuspend/time.Millisecond)).WithInt("subVersion", s.r.opened.UnixMilli()),
	}
}

// take goes on as the answer to a pull says.
func (s *stint) take(addr string, id int64, answer *remoting.Command, took time.Duration) (progress bool, err error) {
	next, err := answer.Ext.Int("nextBeginOffset", 0, 1<<62)
	if err != nil {
		return false, fmt.Errorf("pull at %s: %w", addr, err)
	}
	s.prefer, _ = strconv.ParseInt(answer.Ext.Text("suggestWhichBrokerId"), 10, 64)
	if id != 0 {
		s.r.refresh(s.ctx, routeWhileSlave)
	}
	b := batch{next: next}
	switch answer.Code {
	case remoting.Success:
		all, err := decodeRecords(answer.Body, s.queue)
		if err != nil {
			return false, err
		}
		for _, m := range all {
			m.stint = s
			if (s.r.o.Follow || m.QueueOffset < s.end) && s.r.wanted(m) {
				b.messages = append(b.messages, m)
			}
		}
	case remoting.PullOffsetMoved:
		return s.moved(next, answer.Remark)
	default:
		if next == s.next {
			// At the end, or a slave that has not as much. The former is asked again
			// at once if it has let us wait, as it was asked to.
			return s.r.o.Follow && answer.Code == remoting.PullNotFound && took > retryMost/10, nil
		}
	}
	s.next = next
	if !s.r.o.Follow {
		b.next = min(next, s.end) // what came later is left for the next reader
	}
	s.give(b)
	return true, nil
}

// moved goes where the broker says: it does not have the offset any more, or an
// administrator has set another one.
func (s *stint) moved(next int64, reason string) (progress bool, err error) {
	s.r.c.o.Logger.Warn("the broker says where to go on", "topic", s.queue.Topic, "queue", s.queue.QueueID, "broker", s.queue.BrokerName,
		"offset", s.next, "to_offset", next, "reason", reason)
	if s.r.o.Group != "" { // what was read before counts no more, and the group is there from now on
		s.r.begin(s.queue, s.position, next, s)
		return true, nil
	}
	if next < s.next { // there is nothing up to the end that was asked for
		s.note(func() { s.end = min(s.end, next) })
	}
	s.next = next
	s.give(batch{next: next})
	return true, nil
}

// give hands a batch to the reader, when it has taken the last one.
func (s *stint) give(b batch) {
	select {
	case s.batches <- b:
		signal(s.r.ready)
	case <-s.ctx.Done():
	}
}
