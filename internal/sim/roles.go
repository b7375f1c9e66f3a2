package sim

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// termFile names the term that a store began as a master, as the engine's
// identity file does.
const termFile = "haengine.identity"

// seenFile names the last epoch that a store has heard of; in the engine's it is
// the same file.
const seenFile = "haengine.epoch-seen"

// term is the id of the term that the store began as a master; empty: none.
func (n *Node) term() string {
	b, err := n.disk.ReadFile(filepath.Join(store, termFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.world.fail("%s: %v", n.name, err)
	}
	return string(b)
}

func (n *Node) noteTerm(id string) error {
	return n.disk.WriteFileAtomic(filepath.Join(store, termFile), []byte(id))
}

// startEpoch begins a term if this master needs a new one: after an unclean
// stop it may have lost what a replica holds.
func (n *Node) startEpoch() error {
	list, found := n.log.Epochs(), n.log.Info()
	if k := len(list); k > 0 && n.term() == termName(list[k-1].ID) && found.CleanShutdown && found.Untouched {
		return nil
	}
	return n.beginEpoch()
}

// beginEpoch begins a term of this node's at the log's end. The number
// is its own last one's successor: two masters may take the same.
func (n *Node) beginEpoch() error {
	last := n.highestEpoch()
	if last == math.MaxInt32 {
		return errors.New("there is no epoch after the last one")
	}
	next := commitlog.Epoch{Number: last + 1, ID: n.world.random.Uint64() | 1, Start: n.log.EndOffset()}
	if err := n.noteEpoch(next.Number); err != nil {
		return err
	}
	if err := n.noteTerm(termName(next.ID)); err != nil {
		return err
	}
	if err := n.addEpoch(next); err != nil {
		return err
	}
	n.world.trace("%s begins epoch %d at %d", n.name, next.Number, next.Start)
	return nil
}

// highestEpoch is the last epoch that the node has heard of.
func (n *Node) highestEpoch() int32 { return max(lastOf(n.terms).Number, n.epochSeen()) }

func (n *Node) epochSeen() int32 {
	seen, err := n.disk.ReadFile(filepath.Join(store, seenFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.world.fail("%s: %v", n.name, err)
	}
	number, _ := strconv.ParseInt(string(seen), 10, 32) // none: 0
	return int32(number)
}

// noteEpoch makes it durable that a node is in an epoch.
func (n *Node) noteEpoch(number int32) error {
	if number <= n.epochSeen() {
		return nil
	}
	return n.disk.WriteFileAtomic(filepath.Join(store, seenFile), strconv.AppendInt(nil, int64(number), 10))
}

func termName(id uint64) string { return strconv.FormatUint(id, 16) }

// promote makes a slave a master. It has left its master when it fails, and
// dials it again.
func (n *Node) promote() error {
	w := n.world
	old := n.slave
	old.stop()
	end := n.log.EndOffset()
	_, err := n.log.TakeOver()
	n.resized = true
	if n.log.EndOffset() < end {
		n.claims.cut(n.log.EndOffset())
	}
	if err == nil {
		n.loadTerms()
		n.rings.restart()
		err = n.log.Flush()
	}
	if err == nil {
		err = n.beginEpoch()
	}
	if err != nil {
		w.trace("%s is not promoted: %v", n.name, err)
		if !n.excused(err) {
			w.fail("%s is not promoted: %v", n.name, err)
		}
		if err := n.follow(old.master); err != nil && !n.excused(err) {
			w.fail("%s does not go on: %v", n.name, err)
		}
		return err
	}
	n.upstream, n.slave = nil, nil
	w.newHistory(n)
	w.trace("%s is promoted at %d", n.name, n.log.EndOffset())
	return nil
}

// demote makes a running node follow another one, whatever it was.
func (n *Node) demote(master *Node) {
	w := n.world
	if n.slave != nil {
		n.slave.stop()
	} else {
		n.rings.expireReplicaWaits()
		n.shut = true
		n.endAll(&transfer.RefusalError{Code: transfer.RefusedStopping, Text: "this node is no master any more"})
		n.shut = false
	}
	w.trace("%s follows %s from now on", n.name, master.name)
	if err := n.follow(master); err != nil {
		if !n.excused(err) {
			w.fail("%s does not follow %s: %v", n.name, master.name, err)
		}
		n.upstream = master
		n.repair()
	}
}

// source is what frames tell of this node now.
func (n *Node) source() transfer.Source {
	s := transfer.Source{
		End: n.served().End, Time: n.world.monotonic().Add(n.skew).UnixMilli(), FlushWanted: n.rings.flushedAwaited(),
	}
	s.Confirmed = min(n.confirmedOffset(), s.End)
	if n.slave != nil {
		s.OnReplicas = n.slave.onReplicas
	} else {
		s.OnReplicas = n.world.cfg.Copies > 1
	}
	return s
}

// confirmedOffset is up to where a put with the node's own settings is complete.
func (n *Node) confirmedOffset() int64 {
	cfg, offset := &n.world.cfg, n.log.EndOffset()
	if n.slave != nil {
		if n.slave.confirmed >= 0 {
			offset = min(offset, n.slave.confirmed)
		}
		return offset
	}
	if cfg.SyncFlush {
		offset = min(offset, n.log.FlushedOffset())
	}
	if cfg.Copies > 1 {
		offset = min(offset, n.quorum.Committed(cfg.Ack, cfg.Copies-1))
		n.log.NoteConfirmed(offset)
	}
	raise(&n.confirmed, offset)
	return n.confirmed
}

// complete runs the completion pass of all rings.
func (n *Node) complete() {
	now := n.world.clock.Now()
	n.rings.replicated(n.quorum, now)
	n.rings.flush.Complete(n.log.FlushedOffset(), now)
	n.confirmedOffset() // keeps what was reached
}

// repair is the operator's: the log of a node that takes no more writes is
// opened again.
func (n *Node) repair() {
	if !n.up {
		return
	}
	n.world.trace("%s is restarted", n.name)
	n.stopHard(true, n.disk.Off())
	n.world.clock.After(n.world.upTo(2*time.Second), n.start)
}
