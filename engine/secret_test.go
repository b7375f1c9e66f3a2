package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/haengine/haengine/transfer"
)

var (
	testSecret  = []byte("what both nodes of this test know")
	otherSecret = []byte("what another cluster's nodes know")
)

// refusalBytesMost is what a peer that has proved nothing may be sent: an opening
// and a refusal.
const refusalBytesMost = 64 + 48 + 64 + 2 + 1024

// counts is a Metrics that keeps what it is told.
type counts struct {
	noMetrics
	mu sync.Mutex
	n  map[string]int // guarded by mu
}

func (c *counts) count(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[reason]++
}

func (c *counts) Unproven(reason string)  { c.count("unproven " + reason) }
func (c *counts) Reconnect(reason string) { c.count("reconnect " + reason) }

func (c *counts) of(reason string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[reason]
}

// secretMaster is a master with a secret and a log whose bytes are known again.
func secretMaster(t *testing.T, o Options) (*Engine, *counts) {
	t.Helper()
	n := &counts{}
	o.HASecret, o.Metrics, o.ClusterID, o.ReplicaID = testSecret, n, "the-blue-cluster", "the-master-itself"
	m := openMaster(t, o)
	store(t, m, 20)
	return m, n
}

// store puts so many messages, which no replica needs to have.
func store(t *testing.T, m *Engine, n int) {
	t.Helper()
	for range n {
		if r, err := m.Put(context20(t), message("t", 0, strings.Repeat("CONFIDENTIAL", 100))); r.Status != PutOK && r.Status != PutSlaveNotAvailable {
			t.Fatalf("put: %v, %v", r.Status, err)
		}
	}
}

// relay stands between slaves and a node and keeps what each said.
type relay struct {
	net.Listener
	mu       sync.Mutex
	up, down bytes.Buffer // guarded by mu
}

func newRelay(t *testing.T, node string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l}
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", node)
			if err != nil {
				c.Close()
				continue
			}
			pipe := func(dst, src net.Conn, kept *bytes.Buffer) {
				defer dst.Close()
				b := make([]byte, 4096)
				for {
					n, err := src.Read(b)
					r.mu.Lock()
					kept.Write(b[:n])
					r.mu.Unlock()
					if _, werr := dst.Write(b[:n]); err != nil || werr != nil {
						return
					}
				}
			}
			all.Go(func() { pipe(to, c, &r.up) })
			all.Go(func() { pipe(c, to, &r.down) })
		}
	})
	return r
}

func (r *relay) said() (up, down []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.up.Bytes()), bytes.Clone(r.down.Bytes())
}

// recorded is what a slave and its master said to each other once, both with the
// secret.
func recorded(t *testing.T, m *Engine) (up, down []byte) {
	t.Helper()
	r := newRelay(t, m.HAAddr().String())
	s := open(t, Options{Role: Slave, Master: r.Addr().String(), HASecret: testSecret})
	follow(t, m, s)
	waitReplicas(t, m, 1)
	shut(t, s)
	waitReplicas(t, m, 0)
	return r.said()
}

// unit gives the head and the payload of a slave's message.
func unit(kind uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, ^uint64(1))
	b = append(b, make([]byte, 16)...)
	b = append(b, bytes.Repeat([]byte{0xff}, 8)...)
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(payload)))
	b = binary.BigEndian.AppendUint32(b, crcOf(b))
	return append(b, payload...)
}

// Whoever does not prove to know the secret gets not one byte of the log, learns
// nothing of it, acknowledges nothing, and is counted and logged with the reason.
func TestNotAByteOfLogWithoutTheSecret(t *testing.T) {
	logger, lines := newTestLog(t, "master")
	m, n := secretMaster(t, Options{Role: SyncMaster, SlaveTimeout: 100 * time.Millisecond, Logger: logger, Heartbeat: 200 * time.Millisecond, Housekeeping: time.Second})
	end := m.log.EndOffset()
	told, _ := recorded(t, m)
	confirmed := m.ConfirmedOffset()
	asked := binary.BigEndian.AppendUint64(nil, ^uint64(0))
	report := func(offset int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(offset)) }
	hello := transfer.AppendHello(nil, transfer.Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "s", SegmentBytes: 1 << 20, FrameBytes: 1 << 20})
	for _, c := range []struct {
		name, reason string
		send         []byte
	}{
		{"a slave of RocketMQ's that is empty", "plain", report(0)},
		{"one that has all", "plain", report(end)},
		{"one that wants the first bytes", "plain", report(1)},
		{"an offset behind the question", "plain", append(bytes.Clone(asked), report(0)...)},
		{"RocketMQ's controller mode", "plain", []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}},
		{"TLS", "plain", append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, make([]byte, 506)...)},
		{"HTTP", "plain", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")},
		{"one of ours that says no more", "gone", asked},
		{"a hello without a proof", "no-proof", append(bytes.Clone(asked), unit(2, hello)...)},
		{"a question for checksums", "no-proof", append(bytes.Clone(asked), unit(4, transfer.AppendQuestion(nil, transfer.Question{From: 0, To: end, Piece: 1 << 20}))...)},
		{"a report in our protocol", "no-proof", append(bytes.Clone(asked), unit(1, nil)...)},
		{"all that a slave once said", "wrong-proof", told},
	} {
		before := n.of("unproven " + c.reason)
		p := dialRaw(t, m)
		if _, err := p.Write(c.send); err != nil && !strings.Contains(err.Error(), "reset") && !strings.Contains(err.Error(), "pipe") {
			t.Fatal(err)
		}
		got := p.closedByPeer()
		if len(got) > refusalBytesMost || c.reason == "plain" && len(got) > 112 {
			t.Errorf("%s: %d bytes were sent to it", c.name, len(got))
		}
		for _, part := range []string{"CONFIDENTIAL", "the-blue-cluster", "the-master-itself", string(binary.BigEndian.AppendUint64(nil, uint64(end)))} {
			if bytes.Contains(got, []byte(part)) {
				t.Errorf("%s: it is told %q", c.name, part)
			}
		}
		eventually(t, c.name+" is counted", func() bool { return n.of("unproven "+c.reason) == before+1 })
		if s := m.Status(); len(s.Replicas) != 0 || len(s.Departed) != 0 || s.ConfirmedOffset != confirmed || s.MaxOffset != end {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
	if r, err := m.Put(context20(t), message("t", 0, "x")); r.Status != PutSlaveNotAvailable {
		t.Errorf("a put: %v, %v", r.Status, err)
	}
	for _, reason := range []string{"plain", "no-proof", "wrong-proof", "gone"} {
		if !strings.Contains(lines.String(), "kind="+reason) {
			t.Errorf("nothing is logged of %s", reason)
		}
	}
}

// With one secret all goes as without: copies, cascades, a change of places, cuts,
// the comparison in the background.
func TestNodesThatShareASecretReplicate(t *testing.T) {
	m, n := secretMaster(t, Options{Role: SyncMaster, SlaveTimeout: 10 * time.Second})
	s := openSlave(t, m, Options{HASecret: testSecret, HAListen: "127.0.0.1:0", CompareInterval: 10 * time.Millisecond})
	last := openSlave(t, s, Options{HASecret: testSecret})
	waitReplicas(t, m, 1)
	if r := mustPut(t, m, message("t", 0, "x")); r.Status != PutOK {
		t.Fatalf("%+v", r)
	}
	follow(t, m, s)
	follow(t, m, last)
	eventually(t, "the logs were compared", func() bool { c := s.Status().Comparison; return c.Rounds > 0 || c.LastError != "" })
	if c := s.Status().Comparison; c.LastError != "" || c.FirstDifference != nil {
		t.Errorf("the comparison: %+v", c)
	}
	if !m.Status().HASecret || !s.Status().HASecret {
		t.Error("the status does not tell of the secret")
	}
	if _, err := s.Promote(context20(t), PromoteOptions{Role: AsyncMaster}); err != nil {
		t.Fatal(err)
	}
	waitReplicas(t, m, 0)
	store(t, m, 3) // nobody else has these: they are cut
	puts(t, s, 5)
	if _, err := m.Follow(context20(t), s.HAAddr().String()); err != nil {
		t.Fatal(err)
	}
	follow(t, s, m)
	follow(t, s, last)
	// A store that came from elsewhere is compared as a whole first.
	if err := s.log.Flush(); err != nil {
		t.Fatal(err)
	}
	follow(t, s, openSlave(t, s, Options{Store: copyOfStore(t, s.opts.Store), HASecret: testSecret}))
	for _, reason := range UnprovenReasons() {
		if got := n.of("unproven " + reason); got != 0 && reason != "gone" { // a comparison that the promotion ended may be
			t.Errorf("%d were counted as %s", got, reason)
		}
	}
}

// A node that has no secret, or another one, says that this is it, keeps what it
// has, and is not served.
func TestASlaveSaysThatTheSecretIsIt(t *testing.T) {
	for _, c := range []struct {
		name          string
		master, slave []byte
		says          string
		counted       string
	}{
		{"another secret", testSecret, otherSecret, "another secret", "unproven wrong-proof"},
		{"none", testSecret, nil, "this node was given none", "unproven no-proof"},
		{"the master has none", nil, testSecret, "was given no secret", "unproven no-secret"},
	} {
		t.Run(c.name, func(t *testing.T) {
			atMaster, atSlave := &counts{}, &counts{}
			m := openMaster(t, Options{HASecret: c.master, Metrics: atMaster})
			puts(t, m, 10)
			dir := t.TempDir()
			alone := openMaster(t, Options{Store: dir, HAListen: "127.0.0.1:0"})
			puts(t, alone, 3)
			end := alone.log.EndOffset()
			shut(t, alone)
			s := openSlave(t, m, Options{Store: dir, HASecret: c.slave, Metrics: atSlave, Remedy: func(s Status) string { return "about " + s.Trouble.Cause }})
			eventually(t, "it is refused", func() bool { return s.Status().Master.State == "refused" })
			st := s.Status()
			if st.Trouble == nil || st.Trouble.Cause != "auth" || st.Trouble.Remedy != "about auth" || !strings.Contains(st.Trouble.Reason, c.says) {
				t.Errorf("trouble %+v", st.Trouble)
			}
			eventually(t, "both have counted it", func() bool { return atMaster.of(c.counted) > 0 && atSlave.of("reconnect auth") > 0 })
			if s.log.EndOffset() != end || len(m.Status().Replicas) != 0 {
				t.Errorf("the slave's log ends at %d, it was %d; replicas %+v", s.log.EndOffset(), end, m.Status().Replicas)
			}
		})
	}
}

// The right secret does not make a node one of the cluster.
func TestTheSecretIsNotTheCluster(t *testing.T) {
	m, _ := secretMaster(t, Options{})
	s := openSlave(t, m, Options{HASecret: testSecret, ClusterID: "green"})
	eventually(t, "it is refused", func() bool { return s.Status().Master.State == "refused" })
	if st := s.Status(); st.Trouble == nil || st.Trouble.Cause != "cluster" || st.MaxOffset != 0 {
		t.Errorf("%+v, trouble %+v", st, st.Trouble)
	}
}

// A slave takes nothing from a master that does not prove to know the secret,
// cuts nothing for it and tells it nothing.
func TestAnImpostorIsNotFollowed(t *testing.T) {
	m, _ := secretMaster(t, Options{})
	_, told := recorded(t, m)
	evil := transfer.AppendHello(nil, transfer.Hello{VersionMin: 1, VersionMax: 1, ClusterID: "the-blue-cluster", ReplicaID: "evil", SegmentBytes: 1 << 20, Log: transfer.Range{End: 1 << 20}, FrameBytes: 1 << 20})
	dir := t.TempDir()
	s := openSlave(t, m, Options{Store: dir, ReplicaID: "the-slave-itself", HASecret: testSecret})
	follow(t, m, s)
	end := s.log.EndOffset()
	shut(t, s)
	for name, say := range map[string]func(c net.Conn){
		"what the master once said": func(c net.Conn) { _, _ = c.Write(told) },
		"a hello without a proof":   func(c net.Conn) { _, _ = c.Write(append(messageHead(len(evil)), evil...)) },
		"RocketMQ's silence":        func(net.Conn) {},
		"RocketMQ's frames": func(c net.Conn) {
			_, _ = c.Write(append(header(end, 1000), make([]byte, 1000)...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var heard bytes.Buffer // guarded by mu
			raw := listenRaw(t, func(_ int64, c net.Conn) {
				say(c)
				b, _ := io.ReadAll(c)
				mu.Lock()
				heard.Write(b)
				mu.Unlock()
			})
			s := open(t, Options{Store: dir, Role: Slave, Master: raw.Addr().String(), ReplicaID: "the-slave-itself", HASecret: testSecret, Heartbeat: 100 * time.Millisecond, Housekeeping: 600 * time.Millisecond})
			eventually(t, "it is refused", func() bool { return s.Status().Master.State == "refused" })
			st := s.Status()
			if name != "RocketMQ's frames" && (st.Trouble == nil || st.Trouble.Cause != "auth") {
				t.Errorf("trouble %+v", st.Trouble)
			}
			if st.MaxOffset != end || s.log.EndOffset() != end {
				t.Errorf("its log ends at %d, it was %d", s.log.EndOffset(), end)
			}
			shut(t, s)
			mu.Lock()
			defer mu.Unlock()
			if b := heard.Bytes(); bytes.Contains(b, []byte("the-slave-itself")) || bytes.Contains(b, binary.BigEndian.AppendUint64(nil, uint64(end))) {
				t.Errorf("it tells of itself: %q", b)
			}
		})
	}
}

// Who asks for checksums needs the secret, too.
func TestWhoComparesNeedsTheSecret(t *testing.T) {
	m, n := secretMaster(t, Options{})
	if err := m.log.Flush(); err != nil {
		t.Fatal(err)
	}
	dir := copyOfStore(t, m.opts.Store)
	address := m.HAAddr().String()
	for name, c := range map[string]struct {
		secret  []byte
		counted string
	}{"none": {nil, "unproven no-proof"}, "another": {otherSecret, "unproven wrong-proof"}} {
		before := n.of(c.counted)
		_, compared := Compare(context20(t), address, readStore(t, dir), CompareOptions{Secret: c.secret})
		info, asked := AskNode(context20(t), address, c.secret)
		_, point := FindRepairPoint(context20(t), address, readStore(t, dir), StoreIdentity{}, CompareOptions{Secret: c.secret})
		for what, err := range map[string]error{"Compare": compared, "AskNode": asked, "FindRepairPoint": point} {
			var r *transfer.RefusalError
			if !errors.As(err, &r) || r.Code != transfer.RefusedAuth {
				t.Errorf("%s with secret %s: %v", what, name, err)
			}
		}
		if info.MaxOffset != 0 || info.ReplicaID != "" {
			t.Errorf("it is told %+v", info)
		}
		eventually(t, "they are counted", func() bool { return n.of(c.counted) == before+3 })
	}
	c, err := Compare(context20(t), address, readStore(t, dir), CompareOptions{Secret: testSecret})
	if err != nil || !c.Equal() || c.Node.ReplicaID != "the-master-itself" {
		t.Errorf("with it: %+v, %v", c, err)
	}
	atBare := &counts{}
	bare := openMaster(t, Options{Metrics: atBare})
	if _, err := AskNode(context20(t), bare.HAAddr().String(), testSecret); !errors.Is(err, transfer.ErrNoProof) {
		t.Errorf("a node without a secret: %v", err)
	}
	eventually(t, "the node without one counts it", func() bool { return atBare.of("unproven no-secret") == 1 })
}

func TestSecretsAreChecked(t *testing.T) {
	for says, o := range map[string]Options{
		"holds 15 bytes, want at least 16":     {HASecret: make([]byte, 15)},
		"RocketMQ's protocol has no proof":     {HASecret: testSecret, Wire: WirePlain},
		"ha-secret-file is given, but wire is": {HASecret: testSecret, Wire: WirePlain, Role: Slave, Master: "a:1"},
	} {
		o.Store = "s"
		if err := o.Validate(); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if err := (Options{Store: "s", HASecret: make([]byte, 16)}).Validate(); err != nil {
		t.Error(err)
	}
}
