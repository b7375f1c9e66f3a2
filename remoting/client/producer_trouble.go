package client

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/haengine/haengine/remoting"
)

// tellAfter is how long messages may find nobody before that is told of.
const tellAfter = time.Second

// trouble has a producer tell once that nobody takes its messages, however many it
// tries, and once that this is over. Any goroutine.
type trouble struct {
	mu    sync.Mutex
	since time.Time // of the first try that failed, with none since that did not; zero: all is well
	told  bool
}

// failed notes a try that is made again, for so long in all.
func (t *trouble) failed(log *slog.Logger, patience time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() {
		t.since = time.Now()
	}
	if !t.told && time.Since(t.since) >= tellAfter {
		t.told = true
		log.Warn(fmt.Sprintf("nobody takes messages; trying for %v", patience), "error", err)
	}
}

// over notes that somebody has answered.
func (t *trouble) over(log *slog.Logger) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told {
		log.Info(fmt.Sprintf("messages are taken again, after %v", time.Since(t.since).Round(tellAfter/10)))
	}
	t.since, t.told = time.Time{}, false
}

// hopeless tells an error of the search for a route that time does not change: the
// topic has no such queue, or no name server can be at any of the addresses.
func hopeless(err error) bool {
	var all *NameServerError
	switch {
	case err == nil:
		return false
	case errors.Is(err, ErrNoTopic), errors.Is(err, ErrNoQueue), codeOf(err) == remoting.RequestCodeNotSupported:
		return true
	case !errors.As(err, &all):
		return false
	}
	for _, one := range all.Errors {
		var name *net.DNSError
		var bytes *remoting.RefusalError // what came is no answer
		if !errors.As(one, &bytes) && !(errors.As(one, &name) && name.IsNotFound) {
			return false
		}
	}
	return true
}
