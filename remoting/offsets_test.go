package remoting

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func openOffsets(t testing.TB, o OffsetsOptions) *Offsets {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	of, err := OpenOffsets(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { of.Close() })
	return of
}

func mustCommit(t testing.TB, o *Offsets, group, topic string, queue int32, offset int64) {
	t.Helper()
	if err := o.Commit(group, topic, queue, offset, nil); err != nil {
		t.Fatal(err)
	}
}

// As fastjson writes it, with bare numbers as names, in its layout for people.
const realOffsets = `{
	"dataVersion":{
		"counter":4,
		"stateVersion":0,
		"timestamp":1795963032047
	},
	"groupTopicMap":{"CG1":["%RETRY%CG1","CapT"]},
	"offsetTable":{
		"CapT@CG1":{0:1,1:2
		},
		"%RETRY%CG1@CG1":{0:-1},
		"no group":{0:5}
	},
	"pullOffsetTable":{}
}`

func TestOffsetsReadWhatRocketMQWrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config", "consumerOffset.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(realOffsets), 0o600); err != nil {
		t.Fatal(err)
	}
	o := openOffsets(t, OffsetsOptions{File: file})
	if at, ok := o.Offset("CG1", "CapT", 1); !ok || at != 2 {
		t.Errorf("%d, %v", at, ok)
	}
	if got := o.Topics("CG1"); !slices.Equal(got, []string{"%RETRY%CG1", "CapT"}) {
		t.Errorf("topics %q", got)
	}
	const want = `{"dataVersion":{"counter":4,"stateVersion":0,"timestamp":1795963032047},` +
		`"offsetTable":{"%RETRY%CG1@CG1":{"0":-1},"CapT@CG1":{"0":1,"1":2}}}`
	if got := string(o.AppendJSON(nil)); got != want {
		t.Errorf("%s", got)
	}
}

func TestOffsetsAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config", "consumerOffset.json")
	o := openOffsets(t, OffsetsOptions{File: file, Interval: time.Millisecond})
	mustCommit(t, o, "g", "t", 3, 7)
	eventuallyRead(t, "it is written", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && bytes.Contains(text, []byte(`"3":7`))
	})
	mustCommit(t, o, "g", "t", 3, 8)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	again := openOffsets(t, OffsetsOptions{File: file, Interval: time.Hour})
	if at, ok := again.Offset("g", "t", 3); !ok || at != 8 {
		t.Errorf("after a restart: %d, %v", at, ok)
	}
	if err := again.Save(); err != nil { // nothing has changed
		t.Fatal(err)
	}
	for _, damage := range []string{"", "{", "null x"} {
		if err := os.WriteFile(file, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		if at, _ := openOffsets(t, OffsetsOptions{File: file}).Offset("g", "t", 3); at != 7 {
			t.Errorf("%q: the file before gives %d", damage, at)
		}
	}
	if err := os.WriteFile(file+".bak", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenOffsets(OffsetsOptions{File: file, Logger: quiet}); err == nil || !strings.Contains(err.Error(), file+".bak") {
		t.Errorf("both are damaged: %v", err)
	}
}

func TestAWriteThatFailsIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config", "consumerOffset.json")
	if err := os.WriteFile(filepath.Join(dir, "config"), nil, 0o600); err != nil { // where the directory should be
		t.Fatal(err)
	}
	o := openOffsetsAnyway(t, file)
	mustCommit(t, o, "g", "t", 0, 1)
	if err := o.Save(); err == nil {
		t.Fatal("no error")
	}
	if err := os.Remove(filepath.Join(dir, "config")); err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Contains(text, []byte(`"t@g"`)) {
		t.Errorf("%s, %v", text, err)
	}
}

// openOffsetsAnyway opens offsets whose directory cannot be one yet.
func openOffsetsAnyway(t *testing.T, file string) *Offsets {
	t.Helper()
	o := openOffsets(t, OffsetsOptions{Interval: time.Hour})
	o.o.File, o.file.path = file, file
	return o
}

func TestACommitThatGoesBackIsTakenAndLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	o := openOffsets(t, OffsetsOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	mustCommit(t, o, "g", "t", 0, 100)
	for at := int64(99); at > 89; at-- {
		if err := o.Commit("g", "t", 0, at, &reader{}); err != nil {
			t.Fatal(err)
		}
	}
	if at, _ := o.Offset("g", "t", 0); at != 90 {
		t.Errorf("the offset is %d", at)
	}
	if n := strings.Count(log.String(), "went back"); n != 1 || !strings.Contains(log.String(), "from_offset=100 to_offset=99") || !strings.Contains(log.String(), "192.0.2.1") {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

func TestOffsetsAreBounded(t *testing.T) {
	o := openOffsets(t, OffsetsOptions{Most: 2})
	o.NotePulled("g", "t", 1, 5)
	mustCommit(t, o, "g", "t", 0, 1)
	if err := o.Commit("h", "t", 0, 1, nil); !errors.Is(err, ErrTooManyOffsets) {
		t.Errorf("%v", err)
	}
	o.NotePulled("h", "t", 0, 5)
	mustCommit(t, o, "g", "t", 0, 2)
	if o.PullOffset("g", "t", 1) != 5 || o.PullOffset("h", "t", 0) != -1 {
		t.Error("pull offsets")
	}
	if text := o.AppendJSON(nil); !bytes.HasSuffix(text, []byte(`{"t@g":{"0":2}}}`)) {
		t.Errorf("what was only pulled is told: %s", text)
	}
	o.Remove("g", "t")
	mustCommit(t, o, "h", "t", 0, 1)
	mustCommit(t, o, "h", "u", 0, 1)
	if got := o.Groups("t"); !slices.Equal(got, []string{"h"}) {
		t.Errorf("groups %q", got)
	}
	o.Remove("", "t")
	if got := o.Topics("h"); !slices.Equal(got, []string{"u"}) {
		t.Errorf("topics %q", got)
	}
	for _, bad := range []struct {
		queue  int32
		offset int64
	}{{-1, 0}, {0, -2}} {
		if err := o.Commit("h", "u", bad.queue, bad.offset, nil); !errors.Is(err, ErrField) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestAMastersOffsetsReplaceOurs(t *testing.T) {
	o := openOffsets(t, OffsetsOptions{})
	mustCommit(t, o, "CG1", "CapT", 0, 50)
	mustCommit(t, o, "CG1", "CapT", 5, 50)
	if err := o.Merge([]byte(realOffsets), always); err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[int32]int64{0: 1, 1: 2, 5: 50} {
		if at, _ := o.Offset("CG1", "CapT", queue); at != want {
			t.Errorf("queue %d: %d, want %d", queue, at, want)
		}
	}
	other := openOffsets(t, OffsetsOptions{})
	if err := other.Merge(o.AppendJSON(nil), always); err != nil || !bytes.Equal(other.AppendJSON(nil), o.AppendJSON(nil)) {
		t.Errorf("%v: %s", err, other.AppendJSON(nil))
	}
	if err := o.Merge([]byte("[]"), always); err == nil {
		t.Error("no error")
	}
}

func FuzzQuoteKeys(f *testing.F) {
	for _, text := range []string{realOffsets, `{"a":[1,2,{-3:4}],"b":"{1:2}\"{3:4}", 5 : 6}`, `{1`, `,7:`, "{\"\\"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		quoted := quoteKeys(text)
		if json.Valid(text) && !bytes.Equal(quoted, text) {
			t.Errorf("%q became %q", text, quoted)
		}
		if again := quoteKeys(quoted); json.Valid(quoted) && !bytes.Equal(again, quoted) {
			t.Errorf("%q became %q", quoted, again)
		}
	})
}

func TestQuoteKeys(t *testing.T) {
	for text, want := range map[string]string{
		`{0:1,-12 : 2}`:                `{"0":1,"-12" : 2}`,
		`{"a,3:4":[1,2],"b":{ 7:"8"}}`: `{"a,3:4":[1,2],"b":{ "7":"8"}}`,
		`{"x":"\",1:2"}`:               `{"x":"\",1:2"}`,
	} {
		if got := string(quoteKeys([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func BenchmarkCommit(b *testing.B) {
	o := openOffsets(b, OffsetsOptions{})
	for i := range 1000 {
		mustCommit(b, o, fmt.Sprintf("group-%d", i%10), fmt.Sprintf("topic-%d", i%100), int32(i/100), 1)
	}
	b.ReportAllocs()
	at := int64(1)
	for b.Loop() {
		at++
		if err := o.Commit("group-1", "topic-1", 1, at, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// Pulls of groups that commit nothing take no room from those that do.
func TestPullsLeaveRoomForCommits(t *testing.T) {
	o, err := OpenOffsets(OffsetsOptions{Most: 8, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for queue := range int32(100) {
		o.NotePulled("broadcast", "t", queue, 7)
	}
	for queue := range int32(4) {
		if err := o.Commit("g", "t", queue, 1, nil); err != nil {
			t.Fatal(err)
		}
		o.NotePulled("g", "t", queue, 5)
		if got := o.PullOffset("g", "t", queue); got != 5 {
			t.Errorf("queue %d: pulled at %d", queue, got)
		}
	}
	if err := o.Commit("g", "t", 4, 1, nil); !errors.Is(err, ErrTooManyOffsets) {
		t.Errorf("one more: %v", err)
	}
}
