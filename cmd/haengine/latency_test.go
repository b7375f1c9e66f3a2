package main

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestQuantilesAreWithinTwoPercentOfASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Hour)), 1, 300).Draw(t, "ns")
		var l latencies
		for _, ns := range list {
			l.add(time.Duration(ns))
		}
		slices.Sort(list)
		for _, q := range []float64{0, 0.5, 0.99, 0.999, 1} {
			rank := min(max(int(q*float64(len(list))+0.5), 1), len(list))
			want, got := list[rank-1], int64(l.quantile(q))
			if got < want || float64(got) > float64(want)*1.02+1 {
				t.Fatalf("quantile %v is %d, want %d to 2%% more", q, got, want)
			}
		}
		if l.count() != int64(len(list)) || l.max.Load() != list[len(list)-1] {
			t.Fatalf("count %d max %d, want %d and %d", l.count(), l.max.Load(), len(list), list[len(list)-1])
		}
	})
}

func TestAddingALatencyAllocatesNothing(t *testing.T) {
	l := new(latencies)
	if n := testing.AllocsPerRun(1000, func() { l.add(123456) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
