package remoting

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// fitsInAFrame tells that slaves and name servers can be told a body.
func fitsInAFrame(t *testing.T, what string, body []byte) {
	t.Helper()
	if n := len(body); n > FrameBytesMax-4<<10 || n < FrameBytesMax/2 {
		t.Errorf("all %s have %d bytes, want some less than a frame's %d", what, n, FrameBytesMax)
	}
}

// Whoever may make topics could make so many that slaves followed nothing any more,
// and that the broker fell out of all name servers that are not its own.
func TestAsManyTopicsAsMayBeFitInAFrame(t *testing.T) {
	topics := openTopics(t, TopicsOptions{ConfigOptions: ConfigOptions{Dir: t.TempDir()}})
	const many = 50_000
	errs := make(chan error, many)
	for i := range many {
		topics.Create(NewTopicConfig(fmt.Sprintf("%0*d", topicNameMax, i), 4), func(err error) { errs <- err })
	}
	refused := 0
	for range many {
		if err := <-errs; errors.Is(err, ErrTooMany) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("no topic is refused")
	}
	fitsInAFrame(t, "topics", topics.AppendJSON(nil))
	err := await(func(done func(error)) { topics.Create(NewTopicConfig(strings.Repeat("y", topicNameMax), 4), done) })
	if !errors.Is(err, ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	one := topics.Names()[100]
	narrow := NewTopicConfig(one, 4)
	narrow.Perm = PermRead
	if err := await(func(done func(error)) { topics.Update(narrow, done) }); err != nil {
		t.Errorf("a change that takes no room: %v", err)
	}
	if err := await(func(done func(error)) { topics.Delete(one, done) }); err != nil {
		t.Fatal(err)
	}
	if err := await(func(done func(error)) { topics.Create(NewTopicConfig(one, 4), done) }); err != nil {
		t.Errorf("one instead of one that was removed: %v", err)
	}
}

func TestAsManyGroupsAsMayBeFitInAFrame(t *testing.T) {
	g, err := OpenGroups(GroupsOptions{ConfigOptions: ConfigOptions{Dir: t.TempDir(), Logger: quiet}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	update := func(name, more string) error {
		c, err := ParseGroupConfig(fmt.Appendf(nil, `{"groupName":%q,"more":%q}`, name, more))
		if err != nil {
			t.Fatal(err)
		}
		return await(func(done func(error)) { g.Update(c, done) })
	}
	errs := make(chan error, 1200)
	for i := range cap(errs) { // each with a field of no use to us, which is kept
		c, err := ParseGroupConfig(fmt.Appendf(nil, `{"groupName":"g%d","more":%q}`, i, strings.Repeat("x", groupBytesMax-100)))
		if err != nil {
			t.Fatal(err)
		}
		g.Update(c, func(err error) { errs <- err })
	}
	refused := 0
	for range cap(errs) {
		if err := <-errs; errors.Is(err, ErrTooMany) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("no group is refused")
	}
	for i := range 100 { // what is left takes some that are made by themselves
		g.Lookup(fmt.Sprint("made", i))
	}
	g.table.writers.Wait()
	if _, ok := g.Lookup("onemore"); ok {
		t.Error("a group is made by itself where there is no room for it")
	}
	fitsInAFrame(t, "groups", g.AppendJSON(nil))
	if err := update("g0", "short"); err != nil {
		t.Errorf("a group that becomes smaller: %v", err)
	}
	if err := update("g0", strings.Repeat("x", groupBytesMax-100)); err != nil {
		t.Errorf("what it had before: %v", err)
	}
	if err := update("made0", strings.Repeat("x", groupBytesMax-100)); !errors.Is(err, ErrTooMany) {
		t.Errorf("a group that grows where there is no room: %v", err)
	}
}

func TestAsManyOffsetsAsMayBeFitInAFrame(t *testing.T) {
	o := openOffsets(t, OffsetsOptions{})
	group, last := strings.Repeat("g", groupNameMax), error(nil)
	n := 0
	for ; last == nil && n < 1<<20; n++ {
		last = o.Commit(group, fmt.Sprintf("%0*d", topicNameMax, n/4), int32(n%4), 1<<62, nil)
	}
	if !errors.Is(last, ErrTooManyOffsets) {
		t.Fatalf("%d offsets are taken, the last with %v", n, last)
	}
	body := o.AppendJSON(nil)
	fitsInAFrame(t, "offsets", body)
	if !json.Valid(body) {
		t.Error("no JSON")
	}
	if err := o.Commit(group, fmt.Sprintf("%0*d", topicNameMax, 0), 0, 7, nil); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	slave := openOffsets(t, OffsetsOptions{Bytes: 1}) // a copy is taken as it is
	if err := slave.Merge(body, always); err != nil {
		t.Fatal(err)
	}
	o.Remove(group, "")
	if o.bytes != 0 || o.count != 0 {
		t.Errorf("%d bytes of %d offsets are left of none", o.bytes, o.count)
	}
}
