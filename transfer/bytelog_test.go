package transfer

import (
	"bytes"
	"time"
)

// byteLog is a log that is a slice, and the driver of a Follower that fills it.
type byteLog struct {
	min  int64
	data []byte
	tail []byte // received, not published
}

func (l *byteLog) held() Range { return Range{l.min, l.min + int64(len(l.data))} }

// fataler is a plain test or a rapid one.
type fataler interface{ Fatalf(string, ...any) }

// feed gives the follower b as a driver does and returns the first error.
func (l *byteLog) feed(t fataler, f *Follower, b []byte, now time.Duration) error {
	for len(b) > 0 {
		w := f.Want()
		if w.Bytes <= 0 {
			t.Fatalf("wants %d bytes on a good connection", w.Bytes)
		}
		n := int(min(w.Bytes, int64(len(b))))
		var err error
		switch w.Kind {
		case WantHeader:
			if n, err = f.Header(b[:n], l.held(), now); err == nil {
				l.start(t, f)
			}
		case WantCompare:
			err = l.compare(f, w.Offset, b[:n], now)
		case WantStore:
			if w.Offset != l.held().End+int64(len(l.tail)) {
				t.Fatalf("stores at %d, the log ends at %d with %d bytes behind it", w.Offset, l.held().End, len(l.tail))
			}
			l.tail = append(l.tail, b[:n]...)
			publish := f.Stored(int64(n), now)
			l.data = append(l.data, l.tail[:publish]...)
			l.tail = l.tail[publish:]
		}
		if err != nil {
			return err
		}
		if int64(len(l.tail)) != f.Unpublished() {
			t.Fatalf("%d bytes past the end, the follower says %d", len(l.tail), f.Unpublished())
		}
		b = b[n:]
	}
	return nil
}

func (l *byteLog) start(t fataler, f *Follower) {
	base, ok := f.StartOffset()
	if !ok {
		return
	}
	if len(l.data) > 0 {
		t.Fatalf("a log with %d bytes is started again at %d", len(l.data), base)
	}
	l.min = base
	if f.SkipByte() {
		l.data = append(l.data, 0)
	}
}

func (l *byteLog) compare(f *Follower, offset int64, b []byte, now time.Duration) error {
	own := l.data[offset-l.min:][:len(b)]
	if bytes.Equal(own, b) {
		return f.Compared(int64(len(b)), -1, now)
	}
	n := 0
	for own[n] == b[n] {
		n++
	}
	return f.Compared(int64(n), offset+int64(n), now)
}

// drop ends a connection as a driver does.
func (l *byteLog) drop(f *Follower, err error, now time.Duration) {
	l.tail = nil
	f.Ended(err, now)
}
