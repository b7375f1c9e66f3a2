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
	kinds  map[string]*steadyKind // guarded by mu
}

type steadyKind struct {
	last    time.Time
	skipped int
}

const (
	steadyInterval = time.Minute
	steadyKindsMax = 256
)

func newSteadyLog(logger *slog.Logger) *steadyLog {
	return &steadyLog{logger: logger, kinds: map[string]*steadyKind{}}
}

func (s *steadyLog) warn(kind, msg string, args ...any) {
	s.log(slog.LevelWarn, kind, msg, args...)
}

func (s *steadyLog) info(kind, msg string, args ...any) {
	s.log(slog.LevelInfo, kind, msg, args...)
}

func (s *steadyLog) log(level slog.Level, kind, msg string, args ...any) {
	now := time.Now()
	s.mu.Lock()
	k := s.kinds[kind]
	if k == nil && len(s.kinds) >= steadyKindsMax {
		kind = "" // peers come from more addresses than are worth telling apart
		k = s.kinds[kind]
	}
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
	s.logger.Log(context.Background(), level, msg, args...)
}

// over says that the trouble has ended: the next one is shown in full.
func (s *steadyLog) over(kind string) {
	s.mu.Lock()
	delete(s.kinds, kind)
	s.mu.Unlock()
}
