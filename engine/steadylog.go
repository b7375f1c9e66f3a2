package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// steadyLog keeps a lasting trouble from flooding the log: the first line of a
// kind is written in full, then at most one a minute with a count. Any
// goroutine.
type steadyLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	kinds  map[string]*steadyKind // guarded by mu; keys are a fixed few
}

type steadyKind struct {
	last    time.Time
	skipped int
}

const steadyInterval = time.Minute

func newSteadyLog(logger *slog.Logger) *steadyLog {
	return &steadyLog{logger: logger, kinds: map[string]*steadyKind{}}
}

func (s *steadyLog) warn(kind, msg string, args ...any) {
	now := time.Now()
	s.mu.Lock()
	k := s.kinds[kind]
	if k == nil {
		k = &steadyKind{}
		s.kinds[kind] = k
	}
	if !k.last.IsZero() && now.Sub(k.last) < steadyInterval {
		k.skipped++
		s.mu.Unlock()
		return
	}
	skipped := k.skipped
	k.last, k.skipped = now, 0
	s.mu.Unlock()
	if skipped > 0 {
		args = append(args, "not_shown", skipped)
	}
	s.logger.Log(context.Background(), slog.LevelWarn, msg, args...)
}

// over says that the trouble has ended: the next one is shown in full.
func (s *steadyLog) over(kind string) {
	s.mu.Lock()
	delete(s.kinds, kind)
	s.mu.Unlock()
}
