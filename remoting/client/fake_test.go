package client

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/remoting"
)

// fakeBroker is a name server and the master of one broker, whose answers a test
// chooses. Those of a queue's bounds are 0 and end.
type fakeBroker struct {
	server *remoting.Server
	end    int64
	slave  string // registered beside it; empty: none
	master string // registered in its place; empty: none
	queues atomic.Int32
	silent func(r *remoting.Request) // sees all requests, and none is answered; nil: they are
	answer func(r *remoting.Request)
	mu     sync.Mutex
	calls  map[int32]int
}

func newFakeBroker(t testing.TB, end int64, answer func(r *remoting.Request)) *fakeBroker {
	f := &fakeBroker{end: end, answer: answer, calls: map[int32]int{}}
	f.queues.Store(1)
	server, err := remoting.Listen("127.0.0.1:0", f, remoting.ServerOptions{Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	f.server = server
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		server.Close(ctx)
	})
	return f
}

func (f *fakeBroker) addr() string { return f.server.Addr().String() }

// move registers another master.
func (f *fakeBroker) move(master string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.master = master
}

func (f *fakeBroker) count(code int32) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[code]
}

func (f *fakeBroker) Serve(r *remoting.Request) {
	f.mu.Lock()
	f.calls[r.Code]++
	f.mu.Unlock()
	if f.silent != nil {
		f.silent(r)
		return
	}
	switch r.Code {
	case remoting.CodeGetRouteInfo:
		f.mu.Lock()
		nodes := fmt.Sprintf(`0:"%s"`, cmp.Or(f.master, f.addr()))
		f.mu.Unlock()
		if f.slave != "" {
			nodes += fmt.Sprintf(`,1:"%s"`, f.slave)
		}
		r.Reply(&remoting.Command{Body: fmt.Appendf(nil, `{"brokerDatas":[{"brokerAddrs":{%s},"brokerName":"b","cluster":"c"}],`+
			`"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":%d,"writeQueueNums":%[2]d}]}`, nodes, f.queues.Load())})
	case remoting.CodeHeartbeat, remoting.CodeUnregisterClient:
		r.Reply(&remoting.Command{})
	case remoting.CodeGetMinOffset:
		r.Reply(&remoting.Command{Ext: remoting.Ext(nil).WithInt("offset", 0)})
	case remoting.CodeGetMaxOffset:
		r.Reply(&remoting.Command{Ext: remoting.Ext(nil).WithInt("offset", f.end)})
	default:
		f.answer(r)
	}
}

// stored answers a send.
func stored(r *remoting.Request, code int32) {
	r.Reply(&remoting.Command{Code: code, Ext: remoting.Ext{{Name: "msgId", Value: "ID"}, {Name: "queueId", Value: "0"}, {Name: "queueOffset", Value: "3"}}})
}

func sendOne(t *testing.T, f *fakeBroker, o ProducerOptions) (Sent, error) {
	t.Helper()
	p, err := newClient(t, f.addr()).NewProducer(within(t), "orders", o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	return p.Send(within(t), &Message{Body: []byte("x")})
}

func TestASendEndsAsTheBrokerSays(t *testing.T) {
	for code, want := range map[int32]Status{
		remoting.Success: SendOK, remoting.FlushDiskTimeout: FlushDiskTimeout, remoting.FlushSlaveTimeout: FlushSlaveTimeout,
		remoting.SlaveNotAvailable: SlaveNotAvailable, remoting.MessageIllegal: "MESSAGE_ILLEGAL", remoting.SystemError: "SYSTEM_ERROR",
		remoting.NoPermission: "NO_PERMISSION", 4711: "CODE_4711",
	} {
		f := newFakeBroker(t, 0, func(r *remoting.Request) { stored(r, code) })
		s, err := sendOne(t, f, ProducerOptions{})
		if s.Status != want || (err == nil) != (code == remoting.Success) || s.Tries != 1 || s.Status.Stored() != (s.Offset == 3) {
			t.Errorf("code %d: %+v %v, want %s", code, s, err, want)
		}
		if f.count(remoting.CodeSendMessageV2) != 1 {
			t.Errorf("code %d: sent %d times", code, f.count(remoting.CodeSendMessageV2))
		}
	}
}

func TestABusyBrokerIsTriedAgain(t *testing.T) {
	var f *fakeBroker
	f = newFakeBroker(t, 0, func(r *remoting.Request) {
		if f.count(remoting.CodeSendMessageV2) < 3 {
			r.ReplyCode(remoting.SystemBusy, "busy")
			return
		}
		stored(r, remoting.Success)
	})
	if s, err := sendOne(t, f, ProducerOptions{Patience: patience}); err != nil || s.Tries != 3 {
		t.Errorf("%+v %v", s, err)
	}
	always := newFakeBroker(t, 0, func(r *remoting.Request) { r.ReplyCode(remoting.SystemBusy, "busy") })
	if s, err := sendOne(t, always, ProducerOptions{Patience: time.Second}); err == nil || s.Status != "SYSTEM_BUSY" || s.Tries < 2 {
		t.Errorf("a broker that stays busy: %+v %v", s, err)
	}
}

// What may have been stored is never sent twice.
func TestWhatIsNotAnsweredIsNotSentAgain(t *testing.T) {
	for name, answer := range map[string]func(r *remoting.Request){
		"silence":    func(*remoting.Request) {},
		"connection": func(r *remoting.Request) { r.Peer.Close(errors.New("closed by the test")) },
	} {
		f := newFakeBroker(t, 0, answer)
		s, err := sendOne(t, f, ProducerOptions{Timeout: 200 * time.Millisecond})
		if s.Status != NoAnswer || err == nil || s.Tries != 1 || f.count(remoting.CodeSendMessageV2) != 1 {
			t.Errorf("%s: %+v %v, sent %d times", name, s, err, f.count(remoting.CodeSendMessageV2))
		}
	}
}

func record(offset int64, sysFlag int32, body string) []byte {
	return engine.AppendRecord(nil, &engine.Message{Topic: "orders", Body: []byte(body), SysFlag: sysFlag, QueueOffset: offset, PhysicalOffset: offset * 100})
}

func pulled(r *remoting.Request, code int32, next int64, body ...[]byte) {
	ext := remoting.Ext{{Name: "suggestWhichBrokerId", Value: "0"}, {Name: "minOffset", Value: "0"}, {Name: "maxOffset", Value: "9"}}
	r.Reply(&remoting.Command{Code: code, Ext: ext.WithInt("nextBeginOffset", next), Body: slices.Concat(body...)})
}

func TestAReaderGoesOnAsTheBrokerSays(t *testing.T) {
	f := newFakeBroker(t, 9, func(r *remoting.Request) {
		switch at, _ := r.Ext.Int("queueOffset", 0, 9); at {
		case 0: // what stands here is not wanted
			pulled(r, remoting.PullRetryImmediately, 2)
		case 2: // what stood here is gone
			pulled(r, remoting.PullOffsetMoved, 5)
		case 5: // an answer that goes beyond the end
			pulled(r, remoting.Success, 11, record(5, 0, "five"), record(8, 0, "eight"), record(9, 0, "nine"))
		default:
			r.ReplyCode(remoting.SystemError, "no")
		}
	})
	all := readAll(t, newClient(t, f.addr()), ReaderOptions{Topic: "orders"})
	if got := strings.Join(bodies(all), " "); got != "five eight" {
		t.Errorf("%q", got)
	}
}

func TestAReaderGivesUpWithWhatItKnows(t *testing.T) {
	refusing := newFakeBroker(t, 3, func(r *remoting.Request) { r.ReplyCode(remoting.SystemBusy, "[REJECTREQUEST] a slave") })
	for what, c := range map[string]struct {
		answer func(r *remoting.Request)
		want   string
	}{
		"may not":    {func(r *remoting.Request) { r.ReplyCode(remoting.NoPermission, "not you") }, "NO_PERMISSION: not you"},
		"is behind":  {func(r *remoting.Request) { pulled(r, remoting.PullRetryImmediately, 0) }, "nobody gives the messages from offset 0 to 3"},
		"is damaged": {func(r *remoting.Request) { pulled(r, remoting.Success, 1, []byte("no record")) }, "is no record"},
		"is gone":    {func(r *remoting.Request) { r.Peer.Close(errors.New("closed by the test")) }, "slave " + refusing.addr() + " does not serve reads"},
	} {
		f := newFakeBroker(t, 3, c.answer)
		f.slave = refusing.addr()
		cl := newClient(t, f.addr())
		r, err := cl.OpenReader(within(t), ReaderOptions{Topic: "orders", Patience: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := r.Next(within(t)); err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v %v, want %q", what, m, err, c.want)
		}
		r.Close(within(t))
	}
}

func TestBodiesAreDecoded(t *testing.T) {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	io.WriteString(w, strings.Repeat("text ", 1000))
	w.Close()
	var bomb bytes.Buffer
	w = zlib.NewWriter(&bomb)
	w.Write(make([]byte, ContentMax+1))
	w.Close()
	for _, c := range []struct {
		flag       int32
		body       string
		content    int
		notDecoded string
	}{
		{0, "plain", 5, ""},
		{1, z.String(), 5000, ""},
		{0x301, z.String(), 5000, ""},
		{1, "no zlib", 0, "damaged"},
		{1, z.String()[:20], 0, "damaged"},
		{1, bomb.String(), 0, "larger than"},
		{0x101, "x", 0, "LZ4"},
		{0x201, "x", 0, "ZSTD"},
		{0x501, "x", 0, "kind 5"},
	} {
		all, err := decodeRecords(record(0, c.flag, c.body), Queue{})
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		m := all[0]
		if m.Content != nil || m.NotDecoded != "" {
			t.Errorf("flag %#x: it is decoded before it is given", c.flag)
		}
		if m.decode(); len(m.Content) != c.content || c.notDecoded == "" != (m.NotDecoded == "") || !strings.Contains(m.NotDecoded, c.notDecoded) {
			t.Errorf("flag %#x: %d bytes, %q", c.flag, len(m.Content), m.NotDecoded)
		}
	}
}

// A pull's answer of 256 KiB may become 256 MiB, and one is read ahead of each queue.
func TestWhatIsReadAheadStaysCompressed(t *testing.T) {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(make([]byte, 1<<20))
	w.Close()
	f := newFakeBroker(t, 3, func(r *remoting.Request) {
		pulled(r, remoting.Success, 3, record(0, 1, z.String()), record(1, 1, z.String()), record(2, 1, z.String()))
	})
	r, err := newClient(t, f.addr()).OpenReader(within(t), ReaderOptions{Topic: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(within(t))
	if m, err := r.Next(within(t)); err != nil || len(m.Content) != 1<<20 {
		t.Fatal(m, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ahead := 0
	for _, s := range r.mu.stints {
		for _, m := range s.heads {
			ahead++
			if m.Content != nil {
				t.Errorf("message %d has its %d bytes before it is asked for", m.QueueOffset, len(m.Content))
			}
		}
	}
	if ahead != 2 {
		t.Errorf("%d messages are ahead, want 2", ahead)
	}
}

// Whoever reaches a name server may register any number of queues.
func TestARouteWithTooManyQueuesIsRefused(t *testing.T) {
	for queues, fine := range map[int]bool{queuesMax: true, queuesMax + 1: false, math.MaxInt32: false} {
		f := newFakeBroker(t, 0, func(r *remoting.Request) { stored(r, remoting.Success) })
		f.queues.Store(int32(queues)) // nobody asks yet
		r, err := newClient(t, f.addr()).Route(within(t), "orders")
		if (err == nil) != fine {
			t.Fatalf("%d queues: %v", queues, err)
		}
		if err == nil && len(r.Writable()) != queues {
			t.Errorf("%d queues can be written, want %d", len(r.Writable()), queues)
		}
		if err != nil && !strings.Contains(err.Error(), strconv.Itoa(queues)) {
			t.Errorf("%q does not say how many", err)
		}
	}
	many := Route{Queues: []TopicQueues{{"a", queuesMax, 1, 6}, {"b", 1, queuesMax, 6}, {"c", -5, 2, 6}}}
	if err := many.check(); err != nil {
		t.Error(err)
	}
	many.Queues[2].ReadQueues = 3
	if err := many.check(); err == nil {
		t.Error("more queues than are used, over all brokers, are taken")
	}
}

// An answer's remark is somebody else's text.
func TestARemarkDoesNothingToATerminal(t *testing.T) {
	f := newFakeBroker(t, 0, func(r *remoting.Request) {
		r.ReplyCode(remoting.NoPermission, "\x1b[2Jno\r\nhaengine: all is well\u009b\x7f – %s", strings.Repeat("ä", 1<<20))
	})
	_, err := sendOne(t, f, ProducerOptions{})
	if err == nil {
		t.Fatal("it is sent")
	}
	text := err.Error()
	if strings.ContainsAny(text, "\x1b\r\n\u009b\x7f") || !strings.Contains(text, "[2Jno  haengine: all is well   – ää") || !utf8.ValidString(text) {
		t.Errorf("%.300q", text)
	}
	if len(text) > remarkMax+300 {
		t.Errorf("it has %d bytes", len(text))
	}
}

func TestErrorsNameTheAddress(t *testing.T) {
	c := newClient(t, "127.0.0.1:1", "127.0.0.1:2")
	_, err := c.Topics(within(t))
	var names *NameServerError
	if !errors.As(err, &names) || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "127.0.0.1:2") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
	for _, bad := range [][]string{nil, {"nowhere"}, {":9876"}, {"host:"}} {
		if _, err := New(Options{NameServers: bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestNewOffsetsAreReadInBothForms(t *testing.T) {
	want := map[Queue]int64{{BrokerName: "b", QueueID: 1, Topic: "T"}: 7}
	for _, body := range []string{
		`{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:7}}`,
		`{"offsetTable":[{"brokerName":"b","offset":7,"queueId":1,"topic":"T"}]}`,
	} {
		got, err := resetOffsets([]byte(body))
		if err != nil || len(got) != 1 || got[Queue{BrokerName: "b", QueueID: 1, Topic: "T"}] != 7 {
			t.Errorf("%s: %v %v, want %v", body, got, err, want)
		}
	}
	if got, err := resetOffsets([]byte(`{"offsetTable":7}`)); err == nil {
		t.Errorf("%v", got)
	}
}

func TestABrokerOf49IsAskedForAllTopics(t *testing.T) {
	f := newFakeBroker(t, 0, func(r *remoting.Request) {
		switch r.Code {
		case remoting.CodeGetTopicConfig:
			r.ReplyCode(remoting.RequestCodeNotSupported, " request type 351 not supported")
		case remoting.CodeGetAllTopicConfig:
			r.Reply(&remoting.Command{Body: []byte(`{"topicConfigTable":{"orders":{"perm":6,"readQueueNums":3,"writeQueueNums":2}}}`)})
		}
	})
	c := newClient(t, f.addr())
	if s, err := c.topicSettings(within(t), f.addr(), "orders"); err != nil || s.ReadQueues != 3 || s.WriteQueues != 2 || s.Perm != 6 {
		t.Errorf("%+v %v", s, err)
	}
	if s, err := c.topicSettings(within(t), f.addr(), "other"); codeOf(err) != remoting.TopicNotExist {
		t.Errorf("%+v %v", s, err)
	}
}

// A name server of a slave's own does not know of a master that has come back.
func TestAnotherNameServerMayKnowMore(t *testing.T) {
	names := func(nodes string) string {
		s, err := remoting.Listen("127.0.0.1:0", remoting.HandlerFunc(func(r *remoting.Request) {
			if nodes == "" {
				r.ReplyCode(remoting.TopicNotExist, "No topic route info")
				return
			}
			r.Reply(&remoting.Command{Body: []byte(`{"brokerDatas":[{"brokerAddrs":{` + nodes + `},"brokerName":"b","cluster":"c"}],"queueDatas":[]}`)})
		}), remoting.ServerOptions{Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			s.Close(ctx)
		})
		return s.Addr().String()
	}
	nothing, slave, both := names(""), names(`1:"s:1"`), names(`0:"m:1",1:"s:1"`)
	for _, c := range []struct {
		names  []string
		master string
	}{
		{[]string{slave, both}, "m:1"}, {[]string{both, slave}, "m:1"}, {[]string{nothing, both}, "m:1"},
		{[]string{slave, nothing}, ""}, {[]string{"127.0.0.1:1", nothing, slave}, ""},
	} {
		cl := newClient(t, c.names...)
		for range 2 { // the second time another one is asked first
			r, err := cl.Route(within(t), "orders")
			if err != nil || r.Broker("b").Master() != c.master || r.Broker("b").Nodes[1] != "s:1" {
				t.Errorf("%v: %+v %v", c.names, r, err)
			}
		}
	}
	if _, err := newClient(t, nothing, "127.0.0.1:1").Route(within(t), "orders"); !errors.Is(err, ErrNoTopic) {
		t.Errorf("nobody knows it: %v", err)
	}
}
