package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// prepared leaves a test out where the machine lacks the peer, unless
// PEERS_REQUIRED says that it may not.
func prepared(t *testing.T, peer Peer) {
	t.Helper()
	err := peer.Prepare(t.Context())
	if errors.Is(err, ErrAbsent) && os.Getenv("PEERS_REQUIRED") == "" {
		t.Skipf("PEERS_REQUIRED=1 makes this a failure: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Two seconds of load on each peer, and a late replica.
func TestEachPeerDoesTheWork(t *testing.T) {
	if testing.Short() {
		t.Skip("starts every peer")
	}
	for _, peer := range allPeers() {
		t.Run(peer.Name(), func(t *testing.T) {
			prepared(t, peer)
			p := smallPlan(t, peer)
			p.loads, p.copies, _ = chooseWork("sync-8,pipelined,catchup")
			p.duration, p.bytes = time.Second, 8<<20
			r := p.run(t.Context())
			r.summarize()
			if err := r.incomplete(); err != nil {
				t.Fatal(err)
			}
			for _, metric := range []string{"messages_per_second", "p50_us", "cpu_seconds_per_million"} {
				for _, w := range p.loads {
					if f := r.figure(w.Name, metric, peer.Name()); f == nil || f.Median <= 0 {
						t.Errorf("%s, %s: %+v", w.Name, metric, f)
					}
				}
			}
			one, p50, p99 := r.figure("sync-8", "messages_per_second", peer.Name()), r.figure("sync-8", "p50_us", peer.Name()), r.figure("sync-8", "p99_us", peer.Name())
			if p50.Median > p99.Median || one.Median*p50.Median/1e6 > 2*8 {
				t.Errorf("%v puts a second of 8 producers and a median of %v µs, p99 %v µs do not fit each other", one.Median, p50.Median, p99.Median)
			}
			if f := r.figure(catchUp, "bytes_per_second", peer.Name()); f == nil || f.Median <= 0 {
				t.Errorf("catch-up: %+v", f)
			}
			if f := r.figure(memoryWork, "anonymous_bytes", peer.Name()); f == nil || f.Median < 1<<20 {
				t.Errorf("memory: %+v", f)
			}
		})
	}
}

// What is compared is a put that a replica has acknowledged: without replicas
// there must not be one.
func TestNoPeerAcknowledgesWithoutAReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("starts every peer")
	}
	for _, peer := range allPeers() {
		t.Run(peer.Name(), func(t *testing.T) {
			t.Parallel()
			prepared(t, peer)
			s, err := peer.Start(t.Context(), Plan{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if r, err := s.phase(t.Context(), "size=128,threads=1,count=20"); err != nil || r.Failed > 0 {
				t.Fatalf("with replicas: %+v, %v", r, err)
			}
			stopReplicas(t, s)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			// What is put may fail, or wait for longer than this test does.
			if r, err := s.phase(ctx, "size=128,threads=1,count=5"); err == nil && r.Failed < r.Messages {
				t.Errorf("%d of %d puts were acknowledged by nobody", r.Messages-r.Failed, r.Messages)
			} else {
				t.Logf("%+v, %v", r, err)
			}
		})
	}
}

// stopReplicas kills all but the driver and the one that it puts to.
func stopReplicas(t *testing.T, s *System) {
	t.Helper()
	e, err := s.driver.ask(t.Context(), "status", "status")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, p := range s.processes {
		if p == s.driver || strings.Contains(p.name, "master") || e.Leader != "" && strings.HasSuffix(p.name, " "+e.Leader) {
			continue
		}
		p.kill()
		killed++
	}
	if killed == 0 {
		t.Fatal("there is no replica to stop")
	}
}
