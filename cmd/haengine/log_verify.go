package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/haengine/haengine/commitlog"
	"github.com/spf13/cobra"
)

type verifyAnswer struct {
	OK        bool      `json:"ok"`
	MinOffset int64     `json:"min_offset"`
	MaxOffset int64     `json:"max_offset"`
	Messages  int64     `json:"messages"`
	Bytes     int64     `json:"bytes"`
	Queues    int       `json:"queues"`
	Problems  []problem `json:"problems"`
	More      int64     `json:"problems_not_listed"`
	Notes     []string  `json:"notes"` // what is no problem, but worth knowing
}

type problem struct {
	Offset int64  `json:"offset"` // in the log; -1: none
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

// problemsListed bounds the answer about a log that is damaged all over.
const problemsListed = 1000

func (v *verifyAnswer) found(offset int64, kind, format string, args ...any) {
	if len(v.Problems) == problemsListed {
		v.More++
		return
	}
	v.Problems = append(v.Problems, problem{offset, kind, fmt.Sprintf(format, args...)})
}

func newLogVerify() *cobra.Command {
	var (
		store  string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every record, the segments and the consume queues",
		Long: "Checks every record's structure, position and checksum, that segments follow one\n" +
			"another, the fillers at their ends, and the consume queues against the log. Exit\n" +
			"code 1 if anything is wrong.",
		Example: "  haengine log verify --store ./a\n  haengine log verify --store ./a --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := verifyStore(cmd, store)
			if err != nil {
				return err
			}
			if err := answer(cmd, asJSON, v, v.print); err != nil {
				return err
			}
			if !v.OK {
				return fmt.Errorf("%s found in %s", plural(int64(len(v.Problems))+v.More, "problem"), store)
			}
			return nil
		},
	}
	addStoreFlag(cmd, &store)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func verifyStore(cmd *cobra.Command, store string) (verifyAnswer, error) {
	v := verifyAnswer{Problems: []problem{}, Notes: []string{}}
	l, err := openStore(cmd, store)
	if damage := (*commitlog.CorruptError)(nil); errors.As(err, &damage) {
		// What cannot even be opened is a finding, not a failure to look.
		v.found(damage.Offset, damage.Kind, "%v", err)
		return v, nil
	}
	if err != nil {
		return v, err
	}
	defer l.Close()
	v.verify(l, cmd.ErrOrStderr())
	return v, nil
}

// verify fills in what stands in an open log.
func (v *verifyAnswer) verify(l *commitlog.Log, stderr io.Writer) {
	v.MinOffset, v.MaxOffset = l.MinOffset(), l.EndOffset()
	v.Bytes = v.MaxOffset - v.MinOffset
	show := newProgress(stderr, "verifying", v.Bytes)
	defer show.done()
	standing := newStanding(l)
	queues := newQueueCheck(l, v, standing)
	for item := range l.Scan(v.MinOffset, v.MaxOffset) {
		show.at(item.Offset - v.MinOffset)
		switch item.Kind {
		case commitlog.ItemRecord:
			v.Messages++
			queues.record(item.Record)
		case commitlog.ItemDamage:
			if standing.gone(item.Offset) {
				continue
			}
			kind, detail := "unknown", ""
			if item.Err != nil {
				kind, detail = item.Err.Kind, item.Err.Detail
			}
			v.found(item.Offset, kind, "%d bytes in segment %s: %s", item.Size, filepath.Base(item.Segment), detail)
		}
	}
	queues.end()
	if d := l.Info().Damage; d != nil && !slices.ContainsFunc(v.Problems, func(p problem) bool { return p.Offset == d.Offset }) {
		v.found(d.Offset, d.Kind, "a node that opens the store is read-only: %v", d)
	}
	if standing.min > v.MinOffset {
		v.Notes = append(v.Notes, fmt.Sprintf("retention has removed the segments below offset %d meanwhile", standing.min))
	}
	slices.SortStableFunc(v.Problems, func(a, b problem) int { return cmp.Compare(a.Offset, b.Offset) })
	v.OK = len(v.Problems) == 0
}

func (v verifyAnswer) print(w io.Writer) {
	fields(w, "range", fmt.Sprintf("%s to %s (%s)", count(v.MinOffset), count(v.MaxOffset), shortBytes(v.Bytes)),
		"messages", count(v.Messages), "queues", v.Queues)
	printNotes(w, v.Notes)
	for _, p := range v.Problems {
		fmt.Fprintf(w, "problem at %d: %s: %s\n", p.Offset, p.Kind, printable(p.Detail))
	}
	if v.More > 0 {
		fmt.Fprintf(w, "and %s more\n", count(v.More))
	}
	if v.OK {
		fmt.Fprintln(w, "ok")
	}
}
