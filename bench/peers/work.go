package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Work is a load. Every record is put with an acknowledgement by another
// process, as far as the peer gives one.
type Work struct {
	Name        string `json:"name"`
	Title       string `json:"title"`
	Size        int    `json:"size_bytes"` // of a record's body
	Producers   int    `json:"producers"`
	Outstanding int    `json:"outstanding"` // puts under way for each producer
}

// catchUp is the name of the work that is no load: a replica that joins late.
const catchUp = "catchup"

// recordBytes is the body of a record where the size is not the subject.
const recordBytes = 1 << 10

func allWork() []Work {
	return []Work{
		{"sync-1-128", "1 producer, 128 B", 128, 1, 1},
		{"sync-1", "1 producer, 1 KiB", recordBytes, 1, 1},
		{"sync-1-16k", "1 producer, 16 KiB", 16 << 10, 1, 1},
		{"sync-8", "8 blocking producers, 1 KiB", recordBytes, 8, 1},
		{"sync-64", "64 blocking producers, 1 KiB", recordBytes, 64, 1},
		{"pipelined", "1,000 outstanding, 1 KiB", recordBytes, 1, 1000},
	}
}

// chooseWork picks works by a list of names, in the order of allWork.
func chooseWork(names string) (loads []Work, copies bool, err error) {
	all := allWork()
	if names == "" {
		return all, true, nil
	}
	wanted := strings.Split(names, ",")
	for _, name := range wanted {
		if name != catchUp && !slices.ContainsFunc(all, func(w Work) bool { return w.Name == name }) {
			var known []string
			for _, w := range all {
				known = append(known, w.Name)
			}
			return nil, false, fmt.Errorf("no work %q; works: %s, %s", name, strings.Join(known, ", "), catchUp)
		}
	}
	for _, w := range all {
		if slices.Contains(wanted, w.Name) {
			loads = append(loads, w)
		}
	}
	return loads, slices.Contains(wanted, catchUp), nil
}

// Result is what a driver did in a phase.
type Result struct {
	Messages int64         `json:"messages"`
	Took     time.Duration `json:"-"`
	Rate     float64       `json:"messages_per_second"`
	P50      float64       `json:"p50_us"`
	P99      float64       `json:"p99_us"`
	P999     float64       `json:"p999_us"`
	Max      float64       `json:"max_us"`
	Failed   int64         `json:"failed"` // puts among the messages that were not acknowledged
	Usage    Usage         `json:"usage"`
}

// Copy is what a catch-up took.
type Copy struct {
	FromStart time.Duration // since the replica's process was started
	FromFirst time.Duration // since it held something
	Usage     Usage
}

// result checks a driver's answer.
func (e event) result(u Usage) (Result, error) {
	if e.Messages == 0 || e.Seconds <= 0 || e.P50 == nil || e.P99 == nil || e.P999 == nil || e.Max == nil {
		return Result{}, fmt.Errorf("no put ended: %+v", e)
	}
	r := Result{
		Messages: e.Messages, Took: time.Duration(e.Seconds * float64(time.Second)), Rate: float64(e.Messages) / e.Seconds,
		P50: *e.P50, P99: *e.P99, P999: *e.P999, Max: *e.Max, Usage: u,
	}
	for status, n := range e.Status {
		if status != statusOK {
			r.Failed += n
		}
	}
	return r, nil
}
