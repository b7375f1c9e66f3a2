package remoting

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// lockedBy asks for queues of group g and gives those that were granted.
func lockedBy(t *testing.T, l *Locks, code int32, client string, queues ...int32) (granted []int32) {
	t.Helper()
	body := lockBody{ClientID: client, ConsumerGroup: "g"}
	for _, q := range queues {
		body.Queues = append(body.Queues, QueueName{BrokerName: "broker-a", QueueID: q, Topic: "t"})
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	var answer *Command
	l.Serve(NewRequest(Command{Code: code, Body: text}, &reader{}, func(c *Command) { answer = c }))
	if answer == nil || answer.Code != Success {
		t.Fatalf("answer %+v", answer)
	}
	if code == CodeUnlockBatch {
		return nil
	}
	var ok struct {
		Queues []QueueName `json:"lockOKMQSet"`
	}
	if err := json.Unmarshal(answer.Body, &ok); err != nil {
		t.Fatal(err)
	}
	for _, q := range ok.Queues {
		granted = append(granted, q.QueueID)
	}
	return granted
}

func TestAQueueBelongsToOneClientOfAGroup(t *testing.T) {
	l := NewLocks(quiet)
	now := time.Unix(1000, 0)
	l.now = func() time.Time { return now }
	expect := func(what string, got []int32, want ...int32) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("a asks first", lockedBy(t, l, CodeLockBatch, "a", 0, 1), 0, 1)
	expect("b gets what is left", lockedBy(t, l, CodeLockBatch, "b", 1, 2), 2)
	now = now.Add(40 * time.Second)
	expect("a renews one", lockedBy(t, l, CodeLockBatch, "a", 0), 0)
	now = now.Add(20 * time.Second)
	expect("b gets what was not renewed", lockedBy(t, l, CodeLockBatch, "b", 0, 1), 1)
	lockedBy(t, l, CodeUnlockBatch, "b", 0)
	expect("nobody gives back another's", lockedBy(t, l, CodeLockBatch, "b", 0))
	lockedBy(t, l, CodeUnlockBatch, "a", 0)
	expect("b gets what was given back", lockedBy(t, l, CodeLockBatch, "b", 0), 0)
	now = now.Add(lockTime)
	lockedBy(t, l, CodeLockBatch, "c", 7) // what is over is forgotten once in a while,
	now = now.Add(10 * time.Second)
	lockedBy(t, l, CodeLockBatch, "c", 7)
	now = now.Add(lockTime - time.Second)
	lockedBy(t, l, CodeLockBatch, "e", 8)
	now = now.Add(time.Second)
	expect("and does not count before that either", lockedBy(t, l, CodeLockBatch, "d", 7), 7)
	if !l.Held("g") || l.Held("h") {
		t.Error("who holds locks")
	}
	now = now.Add(2 * time.Minute)
	if l.Held("g") {
		t.Error("locks that are over count")
	}
	lockedBy(t, l, CodeLockBatch, "c", 9)
	if l.count != 1 || len(l.groups["g"]) != 1 {
		t.Errorf("%d locks are remembered", l.count)
	}
	lockedBy(t, l, CodeUnlockBatch, "c", 9)
	if l.count != 0 || len(l.groups) != 0 {
		t.Errorf("%d locks of %d groups are left", l.count, len(l.groups))
	}
}

func TestLockRequestsThatAreWrong(t *testing.T) {
	l := NewLocks(quiet)
	many, err := json.Marshal(lockBody{ClientID: "a", ConsumerGroup: "g", Queues: make([]QueueName, lockBatchMax+1)})
	if err != nil {
		t.Fatal(err)
	}
	for body, code := range map[string]int32{"": SystemError, "{": SystemError, "{}": InvalidParameter, string(many): InvalidParameter} {
		var answer *Command
		l.Serve(NewRequest(Command{Code: CodeLockBatch, Body: []byte(body)}, &reader{}, func(c *Command) { answer = c }))
		if answer.Code != code || answer.Remark == "" {
			t.Errorf("%.20q: %d %q", body, answer.Code, answer.Remark)
		}
	}
	// What clients send besides, and an answer without a queue.
	var answer *Command
	body := `{"clientId":"c","consumerGroup":"CG2","mqSet":[],"onlyThisBroker":false}`
	l.Serve(NewRequest(Command{Code: CodeLockBatch, Body: []byte(body)}, &reader{}, func(c *Command) { answer = c }))
	if string(answer.Body) != `{"lockOKMQSet":[]}` {
		t.Errorf("%s", answer.Body)
	}
}

// Each of a quarter of a million locks would keep its 4 MiB for a minute.
func TestALockWithALongNameIsRefused(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for what, body := range map[string]lockBody{
		"client": {ClientID: long, ConsumerGroup: "g", Queues: []QueueName{{Topic: "t"}}},
		"group":  {ClientID: "c", ConsumerGroup: long, Queues: []QueueName{{Topic: "t"}}},
		"topic":  {ClientID: "c", ConsumerGroup: "g", Queues: []QueueName{{Topic: "t"}, {Topic: long}}},
		"broker": {ClientID: "c", ConsumerGroup: "g", Queues: []QueueName{{Topic: "t", BrokerName: long}}},
	} {
		l := NewLocks(quiet)
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		var answer *Command
		l.Serve(NewRequest(Command{Code: CodeLockBatch, Body: text}, &reader{}, func(c *Command) { answer = c }))
		if answer == nil || answer.Code != InvalidParameter || len(answer.Remark) > 200 {
			t.Errorf("a lock with a %s of 1 MiB: answer %.200v", what, answer)
		}
		if l.count != 0 {
			t.Errorf("a lock with a %s of 1 MiB is kept", what)
		}
	}
}
