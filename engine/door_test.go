package engine

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/haengine/haengine/transfer"
)

// movingName is an address whose node may change under it: what is connected
// stays where it is.
type movingName struct {
	net.Listener
	to atomic.Pointer[string]
}

func newMovingName(t *testing.T, node *Engine) *movingName {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &movingName{Listener: l}
	n.moveTo(node)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", *n.to.Load())
			if err != nil {
				c.Close()
				continue
			}
			join := func(to, from net.Conn) {
				_, _ = io.Copy(to, from) // until either hangs up
				to.Close()
				from.Close()
			}
			go join(up, c)
			go join(c, up)
		}
	}()
	return n
}

func (n *movingName) moveTo(node *Engine) {
	to := node.HAAddr().String()
	n.to.Store(&to)
}

// A slave's name for its master moves to the next master, while the connection to
// the old one goes on: what differs from there on is no difference of this log.
func TestAChangeOfMastersIsNoDifference(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	m := openMaster(t, Options{Store: a})
	puts(t, m, 20)
	f := openSlave(t, m, Options{Store: b})
	follow(t, m, f)
	shut(t, f)
	name := newMovingName(t, m)
	s := open(t, Options{Role: Slave, Master: name.Addr().String(), CompareInterval: 20 * time.Millisecond})
	puts(t, m, 10)
	follow(t, m, s)
	next := openMaster(t, Options{Store: b})
	puts(t, next, 30)
	name.moveTo(next)
	eventually(t, "the comparison meets another one", func() bool {
		c := s.Status().Comparison
		return strings.Contains(c.LastError, "answers, not") || c.FirstDifference != nil
	})
	if st := s.Status(); st.Trouble != nil || st.Comparison.FirstDifference != nil {
		t.Errorf("trouble %+v; comparison %+v", st.Trouble, st.Comparison)
	}
	shut(t, m)
	eventually(t, "the slave has the new master's log", func() bool {
		return s.log.EndOffset() == next.log.EndOffset() && s.Status().Master.State == "transferring"
	})
	sameLog(t, next, s)
}

// A slave whose copy was found to be another log lets replicas in when it has
// found the master that it is a copy of.
func TestTheDoorOpensWhenTheLogIsVerifiedInTheEnd(t *testing.T) {
	const segment = 64 << 10
	dir := filepath.Join(markedDir(t), "store")
	m := openMaster(t, Options{Store: dir, SegmentBytes: segment})
	puts(t, m, 300)
	shut(t, m)
	good, bad := filepath.Join(t.TempDir(), "good"), filepath.Join(t.TempDir(), "bad")
	copyStore(t, dir, good)
	copyStore(t, dir, bad)
	spoil(t, bad)
	wrong := openMaster(t, Options{Store: bad, SegmentBytes: segment})
	right := openMaster(t, Options{Store: dir, SegmentBytes: segment})
	name := newMovingName(t, wrong)
	s := open(t, Options{Role: Slave, Master: name.Addr().String(), Store: good, SegmentBytes: segment, HAListen: "127.0.0.1:0"})
	eventually(t, "it is refused", func() bool { trouble := s.Status().Trouble; return trouble != nil && trouble.Cause == "diverged" })
	name.moveTo(right)
	puts(t, right, 3)
	eventually(t, "it follows", func() bool {
		return s.Status().Master.State == "transferring" && s.log.EndOffset() == right.log.EndOffset()
	})
	follow(t, s, openSlave(t, s, Options{SegmentBytes: segment}))
}

// The door is closed as long as one of those who closed it wants it to be.
func TestADoorThatTwoHaveClosed(t *testing.T) {
	m := openMaster(t, Options{})
	s := openSlave(t, m, Options{HAListen: "127.0.0.1:0"})
	puts(t, m, 3)
	follow(t, m, s)
	open := s.master.closeDoor(ErrClosed)
	s.slave.Load().differs(0)
	open()
	open()
	if s.master.holds.Load() != 1 {
		t.Errorf("%d keep replicas out, want the one who has found a difference", s.master.holds.Load())
	}
	if got := dialRaw(t, s).closedByPeer(); len(got) > 0 {
		t.Errorf("a replica is sent %d bytes", len(got))
	}
}

// A slave that is known to differ is not promoted without being asked twice.
func TestASlaveThatDiffersIsNotPromoted(t *testing.T) {
	m := openMaster(t, Options{})
	s := openSlave(t, m, Options{HAListen: "127.0.0.1:0"})
	puts(t, m, 3)
	follow(t, m, s)
	s.slave.Load().differs(0)
	if _, err := s.Promote(context20(t), PromoteOptions{Role: AsyncMaster}); !errors.Is(err, ErrDiffers) || s.Role() != Slave {
		t.Fatalf("%v, role %v", err, s.Role())
	}
	if _, err := s.Promote(context20(t), PromoteOptions{Role: AsyncMaster, Force: true}); err != nil {
		t.Fatal(err)
	}
	if id := s.identityNow(); id.Differs || id.Unverified {
		t.Errorf("%+v", id)
	}
	follow(t, s, openSlave(t, s, Options{}))
}

// What was found to differ is not passed on by the next start either, before the
// master is there to be compared with.
func TestADifferenceIsNotPassedOnBeforeItIsLookedAtAgain(t *testing.T) {
	m := filledMaster(t, 50)
	dir := t.TempDir()
	s := openSlave(t, m, Options{Store: dir, HAListen: "127.0.0.1:0"})
	follow(t, m, s)
	s.slave.Load().differs(0)
	shut(t, s)
	master := m.HAAddr().String()
	shut(t, m)
	s = open(t, Options{Role: Slave, Master: master, Store: dir, HAListen: "127.0.0.1:0"})
	if got := dialRaw(t, s).closedByPeer(); len(got) > 0 {
		t.Errorf("a replica is sent %d bytes of a log that is known to differ", len(got))
	}
}

// A store that was set aside is compared with nobody: it is empty.
func TestAStoreSeededAnewIsNotComparedAsAWhole(t *testing.T) {
	dir := t.TempDir()
	m := openMaster(t, Options{SegmentBytes: 64 << 10})
	o := Options{Store: dir, SegmentBytes: 64 << 10}
	s := openSlave(t, m, o)
	if err := s.changeIdentity(func(id *identity) { id.Unverified, id.Differs = true, true }); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	s = openSlave(t, m, o)
	puts(t, m, 300)
	follow(t, m, s)
	if id := s.identityNow(); id.Unverified || id.Differs {
		t.Errorf("%+v", id)
	}
}

// A trouble stands until the state changes: that the next try ends early says
// nothing of it.
func TestAStandingTroubleIsNotForgotten(t *testing.T) {
	m := openMaster(t, Options{})
	s := openSlave(t, m, Options{})
	slave := s.slave.Load()
	done := make(chan struct{})
	slave.loop.Post(func() {
		defer close(done)
		slave.note(transfer.FollowerDiverged, &transfer.RefusalError{Code: transfer.RefusedDiverged, Text: "x"}, errors.New("x"))
		slave.note(transfer.FollowerDiverged, &transfer.RefusalError{Code: transfer.RefusedStopping, Text: "y"}, errors.New("y"))
	})
	<-done
	if trouble := slave.trouble(); trouble == nil || trouble.Cause != "diverged" {
		t.Errorf("%+v", trouble)
	}
}
