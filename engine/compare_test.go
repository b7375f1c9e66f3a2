package engine

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// readStore opens a store's log for reading.
func readStore(t testing.TB, dir string) *commitlog.Log {
	t.Helper()
	logger, _ := newTestLog(t, "reader of "+dir)
	l, err := commitlog.OpenReadOnly(commitlog.Options{Dir: dir, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// flip changes a byte of a store's log, whose segments are 1 MiB.
func flip(t testing.TB, dir string, offset int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "commitlog", segmentFile(offset)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], offset%(1<<20)); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x40
	if _, err := f.WriteAt(b[:], offset%(1<<20)); err != nil {
		t.Fatal(err)
	}
}

func segmentFile(offset int64) string {
	digits := []byte("00000000000000000000")
	for i, base := len(digits)-1, offset-offset%(1<<20); base > 0; i, base = i-1, base/10 {
		digits[i] = byte('0' + base%10)
	}
	return string(digits)
}

// copyOfStore copies the segments of a store.
func copyOfStore(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(filepath.Join(to, "commitlog"), os.DirFS(filepath.Join(dir, "commitlog"))); err != nil {
		t.Fatal(err)
	}
	return to
}

func compareWith(t testing.TB, m *Engine, dir string, o CompareOptions) Comparison {
	t.Helper()
	c, err := Compare(context20(t), m.HAAddr().String(), readStore(t, dir), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// filledMaster is a master with some segments of records.
func filledMaster(t testing.TB, records int) *Engine {
	t.Helper()
	m := openMaster(t, Options{ClusterID: "blue"})
	for range records {
		mustPut(t, m, message("t", 0, strings.Repeat("x", 10_000)))
	}
	if err := m.log.Flush(); err != nil {
		t.Fatal(err)
	}
	return m
}

// A comparison finds the very byte, in few questions, wherever it is, and is no
// replica meanwhile.
func TestComparisonFindsTheFirstDifferentByte(t *testing.T) {
	m := filledMaster(t, 400) // almost 4 MiB
	end := m.log.EndOffset()
	same := copyOfStore(t, m.opts.Store)
	c := compareWith(t, m, same, CompareOptions{Progress: func(c Comparison) {
		if n := len(m.Status().Replicas); n != 0 || c.To != end || c.Compared <= 0 {
			t.Errorf("%d replicas, %+v", n, c)
		}
	}})
	if !c.Equal() || c.From != 0 || c.To != end || c.Differs != -1 || c.Compared != end || c.Questions != 1 {
		t.Errorf("equal logs: %+v", c)
	}
	if n := c.Node; n.ClusterID != "blue" || n.ReplicaID != m.Status().ReplicaID || n.MaxOffset != end || n.SegmentBytes != 1<<20 || len(n.Epochs) != 1 {
		t.Errorf("the node: %+v", n)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 0))
	at := []int64{0, 1, 255, 256, 1<<20 - 1, 1 << 20, end - 1}
	for range 20 {
		at = append(at, draw.Int64N(end))
	}
	for _, offset := range at {
		dir := copyOfStore(t, m.opts.Store)
		flip(t, dir, offset)
		if later := offset + draw.Int64N(end-offset); later > offset {
			flip(t, dir, later)
		}
		l := readStore(t, dir)
		if l.EndOffset() <= offset {
			continue // its end is where the damage is
		}
		c, err := Compare(context20(t), m.HAAddr().String(), l, CompareOptions{})
		if err != nil || c.Equal() || c.Differs != offset || c.Questions > 3 {
			t.Errorf("a byte changed at %d: %+v, %v", offset, c, err)
		}
		// Bounds: neither what is before nor what is behind is looked at.
		for _, o := range []CompareOptions{{From: offset + 1, To: offset + 1}, {To: max(offset, 1)}} {
			if c, err := Compare(context20(t), m.HAAddr().String(), l, o); err != nil || offset > 0 && c.Differs >= 0 {
				t.Errorf("a byte changed at %d, asked for %+v: %+v, %v", offset, o, c, err)
			}
		}
	}
}

// Only what both hold is compared, and at the pace that was asked for.
func TestComparisonIsOfWhatBothHold(t *testing.T) {
	m := filledMaster(t, 150)
	dir := copyOfStore(t, m.opts.Store)
	common := m.log.EndOffset()
	puts(t, m, 20) // the copy has not got these
	if c := compareWith(t, m, dir, CompareOptions{}); !c.Equal() || c.To != common || c.Node.MaxOffset != m.log.EndOffset() {
		t.Errorf("%+v", c)
	}
	began := time.Now()
	c := compareWith(t, m, dir, CompareOptions{To: 100_000, BytesPerSecond: 400_000})
	if took := time.Since(began); !c.Equal() || c.To != 100_000 || took < 240*time.Millisecond {
		t.Errorf("%+v in %v", c, took)
	}
	empty := openMaster(t, Options{})
	if c := compareWith(t, empty, dir, CompareOptions{}); c.Equal() || c.From != c.To || c.Differs != -1 {
		t.Errorf("with an empty node: %+v", c)
	}
}

// Who cannot be compared with is told apart.
func TestComparisonSaysWhomItCannotCompareWith(t *testing.T) {
	m := filledMaster(t, 5)
	dir := copyOfStore(t, m.opts.Store)
	listen := func(serve func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		t.Cleanup(func() { l.Close(); <-done })
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				serve(c)
				c.Close()
			}
		}()
		return l.Addr().String()
	}
	gone := listen(func(net.Conn) {})
	hello := transfer.Hello{VersionMin: 1, VersionMax: 1, ReplicaID: "m", SegmentBytes: 1 << 20, Log: transfer.Range{End: 1000}, FrameBytes: 1}
	for _, c := range []struct {
		name, address, says string
		is                  error
	}{
		{"nobody", "127.0.0.1:1", "nobody answers", nil},
		{"RocketMQ, which is silent", listen(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), "RocketMQ", ErrNotSpoken},
		{"plain", open(t, Options{HAListen: "127.0.0.1:0", Wire: WirePlain}).HAAddr().String(), "--wire plain", ErrNotSpoken},
		{"somebody who hangs up", gone, "closed the connection", ErrNotSpoken},
		{"a web server", listen(func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 8))
			_, _ = c.Write(bytes.Repeat([]byte("HTTP/1.1 400 Bad Request\r\n"), 9))
		}), "is not our protocol", ErrNotSpoken},
		{"an earlier version", listen(func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 8))
			payload := transfer.AppendHello(nil, hello)
			_, _ = c.Write(messageHead(len(payload)))
			_, _ = c.Write(payload)
			_, _ = io.Copy(io.Discard, c)
		}), "earlier version", transfer.ErrNoAnswers},
	} {
		_, err := Compare(context20(t), c.address, readStore(t, dir), CompareOptions{HelloTimeout: 300 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compare(ctx, m.HAAddr().String(), readStore(t, dir), CompareOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// messageHead is the head of a hello of n bytes, as an earlier version sends it.
func messageHead(n int) []byte {
	b := make([]byte, 64)
	copy(b, bytes.Repeat([]byte{0xff}, 8))
	b[11], b[10], b[13] = byte(n), byte(n>>8), 2
	sum := crcOf(b[:20], b[24:])
	b[20], b[21], b[22], b[23] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
	return b
}

// What cannot be read is an answer, and the node goes on.
func TestNodeThatCannotReadItsLogSaysSo(t *testing.T) {
	m := filledMaster(t, 300)
	dir := copyOfStore(t, m.opts.Store)
	if err := os.Truncate(filepath.Join(m.opts.Store, "commitlog", segmentFile(1<<20)), 4096); err != nil {
		t.Fatal(err)
	}
	_, err := Compare(context20(t), m.HAAddr().String(), readStore(t, dir), CompareOptions{})
	var why *transfer.UnansweredError
	if !errors.As(err, &why) || why.Code != transfer.AnswerUnread || !strings.Contains(err.Error(), segmentFile(1<<20)) {
		t.Errorf("%v", err)
	}
	if c := compareWith(t, m, dir, CompareOptions{To: 1 << 20}); !c.Equal() {
		t.Errorf("what can be read: %+v", c)
	}
}

// Somebody who asks nothing more is not kept, and counts for nothing: no put
// waits for it and none is satisfied by it.
func TestWhoAsksCountsForNothing(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, Heartbeat: 50 * time.Millisecond, Housekeeping: 300 * time.Millisecond})
	p, err := dialPeer(context20(t), m.HAAddr().String(), &CompareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	r, err := m.Put(context20(t), message("t", 0, "x"))
	if r.Status != PutSlaveNotAvailable {
		t.Errorf("a put beside somebody who asks: %v, %v", r.Status, err)
	}
	if err := p.ask(transfer.Question{From: 0, To: r.EndOffset, Piece: 10}); err != nil {
		t.Fatal(err)
	}
	if a, err := p.answer(); err != nil || a.Err() != nil || len(m.Status().Replicas) != 0 {
		t.Errorf("%v, %+v; replicas %v", err, a, m.Status().Replicas)
	}
	for err = nil; err == nil; {
		err = p.read()
	}
	var refusal *transfer.RefusalError
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Text, "silent") {
		t.Errorf("after its time: %v", err)
	}
}

func crcOf(parts ...[]byte) (sum uint32) {
	for _, b := range parts {
		sum = crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), b)
	}
	return sum
}
