package engine

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/haengine/haengine/commitlog"
)

// Two nodes that each began a term and wrote nothing: whoever follows takes the
// other's, for this connection and the next.
func TestATermWithoutRecordsNamesNoBytes(t *testing.T) {
	dir := t.TempDir()
	a := openMaster(t, Options{})
	shut(t, openMaster(t, Options{Store: dir}))
	b := openSlave(t, a, Options{Store: dir})
	puts(t, a, 5)
	follow(t, a, b)
	if got, want := b.log.Epochs(), a.log.Epochs(); len(got) != 1 || got[0] != want[0] {
		t.Fatalf("epochs %+v, the master's %+v", got, want)
	}
	shut(t, b)
	puts(t, a, 5)
	b = openSlave(t, a, Options{Store: dir})
	follow(t, a, b)

	// As a master it does not go on in a term that it once began.
	shut(t, b)
	b = openMaster(t, Options{Store: dir})
	if got := b.Status().Epoch; got != 2 {
		t.Errorf("promoted by a restart it is in epoch %d, want 2", got)
	}
}

// A node that was promoted for nothing follows another one that was, too.
func TestPromotedForNothing(t *testing.T) {
	a := openMaster(t, Options{})
	b := openSlave(t, a, Options{HAListen: "127.0.0.1:0"})
	c := openSlave(t, a, Options{HAListen: "127.0.0.1:0"})
	puts(t, a, 5)
	follow(t, a, b)
	follow(t, a, c)
	for _, n := range []*Engine{b, c} {
		if _, err := n.Promote(context20(t), PromoteOptions{Role: AsyncMaster}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Follow(context20(t), c.HAAddr().String()); err != nil {
		t.Fatal(err)
	}
	puts(t, c, 5)
	follow(t, c, b)
	if _, err := a.Follow(context20(t), c.HAAddr().String()); err != nil {
		t.Fatal(err)
	}
	follow(t, c, a)
}

// What follows a node that is cut is cut with it, whichever protocol it speaks.
func TestACutReachesTheWholeChain(t *testing.T) {
	for _, wire := range []WireMode{WireAuto, WirePlain} {
		t.Run(wire.String(), func(t *testing.T) {
			a := openMaster(t, Options{})
			b := openSlave(t, a, Options{HAListen: "127.0.0.1:0"})
			down := openSlave(t, b, Options{Wire: wire})
			puts(t, a, 10)
			follow(t, a, b)
			follow(t, b, down)
			common := a.log.EndOffset()
			if _, err := b.Promote(context20(t), PromoteOptions{Role: AsyncMaster}); err != nil {
				t.Fatal(err)
			}
			puts(t, b, 3) // a never has these; down does
			follow(t, b, down)
			next := a
			if _, err := next.Promote(context20(t), PromoteOptions{Role: AsyncMaster, NewEpoch: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := next.Promote(context20(t), PromoteOptions{Role: AsyncMaster, NewEpoch: true}); err != nil {
				t.Fatal(err) // a number above b's
			}
			puts(t, next, 20)
			if _, err := b.Follow(context20(t), next.HAAddr().String()); err != nil {
				t.Fatal(err)
			}
			follow(t, next, b)
			if wire == WireAuto {
				follow(t, b, down)
				return
			}
			// Without epochs it can only say that it has another history.
			eventually(t, "it says so", func() bool {
				m := down.Status().Master
				return m.State == "diverged" || m.State == "refused" || m.State == "stalled"
			})
			if down.log.EndOffset() < common {
				t.Error("it was cut")
			}
		})
	}
}

// What puts were complete on replicas is not cut by whoever holds it, master or
// slave, also after it has followed another master or was restarted.
func TestWhatIsConfirmedIsNotCut(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %v", restart), func(t *testing.T) {
			a, b := t.TempDir(), t.TempDir()
			m := openMaster(t, Options{Store: a, Role: SyncMaster})
			s := openSlave(t, m, Options{Store: b})
			lagging := openMaster(t, Options{})
			waitReplicas(t, m, 1)
			puts(t, m, 5)
			m.ConfirmedOffset()
			follow(t, m, s)
			mustPut(t, m, message("t", 0, "tells the slave what is complete"))
			eventually(t, "the slave knows", func() bool { return s.log.Confirmed() > 0 })
			for range 3 {
				if _, err := lagging.Promote(context20(t), PromoteOptions{Role: AsyncMaster, NewEpoch: true}); err != nil {
					t.Fatal(err)
				}
			}
			puts(t, lagging, 1)
			if restart {
				shut(t, s)
				shut(t, m)
				s, m = openSlave(t, lagging, Options{Store: b}), openSlave(t, lagging, Options{Store: a})
			}
			for _, node := range []*Engine{s, m} {
				end := node.log.EndOffset()
				if _, err := node.Follow(context20(t), lagging.HAAddr().String()); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the node refuses", func() bool {
					trouble := node.Status().Trouble
					return trouble != nil && (trouble.Cause == "diverged" || trouble.Cause == "behind")
				})
				if node.log.EndOffset() != end {
					t.Errorf("cut from %d to %d", end, node.log.EndOffset())
				}
			}
		})
	}
}

// A slave does not take its own end for what its master has confirmed.
func TestASlaveDoesNotConfirmByItself(t *testing.T) {
	m := openMaster(t, Options{Role: SyncMaster, InSyncReplicas: 3, SlaveTimeout: 50 * time.Millisecond})
	s := openSlave(t, m, Options{})
	waitReplicas(t, m, 1)
	r, _ := m.Put(context20(t), message("t", 0, strings.Repeat("x", 100)))
	follow(t, m, s)
	eventually(t, "extended", func() bool { return s.Status().Master.Mode == "extended" })
	if got := s.ConfirmedOffset(); got >= r.EndOffset {
		t.Errorf("confirmed %d, nobody has confirmed %d", got, r.EndOffset)
	}
}

// slowCut is a disk on which keeping aside what is cut takes until it is let go.
type slowCut struct {
	commitlog.Disk
	begun, goOn chan struct{}
}

func (d *slowCut) Create(path string, reserve int64) (commitlog.File, error) {
	if filepath.Base(filepath.Dir(path)) == "cut" {
		select {
		case d.begun <- struct{}{}:
			<-d.goOn
		default:
		}
	}
	return d.Disk.Create(path, reserve)
}

// While a log is being cut nobody is served from it, or counted: what was sent
// is not what follows.
func TestNobodyIsServedDuringACut(t *testing.T) {
	disk := &slowCut{Disk: commitlog.OSDisk(), begun: make(chan struct{}, 1), goOn: make(chan struct{})}
	a := openMaster(t, Options{})
	b := openSlave(t, a, Options{HAListen: "127.0.0.1:0", Disk: disk})
	down := openSlave(t, b, Options{})
	release := sync.OnceFunc(func() { close(disk.goOn) })
	t.Cleanup(release) // before the nodes are closed
	puts(t, a, 10)
	follow(t, a, b)
	follow(t, b, down)
	if _, err := b.Promote(context20(t), PromoteOptions{Role: AsyncMaster}); err != nil {
		t.Fatal(err)
	}
	puts(t, b, 3)
	follow(t, b, down)
	for range 2 { // a number above b's
		if _, err := a.Promote(context20(t), PromoteOptions{Role: AsyncMaster, NewEpoch: true}); err != nil {
			t.Fatal(err)
		}
	}
	puts(t, a, 20)
	if _, err := b.Follow(context20(t), a.HAAddr().String()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-disk.begun:
	case <-time.After(testTimeout):
		t.Fatal("no cut")
	}
	p := dialRaw(t, b)
	p.report(1)
	if got := p.closedByPeer(); len(got) > 0 {
		t.Errorf("%d bytes were sent", len(got))
	}
	if n := len(b.Status().Replicas); n > 0 {
		t.Errorf("%d replicas are counted", n)
	}
	release()
	follow(t, a, b)
	follow(t, b, down)
}
