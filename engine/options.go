package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// Options are a node's settings. The zero value of a field means its default;
// only Store must be given, and Master on a slave. Options are copied by Open
// and never change afterwards; what may change while running has a setter on
// Engine. RocketMQ's names stand in parentheses.
type Options struct {
	Store string // a RocketMQ store directory, made if missing (storePathRootDir)
	Role  Role   // brokerRole
	// Leased: a master takes puts only while it has a lease, which the owner of
	// the engine gives and renews with Renew, for a coordinator that elects.
	Leased   bool
	HAListen string // where replicas connect; empty: a master does not listen, a slave does not cascade (haListenPort)
	Master   string // HOST:PORT of a slave's master (haMasterAddress)
	Flush    FlushMode

	InSyncReplicas    int           // copies that a synchronous put waits for, the master's own included; 0: 2 (inSyncReplicas)
	MinInSyncReplicas int           // refuse a synchronous put with fewer copies in sync; 0: 1, off (minInSyncReplicas)
	SlaveTimeout      time.Duration // how long a put waits for replicas; 0: 3 s (slaveTimeout)
	FlushTimeout      time.Duration // how long a put waits for the disk; 0: 5 s (syncFlushTimeout)
	MaxLag            int64         // bytes; a replica at least this far behind is not in sync; 0: 256 MiB (haMaxGapNotInSync)
	Ack               AckKind       // master: what a synchronous put waits for; slave: what it reports to have received

	SegmentBytes   int64         // 64 KiB to 2 GiB−1 for a new store; 0: the store's own, or 1 GiB (mappedFileSizeCommitLog)
	Retention      time.Duration // age of a segment's last record; 0: keep all (fileReservedTime)
	RetentionDisk  int           // percent of the disk used above which the oldest segments go early; 0: off
	RetentionGiven bool          // retention was asked for: clean also a store that we did not create

	// HASecret is shared by all nodes that replicate with each other: each end of
	// a connection proves to the other to know it, before a byte of a log is sent
	// or taken. At least SecretBytesMin bytes, better drawn at random;
	// empty: whoever reaches the port is served. It takes WireAuto, and is no
	// encryption.
	HASecret      []byte
	Wire          WireMode
	PlainIdentity PlainIdentity
	PlainHistory  PlainHistory
	From          From   // slave: where the log begins while it is empty; zero: the master's first byte
	ClusterID     string // at most 255 bytes of UTF-8 without control characters, as ReplicaID; empty: the store's own
	ReplicaID     string // empty: the store's own

	Reactors         int    // loops; 0: the cores, at most 4
	PinCPUs          []int  // cores that the loops are pinned to, in turn; empty: none
	SendBuffer       int    // bytes; 0: the kernel's
	ReceiveBuffer    int    // bytes; 0: the kernel's
	Congestion       string // TCP congestion control; empty: the kernel's
	FrameBytes       int    // body bytes of a frame at most; 0: 32 KiB to a plain replica, 1 MiB to a haengine one (haTransferBatchSize)
	SendfileMinBytes int    // frames with at least this body go by sendfile, smaller ones by writev; 0: 16 KiB
	RingSize         int    // puts that may wait at once, for each kind of wait; 0: 65536
	TransferRate     int64  // bytes a second to each replica, whatever they are; 0: no limit (maxHaTransferByteInSecond)
	CatchUpRate      int64  // bytes a second to a replica that is far behind, see Pace; 0: TransferRate only
	Spin             time.Duration

	NoPreallocate bool  // leave segment files sparse
	PopulateBytes int64 // window ahead of the log's end whose pages are there, and mapped unless each few records are synced; 0: 4 MiB, negative: none
	Mlock         bool  // lock the open segment in memory

	FlushInterval time.Duration // 0: 500 ms (flushIntervalCommitLog)
	FlushPages    int           // 0: 4 (flushCommitLogLeastPages)
	FlushThorough time.Duration // 0: 10 s (flushCommitLogThoroughInterval)
	Heartbeat     time.Duration // 0: 5 s (haSendHeartbeatInterval)
	Housekeeping  time.Duration // 0: 20 s (haHousekeepingInterval)
	HelloWait     time.Duration // how long a silent master is asked for the extended protocol before it is taken for RocketMQ's; 0: 1 s

	CompareInterval time.Duration // a slave compares its log with its haengine master's so often; 0: never
	CompareRate     int64         // bytes a second of that; 0: no limit

	StoreHost  commitlog.Host // written into records as storeHost; zero: 127.0.0.1|10911
	MaxBody    int            // bytes of a message's body at most; 0: 4 MiB (maxMessageSize)
	Logger     *slog.Logger   // nil: slog.Default()
	Disk       commitlog.Disk // nil: the operating system's
	Metrics    Metrics        // nil: none
	OnRecovery func(done, total int64)
	Remedy     func(Status) string // what somebody can do about Status.Trouble, as a command; nil: nothing is said
	QueueFile  int64               // bytes of a new consume queue file; 0: 6,000,000 (mappedFileSizeConsumeQueue)
}

// Metrics takes what a node counts. Methods are called from producers, loops
// and the flusher at once, once per event, and must not block.
type Metrics interface {
	Put(status PutStatus, d time.Duration) // a put ended
	Fsync(d time.Duration)                 // a segment was fsynced
	Reconnect(reason string)               // a slave lost its master; reason is one of a fixed few
	Unproven(reason string)                // a peer did not prove to know the secret, or wanted a proof; reason as in UnprovenReasons
}

// Limits of settings.
const (
	SecretBytesMin  = transfer.SecretBytesMin // of HASecret
	SegmentBytesMin = 64 << 10
	SegmentBytesMax = 2<<30 - 1
	FrameBytesMin   = 512
	FrameBytesMax   = 4<<20 - 12 // 12 + body must fit a real slave's 4 MiB read buffer
	replicasMax     = 64
)

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (o *Options) setDefaults() {
	def(&o.InSyncReplicas, 2)
	def(&o.MinInSyncReplicas, 1)
	def(&o.SlaveTimeout, 3*time.Second)
	def(&o.FlushTimeout, 5*time.Second)
	def(&o.MaxLag, 256<<20)
	def(&o.Reactors, min(runtime.NumCPU(), 4))
	def(&o.SendfileMinBytes, 16<<10)
	def(&o.RingSize, 65536)
	def(&o.PopulateBytes, 4<<20)
	def(&o.FlushInterval, 500*time.Millisecond)
	def(&o.FlushPages, 4)
	def(&o.FlushThorough, 10*time.Second)
	def(&o.Heartbeat, 5*time.Second)
	def(&o.Housekeeping, 20*time.Second)
	def(&o.HelloWait, transfer.DefaultHelloWait)
	def(&o.MaxBody, 4<<20)
	def(&o.Logger, slog.Default())
	o.HASecret = bytes.Clone(o.HASecret) // whose owner may wipe it
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
}

// checkAddress says what is wrong with a HOST:PORT.
func checkAddress(name, a string) error {
	var wrong *net.AddrError
	if _, port, err := net.SplitHostPort(a); errors.As(err, &wrong) {
		return fmt.Errorf("%s %q: %s, want HOST:PORT", name, a, wrong.Err)
	} else if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%s %q: port must be a number from 0 to 65535", name, a)
	}
	return nil
}

// extendedFrameBytes is the largest body of a frame between two haengine nodes.
func (o *Options) extendedFrameBytes() int32 {
	if o.FrameBytes == 0 {
		return transfer.DefaultExtendedFrameBytes
	}
	return int32(o.FrameBytes)
}

type noMetrics struct{}

func (noMetrics) Put(PutStatus, time.Duration) {}
func (noMetrics) Fsync(time.Duration)          {}
func (noMetrics) Reconnect(string)             {}
func (noMetrics) Unproven(string)              {}

// ErrOptions means that settings are wrong; the error names each of them.
var ErrOptions = errors.New("wrong settings")

// Validate names every wrong setting at once, before anything is opened. The
// error wraps ErrOptions. Defaults are applied first.
func (o Options) Validate() error {
	o.setDefaults()
	var wrong []error
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	between := func(name string, v, low, high int64) {
		if v < low || v > high {
			bad("%s is %d, want %d to %d", name, v, low, high)
		}
	}
	positive := func(name string, d time.Duration) {
		if d <= 0 {
			bad("%s is %v, want more than 0", name, d)
		}
	}
	if o.Store == "" {
		bad("store is empty, want a directory")
	}
	switch {
	case o.Role > Slave:
		bad("role %v is unknown", o.Role)
	case o.Role == Slave && o.Master == "":
		bad("master is missing: a SLAVE needs HOST:PORT")
	case o.Role != Slave && o.Master != "":
		bad("master %s is given, but the role is %v", o.Master, o.Role)
	}
	if o.From < FromLastSegment {
		bad("from is %d, want first, last-segment or an offset", int64(o.From))
	}
	address := func(name, a string) {
		if a == "" {
			return
		}
		if err := checkAddress(name, a); err != nil {
			wrong = append(wrong, err)
		}
	}
	address("ha-listen", o.HAListen)
	address("master", o.Master)
	between("in-sync-replicas", int64(o.InSyncReplicas), 1, replicasMax)
	between("min-in-sync-replicas", int64(o.MinInSyncReplicas), 1, replicasMax)
	positive("slave-timeout", o.SlaveTimeout)
	positive("flush-timeout", o.FlushTimeout)
	if o.MaxLag < 0 {
		bad("max-lag is %d bytes, want more than 0", o.MaxLag)
	}
	if o.SegmentBytes != 0 {
		between("segment-bytes", o.SegmentBytes, SegmentBytesMin, SegmentBytesMax)
	}
	if o.Retention < 0 {
		bad("retention is %v, want 0 or more", o.Retention)
	}
	between("retention-disk", int64(o.RetentionDisk), 0, 100)
	for _, id := range []struct{ name, value string }{{"cluster-id", o.ClusterID}, {"replica-id", o.ReplicaID}} {
		if mistake := idMistake(id.value); mistake != "" {
			bad("%s %s", id.name, mistake)
		}
	}
	if n := len(o.HASecret); n > 0 && n < SecretBytesMin {
		bad("ha-secret-file holds %d bytes, want at least %d", n, SecretBytesMin)
	}
	if len(o.HASecret) > 0 && o.Wire == WirePlain {
		bad("ha-secret-file is given, but wire is plain: RocketMQ's protocol has no proof of a secret")
	}
	between("reactors", int64(o.Reactors), 1, 256)
	for _, cpu := range o.PinCPUs {
		if cpu < 0 || cpu >= 4096 {
			bad("pin-cpus: %d is no cpu number", cpu)
		}
	}
	if o.Spin < 0 || o.Spin > time.Second {
		bad("spin is %v, want 0 to 1s: a loop keeps a core busy that long after each event", o.Spin)
	}
	between("sndbuf", int64(o.SendBuffer), 0, 1<<30)
	between("rcvbuf", int64(o.ReceiveBuffer), 0, 1<<30)
	if o.FrameBytes != 0 {
		between("frame-bytes", int64(o.FrameBytes), FrameBytesMin, FrameBytesMax)
	}
	between("sendfile-min-bytes", int64(o.SendfileMinBytes), 0, 1<<30)
	between("ring-size", int64(o.RingSize), 2, 1<<24)
	if o.TransferRate < 0 {
		bad("transfer-rate is %d, want 0 (no limit) or more", o.TransferRate)
	}
	if o.CatchUpRate < 0 {
		bad("catchup-rate is %d, want 0 (no limit of its own) or more", o.CatchUpRate)
	}
	if o.CompareInterval < 0 {
		bad("compare-interval is %v, want 0 (never) or more", o.CompareInterval)
	}
	if o.CompareRate < 0 {
		bad("compare-rate is %d, want 0 (no limit) or more", o.CompareRate)
	}
	positive("flush-interval", o.FlushInterval)
	between("flush-pages", int64(o.FlushPages), 0, 1<<20)
	positive("flush-thorough", o.FlushThorough)
	positive("heartbeat", o.Heartbeat)
	positive("hello-wait", o.HelloWait)
	if o.Housekeeping <= o.Heartbeat {
		bad("housekeeping is %v, want more than the heartbeat of %v: idle replicas would be dropped", o.Housekeeping, o.Heartbeat)
	}
	if len(wrong) == 0 {
		return nil
	}
	return &OptionsError{Mistakes: wrong}
}

// OptionsError lists every wrong setting. It unwraps to ErrOptions.
type OptionsError struct{ Mistakes []error }

func (e *OptionsError) Error() string { return errors.Join(e.Mistakes...).Error() }
func (e *OptionsError) Unwrap() error { return ErrOptions }
