package reactor

import "time"

// quietInterval is the least time between two log lines about one trouble.
const quietInterval = time.Minute

// quiet lets the first event of a trouble be logged, then one a minute.
type quiet struct {
	next    time.Duration // when the next line may come
	skipped int           // events since the last line
}

// allow reports whether to log now, and how many events were not logged.
func (q *quiet) allow(now time.Duration) (skipped int, ok bool) {
	if q.next != 0 && now < q.next {
		q.skipped++
		return 0, false
	}
	skipped, q.skipped, q.next = q.skipped, 0, now+quietInterval
	return skipped, true
}
