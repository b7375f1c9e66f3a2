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
	defer o.mu.Unlock()
	return o.appendLocked(dst)
}

func (o *Offsets) appendLocked(dst []byte) []byte {
	dst = append(dst, `{"dataVersion":{"counter":`...)
	dst = strconv.AppendInt(dst, o.version.Counter, 10)
	dst = append(dst, `,"stateVersion":`...)
	dst = strconv.AppendInt(dst, o.version.StateVersion, 10)
	dst = append(dst, `,"timestamp":`...)
	dst = strconv.AppendInt(dst, o.version.Timestamp, 10)
	dst = append(dst, `},"offsetTable":{`...)
	keys := slices.SortedFunc(maps.Keys(o.table), func(a, b offsetKey) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), strings.Compare(a.group, b.group))
	})
	comma := ""
	for _, k := range keys {
		queues := o.table[k]
		if !anyCommitted(queues) {
			continue
		}
		name, err := json.Marshal(k.topic + "@" + k.group)
		if err != nil {
			continue // a text never fails
		}
		dst = append(append(append(dst, comma...), name...), `:{`...)
		comma = ""
		for _, id := range slices.Sorted(maps.Keys(queues)) {
			if !queues[id].known {
				continue
			}
			dst = append(append(dst, comma...), '"')
			dst = strconv.AppendInt(dst, int64(id), 10)
			dst = append(dst, `":`...)
			dst = strconv.AppendInt(dst, queues[id].committed, 10)
			comma = ","
		}
		dst = append(dst, '}')
		comma = ","
	}
	return append(dst, "}}"...)
}

// Merge takes over another broker's offsets, the answer to 43 or a file: those
// that are there replace ours, the others stay (SlaveSynchronize, putAll).
func (o *Offsets) Merge(text []byte) error {
	var n offsetsNote
	if err := json.Unmarshal(quoteKeys(text), &n); err != nil {
		return fmt.Errorf("consumer offsets: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
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

// load reads the file, or its .bak if that cannot be read (ConfigManager.load).
func (o *Offsets) load() error {
	if o.o.File == "" {
		return nil
	}
	err := o.file.load(o.Merge)
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
	text := o.appendLocked(nil)
	o.changed = false
	o.mu.Unlock()
	err := o.file.save(text)
	if err != nil {
		o.mu.Lock()
		o.changed = true
		o.mu.Unlock()
		return fmt.Errorf("write consumer offsets: %w", err)
	}
	return nil
}
