package commitlog

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"time"
)

// FlushMode tells who waits for the disk.
type FlushMode uint8

// RocketMQ's FlushDiskType.
const (
	AsyncFlush FlushMode = iota // flush in intervals; ASYNC_FLUSH
	SyncFlush                   // flush as soon as somebody asks; SYNC_FLUSH
)

// Options say where a log lives and how it treats its disk. A zero value is
// the default, which is RocketMQ's where it has one. Callbacks must not block
// and must not call Close.
type Options struct {
	Dir          string // the store's root; the segments are in commitlog/ below it
	SegmentBytes int64  // 0: as the store has them, 1 GiB for a new one (mappedFileSizeCommitLog)
	Disk         Disk   // nil: the operating system's

	Flush         FlushMode
	FlushInterval time.Duration // 500 ms (flushIntervalCommitLog)
	FlushThorough time.Duration // 10 s: flush whatever there is (flushCommitLogThoroughInterval)
	FlushPages    int           // 4: an interval with fewer dirty 4 KiB pages is left out (flushCommitLogLeastPages)

	Preallocate   bool  // reserve a segment's bytes on the disk when it is made
	PopulateBytes int64 // window ahead of the end whose pages are there, and mapped unless each few records are synced; 0: none
	Mlock         bool  // keep the open segment's touched pages in memory

	Retention      time.Duration // age of a segment's last record after which it goes; 0: keep all
	RetentionDisk  int           // percent of the file system used from which the oldest go early; 0: never
	RetentionGiven bool          // clean also a store that we did not create

	Limits         Limits
	StoreHost      Host          // storeHost of records; zero: 127.0.0.1|10911
	QueueFileBytes int64         // 6,000,000: size of new consume queue files
	BusyTimeout    time.Duration // 1 s: how long the append section may be held (osPageCacheBusyTimeOutMills)
	SegmentTimeout time.Duration // 5 s: how long an append waits for its next segment

	Logger *slog.Logger     // nil: slog.Default()
	Now    func() time.Time // the wall clock, of store timestamps; nil: time.Now

	// Manual starts no goroutine: the owner has the work done by Log.Work, so
	// that a run can be replayed step by step. For simulations.
	Manual    bool
	Monotonic func() time.Time // what intervals are measured with; it never goes back, nor stands still unless Manual; nil: time.Now

	OnFlushed      func(offset int64)      // FlushedOffset moved; the flusher's goroutine
	OnDispatched   func(offset int64)      // DispatchedOffset moved; the dispatcher's goroutine
	Awaited        func() bool             // somebody follows DispatchedOffset: a replica's dispatcher puts nothing off; its goroutine
	OnFsync        func(d time.Duration)   // each fdatasync of the log
	OnSegmentReady func()                  // after ErrSegmentPending: Reserve may go on, or say why not
	OnTrouble      func(err error)         // once: the log takes no more writes, and err is why
	OnRecovery     func(done, total int64) // progress of Open, in bytes scanned
}

const (
	segmentBytesDefault = 1 << 30
	segmentBytesMin     = 4096
	segmentBytesMax     = math.MaxInt32 // RocketMQ maps a file with an int as its length
)

// filled returns the options with defaults in place of zeros, or what is wrong
// with them.
func (o Options) filled() (Options, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Dir == "" {
		bad("no store directory given")
	}
	if o.SegmentBytes != 0 && (o.SegmentBytes < segmentBytesMin || o.SegmentBytes > segmentBytesMax) {
		bad("segment size is %d bytes, want %d to %d", o.SegmentBytes, segmentBytesMin, segmentBytesMax)
	}
	if o.RetentionDisk < 0 || o.RetentionDisk > 100 {
		bad("retention by disk use is %d percent, want 0 to 100", o.RetentionDisk)
	}
	if o.PopulateBytes < 0 || o.Retention < 0 {
		bad("populate window is %d bytes and retention %v, want 0 or more", o.PopulateBytes, o.Retention)
	}
	def(&o.FlushInterval, 500*time.Millisecond)
	def(&o.FlushThorough, 10*time.Second)
	def(&o.FlushPages, 4)
	def(&o.Limits.BodyBytes, 4<<20)
	def(&o.QueueFileBytes, 6_000_000)
	def(&o.BusyTimeout, time.Second)
	def(&o.SegmentTimeout, 5*time.Second)
	def(&o.StoreHost, Host{Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Port: 10911})
	if o.Disk == nil {
		o.Disk = OSDisk()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Monotonic == nil {
		o.Monotonic = time.Now
	}
	return o, errors.Join(errs...)
}

func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}
