package engine

import (
	"errors"
	"testing"

	"github.com/haengine/haengine/commitlog"
)

func TestABatchIsPulledAsOnePut(t *testing.T) {
	m := open(t, Options{})
	puts := m.NewCompletions(1)
	batch := []*Message{message("t", 3, "a"), message("t", 3, "b"), message("t", 3, "c")}
	if err := puts.TryPutBatch(batch, 7); err != nil {
		t.Fatal(err)
	}
	got := make([]Completion, 2)
	n, err := puts.Pull(context20(t), got)
	if err != nil || n != 1 || got[0].Tag != 7 || got[0].Err != nil || got[0].Result.Messages != 3 || got[0].Result.QueueOffset != 0 {
		t.Fatalf("pulled %d: %+v, %v", n, got[0], err)
	}
	at := got[0].Result.Offset
	for _, want := range batch {
		size, err := RecordSize(want)
		if err != nil {
			t.Fatal(err)
		}
		r, err := m.Get(at)
		if err != nil || string(r.Body) != string(want.Body) {
			t.Fatalf("record at %d: %+v, %v", at, r, err)
		}
		at += int64(size)
	}
	if at != got[0].Result.EndOffset {
		t.Errorf("the records end at %d, want %d", at, got[0].Result.EndOffset)
	}
	batch[1] = message("other", 3, "b")
	for range 3 { // each gives its place back
		if err := puts.TryPutBatch(batch, 8); !errors.Is(err, commitlog.ErrMessageIllegal) {
			t.Errorf("a batch of two topics: %v", err)
		}
	}
	if puts.Outstanding() != 0 {
		t.Errorf("%d are outstanding", puts.Outstanding())
	}
}

// An event loop puts with TryPut: it must not wait for a role either.
func TestTryPutDoesNotWaitForAChangeOfTheRole(t *testing.T) {
	m := open(t, Options{})
	puts := m.NewCompletions(1)
	release, err := m.holdPuts(context20(t), func() {})
	if err != nil {
		t.Fatal(err)
	}
	var refused *PutError
	if err := puts.TryPut(message("t", 0, "x"), 1); !errors.Is(err, ErrRoleChanging) || !errors.As(err, &refused) || refused.Status != PutServiceNotAvailable {
		t.Errorf("put while the role changes: %v", err)
	}
	release()
	if err := puts.TryPut(message("t", 0, "x"), 1); err != nil {
		t.Error(err)
	}
	if _, err := puts.Pull(context20(t), make([]Completion, 1)); err != nil {
		t.Error(err)
	}
}

func TestPropertiesAreCutOneByOne(t *testing.T) {
	text := "A\x01b\x02\x01x\x02no\x02C\x01d"
	var got []string
	for len(text) > 0 {
		var name, value string
		name, value, text = NextProperty(text)
		got = append(got, name+"="+value)
	}
	if want := "A=b = = C=d"; got[0]+" "+got[1]+" "+got[2]+" "+got[3] != want || len(got) != 4 {
		t.Errorf("got %q", got)
	}
}
