package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// greeted answers a master's hello: on a goroutine of its own our log is cut
// where the master's history leaves it, and the tail's checksum is computed;
// both wait for the disk. Nothing is taken from the socket meanwhile.
func (s *slave) greeted(master transfer.Hello) {
	s.pauseFor(func() (func(), error) {
		own, err := s.align(master)
		return func() {
			s.epoch, s.cluster = lastOf(own.Epochs), master.ClusterID
			s.shared.Lock()
			s.shared.connected, s.shared.node = s.address, master.ReplicaID
			s.shared.Unlock()
			s.out = append(s.out, s.follower.Answer(own, s.loop.Now())...)
			s.extended.Store(true)
			s.plain.Store(false)
			s.flushOut()
		}, err
	})
}

// pauseFor does work off the loop and takes no byte of this connection until
// what it returns has run on the loop. If the connection ends first, the next
// dial waits for the work: it may be cutting the log.
func (s *slave) pauseFor(work func() (then func(), err error)) {
	conn := s.conn
	s.preparing, s.working = true, true
	conn.WantRead(false)
	s.lookups.Add(1)
	go func() {
		defer s.lookups.Done()
		then, err := work()
		s.loop.Post(func() {
			s.working = false
			if s.dialLater {
				s.dialLater = false
				s.dial()
			}
			if s.conn != conn {
				return
			}
			s.preparing = false
			if err != nil {
				s.refuse(err)
				return
			}
			then()
			if s.conn == conn && !s.paused {
				conn.WantRead(true)
				s.Readable(conn)
			}
		})
	}()
}

// refuse ends the connection with a reason, which a haengine master is told
// first.
func (s *slave) refuse(why error) {
	if !errors.Is(why, transfer.ErrRefused) { // the disk's
		why = &transfer.RefusalError{Code: transfer.RefusedDamaged, Text: why.Error()}
	}
	words := s.follower.Refuse(why)
	if words == nil || len(s.out) > 0 {
		s.conn.Close(why)
		return
	}
	sayAndClose(s.conn, words, why)
}

// align makes our log a part of the master's history, and gives the hello that
// says so.
func (s *slave) align(master transfer.Hello) (transfer.Hello, error) {
	e := s.e
	own := e.hello()
	own.Log, own.Epochs = s.held(), *e.terms.Load()
	keep, err := transfer.Align(own, master, s.log.Confirmed())
	if err != nil {
		return own, err
	}
	// Before anything is cut for it: this node may become a master next.
	if err := e.noteEpoch(lastOf(master.Epochs).Number); err != nil {
		return own, err
	}
	if err := s.verify(own, master, keep); err != nil {
		return own, err
	}
	if keep < own.Log.End || transfer.Stale(own, master, keep) {
		if err := s.cut(keep, own.Log.End); err != nil {
			return own, err
		}
	}
	if own.Log.Empty() {
		return s.beginAt(own, master)
	}
	own.Log, own.Epochs = s.held(), *e.terms.Load()
	own.Start = own.Log.End
	own.TailFrom = min(max(own.Log.End-transfer.TailBytes, own.Log.Min, master.Log.Min), own.Log.End)
	own.TailSum, err = s.log.Checksum(own.TailFrom, own.Log.End)
	return own, err
}

// beginAt chooses where an empty log begins: at the master's first byte unless
// another place was asked for, and with the master's segment size unless one was
// given.
func (s *slave) beginAt(own, master transfer.Hello) (transfer.Hello, error) {
	if own.SegmentBytes != master.SegmentBytes {
		if s.e.opts.SegmentBytes != 0 {
			return own, &transfer.RefusalError{Code: transfer.RefusedSegments, Text: fmt.Sprintf("the master has segments of %d bytes, we were told to use %d", master.SegmentBytes, own.SegmentBytes)}
		}
		if err := s.log.AdoptSegmentBytes(master.SegmentBytes); err != nil {
			return own, err
		}
		own.SegmentBytes = master.SegmentBytes
		if s.e.master != nil {
			s.e.master.endAll(&transfer.RefusalError{Code: transfer.RefusedStopping, Text: "this node takes over its master's segment size"})
		}
	}
	var err error
	if own.Start, err = s.e.opts.From.base(master.Log, master.SegmentBytes); err != nil {
		return own, err
	}
	if err := s.log.StartAt(own.Start); err != nil {
		// It has its place already, and a file there, but no byte any more.
		if !errors.Is(err, commitlog.ErrNotEmpty) || !master.Log.Holds(own.Log.End) {
			return own, err
		}
		own.Start = own.Log.End
	}
	if own.Start > 0 {
		s.e.opts.Logger.Warn("this copy begins after the log's first byte", "master", s.master, "min_offset", own.Start, "master_min_offset", master.Log.Min, "from", s.e.opts.From.String())
	}
	s.e.loadTerms()
	own.Log, own.Epochs = s.held(), *s.e.terms.Load()
	own.TailFrom = own.Log.End
	return own, nil
}

// cut truncates our log to where the master's history leaves it.
func (s *slave) cut(to, end int64) error {
	if s.e.master != nil {
		// None may go on over the cut: what it was sent is not what follows.
		defer s.e.master.closeDoor(&transfer.RefusalError{Code: transfer.RefusedStopping, Text: fmt.Sprintf("this node's log is cut from %d to %d", end, to)})()
	}
	s.cuts.Add(1)
	aside, err := s.log.Truncate(to)
	if err != nil {
		return fmt.Errorf("cut our log to offset %d, where the master's history leaves it: %w", to, err)
	}
	s.e.loadTerms()
	if to == end {
		return nil // only terms without a byte
	}
	s.e.confirmed.Store(min(s.e.confirmed.Load(), to))
	s.e.opts.Logger.Warn("the log was cut to where the master's history leaves it", "master", s.master, "from_offset", end, "to_offset", to, "kept_in", aside)
	s.e.events.send(Event{Kind: LogCut, Offset: to})
	return nil
}

// heard takes over what a frame says of the master. A new term is in our list,
// durably, before a byte of it is in our log.
func (s *slave) heard(now time.Duration) {
	source := s.follower.Source()
	s.confirmed.Store(source.Confirmed)
	s.onReplicas.Store(source.OnReplicas)
	if source.OnReplicas {
		s.log.NoteConfirmed(min(source.Confirmed, s.log.EndOffset()))
	}
	s.shared.Lock()
	s.shared.source = source
	if s.log.EndOffset() >= source.End {
		s.shared.caughtUp = now
	}
	s.shared.Unlock()
	s.e.progress.wake()
	s.e.moved(VisibleConfirmed)
	if epoch := s.follower.Epoch(); epoch.Number > s.epoch.Number {
		s.enterEpoch(epoch)
	} else if s.cluster != "" {
		s.join(s.cluster)
	}
}

// join makes our store one of the master's cluster, now that the master has
// compared what we hold.
func (s *slave) join(cluster string) {
	s.cluster = ""
	if s.e.identityNow().ClusterID != "" {
		return
	}
	s.pauseFor(func() (func(), error) {
		return func() {}, s.e.adoptCluster(cluster)
	})
}

func (s *slave) enterEpoch(epoch transfer.Epoch) {
	s.epoch = epoch
	s.pauseFor(func() (func(), error) {
		return func() {}, errors.Join(s.e.noteEpoch(epoch.Number), s.e.addEpoch(commitlog.Epoch(epoch)))
	})
}

func lastOf(list []transfer.Epoch) transfer.Epoch {
	if len(list) == 0 {
		return transfer.Epoch{}
	}
	return list[len(list)-1]
}

// damaged is where damage was found in our log; -1: nowhere.
func (s *slave) damaged() int64 {
	if s.log.Writable() == nil {
		return -1
	}
	var damage *commitlog.CorruptError
	if errors.As(s.log.Writable(), &damage) {
		return damage.Offset
	}
	return -1
}
