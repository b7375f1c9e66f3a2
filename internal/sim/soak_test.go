package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

var soakFor = flag.Duration("for", 0, "how long TestSoak runs fresh seeds; 0: not at all")

// TestSoak runs fresh seeds with all options drawn for as long as -for says, on
// all processors, and names each that fails. It is make sim.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("runs with -for only: make sim")
	}
	var total struct {
		sync.Mutex
		seeds, failed, events, puts int
		simulated                   time.Duration
	}
	var all sync.WaitGroup
	began := time.Now()
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for time.Since(began) < *soakFor {
				seed := rand.Uint64()>>1 + 1
				c := Draw(Chance(seed))
				c.Seed = seed
				r, err := Run(c)
				total.Lock()
				total.seeds++
				total.events += r.Events
				total.puts += r.Puts
				total.simulated += r.Time
				if err != nil {
					total.failed++
					t.Errorf("%v", err)
					fmt.Fprintf(os.Stderr, "seed %d, %v\n%v\nreplay: go test ./internal/sim -run '^TestAnyOptionsAndFaults$' -seed %d -v\n", seed, c, err, seed)
				}
				total.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d seeds, %d failed; %.1f simulated hours, %d events, %d puts in %v",
		total.seeds, total.failed, total.simulated.Hours(), total.events, total.puts, time.Since(began).Round(time.Second))
}
