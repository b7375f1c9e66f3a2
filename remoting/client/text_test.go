package client

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestWhatFastjsonWritesIsRead(t *testing.T) {
	for in, want := range map[string]string{
		`{0:"a",-1:"b","c":{2:3}}`:              `{"0":"a","-1":"b","c":{"2":3}}`,
		`{"t":{{"q":1,"n":"}"}:{"x":1}, {}:2}}`: `{"t":{"{\"q\":1,\"n\":\"}\"}":{"x":1}, "{}":2}}`,
		`[1,{"a":[2,-3]},{4:5}]`:                `[1,{"a":[2,-3]},{"4":5}]`,
		`{"a":"{1:2}\",3"}`:                     `{"a":"{1:2}\",3"}`,
		``:                                      ``,
		`{{`:                                    `{"{"`,
		`{"a`:                                   `{"a`,
	} {
		if got := string(plainJSON([]byte(in))); got != want {
			t.Errorf("%s\nbecomes %s\nwant    %s", in, got, want)
		}
	}
	var table queueTable[GroupQueue]
	err := readJSON([]byte(`{{"brokerName":"b","queueId":3,"topic":"T"}:{"brokerOffset":7,"consumerOffset":5,"lastTimestamp":9}}`), "x", &table)
	want := queueTable[GroupQueue]{{BrokerName: "b", QueueID: 3, Topic: "T"}: {End: 7, Offset: 5, LastStored: 9}}
	if err != nil || !reflect.DeepEqual(table, want) {
		t.Errorf("%v %v, want %v", table, err, want)
	}
}

func FuzzPlainJSON(f *testing.F) {
	for _, s := range []string{`{0:"a"}`, `{{"a":1}:2}`, `{"a":[1,{"b":"\""}]}`, `{"a":{{}:{1:{}}}}`, `{{`, `]`, `{-`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := plainJSON(text)
		if json.Valid(text) && string(got) != string(text) {
			t.Errorf("%q is JSON, and becomes %q", text, got)
		}
	})
}

func TestQueuesAreSharedOutAsRocketMQsClientsDo(t *testing.T) {
	queues := func(ids ...int32) (all []Queue) {
		for _, id := range ids {
			all = append(all, Queue{BrokerName: "b", QueueID: id, Topic: "T"})
		}
		return all
	}
	all := queues(0, 1, 2, 3, 4, 5, 6, 7)
	// AllocateMessageQueueAveragely of 5.5.0 gives these.
	for _, c := range []struct {
		members []string
		own     string
		want    []Queue
	}{
		{[]string{"a"}, "a", all},
		{[]string{"a", "b", "c"}, "a", queues(0, 1, 2)},
		{[]string{"a", "b", "c"}, "b", queues(3, 4, 5)},
		{[]string{"a", "b", "c"}, "c", queues(6, 7)},
		{[]string{"0", "1", "2", "3", "4", "5", "6", "7", "8"}, "7", queues(7)},
		{[]string{"0", "1", "2", "3", "4", "5", "6", "7", "8"}, "8", nil},
		{[]string{"a", "b"}, "c", nil},
	} {
		if got := allocate(all, c.members, c.own); !slices.Equal(got, c.want) {
			t.Errorf("%s of %v gets %v, want %v", c.own, c.members, got, c.want)
		}
	}
}

func TestPositionsAreRead(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for text, want := range map[string]Position{
		"first": First(), "last": Last(), "0": AtOffset(0), "17": AtOffset(17), "10m": At(now.Add(-10 * time.Minute)),
		"2026-05-04T03:00:00Z": At(now.Add(-121 * time.Second)), "0s": At(now),
		"now": Last(), "2d": At(now.AddDate(0, 0, -2)), "2026-05-03": At(time.Date(2026, 5, 3, 0, 0, 0, 0, now.Location())),
	} {
		if got, err := ParsePosition(text, now); err != nil || got.kind != want.kind || got.offset != want.offset || !got.at.Equal(want.at) {
			t.Errorf("%s: %+v %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "-10m", "First", "10", "2026-05-32", "-1d", "d", "1d2h"} {
		if got, err := ParsePosition(text, now); err == nil && text != "10" {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
