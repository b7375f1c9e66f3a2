package remoting

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// offsetsNote is RocketMQ's ConsumerOffsetManager in JSON. It writes the numbers
// of queues without quotes, which Go cannot read; see quoteKeys.
type offsetsNote struct {
	DataVersion DataVersion                `json:"dataVersion"`
	OffsetTable map[string]map[int32]int64 `json:"offsetTable"`
}

// AppendJSON appends all offsets as the answer to 43 has them, and the file:
// compact, sorted, the numbers of queues in quotes, which RocketMQ reads, too.
func (o *Offsets) AppendJSON(dst []byte) []byte {
	o.mu.Lock()
	all, version := o.committedLocked(), o.version
	o.mu.Unlock()
	return appendOffsets(dst, all, version)
}

// committed is one committed offset, apart from the table.
type committed struct {
	offsetKey
	queue  int32
	offset int64
}

// committedLocked copies what was committed: event loops wait for the lock, so that
// nothing is sorted or written under it.
func (o *Offsets) committedLocked() []committed {
	all := make([]committed, 0, o.count)
	for k, queues := range o.table {
		for id, q := range queues {
			if q.known {
				all = append(all, committed{k, id, q.committed})
			}
		}
	}
	return all
}

func appendOffsets(dst []byte, all []committed, version DataVersion) []byte {
	slices.SortFunc(all, func(a, b committed) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), strings.Compare(a.group, b.group), cmp.Compare(a.queue, b.queue))
	})
	dst = version.AppendJSON(append(dst, `{"dataVersion":`...))
	dst = append(dst, `,"offsetTable":{`...)
	for i := range all {
		c := &all[i]
		switch {
		case i == 0 || c.offsetKey != all[i-1].offsetKey:
			if i > 0 {
				dst = append(dst, "},"...)
			}
			dst = append(appendText(dst, c.topic+"@"+c.group), `:{"`...)
		default:
			dst = append(dst, `,"`...)
		}
		dst = strconv.AppendInt(dst, int64(c.queue), 10)
		dst = strconv.AppendInt(append(dst, `":`...), c.offset, 10)
	}
	if len(all) > 0 {
		dst = append(dst, '}')
	}
	return append(dst, "}}"...)
}

// Merge takes over another broker's offsets, the answer to 43 or a file: those
// that are there replace ours, the others stay (SlaveSynchronize, putAll). None
// does if may gives an error by then: what is committed after that stays.
func (o *Offsets) Merge(text []byte, may func() error) error {
	var n offsetsNote
	if err := json.Unmarshal(quoteKeys(text), &n); err != nil {
		return fmt.Errorf("consumer offsets: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := may(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(n.OffsetTable)) {
		topic, group, ok := strings.Cut(name, "@")
		if !ok || strings.Contains(group, "@") {
			continue // RocketMQ does not look at it either
		}
		for id, offset := range n.OffsetTable[name] {
			q, err := o.entryLocked(group, topic, id)
			if err != nil {
				return err
			}
			o.changed = o.changed || !q.known || q.committed != offset
			q.committed, q.known = offset, true
		}
	}
	if n.DataVersion != (DataVersion{}) {
		o.version = n.DataVersion
	}
	return nil
}

func always() error { return nil }

// load reads the file, or its .bak if that cannot be read (ConfigManager.load).
func (o *Offsets) load() error {
	if o.o.File == "" {
		return nil
	}
	err := o.file.load(func(text []byte) error { return o.Merge(text, always) })
	o.changed = false
	return err
}

// Save writes the file if anything has changed, durably, and keeps the one before
// as .bak (MixAll.string2File).
func (o *Offsets) Save() error {
	o.mu.Lock()
	if o.o.File == "" || !o.changed {
		o.mu.Unlock()
		return nil
	}
	all, version := o.committedLocked(), o.version
	o.changed = false
	o.mu.Unlock()
	err := o.file.save(appendOffsets(nil, all, version))
	if err != nil {
		o.mu.Lock()
		o.changed = true
		o.mu.Unlock()
		return fmt.Errorf("write consumer offsets: %w", err)
	}
	return nil
}
