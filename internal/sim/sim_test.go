package sim

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	oneSeed   = flag.Uint64("seed", 0, "run this seed only, with a trace; 0: random ones")
	firstSeed = flag.Uint64("from", 0, "run this seed and those behind it; 0: random ones")
	seedCount = flag.Int("seeds", 6, "how many random seeds each test runs")
)

// runSeeds runs a configuration with random seeds, or with the one asked for.
// What was drawn is printed first.
func runSeeds(t *testing.T, cfg func(r *rand.Rand) Config) {
	count := *seedCount
	if testing.Short() {
		count = 1
	}
	if *oneSeed != 0 {
		count = 1
	}
	for i := range count {
		seed := *oneSeed
		if *firstSeed != 0 {
			seed = *firstSeed + uint64(i)
		}
		if seed == 0 {
			seed = rand.Uint64()>>1 + 1
		}
		c := cfg(Chance(seed))
		c.Seed = seed
		t.Logf("seed %d, %v (replay: go test ./internal/sim -run '^%s$' -seed %d -v)", seed, c, t.Name(), seed)
		if *oneSeed != 0 {
			c.Trace = func(at time.Duration, text string) { t.Logf("%12v  %s", at, text) }
		}
		r, err := Run(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v", r)
		if r.Bytes < 3000 {
			t.Errorf("only %d bytes were written", r.Bytes)
		}
	}
}

// sized draws the sizes of a configuration.
func sized(r *rand.Rand, c Config) Config {
	c.DrawSizes(r)
	return c
}

// One history, any number of lost connections and crashes: in the end every
// replica has the master's log.
func TestReplicasAgreeAfterAnyFaults(t *testing.T) {
	runSeeds(t, func(r *rand.Rand) Config {
		return sized(r, Config{Replicas: 1 + r.IntN(3), Cascade: r.IntN(2) == 0, HistoryFirst: r.IntN(2) == 0})
	})
}

// A master that loses its end and goes on has two histories: no replica ever
// mixes them, and one that holds the old one says so.
func TestNoReplicaMixesTwoHistories(t *testing.T) {
	runSeeds(t, func(r *rand.Rand) Config {
		return sized(r, Config{Replicas: 1 + r.IntN(3), Cascade: r.IntN(2) == 0, Fork: true, HistoryFirst: r.IntN(2) == 0})
	})
}

// Two of ours get there in the extended protocol, too, from any start.
func TestExtendedReplicasAgreeAfterAnyFaults(t *testing.T) {
	runSeeds(t, func(r *rand.Rand) Config {
		return sized(r, Config{Extended: true, Replicas: 1 + r.IntN(3), Cascade: r.IntN(2) == 0})
	})
}

// A master that loses its end begins a new term: each replica that holds what
// was lost cuts it, by itself, and all logs are one history in the end.
func TestExtendedReplicasFollowANewTerm(t *testing.T) {
	runSeeds(t, func(r *rand.Rand) Config {
		return sized(r, Config{Extended: true, Fork: true, Replicas: 1 + r.IntN(3), Cascade: r.IntN(2) == 0})
	})
}

// Masters change: what an old one wrote and nobody else has is cut when it comes
// back, whoever else was down meanwhile, and all logs are one history in the end.
func TestExtendedReplicasFollowAnotherMaster(t *testing.T) {
	runSeeds(t, func(r *rand.Rand) Config {
		return sized(r, Config{Extended: true, Failover: true, Fork: r.IntN(2) == 0, Replicas: 1 + r.IntN(4)})
	})
}

// A master that speaks RocketMQ's protocol only gets replicas that asked for
// more.
func TestReplicasOfAPlainMasterAgree(t *testing.T) {
	runSeeds(t, func(r *rand.Rand) Config {
		return sized(r, Config{Extended: true, PlainMaster: true, Replicas: 1 + r.IntN(3), Cascade: r.IntN(2) == 0})
	})
}

// Disks that fill up, lose a sync or change a byte: what they had is told, found
// or copied anew, and nothing that was damaged is ever acknowledged as flushed.
func TestReplicasSurviveBadDisks(t *testing.T) {
	runSeeds(t, func(r *rand.Rand) Config {
		return sized(r, Config{Extended: r.IntN(3) > 0, DiskFaults: true, BitFlips: true, Cascade: r.IntN(2) == 0, Fork: r.IntN(2) == 0, Replicas: 1 + r.IntN(3)})
	})
}

// A paced session keeps its replica alive and gets there in the end, by whatever
// changes of its phase.
func TestPacedReplicasGetThere(t *testing.T) {
	runSeeds(t, func(r *rand.Rand) Config {
		c := sized(r, Config{Replicas: 2, Storm: 20 * time.Second, Settle: 10 * time.Minute})
		c.Rate, c.CatchUpRate, c.CatchUpBytes = 5000+r.Int64N(100000), 5000+r.Int64N(100000), 1+r.Int64N(20000)
		return c
	})
}

// All options and faults are drawn.
func TestAnyOptionsAndFaults(t *testing.T) {
	runSeeds(t, Draw)
}

// The same seed gives the same run, or no seed could be replayed.
func TestSameSeedGivesTheSameRun(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		cfg := Draw(Chance(seed))
		cfg.Seed, cfg.Replicas, cfg.Fork, cfg.DiskFaults = seed, 3, true, true
		var traces [2][]string
		var results [2]Result
		for i := range traces {
			cfg.Trace = func(at time.Duration, text string) { traces[i] = append(traces[i], at.String()+" "+text) }
			var err error
			if results[i], err = Run(cfg); err != nil {
				t.Fatal(err)
			}
		}
		if results[0] != results[1] || len(traces[0]) != len(traces[1]) {
			t.Errorf("%+v and %+v, traces of %d and %d lines", results[0], results[1], len(traces[0]), len(traces[1]))
		}
		for i, line := range traces[0] {
			if i < len(traces[1]) && line != traces[1][i] {
				t.Fatalf("%q and %q", line, traces[1][i])
			}
		}
	}
}

// Without faults and traffic nothing is lost: heartbeats of both sides keep a
// connection, with delays near the heartbeat's interval too.
func TestIdlePairsStayConnected(t *testing.T) {
	for _, delay := range []time.Duration{0, 4900 * time.Millisecond} {
		w := newWorld(Config{Seed: 5, Replicas: 2, Cascade: true}.filled())
		w.net.DelayMax = delay + time.Millisecond
		w.putSome()
		step := func(until time.Duration) {
			for w.failed == nil && w.clock.Step(until) {
				w.check()
			}
		}
		step(30 * time.Second)
		w.appending = false
		step(60 * time.Second)
		before := map[string]int{}
		for name, n := range w.dials {
			before[name] = n
		}
		step(10 * time.Minute)
		if w.failed != nil || !w.settled() {
			t.Fatalf("delay %v: %v, %s", delay, w.failed, w.describe())
		}
		for name, n := range w.dials {
			if n != before[name] {
				t.Errorf("delay %v: %s dialled %d times while idle", delay, name, n-before[name])
			}
		}
	}
}
