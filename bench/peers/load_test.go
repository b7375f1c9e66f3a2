package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAPhaseIsReadAsInterops(t *testing.T) {
	got, err := parsePhase("size=16384,threads=8,seconds=2.5,outstanding=1000,count=7")
	if want := (phase{16384, 8, 1000, 2.5, 7}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, wrong := range []string{"size", "size=x", "threads=-1", "seconds=NaN", "mode=sync", "", "count=1e300"} {
		if _, err := parsePhase(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestQuantilesAreOfAllPuts(t *testing.T) {
	took := make([]int64, 1000)
	for i := range took {
		took[i] = int64(1000-i) * 1000 // 1 to 1000 µs, the longest first
	}
	e := phaseEvent(took, 2)
	if e.Messages != 1000 || e.Seconds != 2 || *e.P50 != 501 || *e.P99 != 991 || *e.P999 != 1000 || *e.Max != 1000 || e.Status[statusOK] != 1000 {
		t.Errorf("%+v: %v %v %v %v", e, *e.P50, *e.P99, *e.P999, *e.Max)
	}
	if _, err := phaseEvent(nil, 2).result(Usage{}); err == nil {
		t.Error("a phase without a put has a result")
	}
}

func TestPutsThatFailedAreCounted(t *testing.T) {
	e := phaseEvent([]int64{1, 2, 3}, 1)
	e.Status = map[string]int64{statusOK: 1, "FLUSH_SLAVE_TIMEOUT": 2}
	if r, err := e.result(Usage{}); err != nil || r.Failed != 2 {
		t.Errorf("%d failed, %v; want 2", r.Failed, err)
	}
}

// countTo says more n times.
func countTo(n int) func() bool {
	var said atomic.Int64
	return func() bool { return said.Add(1) <= int64(n) }
}

func TestAPipelineKeepsExactlySoManyUnderWay(t *testing.T) {
	const most, puts = 5, 200
	var mu sync.Mutex
	under, highest := 0, 0
	full := make(chan struct{}) // closed when as many as may be are under way: only then one ends
	late, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ended := 0
	err := inOrder(most, countTo(puts),
		func() (int, error) {
			mu.Lock()
			defer mu.Unlock()
			under++
			if highest = max(highest, under); under == most {
				select {
				case <-full:
				default:
					close(full)
				}
			}
			return 0, nil
		},
		func(int) error {
			select {
			case <-full:
			case <-late.Done():
				return errors.New("fewer than may be are under way")
			}
			mu.Lock()
			defer mu.Unlock()
			under--
			return nil
		},
		func(time.Time) { ended++ })
	if err != nil || highest != most || ended != puts || under != 0 {
		t.Errorf("%v; at most %d under way, want %d; %d ended, want %d; %d left", err, highest, most, ended, puts, under)
	}
}

func TestAPipelineEndsWithItsFirstFailure(t *testing.T) {
	lost := errors.New("lost")
	begun := 0
	err := inOrder(3, countTo(1_000_000), func() (int, error) { begun++; return begun, nil },
		func(n int) error {
			if n == 10 {
				return lost
			}
			return nil
		}, func(time.Time) {})
	if !errors.Is(err, lost) || begun == 1_000_000 {
		t.Errorf("%v after %d puts", err, begun)
	}
	if err := inOrder(3, countTo(10), func() (int, error) { return 0, lost }, func(int) error { return nil }, func(time.Time) {}); !errors.Is(err, lost) {
		t.Errorf("a put that does not begin: %v", err)
	}
}

func TestANodeThatDoesNotStartSaysWhy(t *testing.T) {
	p, err := launchNode("node", "raft", "--id", "7", "--members", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer p.kill()
	_, err = p.await(t.Context(), "serving")
	if err == nil || !strings.Contains(err.Error(), `no member "7"`) {
		t.Errorf("%v; want the node's reason", err)
	}
}
