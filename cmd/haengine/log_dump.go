package main

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/haengine/haengine/commitlog"
	"github.com/spf13/cobra"
)

// dumpOptions say what log dump prints.
type dumpOptions struct {
	store      string
	from, to   int64
	topic, key string
	limit      int64
	body       string
	marks      bool
	json       bool
}

func newLogDump() *cobra.Command {
	var o dumpOptions
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Print records, one a line",
		Long: "Prints records, one a line. Damage is a line of its own; reading goes on at the next\n" +
			"good record, and the exit code is 1. JSON is written as RocketMQ's own tools write\n" +
			"it, so that two dumps can be compared with cmp.",
		Example: "  haengine log dump --store ./a --limit 20\n" +
			"  haengine log dump --store ./a --topic load --body text\n" +
			"  haengine log dump --store ./a --marks --json > a.jsonl",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch o.body {
			case "none", "text", "base64":
			default:
				return usagef(cmd, "--body %q is none of text, base64, none", o.body)
			}
			if o.to < o.from {
				return usagef(cmd, "--to %d is below --from %d", o.to, o.from)
			}
			return dump(cmd, o)
		},
	}
	addStoreFlag(cmd, &o.store)
	o.to = math.MaxInt64
	cmd.Flags().Var((*wholeNumber)(&o.from), "from", "first `offset` (default: the log's beginning)")
	cmd.Flags().Var((*wholeNumber)(&o.to), "to", "end `offset`, itself not included (default: the log's end)")
	cmd.Flags().StringVar(&o.topic, "topic", "", "only records of this `topic`")
	cmd.Flags().StringVar(&o.key, "key", "", "only records with this `key` (KEYS or UNIQ_KEY)")
	cmd.Flags().Var((*wholeNumber)(&o.limit), "limit", "stop after so many `records` (0, the default: never)")
	cmd.Flags().StringVar(&o.body, "body", "none", "`how` to print bodies: none, text or base64")
	cmd.Flags().BoolVar(&o.marks, "marks", false, "also print end-of-segment fillers and the log's end")
	addJSONFlag(cmd, &o.json)
	return cmd
}

// wholeNumber is a pflag.Value that is 0 or more.
type wholeNumber int64

// Set implements pflag.Value.
func (n *wholeNumber) Set(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 0 {
		return errors.New("want a whole number, 0 or more")
	}
	*n = wholeNumber(v)
	return nil
}

// String implements pflag.Value; it is empty for what help need not show.
func (n *wholeNumber) String() string {
	if *n == 0 || *n == math.MaxInt64 {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}

// Type implements pflag.Value.
func (n *wholeNumber) Type() string { return "number" }

func dump(cmd *cobra.Command, o dumpOptions) error {
	l, err := openStore(cmd, o.store)
	if err != nil {
		return err
	}
	defer l.Close()
	if o.from > l.EndOffset() {
		return fmt.Errorf("--from %d is beyond the log, which ends at %d", o.from, l.EndOffset())
	}
	out := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
	d := &dumper{dumpOptions: o, out: out}
	show := newProgress(cmd.ErrOrStderr(), "reading", l.EndOffset()-max(o.from, l.MinOffset()))
	if isTerminal(cmd.OutOrStdout()) {
		show.w = nil // the lines that run by are progress enough
	}
	err = d.run(l, show)
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	if err == nil && d.damage > 0 {
		err = fmt.Errorf("the log is damaged in %s; see the damage lines", plural(d.damage, "place"))
	}
	return err
}

// dumper prints the items of one scan.
type dumper struct {
	dumpOptions
	out             *bufio.Writer
	line            []byte
	records, damage int64
}

func (d *dumper) run(l *commitlog.Log, show *progress) error {
	defer show.done()
	from := max(d.from, l.MinOffset())
	for item := range l.Scan(from, min(d.to, l.EndOffset())) {
		show.at(item.Offset - from)
		if !d.print(item) {
			return nil
		}
		if _, err := d.out.Write(d.line); err != nil {
			return err
		}
	}
	return nil
}

// print fills line with an item's text, empty if it is not asked for. It
// returns false when the limit is reached.
func (d *dumper) print(item commitlog.Item) bool {
	d.line = d.line[:0]
	item.Segment = filepath.Base(item.Segment)
	switch item.Kind {
	case commitlog.ItemRecord:
		if !d.wanted(item.Record) {
			return true
		}
		if d.limit > 0 && d.records == d.limit {
			return false
		}
		d.records++
		d.line = d.record(d.line, item.Record)
	case commitlog.ItemFiller:
		if d.marks {
			d.line = d.filler(d.line, item)
		}
	case commitlog.ItemDamage:
		d.damage++
		d.line = d.damaged(d.line, item)
	case commitlog.ItemEnd:
		if d.marks && d.to == math.MaxInt64 {
			d.line = d.end(d.line, item)
		}
	}
	return true
}

func (d *dumper) wanted(r *commitlog.Record) bool {
	if d.topic != "" && r.Topic != d.topic {
		return false
	}
	if d.key == "" {
		return true
	}
	if id, _ := r.Property("UNIQ_KEY"); id == d.key {
		return true
	}
	keys, _ := r.Property("KEYS")
	for k := range strings.SplitSeq(keys, " ") {
		if k == d.key {
			return true
		}
	}
	return false
}

func (d *dumper) record(line []byte, r *commitlog.Record) []byte {
	if d.json {
		return append(appendRecordJSON(line, r, d.body), '\n')
	}
	line = fmt.Appendf(line, "%d  %d B  %s/%d@%d  %s", r.PhysicalOffset, r.Size, printable(r.Topic), r.QueueID, r.QueueOffset, when(r.StoreTimestamp))
	for _, name := range []string{"KEYS", "TAGS"} {
		if v, ok := r.Property(name); ok {
			line = fmt.Appendf(line, "  %s=%s", strings.ToLower(name), printable(v))
		}
	}
	if t := r.SysFlag >> 2 & 3; t != 0 {
		line = fmt.Appendf(line, "  %s", []string{"", "prepared", "commit", "rollback"}[t])
	}
	if d.body != "none" {
		line = fmt.Appendf(line, "  %s", printable(bodyText(r.Body, d.body)))
	}
	return append(line, '\n')
}

func (d *dumper) filler(line []byte, item commitlog.Item) []byte {
	if !d.json {
		return fmt.Appendf(line, "%d  %d B  filler to the end of segment %s\n", item.Offset, item.Size, item.Segment)
	}
	line = fmt.Appendf(line, `{"blank":%d,"size":%d,"segment":`, item.Offset, item.Size)
	return append(appendJSONString(line, item.Segment), "}\n"...)
}

func (d *dumper) damaged(line []byte, item commitlog.Item) []byte {
	kind, detail := "unknown", ""
	if item.Err != nil {
		kind, detail = item.Err.Kind, item.Err.Detail
	}
	if !d.json {
		return fmt.Appendf(line, "%d  %d B  DAMAGE in segment %s: %s: %s\n", item.Offset, item.Size, item.Segment, kind, printable(detail))
	}
	line = fmt.Appendf(line, `{"damage":%d,"offset":%d,"size":%d,"kind":`, item.Offset, item.Offset, item.Size)
	line = append(appendJSONString(line, kind), `,"detail":`...)
	line = append(appendJSONString(line, detail), `,"segment":`...)
	return append(appendJSONString(line, item.Segment), "}\n"...)
}

func (d *dumper) end(line []byte, item commitlog.Item) []byte {
	if !d.json {
		return fmt.Appendf(line, "%d  end after %s\n", item.Offset, plural(d.records, "record"))
	}
	return fmt.Appendf(line, "{\"end\":%d,\"sizeWord\":%d,\"magicWord\":\"0x%08x\",\"messages\":%d}\n", item.Offset, item.SizeWord, item.MagicWord, d.records)
}
