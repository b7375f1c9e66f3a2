package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/haengine/haengine/commitlog"
	"github.com/spf13/cobra"
)

// logDiff is the comparison of two logs. Both hold [From, To); what one holds
// beyond is no difference, because a replica may lag.
type logDiff struct {
	Store     diffSide  `json:"store"`
	With      diffSide  `json:"with"`
	From      int64     `json:"common_from"`
	To        int64     `json:"common_to"`
	Equal     bool      `json:"equal"` // the common range is not empty and the same
	Differs   *int64    `json:"first_difference"`
	StoreItem *diffItem `json:"store_item,omitempty"`
	WithItem  *diffItem `json:"with_item,omitempty"`
	Notes     []string  `json:"notes"` // damage of either that makes a node read-only
}

type diffSide struct {
	Path      string `json:"path"`
	MinOffset int64  `json:"min_offset"`
	MaxOffset int64  `json:"max_offset"`
}

// diffItem is what stands at an offset on one side.
type diffItem struct {
	Kind   string      `json:"kind"` // record, filler, damage or end
	Offset int64       `json:"offset"`
	Size   int64       `json:"size_bytes"`
	Byte   int         `json:"byte"` // the value at the first difference
	Topic  string      `json:"topic,omitempty"`
	Record *diffRecord `json:"record,omitempty"`
	Text   string      `json:"text"`
}

// diffRecord tells which record an item is.
type diffRecord struct {
	QueueID        int32  `json:"queue_id"`
	QueueOffset    int64  `json:"queue_offset"`
	StoreTimestamp int64  `json:"store_timestamp_ms"`
	Keys           string `json:"keys,omitempty"`
}

// errLogsDiffer ends log diff with exit code 1; what differs is in the answer.
var errLogsDiffer = errors.New("the logs differ")

func newLogDiff() *cobra.Command {
	var (
		store, with string
		asJSON      bool
		secret      *secretFlag
	)
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Compare a log with another, or with a running node's",
		Long: "Compares two logs over the range that both hold. Exit code 1 if they differ there, or\n" +
			"hold no common range. That one is longer is no difference.\n\n" +
			"--with is a directory, compared byte by byte, or the HOST:PORT where replicas of a\n" +
			"running haengine node connect (its --ha-listen). The node gives checksums of its log,\n" +
			"so its bytes do not travel. A directory that is there comes first: write ./HOST:PORT\n" +
			"to be sure that a directory is meant.",
		Example: "  haengine log diff --store ./a --with ./b\n  haengine log diff --store ./b --with 127.0.0.1:10912\n" +
			"  haengine log diff --store ./a --with ./b --json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if with == "" {
				return usagef(cmd, "--with DIR or --with HOST:PORT is missing: the store or the node to compare with")
			}
			known, err := secret.read()
			if err != nil {
				return err
			}
			var d logDiff
			if isNode(with) {
				d, err = diffNode(cmd, store, with, known)
			} else {
				d, err = diffStores(cmd, store, with)
			}
			if err != nil {
				return err
			}
			if err := answer(cmd, asJSON, d, d.print); err != nil {
				return err
			}
			return d.verdict()
		},
	}
	addStoreFlag(cmd, &store)
	cmd.Flags().StringVar(&with, "with", "", "the other store directory, or HOST:PORT of a running node")
	secret = addSecretFlag(cmd)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func diffStores(cmd *cobra.Command, store, with string) (logDiff, error) {
	a, err := openStore(cmd, store)
	if err != nil {
		return logDiff{}, err
	}
	defer a.Close()
	b, err := openStore(cmd, with)
	if err != nil {
		return logDiff{}, err
	}
	defer b.Close()
	d := logDiff{
		Store: diffSide{store, a.MinOffset(), a.EndOffset()},
		With:  diffSide{with, b.MinOffset(), b.EndOffset()},
		From:  max(a.MinOffset(), b.MinOffset()),
		To:    min(a.EndOffset(), b.EndOffset()),
		Notes: append(damageNotes(a), damageNotes(b)...),
	}
	d.To = max(d.To, d.From)
	show := newProgress(cmd.ErrOrStderr(), "comparing", d.To-d.From)
	defer show.done()
	return d, d.compare(a, b, show)
}

func (d *logDiff) compare(a, b *commitlog.Log, show *progress) error {
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := d.From; at < d.To; {
		n := min(int64(len(x)), d.To-at)
		if err := readFull(a, x[:n], at); err != nil {
			return fmt.Errorf("%s: %w", d.Store.Path, err)
		}
		if err := readFull(b, y[:n], at); err != nil {
			return fmt.Errorf("%s: %w", d.With.Path, err)
		}
		if !bytes.Equal(x[:n], y[:n]) {
			i := 0
			for x[i] == y[i] {
				i++
			}
			offset := at + int64(i)
			d.Differs = &offset
			d.StoreItem, d.WithItem = itemAt(a, offset, x[i]), itemAt(b, offset, y[i])
			return nil
		}
		at += n
		show.chunk(at - d.From)
	}
	d.Equal = d.To > d.From
	return nil
}

func readFull(l *commitlog.Log, dst []byte, at int64) error {
	if n, err := l.ReadAt(dst, at); n < len(dst) {
		return fmt.Errorf("read the log at offset %d: %w", at+int64(n), err)
	}
	return nil
}

// itemAt describes what stands at offset, where the byte is b.
func itemAt(l *commitlog.Log, offset int64, b byte) *diffItem {
	for item := range l.Scan(segmentBase(l, offset), l.EndOffset()) {
		if item.Kind != commitlog.ItemEnd && item.Offset+item.Size <= offset {
			continue
		}
		d := &diffItem{Offset: item.Offset, Size: item.Size, Byte: int(b)}
		switch item.Kind {
		case commitlog.ItemRecord:
			d.Kind, d.Topic = "record", item.Record.Topic
			d.Record, d.Text = nameRecord(item.Record)
		case commitlog.ItemFiller:
			d.Kind, d.Text = "filler", "filler to the end of segment "+filepath.Base(item.Segment)
		case commitlog.ItemDamage:
			d.Kind, d.Text = "damage", fmt.Sprint(item.Err)
			if r, ok := recordWithin(l, item); ok {
				var text string
				d.Topic = r.Topic
				d.Record, text = nameRecord(r)
				d.Text += "; by its other bytes the " + text
			}
		case commitlog.ItemEnd:
			d.Kind, d.Text = "end", "the log's end"
		}
		return d
	}
	return &diffItem{Kind: "end", Offset: l.EndOffset(), Byte: int(b), Text: "the log's end"}
}

// nameRecord tells which record one is, for programs and for people.
func nameRecord(r *commitlog.Record) (*diffRecord, string) {
	keys, _ := r.Property("KEYS")
	text := fmt.Sprintf("record of topic %s queue %d queue offset %d, stored %s", printable(r.Topic), r.QueueID, r.QueueOffset, when(r.StoreTimestamp))
	if keys != "" {
		text += ", keys " + printable(keys)
	}
	return &diffRecord{r.QueueID, r.QueueOffset, r.StoreTimestamp, keys}, text
}

// recordWithin reads a record whose body alone is damaged.
func recordWithin(l *commitlog.Log, item commitlog.Item) (*commitlog.Record, bool) {
	if item.Err.Kind != commitlog.KindCRC {
		return nil, false
	}
	b := make([]byte, item.Size)
	if readFull(l, b, item.Offset) != nil {
		return nil, false
	}
	r, err := commitlog.DecodeRecord(b)
	return &r, err == nil
}

// verdict is nil when the logs agree over a common range.
func (d *logDiff) verdict() error {
	switch {
	case d.Differs != nil:
		return fmt.Errorf("%w at offset %d", errLogsDiffer, *d.Differs)
	case !d.Equal:
		return fmt.Errorf("%w: they hold no common range", errLogsDiffer)
	}
	return nil
}

// longer says which log has more than what both hold, if one has.
func (d *logDiff) longer() string {
	text := ""
	for _, side := range []*diffSide{&d.Store, &d.With} {
		if n := side.MaxOffset - d.To; n > 0 {
			text += fmt.Sprintf("; %s goes on for %s", side.Path, shortBytes(n))
		}
		if n := d.From - side.MinOffset; n > 0 {
			text += fmt.Sprintf("; %s begins %s earlier", side.Path, shortBytes(n))
		}
	}
	return text
}

func (d *logDiff) print(w io.Writer) {
	pairs := []any{
		d.Store.Path, fmt.Sprintf("%s to %s", count(d.Store.MinOffset), count(d.Store.MaxOffset)),
		d.With.Path, fmt.Sprintf("%s to %s", count(d.With.MinOffset), count(d.With.MaxOffset)),
		"both hold", fmt.Sprintf("%s to %s (%s)", count(d.From), count(d.To), shortBytes(d.To-d.From)),
	}
	switch {
	case d.Equal:
		pairs = append(pairs, "result", "equal"+d.longer())
	case d.Differs == nil:
		pairs = append(pairs, "result", "nothing to compare")
	default:
		pairs = append(pairs, "result", fmt.Sprintf("they differ first at offset %d", *d.Differs))
		for _, side := range []struct {
			path string
			item *diffItem
		}{{d.Store.Path, d.StoreItem}, {d.With.Path, d.WithItem}} {
			if side.item == nil {
				continue // a node's bytes are not fetched
			}
			pairs = append(pairs, "  "+side.path, fmt.Sprintf("byte 0x%02x, in the %d bytes from %d: %s", side.item.Byte, side.item.Size, side.item.Offset, side.item.Text))
		}
	}
	fields(w, pairs...)
	printNotes(w, d.Notes)
}
