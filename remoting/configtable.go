package remoting

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/engine"
)

// DataVersion tells one state of a configuration from another (RocketMQ
// DataVersion). All three differ or none: it is compared as a whole.
type DataVersion struct {
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // ms
	Counter      int64 `json:"counter"`
}

// AppendJSON appends the version as RocketMQ writes it.
func (v DataVersion) AppendJSON(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"counter":`...), v.Counter, 10)
	dst = strconv.AppendInt(append(dst, `,"stateVersion":`...), v.StateVersion, 10)
	dst = strconv.AppendInt(append(dst, `,"timestamp":`...), v.Timestamp, 10)
	return append(dst, '}')
}

var (
	// ErrConfigClosed refuses a change of a configuration that was closed.
	ErrConfigClosed = errors.New("the node is stopping")
	// ErrTooMany refuses one more of something that has a limit.
	ErrTooMany = errors.New("too many")
)

// ConfigOptions say where topics and subscription groups are kept. Only Dir must
// be given.
type ConfigOptions struct {
	Dir    string      // the store's directory; the files are in config/ below
	Disk   engine.Disk // nil: the operating system's
	Most   int         // entries at most; 0: 65536
	Bytes  int         // of them as JSON at most; 0: as many as one answer and one registration hold
	Logger *slog.Logger
	Now    func() time.Time // nil: time.Now
}

// copiedBytesMax is how much of a configuration goes into the one frame that slaves
// and name servers are told it with. With more, slaves would follow nothing any
// more, and the broker would vanish from name servers.
const copiedBytesMax = FrameBytesMax - 64<<10

func (o *ConfigOptions) setDefaults() {
	if o.Disk == nil {
		o.Disk = engine.OSDisk()
	}
	if o.Most == 0 {
		o.Most = 65536
	}
	if o.Bytes == 0 {
		o.Bytes = copiedBytesMax
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// table is a map of named settings that is kept in a file. Reading it takes an
// atomic load. Changes are applied by one goroutine that lives as long as there
// are some, so that nobody waits for the disk who must not: changes that come
// while it writes share the next write. A change is seen, by anyone, only when
// it is durable. Any goroutine.
type table[T any] struct {
	o       ConfigOptions
	file    configFile
	what    string // of one entry, for errors
	field   string // the file's field that holds the entries
	encode  func(T) object
	decode  func(name string, o object) (T, error)
	also    object // fields that other brokers are told beside ours; set before it is opened
	current atomic.Pointer[tableState[T]]
	rest    object                 // fields of the file that are not ours: the writer's
	size    int                    // the state's that the writer makes, for room; what is removed counts until it is written
	hook    func(changed []string) // called by the writer; set before there are changes

	mu struct {
		sync.Mutex
		pending []tableChange[T]
		writing bool
		closed  bool
	}
	writers sync.WaitGroup
}

// tableState is what a reader sees; it never changes.
type tableState[T any] struct {
	items   map[string]T
	texts   map[string][]byte // the items as JSON: written once for each change of one
	size    int               // bytes of those, with their names
	version DataVersion
	body    func() []byte // all as JSON, as other brokers are told; made when it is first asked for
}

// tableChange edits items, which are the writer's copy, and names what it has
// changed; if it fails it has changed nothing. done is told when that is
// durable, or why it is not.
type tableChange[T any] struct {
	apply   func(items map[string]T) (changed []string, err error)
	version *DataVersion // what the version becomes; nil: the next one
	done    func(error)
}

// open reads the file.
func (t *table[T]) open(o ConfigOptions, name string) error {
	o.setDefaults()
	t.o = o
	t.file = configFile{disk: o.Disk, path: filepath.Join(o.Dir, "config", name), log: o.Logger}
	t.rest = object{}
	t.current.Store(t.seal(&tableState[T]{items: map[string]T{}, texts: map[string][]byte{}}))
	return t.file.load(func(text []byte) error {
		state, rest, err := t.parse(text)
		if err != nil {
			return err
		}
		t.current.Store(state)
		t.rest = rest
		return nil
	})
}

// parse reads the text of a file, or of a body of the same form.
func (t *table[T]) parse(text []byte) (*tableState[T], object, error) {
	rest, err := parseObject(text)
	if err != nil {
		return nil, nil, err
	}
	state := &tableState[T]{items: map[string]T{}, texts: map[string][]byte{}}
	var entries map[string]object
	if err := rest.takeAll(objectField{"dataVersion", &state.version}, objectField{t.field, &entries}); err != nil {
		return nil, nil, err
	}
	for name, entry := range entries {
		if entry == nil {
			continue
		}
		if state.items[name], err = t.decode(name, entry); err != nil {
			return nil, nil, fmt.Errorf("%s %q: %w", t.what, name, err)
		}
		state.texts[name] = t.encode(state.items[name]).append(nil)
	}
	return t.seal(state), rest, nil
}

func (t *table[T]) lookup(name string) (T, bool) {
	v, ok := t.current.Load().items[name]
	return v, ok
}

// seal ends the making of a state.
func (t *table[T]) seal(state *tableState[T]) *tableState[T] {
	state.size = 0
	for name, text := range state.texts {
		state.size += entrySize(name, text)
	}
	state.body = sync.OnceValue(func() []byte { return t.format(state, t.also) })
	return state
}

// entrySize is what an entry takes in the JSON of all.
func entrySize(name string, text []byte) int { return len(name) + len(text) + len(`"":,`) }

// format gives a state with other fields around it, compact and in order.
func (t *table[T]) format(state *tableState[T], rest object) []byte {
	all := rest.clone()
	if all == nil {
		all = object{}
	}
	all["dataVersion"] = state.version.AppendJSON(nil)
	all[t.field] = nil // its place
	dst := append(make([]byte, 0, 256+state.size), '{')
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, name), ':')
		if name == t.field {
			dst = state.appendTexts(dst)
		} else {
			dst = appendCompact(dst, all[name])
		}
	}
	return append(dst, '}')
}

func (s *tableState[T]) appendTexts(dst []byte) []byte {
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(s.texts)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(appendText(dst, name), ':'), s.texts[name]...)
	}
	return append(dst, '}')
}

// appendBody appends what other brokers and tools are told: the table as it is
// now. It costs a copy, so that an event loop may be asked for it again and again.
func (t *table[T]) appendBody(dst []byte) []byte {
	return append(dst, t.current.Load().body()...)
}

// change has the writer do a change. done may be nil; it is called on the
// writer's goroutine, or at once if the table is closed.
func (t *table[T]) change(apply func(items map[string]T) ([]string, error), done func(error)) {
	t.enqueue(tableChange[T]{apply: apply, done: done})
}

// replace has the writer take over a whole state with its version, unless may
// says otherwise. That is asked when its turn has come: no change that was asked
// for after may has begun to refuse is undone.
func (t *table[T]) replace(state *tableState[T], may func() error, done func(error)) {
	t.enqueue(tableChange[T]{version: &state.version, done: done, apply: func(items map[string]T) ([]string, error) {
		if err := may(); err != nil {
			return nil, err
		}
		changed := slices.Collect(maps.Keys(items))
		clear(items)
		for name, v := range state.items {
			items[name] = v
			changed = append(changed, name)
		}
		slices.Sort(changed)
		return slices.Compact(changed), nil
	}})
}

func (t *table[T]) enqueue(c tableChange[T]) {
	if c.done == nil {
		c.done = func(err error) {
			if err != nil {
				t.o.Logger.Warn("a change of the configuration is not kept", "path", t.file.path, "error", err)
			}
		}
	}
	t.mu.Lock()
	if t.mu.closed {
		t.mu.Unlock()
		c.done(ErrConfigClosed)
		return
	}
	t.mu.pending = append(t.mu.pending, c)
	if !t.mu.writing {
		t.mu.writing = true
		t.writers.Go(t.write)
	}
	t.mu.Unlock()
}

// write works off what is pending, and ends when nothing is.
func (t *table[T]) write() {
	for {
		t.mu.Lock()
		batch := t.mu.pending
		t.mu.pending = nil
		if len(batch) == 0 {
			t.mu.writing = false
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		t.writeBatch(batch)
	}
}

func (t *table[T]) writeBatch(batch []tableChange[T]) {
	old := t.current.Load()
	next := &tableState[T]{items: maps.Clone(old.items), texts: maps.Clone(old.texts), version: old.version}
	t.size = old.size
	errs := make([]error, len(batch))
	var changed []string
	for i, c := range batch {
		var names []string
		if names, errs[i] = c.apply(next.items); errs[i] == nil {
			changed = append(changed, names...)
		}
		switch {
		case errs[i] == nil && c.version != nil:
			next.version = *c.version
		case len(names) > 0:
			next.version.Counter++
			next.version.Timestamp = t.o.Now().UnixMilli()
		}
	}
	var failed error
	if len(changed) > 0 || next.version != old.version {
		for _, name := range changed {
			if v, ok := next.items[name]; ok {
				next.texts[name] = t.encode(v).append(nil)
			} else {
				delete(next.texts, name)
			}
		}
		failed = t.install(t.seal(next), changed)
	}
	for i, c := range batch {
		if errs[i] == nil {
			errs[i] = failed
		}
		c.done(errs[i])
	}
}

// install makes a state durable and then the one that is seen.
func (t *table[T]) install(next *tableState[T], changed []string) error {
	if err := t.file.save(t.format(next, t.rest)); err != nil {
		return fmt.Errorf("write %s: %w", t.file.path, err)
	}
	t.current.Store(next)
	if t.hook != nil {
		t.hook(changed)
	}
	return nil
}

// room refuses an entry that makes the table too large, by itself or as one more.
// The writer's.
func (t *table[T]) room(items map[string]T, name string, v T) error {
	grows := entrySize(name, t.encode(v).append(nil))
	if old, there := items[name]; there {
		grows -= entrySize(name, t.encode(old).append(nil))
	} else if len(items) >= t.o.Most {
		return fmt.Errorf("%w: there are %d of at most %d (%s)", ErrTooMany, len(items), t.o.Most, t.what)
	}
	if grows > 0 && t.size+grows > t.o.Bytes {
		return fmt.Errorf("%w: with %s %s they would have %d bytes, of at most %d that slaves and name servers can be told", ErrTooMany, t.what, name, t.size+grows, t.o.Bytes)
	}
	t.size += max(grows, 0)
	return nil
}

// await is for those who may wait: it turns done into a result.
func await(start func(done func(error))) error {
	result := make(chan error, 1)
	start(func(err error) { result <- err })
	return <-result
}

// close refuses further changes and waits for those that are under way.
func (t *table[T]) close() {
	t.mu.Lock()
	t.mu.closed = true
	t.mu.Unlock()
	t.writers.Wait()
}
