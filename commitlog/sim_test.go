package commitlog

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

var (
	simSeed = flag.Uint64("seed", 0, "seed of the simulations; 0: new ones")
	simRuns = flag.Int("runs", 60, "simulations to run")
)

// simulation drives a log on a twin with random steps, against a slice of what
// was appended. Kills keep everything, power cuts at least what a flush has
// acknowledged.
type simulation struct {
	t    *testing.T
	rng  *rand.Rand
	disk *Twin
	o    Options
	log  *Log

	all          []stored // in the log, or lost by the last crash
	acknowledged int64    // by Flush
	full         bool
	steps        []string
}

func TestRandomRunsAgainstAModel(t *testing.T) {
	runs := *simRuns
	if testing.Short() {
		runs = min(runs, 15)
	}
	for range runs {
		seed := *simSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("seed %d (replay: go test ./commitlog -run TestRandomRunsAgainstAModel -seed %d -runs 1)", seed, seed)
			newSimulation(t, seed).run(150)
		}) {
			return
		}
	}
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{t: t, rng: rand.New(rand.NewPCG(seed, 1)), disk: NewTwin(seed)}
	s.o = twinOptions(s.disk)
	s.o.SegmentBytes = int64(4096 << s.rng.IntN(3))
	s.o.Flush = FlushMode(s.rng.IntN(2))
	s.o.Preallocate = s.rng.IntN(3) > 0
	s.o.Limits.BodyBytes = 3000
	s.open()
	return s
}

func (s *simulation) fatal(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\nafter: %s", fmt.Sprintf(format, args...), strings.Join(s.steps, ", "))
}

// open opens the log and compares all of it with the model.
func (s *simulation) open() {
	s.t.Helper()
	l, err := Open(s.o)
	if err != nil {
		s.fatal("open: %v", err)
	}
	s.log = l
	defer func() {
		if s.t.Failed() {
			_ = l.Close()
			s.t.Logf("after: %s", strings.Join(s.steps, ", "))
		}
	}()
	checkPrefix(s.t, l, s.all, s.acknowledged)
	for len(s.all) > 0 && s.all[len(s.all)-1].EndOffset > l.EndOffset() {
		s.all = s.all[:len(s.all)-1]
	}
}

func (s *simulation) run(steps int) {
	for range steps {
		name := ""
		switch n := s.rng.IntN(100); {
		case n < 55:
			name = "append"
			s.appendSome()
		case n < 65:
			name = "flush"
			s.flush()
		case n < 68:
			name = "batch"
			s.appendBatch()
		case n < 72:
			name = "keep"
			s.log.keeper.look()
		case n < 76:
			name = "close"
			s.close()
		case n < 80:
			name = "kill"
			s.kill()
		case n < 88:
			name = "power"
			s.power()
		case n < 92:
			name = "truncate"
			s.truncate()
		case n < 95:
			name = "full"
			s.fillDisk()
		case n < 97:
			name = "fsync"
			s.failSync()
		default:
			name = "power within"
			s.disk.PowerOffAfter(s.rng.IntN(30))
		}
		s.steps = append(s.steps, name)
		if s.disk.Off() {
			s.power()
			s.steps = append(s.steps, "(off)")
		}
	}
	s.disk.PowerOffAfter(-1)
	s.disk.SetCapacity(0)
	s.full = false
	if s.log.Writable() != nil {
		s.kill()
	}
	s.flush()
	if s.log.FlushedOffset() != s.log.EndOffset() {
		s.fatal("flushed %d of %d", s.log.FlushedOffset(), s.log.EndOffset())
	}
	s.close()
	if err := s.log.Close(); err != nil {
		s.fatal("close: %v", err)
	}
}

// trouble tells whether an error is one that the injected faults explain.
func (s *simulation) trouble(err error) bool {
	return s.disk.Off() || errors.Is(err, syscall.EIO) || s.full && errors.Is(err, syscall.ENOSPC)
}

func (s *simulation) appendSome() {
	for range 1 + s.rng.IntN(4) {
		body := fmt.Sprintf("%d %s", len(s.all), strings.Repeat("z", s.rng.IntN(2500)))
		a, err := put(s.log, "topic", int32(s.rng.IntN(3)), []byte(body))
		if err != nil {
			if !s.trouble(err) {
				s.fatal("append: %v", err)
			}
			return
		}
		s.all = append(s.all, stored{a, body})
	}
}

func (s *simulation) appendBatch() {
	var ms []*Message
	for i := range 1 + s.rng.IntN(4) {
		ms = append(ms, &Message{Topic: "batch", QueueID: 1, Body: []byte(fmt.Sprintf("%d.%d", len(s.all), i))})
	}
	e, err := s.log.EncodeBatch(ms)
	if err != nil {
		s.fatal("batch: %v", err)
	}
	sizes := make([]int64, len(ms))
	for i, b := 0, e.buf.B; len(b) > 0; i++ {
		sizes[i] = recordSizeWord(b)
		b = b[sizes[i]:]
	}
	a, err := s.log.Append(e, nil)
	e.Release()
	if err != nil {
		if !s.trouble(err) {
			s.fatal("batch: %v", err)
		}
		return
	}
	for i, m := range ms {
		r := a
		r.EndOffset = r.Offset + sizes[i]
		r.QueueOffset += int64(i)
		s.all = append(s.all, stored{r, string(m.Body)})
		a.Offset = r.EndOffset
	}
}

func (s *simulation) flush() {
	end := s.log.EndOffset()
	if err := s.log.Flush(); err != nil {
		if !s.trouble(err) {
			s.fatal("flush: %v", err)
		}
		return
	}
	s.acknowledged = max(s.acknowledged, end)
	if s.log.FlushedOffset() < end {
		s.fatal("flushed %d, want %d", s.log.FlushedOffset(), end)
	}
}

func (s *simulation) close() {
	if err := s.log.Close(); err == nil && s.log.Writable() == ErrClosed {
		s.acknowledged = s.log.flushed.Load()
		if want := s.log.end.Load(); s.acknowledged != want {
			s.fatal("a clean close flushed %d of %d", s.acknowledged, want)
		}
	} else if err != nil && !s.trouble(err) {
		s.fatal("close: %v", err)
	}
	s.kill()
}

// kill ends the process: all that was appended is there.
func (s *simulation) kill() {
	end := s.log.EndOffset()
	off := s.disk.Off()
	s.disk.Fail("sync", nil)
	s.disk.SetCapacity(0)
	s.full = false
	if off {
		_ = s.log.Close()
		s.disk.Crash()
		s.open()
		return
	}
	s.disk.PowerOffAfter(0) // the dying process does nothing more
	_ = s.log.Close()
	s.disk.Kill()
	was := s.acknowledged
	s.acknowledged = max(was, end)
	s.open()
	s.acknowledged = was
}

func (s *simulation) power() {
	s.disk.Fail("sync", nil)
	s.disk.SetCapacity(0)
	s.full = false
	s.disk.PowerOffAfter(0)
	_ = s.log.Close()
	s.disk.Crash()
	s.open()
}

func (s *simulation) truncate() {
	if len(s.all) == 0 || s.log.Writable() != nil {
		return
	}
	at := s.rng.IntN(len(s.all))
	to := s.all[at].Offset
	if _, err := s.log.Truncate(to); err != nil {
		if !s.trouble(err) {
			s.fatal("truncate to %d: %v", to, err)
		}
		if s.log.Writable() == nil && !s.disk.Off() {
			return // nothing was changed
		}
		// Cut or not: that is for the next opening to say, after a restart.
		s.acknowledged = min(s.acknowledged, to)
		s.power()
		return
	}
	s.all = s.all[:at]
	s.acknowledged = min(s.acknowledged, to)
}

func (s *simulation) fillDisk() {
	if s.full = !s.full; s.full {
		used, _, _ := s.disk.Usage("")
		s.disk.SetCapacity(used + int64(s.rng.IntN(12000)))
		return
	}
	s.disk.SetCapacity(0)
}

func (s *simulation) failSync() {
	s.disk.Fail("sync", &TwinFault{Err: syscall.EIO, Path: segmentsDirectory, Times: 1})
	s.flush()
	s.kill()
}
