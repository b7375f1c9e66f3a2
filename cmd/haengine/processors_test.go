package main

import "testing"

func TestProcessorsBeyondTheCores(t *testing.T) {
	for _, c := range []struct {
		name                              string
		procs, cores, clientLoops, expect int
	}{
		{"one core", 1, 1, 0, 0},
		{"two cores", 2, 2, 0, 1},
		{"four cores", 4, 4, 0, 1},
		{"many cores", 16, 16, 0, 0},
		{"a quota of two on eight cores", 2, 8, 0, 0},
		{"clients on one core", 1, 1, 1, 1},
		{"clients on two cores", 2, 2, 2, 2},
		{"clients under a quota", 2, 8, 4, 4},
	} {
		if got := moreProcessors(c.procs, c.cores, c.clientLoops); got != c.expect {
			t.Errorf("%s: %d more, want %d", c.name, got, c.expect)
		}
	}
}
