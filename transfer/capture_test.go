package transfer

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path"
	"testing"
	"time"

	"github.com/haengine/haengine/internal/invariant"
)

// The two byte streams of a real master with a real slave, recorded by a relay;
// testdata/README.md says how. Connection 0 starts with an empty slave that
// reports 0, connection 1 with one that holds all of connection 0.

const captureSegment = 4194304

type captureEvent struct {
	Conn   int     `json:"conn"`
	MS     float64 `json:"ms"`
	Dir    string  `json:"dir"` // s2m, m2s
	Event  string  `json:"event"`
	Offset int     `json:"offset"`
	Bytes  int     `json:"bytes"`
}

type capture struct {
	events   []captureEvent
	streams  map[string][]byte // by direction, all connections in order
	ends     []int64           // the slave's log end after each connection
	sha256   []string          // and its digest
	expected int64             // the end of the resulting log, from its dump
}

func readCapture(t *testing.T) *capture {
	t.Helper()
	files := untar(t, "../testdata/ha-capture.tar.gz")
	c := &capture{streams: map[string][]byte{"s2m": files["slave-to-master.bin"], "m2s": files["master-to-slave.bin"]}}
	lines(t, files["timeline.jsonl"], func(line []byte) error {
		var e captureEvent
		err := json.Unmarshal(line, &e)
		c.events = append(c.events, e)
		return err
	})
	lines(t, files["slave.log.jsonl"], func(line []byte) error {
		var closed struct {
			Event  string `json:"event"`
			Max    int64  `json:"max"`
			SHA256 string `json:"sha256"`
		}
		err := json.Unmarshal(line, &closed)
		if closed.Event == "closed" {
			c.ends = append(c.ends, closed.Max)
			c.sha256 = append(c.sha256, closed.SHA256)
		}
		return err
	})
	lines(t, files["expected.jsonl"], func(line []byte) error {
		var last struct {
			End int64 `json:"end"`
		}
		err := json.Unmarshal(line, &last)
		c.expected = last.End
		return err
	})
	if len(c.ends) != 2 || c.expected == 0 || c.ends[1] != c.expected {
		t.Fatalf("the capture's log ends at %v, its dump at %d", c.ends, c.expected)
	}
	return c
}

// stream returns one direction of one connection.
func (c *capture) stream(conn int, dir string) []byte {
	from, to := -1, 0
	for _, e := range c.events {
		if e.Conn == conn && e.Dir == dir {
			if from < 0 {
				from = e.Offset
			}
			to = e.Offset + e.Bytes
		}
	}
	return c.streams[dir][from:to]
}

func untar(t *testing.T, name string) map[string][]byte {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(zip); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[path.Base(header.Name)] = b
	}
}

func lines(t *testing.T, b []byte, each func([]byte) error) {
	t.Helper()
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if err := each(s.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// captureFollower returns a follower that stands where the recorded slave stood
// at the start of a connection. A real slave reports 0 when it is empty, and
// ours does after its request for the first byte was in vain; a real slave asks
// for no overlap.
func captureFollower(t *testing.T, log Range) *Follower {
	f := NewFollower(FollowerConfig{SegmentBytes: captureSegment, OverlapBytes: -1})
	if log.Empty() {
		f.Begin(log, 0)
		f.Ended(ErrFirstSegmentGone, 0)
	}
	if got := f.Begin(log, 0); got != log.End {
		t.Fatalf("first report %d, the recorded slave's was %d", got, log.End)
	}
	return f
}

// pieces cuts b into pieces of n bytes.
func pieces(b []byte, n int) (all [][]byte) {
	for len(b) > n {
		all, b = append(all, b[:n]), b[n:]
	}
	return append(all, b)
}

func TestRecordedMasterStreamGivesTheRecordedLog(t *testing.T) {
	c := readCapture(t)
	for what, size := range map[string]int{"one piece": 1 << 30, "single bytes": 1, "11 bytes": 11, "65536 bytes": 65536} {
		l := &byteLog{}
		for conn := range 2 {
			f := captureFollower(t, l.held())
			for _, piece := range pieces(c.stream(conn, "m2s"), size) {
				if err := l.feed(t, f, piece, 0); err != nil {
					t.Fatalf("%s, connection %d: %v", what, conn, err)
				}
			}
			if r, _ := f.NextReport(l.held(), 0); r != c.ends[conn] || digest(l.data) != c.sha256[conn] {
				t.Errorf("%s, connection %d: %d bytes, sha256 %s, report %d; recorded %d and %s", what, conn, len(l.data), digest(l.data), r, c.ends[conn], c.sha256[conn])
			}
			if f.Ended(io.EOF, 0); f.State() != FollowerConnecting {
				t.Errorf("%s, connection %d: %v", what, conn, f.State())
			}
		}
	}
}

// placeLog is a log that keeps no bytes: it remembers where in the stream the
// byte of each offset stood, as long as frames are the recorded ones.
type placeLog struct {
	end, tail int64
	at        int64                // position in the stream
	body      map[int64]int64      // offset of a frame's first body byte: its position
	frame     struct{ o, p int64 } // the frame being stored
}

func (l *placeLog) feed(t *testing.T, f *Follower, b []byte) {
	for len(b) > 0 {
		w := f.Want()
		n := int(min(w.Bytes, int64(len(b))))
		switch w.Kind {
		case WantHeader:
			took, err := f.Header(b[:n], Range{0, l.end}, 0)
			if err != nil {
				t.Fatal(err)
			}
			n = took
		case WantCompare:
			t.Fatal("nothing is to be compared")
		case WantStore:
			if p, ok := l.body[w.Offset]; ok {
				l.frame.o, l.frame.p = w.Offset, p
			}
			if w.Offset != l.end+l.tail || w.Offset-l.frame.o != l.at-l.frame.p {
				t.Fatalf("position %d of the stream is stored at offset %d", l.at, w.Offset)
			}
			l.tail += int64(n)
			publish := f.Stored(int64(n), 0)
			l.end += publish
			l.tail -= publish
		}
		l.at += int64(n)
		b = b[n:]
	}
}

// The recorded stream in two pieces, cut at every place there is. A step of 1
// takes a second or two; under the race detector only some places are tried,
// and all of those in and around a header.
func TestRecordedMasterStreamAtEveryCut(t *testing.T) {
	c := readCapture(t)
	for conn := range 2 {
		stream, start := c.stream(conn, "m2s"), Range{}
		if conn == 1 {
			start.End = c.ends[0]
		}
		body, nearHeader := map[int64]int64{}, map[int]bool{}
		for at := 0; at < len(stream); {
			f := ParseFrame(stream[at:])
			if f.Bytes > 0 {
				body[f.Offset] = int64(at + FrameHeaderBytes)
			}
			for i := at - 2; i <= at+FrameHeaderBytes+2; i++ {
				nearHeader[i] = true
			}
			at += FrameHeaderBytes + int(f.Bytes)
		}
		for cut := range stream {
			if (invariant.Enabled || testing.Short()) && cut%997 != 0 && !nearHeader[cut] {
				continue
			}
			f := captureFollower(t, start)
			l := &placeLog{end: start.End, body: body}
			l.feed(t, f, stream[:cut])
			l.feed(t, f, stream[cut:])
			if l.end != c.ends[conn] || l.tail != 0 {
				t.Fatalf("connection %d cut at %d: the log ends at %d with %d bytes behind, recorded %d", conn, cut, l.end, l.tail, c.ends[conn])
			}
		}
	}
}

// The recorded slave's reports, in the recorded order with the frames that the
// real master had sent by then, give the recorded progress; and our session
// would have sent the same frames.
func TestRecordedSlaveStreamGivesTheRecordedProgress(t *testing.T) {
	c := readCapture(t)
	for what, size := range map[string]int{"as recorded": 1 << 30, "single bytes": 1, "3 bytes": 3} {
		for conn := range 2 {
			replayReports(t, c, conn, size, what)
		}
	}
}

func replayReports(t *testing.T, c *capture, conn, size int, what string) {
	var s *Session
	log := Range{0, 0}
	if conn == 1 {
		log.End = c.ends[0]
	}
	var unframed []byte // of the master's stream
	reports := 0
	for _, e := range c.events {
		now := time.Duration(e.MS * float64(time.Millisecond))
		switch {
		case e.Conn != conn:
		case e.Event == "open":
			s = NewSession(SessionConfig{Peer: "recorded", SegmentBytes: captureSegment}, now)
		case e.Dir == "s2m":
			b := c.streams["s2m"][e.Offset:][:e.Bytes]
			for _, piece := range pieces(b, size) {
				if err := s.Feed(piece, log, now); err != nil {
					t.Fatalf("%s, connection %d at %v: %v", what, conn, now, err)
				}
			}
			reports += e.Bytes / ReportBytes
			if last := ParseReport(b[len(b)-ReportBytes:]); s.Acked() != last {
				t.Errorf("%s, connection %d at %v: acked %d, reported %d", what, conn, now, s.Acked(), last)
			}
		case e.Dir == "m2s":
			unframed = append(unframed, c.streams["m2s"][e.Offset:][:e.Bytes]...)
			unframed = resend(t, s, &log, unframed, now)
		}
		if s != nil && s.Expired(now) != nil {
			t.Fatalf("%s, connection %d at %v: %v", what, conn, now, s.Expired(now))
		}
	}
	if want := len(c.stream(conn, "s2m")) / ReportBytes; s.Acked() != c.ends[conn] || s.SentOffset() != c.ends[conn] || reports != want {
		t.Errorf("%s, connection %d: acked %d, sent %d after %d reports, recorded %d and %d", what, conn, s.Acked(), s.SentOffset(), reports, c.ends[conn], want)
	}
}

// resend makes the session send the recorded frames, each as far as it was
// recorded. A body in two pieces is told at its end only.
func resend(t *testing.T, s *Session, log *Range, b []byte, now time.Duration) (rest []byte) {
	for len(b) >= FrameHeaderBytes {
		f := ParseFrame(b)
		if len(b) < FrameHeaderBytes+int(f.Bytes) {
			return b
		}
		b = b[FrameHeaderBytes+int(f.Bytes):]
		if f.Bytes > 0 {
			log.End = f.End()
			if got, ok := s.Next(*log, now); !ok || got != f {
				t.Fatalf("at %v the session sends %v, %v; recorded %v", now, got, ok, f)
			}
		}
		s.Sent(f, 0, now)
		s.Sent(f, f.Bytes, now)
	}
	return b
}
