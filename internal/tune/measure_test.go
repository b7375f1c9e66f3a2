package tune

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func layOut(t *testing.T, root, name, text string) {
	t.Helper()
	at := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// This machine is looked at and measured as it is, and nothing is left behind.
func TestThisMachineIsMeasuredAndLeftAsItWas(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	address := netip.MustParseAddrPort(peer.Addr().String())
	dir := t.TempDir()
	m := Look(Root, Here{}, Place{Store: dir, Peer: address})
	if m.CPU.Usable < 1 || m.Kernel.Release == "" || m.Memory.Total == nil || m.Store.Filesystem == "" || m.Store.Free == nil ||
		!m.Network.Loopback || m.Network.Congestion == "" || m.Limits.OpenFiles == nil {
		t.Errorf("%+v", m)
	}
	got := Measure(t.Context(), &m, address)
	if got.Sync == nil || got.Sync.P50 <= 0 || got.Sync.Max < got.Sync.P50 || got.Peer == nil || got.Peer.Spin <= 0 ||
		got.FirstTouch == nil || got.FirstTouch.Sparse.BytesPerSecond <= 0 || got.OtherCPUs == nil {
		t.Errorf("%+v, not measured: %q", got, m.Unseen)
	}
	if m.CPU.Cores() >= 2 && (got.Loopback == nil || got.Loopback.Block <= 0 || got.Loopback.Spin <= 0) {
		t.Errorf("loopback %+v", got.Loopback)
	}
	if len(got.Sendfile) == 0 || got.Sendfile[0].Congestion != m.Network.Congestion || got.Sendfile[0].Least <= 0 {
		t.Errorf("sendfile %+v", got.Sendfile)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A peer that is not there is said, and the rest goes on.
func TestAPeerThatIsNotThereIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	if r, err := measurePeer(t.Context(), gone); err == nil {
		t.Errorf("%+v from nobody", r)
	}
}

func TestAMeasurementEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := Machine{CPU: CPU{Usable: 2}, Store: Store{Directory: t.TempDir()}, Network: Network{Congestion: "cubic"}}
	start := time.Now()
	got := Measure(ctx, &m, netip.AddrPort{})
	if got.Sync != nil || got.Loopback != nil || got.FirstTouch != nil || len(m.Unseen) < 4 {
		t.Errorf("%+v, said %q", got, m.Unseen)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

// A full disk under a mapping is an error, not the end of the process.
func TestAPageWithoutRoomIsAnError(t *testing.T) {
	f, err := scratch(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := mapOf(f, 4*page)
	if err != nil {
		t.Fatal(err)
	}
	defer unmap(m)
	if err := f.Truncate(page); err != nil { // as if the disk had no more
		t.Fatal(err)
	}
	if err := writeEach(m); err == nil {
		t.Error("wrote to pages that are not there")
	}
}
