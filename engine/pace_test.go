package engine

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
)

// backlog puts so many MiB, in messages of 64 KiB.
func backlog(t testing.TB, m *Engine, mib int) {
	t.Helper()
	body := strings.Repeat("x", 64<<10)
	for range mib * 16 {
		mustPut(t, m, message("t", 0, body))
	}
}

// replicaOf returns what a master shows of a replica.
func replicaOf(t testing.TB, m *Engine, id string) (found ReplicaStatus) {
	t.Helper()
	eventually(t, "the master shows "+id, func() bool {
		for _, r := range m.Status().Replicas {
			if r.ReplicaID == id {
				found = r
				return true
			}
		}
		return false
	})
	return found
}

const slowly = 256 << 10

// A slave that is far behind is held to the catch-up rate, while puts that wait
// for a live one on the same loop do not notice; when the limit is lifted it is
// there soon.
func TestACatchUpThatIsHeldBackDelaysNobodyElse(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, CatchUpRate: slowly, SegmentBytes: 8 << 20, MaxLag: 1 << 20})
	live := openSlave(t, m, Options{ReplicaID: "live", SegmentBytes: 8 << 20})
	waitReplicas(t, m, 1)
	backlog(t, m, 20)
	late := openSlave(t, m, Options{ReplicaID: "late", SegmentBytes: 8 << 20})
	eventually(t, "the late one is catching up", func() bool { return replicaOf(t, m, "late").Phase == PhaseCatchUp })

	begun, had := time.Now(), replicaOf(t, m, "late").AckedOffset
	for puts := 0; puts < 200 || time.Since(begun) < time.Second; puts++ {
		body := "small"
		if puts < 200 {
			body = strings.Repeat("x", 16<<10) // 12 s at the slow rate
		}
		r := mustPut(t, m, message("t", 0, body))
		if live.log.EndOffset() < r.EndOffset {
			t.Fatal("a put ended before the live replica had it")
		}
	}
	if got := replicaOf(t, m, "live"); got.Phase != PhaseLive || got.Pace != (Pace{CatchUp: slowly}) {
		t.Errorf("the live one: %+v", got)
	}
	got, passed := replicaOf(t, m, "late"), time.Since(begun)
	if got.Phase != PhaseCatchUp || got.LagBytes < 10<<20 || got.InSync {
		t.Errorf("the late one: %+v", got)
	}
	// What was under way at the beginning comes on top.
	if most := int64(1.1*passed.Seconds()*slowly) + slowly/4; got.AckedOffset-had > most {
		t.Errorf("%d bytes went to the late one in %v, want %d at most", got.AckedOffset-had, passed, most)
	}
	if passed > 5*time.Second {
		t.Errorf("the puts took %v beside a catch-up", passed)
	}
	if err := m.SetPace("late", Pace{Live: KeepRate}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the late one is there", func() bool { return late.log.EndOffset() == m.log.EndOffset() })
	eventually(t, "and live", func() bool { return replicaOf(t, m, "late").Phase == PhaseLive })
	sameLog(t, m, late)
}

// A large frame that does not get on, because its replica does not read, holds
// up no put that waits for another one.
func TestALargeFrameInFlightDelaysNoOtherReplica(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, SegmentBytes: 64 << 20, FrameBytes: 2 << 20, SendBuffer: 64 << 10, MaxLag: 1 << 20})
	openSlave(t, m, Options{ReplicaID: "live", SegmentBytes: 64 << 20})
	waitReplicas(t, m, 1)
	backlog(t, m, 20)
	stuck := dialRaw(t, m)
	stuck.report(1) // from there on, and it never reads
	waitReplicas(t, m, 2)
	blocked := func() (is bool) {
		done := make(chan struct{})
		h := m.master.hosts[0]
		h.loop.Post(func() {
			defer close(done)
			for _, r := range h.replicas {
				is = is || r.blocked && r.out.active && r.out.frame.Bytes > 1<<20
			}
		})
		<-done
		return is
	}
	eventually(t, "a large frame is stuck", blocked)
	for range 100 {
		mustPut(t, m, message("t", 0, "small"))
	}
	if !blocked() {
		t.Error("the large frame went out meanwhile")
	}
}

// An idle log: a put goes out at once, as one frame of its own size; limits do
// not matter to it.
func TestASmallPutOnAnIdleLogIsOneSmallFrame(t *testing.T) {
	m := openMaster(t, Options{Role: AsyncMaster, TransferRate: 64 << 10, CatchUpRate: 1 << 10, Heartbeat: time.Minute, Housekeeping: 2 * time.Minute})
	end := mustPut(t, m, message("t", 0, "first")).EndOffset
	p := dialRaw(t, m)
	p.report(end)
	waitReplicas(t, m, 1)
	for range 5 {
		r := mustPut(t, m, message("t", 0, "small"))
		if offset, body := p.frame(); offset != r.Offset || offset+int64(len(body)) != r.EndOffset {
			t.Fatalf("a frame at %d of %d bytes, want the record at %d of %d", offset, len(body), r.Offset, r.EndOffset-r.Offset)
		}
		p.report(r.EndOffset)
	}
}

// A replica's own pace is its identity's: it is there after a reconnect.
func TestAReplicasPaceSurvivesItsReconnect(t *testing.T) {
	m := openMaster(t, Options{Role: AsyncMaster, CatchUpRate: 2000})
	dir := t.TempDir()
	s := openSlave(t, m, Options{Store: dir, ReplicaID: "s"})
	openSlave(t, m, Options{ReplicaID: "other"})
	waitReplicas(t, m, 2)
	if err := m.SetPace("s", Pace{Live: 7 << 20, CatchUp: KeepRate}); err != nil {
		t.Fatal(err)
	}
	want := Pace{Live: 7 << 20, CatchUp: 2000}
	if got := replicaOf(t, m, "s").Pace; got != want {
		t.Errorf("pace %+v, want %+v", got, want)
	}
	shut(t, s)
	waitReplicas(t, m, 1)
	if got := m.paceStatus(); len(got.Replicas) != 2 || got.Replicas[1].Address != "" || got.Replicas[1].Pace != want || got.Replicas[1].LagBytes != nil {
		t.Errorf("while it is gone: %+v", got)
	}
	if err := m.SetPace("s", Pace{Live: KeepRate, CatchUp: 3000}); err != nil {
		t.Errorf("a gone replica's pace cannot be changed: %v", err)
	}
	openSlave(t, m, Options{Store: dir, ReplicaID: "s"})
	waitReplicas(t, m, 2)
	want.CatchUp = 3000
	session := make(chan Pace)
	h := m.master.hosts[0]
	h.loop.Post(func() {
		for _, r := range h.replicas {
			if r.identity == "s" {
				session <- Pace(r.session.Pace())
			}
		}
	})
	if got := <-session; got != want || replicaOf(t, m, "s").Pace != want {
		t.Errorf("after a reconnect the session's pace is %+v, status says %+v, want %+v", got, replicaOf(t, m, "s").Pace, want)
	}
	if got := replicaOf(t, m, "other").Pace; got != (Pace{CatchUp: 2000}) {
		t.Errorf("the other one's: %+v", got)
	}

	// All means all, and a rate that is kept is each one's own.
	if err := m.SetPace("", Pace{Live: 5000, CatchUp: KeepRate}); err != nil {
		t.Fatal(err)
	}
	if a, b := replicaOf(t, m, "s").Pace, replicaOf(t, m, "other").Pace; a != (Pace{5000, 3000}) || b != (Pace{5000, 2000}) {
		t.Errorf("after a change of all: %+v and %+v", a, b)
	}
	m.SetTransferRate(0)
	if got := m.paceStatus(); got.Pace != (Pace{}) || got.Replicas[0].Pace != (Pace{}) || got.Replicas[1].Pace != (Pace{}) {
		t.Errorf("after all limits were lifted: %+v", got)
	}
}

func TestAWrongPaceIsRefused(t *testing.T) {
	m := openMaster(t, Options{Role: AsyncMaster})
	if err := m.SetPace("x", Pace{}); !errors.Is(err, ErrUnknownReplica) || !strings.Contains(err.Error(), "none is connected") {
		t.Errorf("without replicas: %v", err)
	}
	for _, id := range []string{"b", "a"} {
		openSlave(t, m, Options{ReplicaID: id})
	}
	waitReplicas(t, m, 2)
	if err := m.SetPace("x", Pace{}); !errors.Is(err, ErrUnknownReplica) || !strings.Contains(err.Error(), `replica "x": no such replica; there are: a, b`) {
		t.Errorf("with others: %v", err)
	}
	if _, err := m.Pace("x"); !errors.Is(err, ErrUnknownReplica) {
		t.Errorf("asked for: %v", err)
	}
	if got, err := m.Pace("a"); err != nil || len(got.Replicas) != 1 || got.Replicas[0].ReplicaID != "a" {
		t.Errorf("one of two: %+v, %v", got, err)
	}
	for _, p := range []Pace{{Live: -2}, {CatchUp: -2}} {
		if err := m.SetPace("a", p); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if got := m.paceStatus(); got.Pace != (Pace{}) || got.Replicas[0].Pace != (Pace{}) {
		t.Errorf("a refused pace is in force: %+v", got)
	}
}

func TestTransferRateLimitsEverything(t *testing.T) {
	for _, c := range []struct {
		transfer, catchUp int64
		want              Pace
	}{
		{0, 0, Pace{}},
		{5, 0, Pace{5, 5}},
		{0, 5, Pace{0, 5}},
		{9, 5, Pace{9, 5}},
		{5, 9, Pace{5, 5}},
	} {
		if got := (&Options{TransferRate: c.transfer, CatchUpRate: c.catchUp}).pace(); got != c.want {
			t.Errorf("rates %d and %d give %+v, want %+v", c.transfer, c.catchUp, got, c.want)
		}
	}
}

func TestPacesOfTheirOwnAreBounded(t *testing.T) {
	var p paces
	p.init(Pace{})
	for i := range pacesMax {
		if err := p.setOwn(strconv.Itoa(i), Pace{Live: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.setOwn("one more", Pace{Live: 1}); !errors.Is(err, ErrPacesFull) || p.of("one more") != (Pace{}) {
		t.Errorf("one more than may be: %v", err)
	}
	if err := p.setOwn("0", Pace{}); err != nil { // like all others
		t.Fatal(err)
	}
	if err := p.setOwn("one more", Pace{Live: 1}); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	p.setAll(Pace{Live: 1, CatchUp: KeepRate})
	if _, own := p.list(); len(own) != 0 {
		t.Errorf("%d are kept that are like all others", len(own))
	}
}
