package engine

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// dialFrom is a raw replica with an address, and so an identity, of its own.
func dialFrom(t *testing.T, m *Engine, ip string) *rawPeer {
	t.Helper()
	d := net.Dialer{Timeout: testTimeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	c, err := d.DialContext(context20(t), "tcp", m.HAAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return &rawPeer{t: t, Conn: c}
}

// acknowledge reports whatever comes, at once, until the connection ends or the
// function returned is called: from then on the peer is there and silent.
func (p *rawPeer) acknowledge() (fallSilent func()) {
	var reader sync.WaitGroup
	var silent sync.Mutex
	over := false
	reader.Go(func() {
		for {
			var header [12]byte
			if _, err := io.ReadFull(p, header[:]); err != nil {
				return
			}
			offset, n := binary.BigEndian.Uint64(header[:]), binary.BigEndian.Uint32(header[8:])
			if _, err := io.CopyN(io.Discard, p, int64(n)); err != nil {
				return
			}
			silent.Lock()
			if !over {
				_, _ = p.Write(binary.BigEndian.AppendUint64(nil, offset+uint64(n)))
			}
			silent.Unlock()
		}
	})
	p.t.Cleanup(func() { p.Close(); reader.Wait() })
	return func() {
		silent.Lock()
		over = true
		silent.Unlock()
	}
}

// Two replicas of three vanish at the same moment: closed, reset or silent.
// Within a housekeeping period neither counts, what waited for them has ended,
// and the third goes on.
func TestReplicasThatVanishTogetherBothStopCounting(t *testing.T) {
	t.Parallel()
	const housekeeping = time.Second
	for round, how := range []string{"closed", "reset", "silent", "one closed and one silent", "one reset and one closed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := openMaster(t, Options{
				Role: SyncMaster, InSyncReplicas: 4, MinInSyncReplicas: 4, SlaveTimeout: 2 * housekeeping, Reactors: 2, Wire: WirePlain,
				Housekeeping: housekeeping, Heartbeat: housekeeping / 5,
			})
			peers, silence := make([]*rawPeer, 3), make([]func(), 3)
			for i, ip := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
				peers[i] = dialFrom(t, m, ip)
				peers[i].report(0)
				silence[i] = peers[i].acknowledge()
			}
			waitReplicas(t, m, 3)
			mustPut(t, m, message("t", 0, "all have it"))
			vanish := map[string]func(i int){
				"closed": func(i int) { peers[i].Close() },
				"reset": func(i int) {
					_ = peers[i].Conn.(*net.TCPConn).SetLinger(0)
					peers[i].Close()
				},
				"silent": func(i int) { silence[i]() },
			}
			ways := [][2]string{{"closed", "closed"}, {"reset", "reset"}, {"silent", "silent"}, {"closed", "silent"}, {"reset", "closed"}}[round]
			confirmed := m.ConfirmedOffset()
			var both sync.WaitGroup
			for i, way := range ways {
				both.Go(func() { vanish[way](i) })
			}
			both.Wait()
			began := time.Now()
			f, err := m.PutAsync(message("t", 0, "two will not have it"))
			if err != nil && !errors.Is(err, ErrNotEnoughInSync) {
				t.Fatal(err)
			}
			waitReplicas(t, m, 1)
			if took := time.Since(began); took > 2*housekeeping {
				t.Errorf("they counted for %v, housekeeping is %v", took, housekeeping)
			}
			if _, err := m.Put(context20(t), message("t", 0, "x")); !errors.Is(err, ErrNotEnoughInSync) {
				t.Errorf("a put that needs all: %v", err)
			}
			if f != nil {
				if r, _ := f.Wait(context20(t)); r.Status != PutFlushSlaveTimeout {
					t.Errorf("the put that waited for all: %v", r.Status)
				}
			}
			if now := m.ConfirmedOffset(); now != confirmed {
				t.Errorf("the confirmed offset went from %d to %d", confirmed, now)
			}
			if err := errors.Join(m.SetInSyncReplicas(2), m.SetMinInSyncReplicas(2)); err != nil {
				t.Fatal(err)
			}
			mustPut(t, m, message("t", 0, "the third has it"))
		})
	}
}

// Puts that need one, two or three replicas wait side by side, in any order. One
// replica reports past all of them, again, and once more on a second connection:
// that ends those which need one, and no others.
func TestPutsThatNeedUnlikeCountsEndByTheirOwn(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 4 {
		m := openMaster(t, Options{Role: SyncMaster, SlaveTimeout: time.Second, Wire: WirePlain})
		peers := make([]*rawPeer, 3)
		for i, ip := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
			peers[i] = dialFrom(t, m, ip)
			peers[i].report(0)
		}
		waitReplicas(t, m, 3)
		waits := map[int][]*Future{}
		for range 24 {
			replicas := 1 + rng.IntN(3)
			if err := m.SetInSyncReplicas(1 + replicas); err != nil {
				t.Fatal(err)
			}
			f, err := m.PutAsync(message("t", 0, "x"))
			if err != nil {
				t.Fatal(err)
			}
			waits[replicas] = append(waits[replicas], f)
		}
		end := m.log.EndOffset()
		pending := func(f *Future) bool { return len(f.done) == 0 && !f.ended }
		ends := func(replicas int, want PutStatus) {
			t.Helper()
			for _, f := range waits[replicas] {
				if r, _ := f.Wait(context20(t)); r.Status != want {
					t.Errorf("a put that needs %d replicas: %v, want %v", replicas, r.Status, want)
				}
			}
			for more := replicas + 1; more <= 3; more++ {
				for _, f := range waits[more] {
					if !pending(f) {
						t.Errorf("a put that needs %d replicas ended with those that need %d", more, replicas)
					}
				}
			}
		}
		peers[0].readUntil(0, end)
		peers[0].report(end)
		peers[0].report(end)
		dialFrom(t, m, "127.0.0.2").report(end)
		waitReplicas(t, m, 4)
		ends(1, PutOK)
		peers[1].readUntil(0, end)
		peers[1].report(end)
		ends(2, PutOK)
		ends(3, PutFlushSlaveTimeout)
		shut(t, m)
	}
}
