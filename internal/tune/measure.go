package tune

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Measured is what no file tells. A nil part could not be measured; Machine.Unseen
// says why.
type Measured struct {
	Sync       *SyncTime   `json:"fdatasync"`
	Loopback   *RoundTrip  `json:"loopback_round_trip"`
	Peer       *RoundTrip  `json:"peer_round_trip"` // of a connect
	Sendfile   []SendRate  `json:"sendfile"`        // on loopback
	FirstTouch *FirstTouch `json:"first_touch"`
	Seconds    float64     `json:"seconds"`    // that all this took
	OtherCPUs  *float64    `json:"other_cpus"` // that other processes used meanwhile
	Busy       bool        `json:"busy"`       // so many that nothing is to be concluded
}

// SyncTime is pwrite of 4 KiB and fdatasync, on the store's filesystem.
type SyncTime struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_us"`
	Max   float64 `json:"max_us"`
}

// RoundTrip is the median time of a small message and its answer: both sides
// block until there is something, or both poll.
type RoundTrip struct {
	Block float64 `json:"block_p50_us"`
	Spin  float64 `json:"spin_p50_us"`
}

// SendRate is sendfile from memory into a reader's buffer.
type SendRate struct {
	Congestion string `json:"congestion_control"`
	Rate
}

// Rate is that of the median round, in bytes a second, with its range.
type Rate struct {
	BytesPerSecond float64 `json:"bytes_per_second"`
	Least          float64 `json:"least_bytes_per_second"`
	Most           float64 `json:"most_bytes_per_second"`
}

// faster tells whether each round of r was faster than each of other, and the
// median by a fifth.
func (r Rate) faster(other Rate) bool {
	return other.BytesPerSecond > 0 && r.Least > other.Most && r.BytesPerSecond >= 1.2*other.BytesPerSecond
}

func newRate(rounds []float64) Rate {
	if len(rounds) == 0 {
		return Rate{}
	}
	m := median(rounds) // sorted now
	return Rate{BytesPerSecond: m, Least: rounds[0], Most: rounds[len(rounds)-1]}
}

// FirstTouch is how fast the pages of a new file come into being.
type FirstTouch struct {
	Reserved  bool    `json:"reserved"`                    // the filesystem reserves space
	Sparse    Rate    `json:"sparse"`                      // touched one by one, in a sparse file
	Allocated Rate    `json:"allocated"`                   // and in one with reserved space
	Populated Rate    `json:"populated"`                   // made present by one system call; 0: the kernel cannot
	SyncAfter float64 `json:"sync_after_populate_seconds"` // median fdatasync of those pages, 64 MiB
}

// Shares of the ten seconds that Measure may take.
const (
	syncFor     = 1200 * time.Millisecond
	tripsFor    = 1600 * time.Millisecond
	peerFor     = 1200 * time.Millisecond
	sendfileFor = 2400 * time.Millisecond
	touchFor    = 2500 * time.Millisecond
	measureFor  = 10 * time.Second
)

// busyShare of the machine's cpus in the hands of others makes figures that say
// nothing: what shares a core with somebody else loses by chance.
const busyShare = 0.2

// Measure takes what time the machine needs, ten seconds at most. What it
// cannot measure it notes in m.Unseen. It makes files without a name in the
// store's filesystem, at most 64 MiB at a time, which go when they are closed,
// and connects to the peer a few times without saying anything.
func Measure(ctx context.Context, m *Machine, peer netip.AddrPort) *Measured {
	ctx, cancel := context.WithTimeout(ctx, measureFor)
	defer cancel()
	start, before := time.Now(), othersTime()
	got := &Measured{Sendfile: []SendRate{}}
	part := func(what string, err error) {
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("the %v of a measurement are over", measureFor)
			}
			m.Unseen = append(m.Unseen, fmt.Sprintf("%s: %v", what, err))
		}
	}
	var err error
	got.Sync, err = measureSync(ctx, m.Store.Directory)
	part("the time of an fdatasync", err)
	if m.CPU.Cores() < 2 {
		part("a round trip on loopback", errors.New("two sides that poll need two cores"))
	} else {
		got.Loopback, err = measureLoopback(ctx)
		part("a round trip on loopback", err)
	}
	if peer.IsValid() {
		got.Peer, err = measurePeer(ctx, peer)
		part("the round trip to "+peer.String(), err)
	}
	got.Sendfile, err = measureSendfile(ctx, settable(m.Network))
	part("sendfile on loopback", err)
	got.FirstTouch, err = measureFirstTouch(ctx, m.Store.Directory, m.Kernel.PopulateWrite != nil && *m.Kernel.PopulateWrite)
	part("the first touch of pages", err)
	got.Seconds = time.Since(start).Seconds()
	if after := othersTime(); before != nil && after != nil {
		others := max((*after-*before)/got.Seconds, 0)
		online := m.CPU.Usable
		if m.CPU.Online != nil {
			online = *m.CPU.Online
		}
		got.OtherCPUs, got.Busy = &others, others > busyShare*float64(online)
	} else {
		part("what other processes did meanwhile", errors.New("/proc/stat does not tell"))
	}
	return got
}

// settable are the congestion controls to compare: the default first.
func settable(n Network) (names []string) {
	names = append(names, n.Congestion)
	for _, c := range n.Available {
		if c != n.Congestion && !slices.Contains(n.Refused, c) {
			names = append(names, c)
		}
	}
	return names
}

// median of what was measured, in its order of size; 0 of nothing.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// othersTime is the cpu time in seconds that all but this process have used, and
// what the host kept back. Interrupts are left out: they are ours as likely as
// not.
func othersTime() *float64 {
	const ticksPerSecond = 100 // USER_HZ
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	words := strings.Fields(line)
	if len(words) < 9 || words[0] != "cpu" {
		return nil
	}
	ticks := int64(0)
	for _, i := range []int{1, 2, 3, 8} { // user, nice, system, steal
		n := parse(words[i])
		if n == nil {
			return nil
		}
		ticks += *n
	}
	var own unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &own) != nil {
		return nil
	}
	others := float64(ticks)/ticksPerSecond - time.Duration(own.Utime.Nano()+own.Stime.Nano()).Seconds()
	return &others
}
