package transfer

import (
	"slices"
	"testing"
	"time"
)

func delays(n int, next func() time.Duration) (all []time.Duration) {
	for range n {
		all = append(all, next())
	}
	return all
}

func TestLossesGrowToAQuarterSecond(t *testing.T) {
	const ms = time.Millisecond
	longest := NewBackoff(func(int64) int64 { return 0 })
	want := []time.Duration{10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 250 * ms, 250 * ms}
	if got := delays(7, longest.Lost); !slices.Equal(got, want) {
		t.Errorf("without jitter %v, want %v", got, want)
	}
	shortest := NewBackoff(func(n int64) int64 { return n - 1 })
	for i, got := range delays(7, shortest.Lost) {
		if got != want[i]/2 {
			t.Errorf("delay %d with all jitter: %v, want %v", i, got, want[i]/2)
		}
	}
}

func TestRefusalsDoubleToHalfAMinute(t *testing.T) {
	b := NewBackoff(func(int64) int64 { panic("no jitter is drawn") })
	want := []time.Duration{1, 2, 4, 8, 16, 30, 30}
	for i := range want {
		want[i] *= time.Second
	}
	if got := delays(7, b.Refused); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSuccessStartsOver(t *testing.T) {
	b := NewBackoff(func(int64) int64 { return 0 })
	delays(5, b.Lost)
	if got := b.Refused(); got != time.Second {
		t.Errorf("losses made the first refusal wait %v", got)
	}
	b.Refused()
	if got := b.Lost(); got != 250*time.Millisecond {
		t.Errorf("refusals changed the losses' delay to %v", got)
	}
	b.Succeeded()
	if lost, refused := b.Lost(), b.Refused(); lost != 10*time.Millisecond || refused != time.Second {
		t.Errorf("after a success %v and %v", lost, refused)
	}
}
