package transfer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// join is Join where a refusal would be a mistake of the test.
func join(t testing.TB, q *Quorum, identity string) *Member {
	t.Helper()
	m, err := q.Join(identity, "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func wantCommitted(t *testing.T, q *Quorum, kind Kind, replicas int, want int64) {
	t.Helper()
	if got := q.Committed(kind, replicas); got != want {
		t.Errorf("Committed(%v, %d) = %d, want %d", kind, replicas, got, want)
	}
}

func TestConnectionsOfOneReplicaCountOnce(t *testing.T) {
	q := NewQuorum()
	first, second := join(t, q, "a"), join(t, q, "a")
	first.Ack(100, unknown)
	second.Ack(60, unknown)
	wantCommitted(t, q, Received, 1, 100)
	wantCommitted(t, q, Received, 2, -1)
	join(t, q, "b").Ack(70, unknown)
	wantCommitted(t, q, Received, 2, 70)
	q.Leave(first)
	wantCommitted(t, q, Received, 1, 70)
	wantCommitted(t, q, Received, 2, 60)
}

func TestUnreadyConnectionChangesNoAnswer(t *testing.T) {
	q := NewQuorum()
	join(t, q, "a").Ack(1<<20, unknown)
	silent, twin := join(t, q, "b"), join(t, q, "a")
	wantCommitted(t, q, Received, 1, 1<<20)
	wantCommitted(t, q, Received, 2, -1)
	if n := q.InSync(1<<20, 1<<30); n != 1 {
		t.Errorf("%d replicas in sync, want 1: a connection that said nothing is none", n)
	}
	q.Leave(silent)
	q.Leave(twin)
	q.Leave(twin)
	wantCommitted(t, q, Received, 1, 1<<20)
}

func TestKindsAreApart(t *testing.T) {
	q := NewQuorum()
	plain, extended := join(t, q, "plain"), join(t, q, "extended")
	plain.Ack(500, unknown)
	if q.CanGive(Flushed) || !q.CanGive(Received) {
		t.Error("a plain replica gives received and nothing else")
	}
	extended.Ack(300, 200)
	wantCommitted(t, q, Received, 2, 300)
	wantCommitted(t, q, Flushed, 1, 200)
	wantCommitted(t, q, Flushed, 2, -1)
	if got := q.Replicas(Flushed); got != 1 {
		t.Errorf("%d replicas give flushed, want 1", got)
	}
	extended.Ack(300, 400) // more flushed than received cannot be
	wantCommitted(t, q, Flushed, 1, 300)
	extended.Ack(100, 100) // nor can it go back on one connection
	wantCommitted(t, q, Flushed, 1, 300)
	wantCommitted(t, q, Received, 2, 300)
}

func TestReplicaAtTheStartCountsAsHoldingNothing(t *testing.T) {
	q := NewQuorum()
	join(t, q, "a").Ack(0, unknown)
	wantCommitted(t, q, Received, 1, 0)
	wantCommitted(t, q, Received, 0, -1)
	wantCommitted(t, q, Received, ReplicasMax+1, -1)
	for maxLag, want := range map[int64]int{10: 0, 11: 1} {
		if got := q.InSync(10, maxLag); got != want {
			t.Errorf("InSync(10, %d) = %d, want %d", maxLag, got, want)
		}
	}
}

func TestQuorumRefusesBeyondItsLimits(t *testing.T) {
	q := NewQuorum()
	for i := range ReplicasMax {
		join(t, q, fmt.Sprint(i)).Ack(int64(i), unknown)
	}
	wantCommitted(t, q, Received, ReplicasMax, 0)
	wantCommitted(t, q, Received, 1, ReplicasMax-1)
	_, err := q.Join("late", "")
	var full *QuorumFullError
	if !errors.Is(err, ErrQuorumFull) || !errors.As(err, &full) || full.Limit != ReplicasMax || full.Identity != "late" {
		t.Fatalf("identity %d: %v", ReplicasMax+1, err)
	}
	for range MembersMax - ReplicasMax {
		join(t, q, "0")
	}
	if _, err := q.Join("0", ""); !errors.Is(err, ErrQuorumFull) {
		t.Fatalf("connection %d: %v", MembersMax+1, err)
	}
	wantCommitted(t, q, Received, 1, ReplicasMax-1)
}

// modelMember is a connection as the model keeps it.
type modelMember struct {
	identity          string
	received, flushed int64
}

// modelAcks returns the highest acknowledgement of each replica, descending.
func modelAcks(members map[*Member]*modelMember, kind Kind) []int64 {
	best := map[string]int64{}
	for _, m := range members {
		ack := m.received
		if kind == Flushed {
			ack = min(m.flushed, m.received)
		}
		if old, ok := best[m.identity]; ack >= 0 && (!ok || ack > old) {
			best[m.identity] = ack
		}
	}
	var acks []int64
	for _, ack := range best {
		acks = append(acks, ack)
	}
	slices.Sort(acks)
	slices.Reverse(acks)
	return acks
}

func TestQuorumAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := NewQuorum()
		members := map[*Member]*modelMember{}
		var order []*Member // a map's order would make runs differ
		pick := func(t *rapid.T) *Member {
			if len(order) == 0 {
				t.Skip("nobody connected")
			}
			return rapid.SampledFrom(order).Draw(t, "member")
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				identity := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "identity")
				m, err := q.Join(identity, "")
				if err != nil {
					t.Skip("full")
				}
				members[m] = &modelMember{identity, -1, -1}
				order = append(order, m)
			},
			"leave": func(t *rapid.T) {
				m := pick(t)
				q.Leave(m)
				delete(members, m)
				order = slices.DeleteFunc(order, func(o *Member) bool { return o == m })
			},
			"ack": func(t *rapid.T) {
				m := pick(t)
				received := rapid.Int64Range(0, 20).Draw(t, "received")
				flushed := rapid.Int64Range(-1, 20).Draw(t, "flushed")
				m.Ack(received, flushed)
				mm := members[m]
				mm.received = max(mm.received, received)
				mm.flushed = max(mm.flushed, min(flushed, mm.received))
			},
			"": func(t *rapid.T) {
				for _, kind := range []Kind{Received, Flushed} {
					acks := modelAcks(members, kind)
					for n := 1; n <= 6; n++ {
						want := int64(-1)
						if n <= len(acks) {
							want = acks[n-1]
						}
						if got := q.Committed(kind, n); got != want {
							t.Fatalf("Committed(%v, %d) = %d, want %d of %v", kind, n, got, want, acks)
						}
					}
					if got := q.Replicas(kind); got != len(acks) || q.CanGive(kind) != (len(acks) > 0) {
						t.Fatalf("Replicas(%v) = %d, want %d", kind, got, len(acks))
					}
				}
				inSync := 0
				for _, ack := range modelAcks(members, Received) {
					if 20-ack < 8 {
						inSync++
					}
				}
				if got := q.InSync(20, 8); got != inSync {
					t.Fatalf("InSync = %d, want %d", got, inSync)
				}
			},
		})
	})
}

// Loops acknowledge while connections come and go elsewhere: an answer never
// passes what was said before it was given, and never falls for a replica that
// stays.
func TestCommittedIsTrueWhileConnectionsComeAndGo(t *testing.T) {
	visits := 2_000
	if testing.Short() {
		visits = 200
	}
	q := NewQuorum()
	var said atomic.Int64 // stored before each Ack
	steady := join(t, q, "steady")
	steady.Ack(0, unknown)
	var visitors, loop sync.WaitGroup
	var done atomic.Bool
	loop.Go(func() {
		for i := int64(0); !done.Load(); i++ {
			said.Store(i)
			steady.Ack(i, i/2)
			runtime.Gosched()
		}
	})
	for _, identity := range []string{"steady", "other"} {
		visitors.Go(func() {
			for range visits {
				m, err := q.Join(identity, "")
				if err != nil {
					t.Error(err)
					return
				}
				m.Ack(said.Load()/3, unknown)
				runtime.Gosched()
				q.Leave(m)
			}
		})
	}
	go func() {
		visitors.Wait()
		done.Store(true)
	}()
	last, pairs := int64(-1), 0
	for ; !done.Load(); runtime.Gosched() {
		got := q.Committed(Received, 1)
		if limit := said.Load(); got < last || got > limit {
			t.Errorf("committed %d after %d, with %d said", got, last, limit)
		}
		last = got
		if second := q.Committed(Received, 2); second >= 0 {
			pairs++
			if limit := said.Load() / 3; second > limit {
				t.Errorf("two replicas hold %d, with %d said by one of them", second, limit)
			}
		}
	}
	loop.Wait()
	wantCommitted(t, q, Received, 1, said.Load())
	wantCommitted(t, q, Received, 2, -1)
	t.Logf("two replicas seen %d times", pairs)
}

func TestQuorumAnswersWithoutAllocating(t *testing.T) {
	q := NewQuorum()
	var all []*Member
	for i := range 16 {
		all = append(all, join(t, q, fmt.Sprint(i)))
	}
	offset := int64(0)
	n := testing.AllocsPerRun(1000, func() {
		offset++
		for _, m := range all {
			m.Ack(offset, offset)
		}
		if q.Committed(Received, 9) != offset || q.Committed(Flushed, 1) != offset || q.InSync(offset, 1) != 16 {
			t.Fatal("wrong answer")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestMemberAcksHaveTheirOwnCacheLine(t *testing.T) {
	var m Member
	if from, size := unsafe.Offsetof(m.acked), unsafe.Sizeof(m); from < 64 || size-from < 64+unsafe.Sizeof(m.acked) {
		t.Errorf("acked at %d of %d bytes: less than a line to the neighbours", from, size)
	}
}

func BenchmarkCommitted(b *testing.B) {
	for _, replicas := range []int{1, 3, 16, 64} {
		b.Run(fmt.Sprintf("replicas=%d", replicas), func(b *testing.B) {
			q := NewQuorum()
			for i := range replicas {
				join(b, q, fmt.Sprint(i)).Ack(rand.Int64N(1<<40), unknown)
			}
			b.ReportAllocs()
			for b.Loop() {
				q.Committed(Received, (replicas+1)/2)
			}
		})
	}
}

// Two of three replicas vanish at the same moment, on loops of their own, while
// the third goes on: neither removal is lost, whatever the order.
func TestReplicasThatLeaveTogetherAreBothGone(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 2000 {
		q := NewQuorum()
		end := 1 + rng.Int64N(1000)
		members := make([]*Member, 3)
		for i, identity := range []string{"a", "b", "c"} {
			members[i] = join(t, q, identity)
			members[i].Ack(end, end)
		}
		gone := rng.Perm(3)
		pauses := []int{rng.IntN(4), rng.IntN(4), rng.IntN(4)}
		var ready atomic.Int32
		var all sync.WaitGroup
		for i, do := range []func(){
			func() { q.Leave(members[gone[0]]) },
			func() { q.Leave(members[gone[1]]) },
			func() { members[gone[2]].Ack(end+1, end+1) },
		} {
			all.Go(func() {
				for ready.Add(1); ready.Load() < 3; { // all at once, as far as there are cores
					runtime.Gosched()
				}
				for range pauses[i] {
					runtime.Gosched()
				}
				do()
			})
		}
		all.Wait()
		for _, kind := range []Kind{Received, Flushed} {
			if n, one, two := q.Replicas(kind), q.Committed(kind, 1), q.Committed(kind, 2); n != 1 || one != end+1 || two != -1 {
				t.Fatalf("round %d: %d replicas are left that hold %v, one %d, two %d; want 1, %d, none", round, n, kind, one, two, end+1)
			}
		}
		if n := q.InSync(end+1, 1); n != 1 {
			t.Fatalf("round %d: %d are in sync", round, n)
		}
	}
}

// A connection that does not say whose it is counts nowhere while a named replica
// is connected from its host: it may be the same one.
func TestOneMachineCountsOnceInBothProtocols(t *testing.T) {
	q := NewQuorum()
	join := func(m *Member, err error) *Member {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		m.Ack(100, 100)
		return m
	}
	counts := func(replicas int) {
		t.Helper()
		if got := q.Replicas(Received); got != replicas || q.InSync(100, 10) != replicas || (q.Committed(Received, replicas+1) != -1) || replicas > 0 && q.Committed(Received, replicas) != 100 {
			t.Errorf("%d replicas count, want %d", got, replicas)
		}
	}
	plain := join(q.JoinUnnamed("10.0.0.1"))
	counts(1)
	named := join(q.Join("a", "10.0.0.1"))
	counts(1)
	other := join(q.Join("b", "10.0.0.1")) // named ones on one host are apart
	counts(2)
	again := join(q.JoinUnnamed("10.0.0.1"))
	join(q.JoinUnnamed("10.0.0.2"))
	counts(3)
	if !q.Hidden("10.0.0.1") || q.Hidden("10.0.0.2") || q.Hidden("a") {
		t.Error("the wrong ones are hidden")
	}
	q.Leave(named)
	counts(2)
	q.Leave(other)
	counts(2)
	if q.Hidden("10.0.0.1") {
		t.Error("it is hidden by nobody")
	}
	q.Leave(plain)
	q.Leave(again)
	counts(1)
}
