package remoting

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// quietInterval is the least time between two log lines about one reason.
const quietInterval = time.Second

// quietLog lets one line a second through for each reason.
type quietLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	last   [reasons]time.Time
	missed [reasons]int
}

func (q *quietLog) warn(r Reason, format string, args ...any) {
	q.mu.Lock()
	now := time.Now()
	if !q.last[r].IsZero() && now.Sub(q.last[r]) < quietInterval {
		q.missed[r]++
		q.mu.Unlock()
		return
	}
	missed := q.missed[r]
	q.last[r], q.missed[r] = now, 0
	q.mu.Unlock()
	level := slog.LevelWarn
	if r == Idle {
		level = slog.LevelInfo
	}
	attrs := []any{"reason", r.String()}
	if missed > 0 {
		attrs = append(attrs, "more_before", missed)
	}
	q.logger.Log(context.Background(), level, fmt.Sprintf(format, args...), attrs...)
}

// gnetLogger writes what gnet says.
type gnetLogger struct{ logger *slog.Logger }

func (g gnetLogger) Debugf(format string, args ...any) {}

func (g gnetLogger) Infof(format string, args ...any) {}

func (g gnetLogger) Warnf(format string, args ...any) {
	g.logger.Debug("gnet: " + fmt.Sprintf(format, args...))
}

func (g gnetLogger) Errorf(format string, args ...any) {
	g.logger.Error("gnet: " + fmt.Sprintf(format, args...))
}

func (g gnetLogger) Fatalf(format string, args ...any) { g.Errorf(format, args...) }
