package remoting

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/haengine/haengine/engine"
)

// brokenDisk fails to replace files as long as it is told to.
type brokenDisk struct {
	engine.Disk
	broken bool
}

var errBroken = errors.New("no space left")

func (d *brokenDisk) WriteFileAtomic(path string, data []byte) error {
	if d.broken {
		return errBroken
	}
	return d.Disk.WriteFileAtomic(path, data)
}

// realConfig copies the config directory of a real broker.
func realConfig(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "config"), os.DirFS("testdata/config")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readText(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeText(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sameJSON compares what two texts mean, bare keys and all.
func sameJSON(t testing.TB, got, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(quoteKeys([]byte(got)), &a); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	if err := json.Unmarshal(quoteKeys([]byte(want)), &b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("got  %v\nwant %v", a, b)
	}
}

// lineSet counts a text's lines: what stays the same when a map is written in
// another order.
func lineSet(text string) map[string]int {
	set := map[string]int{}
	for line := range strings.SplitSeq(text, "\n") {
		set[strings.TrimSuffix(line, ",")]++
	}
	return set
}

func TestBareIntegerKeysAreQuoted(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{0:1,1:125}`, `{"0":1,"1":125}`},
		{"{\n\t0 : {-1:[1,2,3]} , 12:\"{3:4}\"}", "{\n\t\"0\" : {\"-1\":[1,2,3]} , \"12\":\"{3:4}\"}"},
		{`{"a\"{1:2":{"1":2}}`, `{"a\"{1:2":{"1":2}}`},
		{`[1,2,{3:4}]`, `[1,2,{"3":4}]`},
		{`{1`, `{1`},
		{`{"a":1.5,2:-3}`, `{"a":1.5,"2":-3}`},
		{``, ``},
	} {
		if got := string(quoteKeys([]byte(c.in))); got != c.want {
			t.Errorf("%s became %s, want %s", c.in, got, c.want)
		}
	}
}

func FuzzQuoteKeysAndLayoutKeepValidJSON(f *testing.F) {
	f.Add(`{"a":{"1":[1,{}, "x\"y"]}}`)
	f.Add(`{1:2}`)
	f.Fuzz(func(t *testing.T, text string) {
		quoted := quoteKeys([]byte(text))
		if !json.Valid([]byte(text)) {
			return // only that it does not panic
		}
		if string(quoted) != text {
			t.Fatalf("valid JSON was changed: %q to %q", text, quoted)
		}
		var compact, back bytes.Buffer
		if err := json.Compact(&compact, quoted); err != nil {
			t.Fatal(err)
		}
		if err := json.Compact(&back, appendIndented(nil, compact.Bytes())); err != nil || back.String() != compact.String() {
			t.Fatalf("%q laid out is %q, %v", compact.String(), back.String(), err)
		}
	})
}

// A real broker's files are read, and written again they hold the same lines.
func TestConfigFilesOfARealBrokerAreReadAndWrittenAsTheyWere(t *testing.T) {
	dir := realConfig(t)
	topics, err := OpenTopics(TopicsOptions{ConfigOptions: ConfigOptions{Dir: dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer topics.Close()
	if c, ok := topics.Lookup("orders"); !ok || c.ReadQueues != 4 || c.WriteQueues != 4 || c.Perm != 6 || c.FilterType != filterSingleTag {
		t.Errorf("orders is %+v, %v", c, ok)
	}
	if v := topics.Version(); v != (DataVersion{Timestamp: 1796004504186, Counter: 2}) {
		t.Errorf("version %+v", v)
	}
	path := filepath.Join(dir, "config", "topics.json")
	before := readText(t, path)
	if before != readText(t, "testdata/config/topics.json") {
		t.Error("opening a broker's topics has changed the file")
	}
	if err := await(func(done func(error)) { topics.Create(NewTopicConfig("more", 3), done) }); err != nil {
		t.Fatal(err)
	}
	if got := readText(t, path+".bak"); got != before {
		t.Error("the backup is not the text before")
	}
	have := lineSet(readText(t, path))
	for line, n := range lineSet(before) {
		if !strings.Contains(line, `"counter"`) && !strings.Contains(line, `"timestamp"`) && have[line] < n {
			t.Errorf("line %q is there %d times, was %d", line, have[line], n)
		}
	}
	if have["\t\t\"more\":{"] != 1 || have["\t\t\"counter\":3"] != 1 {
		t.Errorf("the new topic or version is missing in %s", readText(t, path))
	}

	groups, err := OpenGroups(GroupsOptions{ConfigOptions: ConfigOptions{Dir: dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer groups.Close()
	sameJSON(t, string(groups.AppendJSON(nil)), readText(t, "testdata/config/subscriptionGroup.json"))
}

func TestUnknownFieldsOfConfigFilesAreKept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config", "topics.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	writeText(t, path, `{"dataVersion":{"counter":1},"later":{0:"x"},"topicConfigTable":{"a":{"topicName":"a","perm":6,"new":[1,2],"attributes":null}}}`)
	topics, err := OpenTopics(TopicsOptions{ConfigOptions: ConfigOptions{Dir: dir}, NoAutoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer topics.Close()
	if err := await(func(done func(error)) { topics.Update(NewTopicConfig("a", 2), done) }); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Later  map[string]string         `json:"later"`
		Topics map[string]map[string]any `json:"topicConfigTable"`
	}
	if err := json.Unmarshal([]byte(readText(t, path)), &got); err != nil {
		t.Fatal(err)
	}
	if got.Later["0"] != "x" || len(got.Topics["a"]["new"].([]any)) != 2 || got.Topics["a"]["readQueueNums"] != 2.0 {
		t.Errorf("the file became %s", readText(t, path))
	}
}

func TestADamagedConfigFileFallsBackToItsBackup(t *testing.T) {
	const bad = `{"topicConfigTable":{"orders":`
	for name, damage := range map[string]func(path string){
		"cut":     func(path string) { writeText(t, path, bad) },
		"empty":   func(path string) { writeText(t, path, " \n") },
		"missing": func(path string) { _ = os.Remove(path) },
		"another name": func(path string) {
			writeText(t, path, `{"topicConfigTable":{"orders":{"topicName":"other"}}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := realConfig(t)
			path := filepath.Join(dir, "config", "topics.json")
			damage(path)
			var log strings.Builder
			topics, err := OpenTopics(TopicsOptions{ConfigOptions: ConfigOptions{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))}})
			if err != nil {
				t.Fatal(err)
			}
			defer topics.Close()
			if v := topics.Version(); v.Counter != 1 || !strings.Contains(log.String(), "topics.json.bak") {
				t.Errorf("version %+v, log %s", v, log.String())
			}
			backup := readText(t, path+".bak")
			if err := await(func(done func(error)) { topics.Create(NewTopicConfig("more", 3), done) }); err != nil {
				t.Fatal(err)
			}
			if readText(t, path+".bak") != backup {
				t.Error("the good backup was replaced by what could not be read")
			}
		})
	}
	dir := realConfig(t)
	path := filepath.Join(dir, "config", "topics.json")
	writeText(t, path, bad)
	for _, backup := range []string{"", "{"} {
		writeText(t, path+".bak", backup)
		if _, err := OpenTopics(TopicsOptions{ConfigOptions: ConfigOptions{Dir: dir}}); !errors.Is(err, ErrConfigDamaged) {
			t.Errorf("two damaged files: %v", err)
		}
	}
	if err := os.Remove(path + ".bak"); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTopics(TopicsOptions{ConfigOptions: ConfigOptions{Dir: dir}}); !errors.Is(err, ErrConfigDamaged) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged file without a backup: %v", err)
	}
	if readText(t, path) != bad {
		t.Error("a refused file was changed")
	}
}

func TestAChangeThatCannotBeWrittenIsNotMade(t *testing.T) {
	disk := &brokenDisk{Disk: engine.OSDisk()}
	topics, err := OpenTopics(TopicsOptions{ConfigOptions: ConfigOptions{Dir: t.TempDir(), Disk: disk}})
	if err != nil {
		t.Fatal(err)
	}
	defer topics.Close()
	disk.broken = true
	before := topics.Version()
	err = await(func(done func(error)) { topics.Create(NewTopicConfig("a", 1), done) })
	if _, ok := topics.Lookup("a"); ok || !errors.Is(err, errBroken) || topics.Version() != before {
		t.Errorf("the topic is there: %v, %v", ok, err)
	}
	disk.broken = false
	if err := await(func(done func(error)) { topics.Create(NewTopicConfig("a", 1), done) }); err != nil {
		t.Error(err)
	}
	topics.Close()
	if err := await(func(done func(error)) { topics.Delete("a", done) }); !errors.Is(err, ErrConfigClosed) {
		t.Errorf("a change after Close: %v", err)
	}
}
