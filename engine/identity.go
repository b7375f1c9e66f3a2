package engine

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/haengine/haengine/commitlog"
)

// identityFile stands at the store's root beside RocketMQ's files, which do not
// mind it.
const identityFile = "haengine.identity"

// idBytesMax lets the length of an id fit in a byte.
const idBytesMax = 255

// identity is who a store is: of which cluster, and which replica.
type identity struct {
	ClusterID string // empty: of none yet
	ReplicaID string
	Term      string // id of the term that this store began as a master, in hex; empty: none
	// Unverified tells that the log came from elsewhere and was not yet compared
	// with a master's; Differs that it was, and is another.
	Unverified, Differs bool
	// EpochSeen is the highest epoch that this store has heard of, whether its log
	// has it or not: a term of its own gets a higher number.
	EpochSeen int32
	// Doubtful tells that the end of the log may be what a master wrote and
	// nobody else has: consumers do not see it before a master was followed.
	Doubtful bool
}

// Errors of the identity file.
var (
	// ErrOtherCluster means that the store belongs to another cluster than asked.
	ErrOtherCluster = errors.New("store belongs to another cluster")
	// ErrIdentity means that the store's identity file says nothing usable.
	ErrIdentity = errors.New("identity file is damaged")
)

// identityNote is the identity file's content.
type identityNote struct {
	identity
	mark  commitlog.Mark             // of the directory that the identity belongs to; zero: not known
	other map[string]json.RawMessage // all fields; those of other versions are written again as they are
}

// idMistake says what is wrong with a cluster's or a replica's id; empty:
// nothing, as with the empty id.
func idMistake(id string) string {
	switch {
	case len(id) > idBytesMax:
		return fmt.Sprintf("is %d bytes long, want at most %d", len(id), idBytesMax)
	case !utf8.ValidString(id):
		return fmt.Sprintf("%q is not UTF-8", id)
	case strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Sprintf("%q has a control character", id)
	}
	return ""
}

// openIdentity reads the store's identity, or makes one at its first open. A
// store whose file was made in another directory is a copy and gets a replica
// id of its own: two replicas with one id would count as one. holdsLog tells
// that the store has a log already: if that came from elsewhere, it is compared
// before it follows a master. The log must be open, so that nobody else is at
// the file.
//
// It returns ErrIdentity for a damaged file, ErrOtherCluster, or the disk's
// error; then the file is as it was.
func (e *Engine) openIdentity(holdsLog bool) (identity, error) {
	disk := e.disk()
	path := filepath.Join(e.opts.Store, identityFile)
	was, err := readIdentity(disk, path)
	if err != nil {
		return was.identity, err
	}
	if want := e.opts.ClusterID; want != "" && was.ClusterID != "" && want != was.ClusterID {
		return was.identity, fmt.Errorf("%w: %s says %q, asked for %q", ErrOtherCluster, path, was.ClusterID, want)
	}
	is := was
	if is.mark, err = disk.Mark(e.opts.Store); err != nil {
		e.opts.Logger.Debug("the store's directory has no mark, so a copy of it is not noticed", "store", e.opts.Store, "error", err)
		is.mark = was.mark
	}
	is.ClusterID = cmp.Or(was.ClusterID, e.opts.ClusterID)
	copied := was.ReplicaID != "" && e.opts.ReplicaID == "" && is.mark.Differs(was.mark)
	if is.mark.Differs(was.mark) {
		is.Term = "" // the term is the other store's
	}
	if (was.ReplicaID == "" || is.mark.Differs(was.mark)) && holdsLog {
		is.Unverified = true
	}
	if is.ReplicaID = cmp.Or(e.opts.ReplicaID, was.ReplicaID); is.ReplicaID == "" || copied {
		is.ReplicaID = rand.Text()
	}
	if is.identity == was.identity && is.mark == was.mark {
		return is.identity, nil
	}
	if err := is.write(disk, path); err != nil {
		if is.identity == was.identity {
			// The mark alone is no reason to refuse a store that opened before,
			// as on a full disk. It is tried again at the next start.
			e.opts.Logger.Warn("the store's mark is not kept, so a copy of the store may not be noticed", "error", err)
			return is.identity, nil
		}
		return is.identity, fmt.Errorf("write identity: %w", err)
	}
	if copied {
		e.opts.Logger.Warn("the store looks like a copy of another replica's, so it is a new replica from now on; --replica-id keeps a chosen one",
			"store", e.opts.Store, "copy_of", was.ReplicaID, "replica_id", is.ReplicaID)
	}
	return is.identity, nil
}

// StoreIdentity is who a store says that it is.
type StoreIdentity struct {
	ClusterID string // empty: of none yet
	ReplicaID string // empty: it has never been opened by a node
}

// ReadIdentity reads a store's identity, beside a running node or not. It
// returns ErrIdentity for a damaged file.
func ReadIdentity(store string) (StoreIdentity, error) {
	n, err := readIdentity(commitlog.OSDisk(), filepath.Join(store, identityFile))
	return StoreIdentity{ClusterID: n.ClusterID, ReplicaID: n.ReplicaID}, err
}

// identityNow is who this node is. Any goroutine.
func (e *Engine) identityNow() identity { return *e.id.Load() }

// adoptCluster makes a store that is of no cluster yet one of its master's,
// durably.
func (e *Engine) adoptCluster(id string) error {
	if e.identityNow().ClusterID != "" || id == "" {
		return nil
	}
	if err := e.changeIdentity(func(own *identity) { own.ClusterID = id }); err != nil {
		return err
	}
	e.opts.Logger.Info("the store belongs to its master's cluster from now on", "cluster_id", id)
	return nil
}

// changeIdentity changes the node's identity and its file, durably. Any
// goroutine; not for a loop.
func (e *Engine) changeIdentity(change func(*identity)) error {
	e.identifying.Lock()
	defer e.identifying.Unlock()
	now := e.identityNow()
	change(&now)
	path := filepath.Join(e.opts.Store, identityFile)
	note, err := readIdentity(e.disk(), path)
	if err != nil {
		return err
	}
	note.identity = now
	if err := note.write(e.disk(), path); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	e.id.Store(&now)
	return nil
}

func (e *Engine) disk() commitlog.Disk {
	if e.opts.Disk != nil {
		return e.opts.Disk
	}
	return commitlog.OSDisk()
}

// readIdentity reads the file; the note of one that is not there is empty.
func readIdentity(disk commitlog.Disk, path string) (identityNote, error) {
	var n identityNote
	bad := func(format string, args ...any) (identityNote, error) {
		const advice = "remove it to get a new identity"
		return identityNote{}, fmt.Errorf("%w: %s: %s; %s", ErrIdentity, path, fmt.Sprintf(format, args...), advice)
	}
	data, err := disk.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err != nil {
		return n, fmt.Errorf("read identity: %w", err)
	}
	if !utf8.Valid(data) { // which json would mend
		return bad("it is not UTF-8")
	}
	if err := json.Unmarshal(data, &n.other); err != nil {
		return bad("it is no JSON object: %v", err)
	}
	for _, field := range []struct {
		name string
		into *string
	}{{"cluster_id", &n.ClusterID}, {"replica_id", &n.ReplicaID}, {"term", &n.Term}} {
		if text, ok := n.other[field.name]; ok {
			if err := json.Unmarshal(text, field.into); err != nil {
				return bad("%s is %s, want a string", field.name, text)
			}
		}
		if mistake := idMistake(*field.into); mistake != "" {
			return bad("%s %s", field.name, mistake)
		}
	}
	if n.ReplicaID == "" {
		return bad("replica_id is missing or empty")
	}
	for _, field := range []struct {
		name string
		into *bool
	}{{"unverified", &n.Unverified}, {"differs", &n.Differs}, {"doubtful", &n.Doubtful}} {
		if text, ok := n.other[field.name]; ok && json.Unmarshal(text, field.into) != nil {
			return bad("%s is %s, want true or false", field.name, text)
		}
	}
	if text, ok := n.other["epoch_seen"]; ok && (json.Unmarshal(text, &n.EpochSeen) != nil || n.EpochSeen < 0) {
		return bad("epoch_seen is %s, want a number", text)
	}
	if text, ok := n.other["mark"]; ok && json.Unmarshal(text, &n.mark) != nil {
		n.mark = commitlog.Mark{} // one that cannot be read says nothing
	}
	return n, nil
}

// write replaces the file, durably.
func (n identityNote) write(disk commitlog.Disk, path string) error {
	fields := map[string]any{}
	for name, text := range n.other {
		fields[name] = text
	}
	fields["cluster_id"], fields["replica_id"] = n.ClusterID, n.ReplicaID
	for name, is := range map[string]bool{"unverified": n.Unverified, "differs": n.Differs, "doubtful": n.Doubtful} {
		delete(fields, name)
		if is {
			fields[name] = true
		}
	}
	delete(fields, "epoch_seen")
	if n.EpochSeen > 0 {
		fields["epoch_seen"] = n.EpochSeen
	}
	delete(fields, "term")
	if n.Term != "" {
		fields["term"] = n.Term
	}
	if n.mark != (commitlog.Mark{}) {
		fields["mark"] = n.mark
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return disk.WriteFileAtomic(path, append(data, '\n'))
}
