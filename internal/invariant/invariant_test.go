package invariant

import "testing"

// A broken invariant panics with its sentence when checks are on and passes
// when they are off: the same test holds with and without -race.
func TestBrokenInvariantPanicsOnlyWhenEnabled(t *testing.T) {
	defer func() {
		got := recover()
		var want any
		if Enabled {
			want = "invariant: the end went back"
		}
		if got != want {
			t.Errorf("enabled %v: recovered %v, want %v", Enabled, got, want)
		}
	}()
	Check(false, "the end went back")
}

func TestHeldInvariantIsSilentAndFree(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Check(true, "unused") }); n != 0 {
		t.Errorf("%v allocations a check, want 0", n)
	}
}
