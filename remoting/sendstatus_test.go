package remoting

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/haengine/haengine/engine"
)

// rawReplica is a replica that is in sync with an empty log and confirms nothing
// that comes later.
func rawReplica(t testing.TB, e *engine.Engine) {
	t.Helper()
	events, cancel := e.Subscribe(16)
	defer cancel()
	c, err := net.DialTimeout("tcp", e.HAAddr().String(), testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write(binary.BigEndian.AppendUint64(nil, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case event := <-events:
			if event.Kind == engine.ReplicaInSync {
				return
			}
		case <-time.After(testTimeout):
			t.Fatal("the replica is not in sync")
		}
	}
}

func syncMaster() engine.Options {
	return engine.Options{Role: engine.SyncMaster, HAListen: "127.0.0.1:0", SlaveTimeout: 300 * time.Millisecond}
}

func TestAStoredButUnconfirmedSendSaysSo(t *testing.T) {
	f := newSends(t, syncMaster(), SendsOptions{}, TopicsOptions{})
	a := f.send(sendCommand(CodeSendMessageV2, "orders", 2, "", "x"))
	wantCode(t, a, SlaveNotAvailable)
	if string(f.record(a).Body) != "x" || a.Ext.Text("queueId") != "2" || a.Ext.Text("queueOffset") != "0" {
		t.Errorf("answer %+v", a.Ext)
	}
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 2, "WAIT\x01false\x02", "x")), Success)
	batch := clientBatch(engine.Message{Body: []byte("a")}, engine.Message{Body: []byte("b")})
	wantCode(t, f.send(sendCommand(CodeSendBatch, "orders", 2, "", batch)), SlaveNotAvailable)
	wantCode(t, f.send(sendCommand(CodeSendBatch, "orders", 2, "WAIT\x01false\x02", batch)), Success)
	// As with the real broker the header decides, not a message.
	batch = clientBatch(engine.Message{Body: []byte("a"), Properties: "WAIT\x01false"}, engine.Message{Body: []byte("b")})
	wantCode(t, f.send(sendCommand(CodeSendBatch, "orders", 2, "", batch)), SlaveNotAvailable)

	rawReplica(t, f.engine)
	a = f.send(sendCommand(CodeSendMessageV2, "orders", 2, "", "y"))
	wantCode(t, a, FlushSlaveTimeout)
	if string(f.record(a).Body) != "y" || a.Ext.Text("queueOffset") != "8" {
		t.Errorf("answer %+v", a.Ext)
	}
}

func TestTooFewInSyncIsAnErrorAndStoresNothing(t *testing.T) {
	o := syncMaster()
	o.MinInSyncReplicas = 2
	f := newSends(t, o, SendsOptions{}, TopicsOptions{})
	a := f.send(sendCommand(CodeSendMessageV2, "orders", 2, "", "x"))
	wantCode(t, a, SystemError)
	if a.Ext.Text("msgId") != "" || !strings.Contains(a.Remark, "IN_SYNC_REPLICAS_NOT_ENOUGH") {
		t.Errorf("answer %+v", a)
	}
}

func TestEachStatusHasItsCode(t *testing.T) {
	want := map[string]int32{
		"PUT_OK": 0, "FLUSH_DISK_TIMEOUT": 10, "FLUSH_SLAVE_TIMEOUT": 12, "SLAVE_NOT_AVAILABLE": 11,
		"SERVICE_NOT_AVAILABLE": 14, "CREATE_MAPPED_FILE_FAILED": 1, "MESSAGE_ILLEGAL": 13, "PROPERTIES_SIZE_EXCEEDED": 13,
		"OS_PAGE_CACHE_BUSY": 2, "UNKNOWN_ERROR": 1, "IN_SYNC_REPLICAS_NOT_ENOUGH": 1,
	}
	for _, s := range engine.PutStatuses() {
		if code, ok := want[s.String()]; !ok || codeOf(s) != code {
			t.Errorf("%v is %d, want %d", s, codeOf(s), code)
		}
	}
}

// stuckDisk does not sync segments while it is stuck.
type stuckDisk struct {
	engine.Disk
	stuck atomic.Bool
	gate  chan struct{} // closed: it is stuck no more
}

func (d *stuckDisk) Create(path string, size int64) (engine.File, error) {
	f, err := d.Disk.Create(path, size)
	return d.file(path, f), err
}

func (d *stuckDisk) Open(path string, write bool) (engine.File, error) {
	f, err := d.Disk.Open(path, write)
	return d.file(path, f), err
}

func (d *stuckDisk) file(path string, f engine.File) engine.File {
	if f == nil || !strings.Contains(path, "commitlog") {
		return f
	}
	return &stuckFile{f, d}
}

type stuckFile struct {
	engine.File
	disk *stuckDisk
}

func (f *stuckFile) Sync() error {
	if f.disk.stuck.Load() {
		<-f.disk.gate
	}
	return f.File.Sync()
}

func TestASendThatTheDiskDoesNotConfirmSaysSo(t *testing.T) {
	disk := &stuckDisk{Disk: engine.OSDisk(), gate: make(chan struct{})}
	o := engine.Options{Flush: engine.SyncFlush, FlushTimeout: 300 * time.Millisecond, Disk: disk}
	f := newSends(t, o, SendsOptions{}, TopicsOptions{})
	free := sync.OnceFunc(func() { close(disk.gate) })
	t.Cleanup(free)
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 2, "WAIT\x01false\x02", "first")), Success)
	disk.stuck.Store(true)
	a := f.send(sendCommand(CodeSendMessageV2, "orders", 2, "", "x"))
	wantCode(t, a, FlushDiskTimeout)
	if string(f.record(a).Body) != "x" || a.Ext.Text("queueOffset") != "1" {
		t.Errorf("answer %+v", a.Ext)
	}
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 2, "WAIT\x01false\x02", "x")), Success)
	free()
	eventually(t, "the disk confirms again", func() bool {
		return f.send(sendCommand(CodeSendMessageV2, "orders", 2, "", "x")).Code == Success
	})
}

// Sends that wait for a replica take up the room there is; the next is told to
// come again, and nothing of it is stored.
func TestSendsBeyondTheRoomAreRefusedAsBusy(t *testing.T) {
	for name, set := range map[string]func(*engine.Options, *SendsOptions){
		"sends": func(_ *engine.Options, o *SendsOptions) { o.Pending = 4 },
		"ring":  func(e *engine.Options, _ *SendsOptions) { e.RingSize = 4 },
		"bytes": func(_ *engine.Options, o *SendsOptions) { o.PendingBytes = 4 * 100 },
	} {
		t.Run(name, func(t *testing.T) {
			// On a slow machine the four have ended when the fifth comes.
			for timeout := 2 * time.Second; !busyWithFour(t, timeout, set); timeout *= 4 {
				if timeout > 2*time.Minute {
					t.Fatalf("four sends do not wait for as long as a fifth takes, %v", timeout)
				}
			}
		})
	}
}

// busyWithFour tells whether the fifth send came while four waited for a replica.
func busyWithFour(t *testing.T, timeout time.Duration, set func(*engine.Options, *SendsOptions)) bool {
	e, o := syncMaster(), SendsOptions{}
	e.SlaveTimeout = timeout
	set(&e, &o)
	f := newSends(t, e, o, TopicsOptions{})
	if err := await(func(done func(error)) { f.topics.Create(NewTopicConfig("orders", 1), done) }); err != nil {
		t.Fatal(err)
	}
	rawReplica(t, f.engine)
	body := strings.Repeat("x", 100)
	answers := make(chan *Command, 8)
	for range 4 {
		f.Serve(NewRequest(sendCommand(CodeSendMessageV2, "orders", 0, "", body), f.peer, func(c *Command) { answers <- c }))
	}
	end := func() int64 { _, to, _ := f.engine.QueueBounds("orders", 0); return to }
	eventually(t, "four are queued", func() bool { return end() == 4 })
	fifth := f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", body))
	if len(answers) > 0 {
		return false
	}
	wantCode(t, fifth, SystemBusy)
	for range 4 {
		wantCode(t, <-answers, FlushSlaveTimeout)
	}
	eventually(t, "the room is free", func() bool { return f.sends.bytes.Load() == 0 && f.sends.idle() })
	if end() != 4 {
		t.Errorf("%d messages are stored", end())
	}
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 0, "WAIT\x01false\x02", body)), Success)
	return true
}

func TestSendsToANewTopicWaitForIt(t *testing.T) {
	disk := &brokenDisk{Disk: engine.OSDisk()}
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{ConfigOptions: ConfigOptions{Disk: disk}})
	disk.broken = true
	a := f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x"))
	wantCode(t, a, SystemError)
	if !strings.Contains(a.Remark, errBroken.Error()) {
		t.Errorf("remark %q", a.Remark)
	}
	disk.broken = false
	const sends = 50
	answers := make(chan *Command, sends)
	for i := range sends {
		c := sendCommand(CodeSendMessageV2, "orders", int32(i%4), "", fmt.Sprint(i))
		f.Serve(NewRequest(c, f.peer, func(a *Command) { answers <- a }))
		clear(c.Body) // the connection's own from here
	}
	got := map[string]bool{}
	for range sends {
		a := <-answers
		wantCode(t, a, Success)
		got[string(f.record(a).Body)] = true
	}
	if len(got) != sends {
		t.Errorf("%d different messages are stored, want %d", len(got), sends)
	}
	if text, err := os.ReadFile(f.topics.table.file.path); err != nil || !strings.Contains(string(text), `"orders"`) {
		t.Errorf("the topic is not in its file: %v", err)
	}
}

func TestSendsFromManyLoopsAreAllAnsweredOnce(t *testing.T) {
	f := newSends(t, engine.Options{}, SendsOptions{}, TopicsOptions{})
	const loops, sends = 4, 300
	var mu sync.Mutex
	ids := map[string]int{}
	var left sync.WaitGroup
	left.Add(loops * sends)
	for i := range loops {
		go func() {
			peer := newFakePeer(fmt.Sprintf("192.0.2.%d:4000", i))
			for j := range sends {
				c := sendCommand(CodeSendMessageV2, "orders", int32(j%4), "", fmt.Sprint(i, j))
				f.Serve(NewRequest(c, peer, func(a *Command) {
					mu.Lock()
					ids[a.Ext.Text("msgId")]++
					mu.Unlock()
					left.Done()
				}))
			}
		}()
	}
	left.Wait()
	if len(ids) != loops*sends || ids[""] > 0 {
		t.Errorf("%d different ids for %d sends, %d without one", len(ids), loops*sends, ids[""])
	}
}

// Whoever sent before the node stops gets an answer.
func TestCloseAnswersWhatIsUnderWay(t *testing.T) {
	f := newSends(t, syncMaster(), SendsOptions{}, TopicsOptions{})
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 0, "WAIT\x01false\x02", "x")), Success)
	rawReplica(t, f.engine)
	answers := make(chan *Command, 1)
	f.Serve(NewRequest(sendCommand(CodeSendMessageV2, "orders", 0, "", "x"), f.peer, func(a *Command) { answers <- a }))
	f.Close()
	select {
	case a := <-answers:
		wantCode(t, a, FlushSlaveTimeout)
	default:
		t.Error("closed without an answer")
	}
	wantCode(t, f.send(sendCommand(CodeSendMessageV2, "orders", 0, "", "x")), ServiceNotAvailable)
	wantCode(t, f.send(backCommand("g", 0, 0)), ServiceNotAvailable)
}
