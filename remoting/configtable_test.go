package remoting

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/haengine/haengine/engine"
)

// gatedDisk lets a write of a file through when it is told to.
type gatedDisk struct {
	engine.Disk
	writes chan struct{} // nil: all at once
	began  chan struct{}
}

func (d *gatedDisk) WriteFileAtomic(path string, data []byte) error {
	if d.writes != nil && !strings.HasSuffix(path, ".bak") {
		d.began <- struct{}{}
		<-d.writes
	}
	return d.Disk.WriteFileAtomic(path, data)
}

// A slave that is promoted while a copy of its master's topics waits to be written
// has topics of its own from then on.
func TestACopyOfTheMastersDoesNotUndoWhatAPromotedSlaveChanges(t *testing.T) {
	disk := &gatedDisk{Disk: engine.OSDisk(), began: make(chan struct{}, 8)}
	topics := openTopics(t, TopicsOptions{ConfigOptions: ConfigOptions{Dir: t.TempDir(), Disk: disk}})
	body := topics.AppendJSON(nil)
	disk.writes = make(chan struct{}, 8)
	first, copied, own := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	topics.Create(NewTopicConfig("first", 1), func(err error) { first <- err })
	<-disk.began
	var promoted atomic.Bool
	go func() {
		copied <- topics.Replace(body, func() error {
			if promoted.Load() {
				return errNoSlave
			}
			return nil
		})
	}()
	until(t, "the copy waits", func() bool {
		topics.table.mu.Lock()
		defer topics.table.mu.Unlock()
		return len(topics.table.mu.pending) == 1
	})
	promoted.Store(true)
	topics.Create(NewTopicConfig("own", 1), func(err error) { own <- err })
	for range 4 {
		disk.writes <- struct{}{}
	}
	if err := errors.Join(<-first, <-own); err != nil {
		t.Fatal(err)
	}
	if err := <-copied; !errors.Is(err, errNoSlave) {
		t.Errorf("the copy is taken over: %v", err)
	}
	for _, name := range []string{"first", "own"} {
		if _, ok := topics.Lookup(name); !ok {
			t.Errorf("topic %s is gone", name)
		}
	}
}

// Requests for all topics are answered on event loops.
func TestAllTopicsAreWrittenOnceForEachState(t *testing.T) {
	topics := openTopics(t, TopicsOptions{})
	done := make(chan error, 1000)
	for i := range cap(done) {
		topics.Create(NewTopicConfig(fmt.Sprintf("topic-%d", i), 8), func(err error) { done <- err })
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	before := topics.AppendJSON(nil)
	dst := make([]byte, 0, len(before))
	if n := testing.AllocsPerRun(10, func() { dst = topics.AppendJSON(dst[:0]) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if err := await(func(done func(error)) { topics.Delete("topic-7", done) }); err != nil {
		t.Fatal(err)
	}
	if err := await(func(done func(error)) { topics.Update(NewTopicConfig("topic-8", 3), done) }); err != nil {
		t.Fatal(err)
	}
	after := string(topics.AppendJSON(nil))
	if strings.Contains(after, `"topic-7"`) || !strings.Contains(after, `"topic-8":{"attributes":{},"order":false,"perm":6,"readQueueNums":3`) {
		t.Errorf("after changes: %s", after)
	}
}

// A field that is kept for a newer broker's sake may be anything.
func TestADeepFieldIsLaidOutInLittleSpace(t *testing.T) {
	const levels, items = 5000, 2000
	deep := `{"groupName":"g","x":` + strings.Repeat("[", levels) + strings.Repeat("1,", items) + "1" + strings.Repeat("]", levels) + "}"
	if _, err := ParseGroupConfig([]byte(deep)); err != nil {
		t.Fatal(err)
	}
	if n := len(appendIndented(nil, []byte(deep))); n > 20*len(deep) {
		t.Errorf("%d bytes become %d", len(deep), n)
	}
	if _, err := ParseGroupConfig([]byte(deep + strings.Repeat(" ", groupBytesMax))); !errors.Is(err, errParameter) {
		t.Errorf("a group of any size: %v", err)
	}
}

func TestATopicWithAsManyQueuesAsThereAreNumbersIsRefused(t *testing.T) {
	for _, queues := range []string{`"readQueueNums":2147483647`, `"writeQueueNums":65536`, `"readQueueNums":-1`} {
		body := `{"topicConfigTable":{"T":{` + queues + `}}}`
		topics := openTopics(t, TopicsOptions{})
		if err := topics.Replace([]byte(body), always); err == nil {
			t.Errorf("%s is taken", body)
		}
	}
}
