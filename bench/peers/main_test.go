package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test program is a node when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == nodeVerb {
		os.Exit(nodeMain(os.Args[2:]))
	}
	flag.Parse()
	if os.Getenv("INTEROP_HEAP") == "" {
		_ = os.Setenv("INTEROP_HEAP", "-Xms128m -Xmx768m") // beside other tests
	}
	goleak.VerifyTestMain(m)
}

func TestAWrongCommandLineNamesEachMistakeAndExitsWith2(t *testing.T) {
	var out, talk bytes.Buffer
	err := command(t.Context(), []string{"--turns", "0", "--peers", "rocketmq,zebra", "--work", "sync-2"}, &out, &talk)
	if code := exitCode(err, &talk); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	for _, want := range []string{"--turns", `no peer "zebra"`, "raft-wal", `no work "sync-2"`, "catchup", "Try: peers --help"} {
		if !strings.Contains(talk.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &talk)
		}
	}
	if out.Len() > 0 {
		t.Errorf("an answer beside it: %s", &out)
	}
}

func TestHelpNamesEveryFlagAndExitsWith0(t *testing.T) {
	var out, talk bytes.Buffer
	if code := exitCode(command(t.Context(), []string{"--help"}, &out, &talk), &talk); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	for _, name := range []string{"peers", "work", "turns", "duration", "warmup", "catchup-mib", "within", "dir", "json", "markdown", "list"} {
		if !strings.Contains(talk.String(), "-"+name) {
			t.Errorf("help does not name --%s", name)
		}
	}
}

func TestAFailureExitsWith1(t *testing.T) {
	var talk bytes.Buffer
	if code := exitCode(errors.New("turn 1, redis: no"), &talk); code != 1 || !strings.Contains(talk.String(), "redis") {
		t.Errorf("exit code %d, %q; want 1 and the reason", code, &talk)
	}
}

func TestHaengineIsAmongTheChosenPeersOnceAndFirst(t *testing.T) {
	for _, names := range []string{"redis,raft", "raft,haengine,redis,raft"} {
		peers, err := choosePeers(names)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range peers {
			got = append(got, p.Name())
		}
		if len(got) != 3 || got[0] != "haengine" {
			t.Errorf("%s: %v", names, got)
		}
	}
	if peers, err := choosePeers(""); err != nil || len(peers) != len(allPeers()) {
		t.Errorf("all: %v, %v", peers, err)
	}
}

func TestWorkIsChosenInTheOrderOfTheTables(t *testing.T) {
	loads, copies, err := chooseWork("catchup,pipelined,sync-1")
	if err != nil || !copies || len(loads) != 2 || loads[0].Name != "sync-1" || loads[1].Name != "pipelined" {
		t.Errorf("%v, %v, %v", loads, copies, err)
	}
	if loads, copies, err = chooseWork("sync-8"); err != nil || copies || len(loads) != 1 {
		t.Errorf("%v, %v, %v", loads, copies, err)
	}
}

// fake is a peer that comes to nothing where it is told to.
type fake struct {
	haengine
	name           string
	absent, broken error
	delays         []time.Duration // of each start; the last one goes on
	started        int
}

func (f *fake) Name() string                  { return f.name }
func (f *fake) Prepare(context.Context) error { return f.absent }

func (f *fake) Start(ctx context.Context, p Plan) (*System, error) {
	if n := len(f.delays); n > 0 {
		timer := time.NewTimer(f.delays[min(f.started, n-1)])
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	f.started++
	if f.broken != nil {
		return nil, f.broken
	}
	return f.haengine.Start(ctx, p)
}
