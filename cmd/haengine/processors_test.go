package main

import "testing"

func TestProcessorsForProducers(t *testing.T) {
	for _, c := range []struct {
		name                 string
		procs, cores, expect int
	}{
		{"one core", 1, 1, 0},
		{"two cores", 2, 2, 1},
		{"four cores", 4, 4, 1},
		{"many cores", 16, 16, 0},
		{"a quota of two on eight cores", 2, 8, 0},
	} {
		if got := producersProcessors(c.procs, c.cores); got != c.expect {
			t.Errorf("%s: %d more, want %d", c.name, got, c.expect)
		}
	}
}
