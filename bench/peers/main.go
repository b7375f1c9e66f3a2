package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == nodeVerb {
		os.Exit(nodeMain(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(exitCode(err, os.Stderr))
}

// errUsage is a wrong command line.
var errUsage = errors.New("wrong command line")

// exitCode is 0: done; 1: something failed, or a peer is absent; 2: wrong
// command line.
func exitCode(err error, stderr io.Writer) int {
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "%v\nTry: peers --help\n", err)
		return 2
	}
	fmt.Fprintln(stderr, err)
	return 1
}

// flags are those of the command line.
type flags struct {
	plan
	json     bool
	markdown string
	list     bool
}

func parse(args []string, stderr io.Writer) (flags, error) {
	o := flags{plan: plan{talk: stderr}}
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	peers := f.String("peers", "", "`names` of the peers, with commas; haengine is always there (default all)")
	work := f.String("work", "", "`names` of the works, with commas (default all)")
	f.IntVar(&o.turns, "turns", 3, "turns of each peer; figures are their medians")
	f.DurationVar(&o.duration, "duration", 2*time.Second, "of each load")
	f.DurationVar(&o.warm, "warmup", 4*time.Second, "of load on each new system before anything is measured")
	mib := f.Int64("catchup-mib", 512, "what a late replica copies, in `MiB`")
	f.DurationVar(&o.within, "within", 20*time.Minute, "no turn is begun that would not end in this time, and nothing goes on after it")
	f.StringVar(&o.dir, "dir", "", "where the stores are made: a real disk with room for three logs (default the temporary directory)")
	f.BoolVar(&o.json, "json", false, "print JSON: settings, machine, peers, every sample, medians and ratios")
	f.StringVar(&o.markdown, "markdown", "", "write the tables between the marks of this `page`, too, if nothing is missing")
	f.BoolVar(&o.list, "list", false, "list peers and works, and end")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stderr, "Does the same work on haengine and on other replicated logs, taking turns.\n\nUsage: peers [flags]\n\n")
		f.SetOutput(stderr)
		f.PrintDefaults()
		fmt.Fprint(stderr, "\nExamples:\n  peers --turns 5 --json\n  peers --work catchup --catchup-mib 1024 --peers rocketmq\n")
		return o, err
	case err == nil && f.NArg() > 0:
		err = fmt.Errorf("unexpected %q", f.Arg(0))
	}
	var err1, err2 error
	o.peers, err1 = choosePeers(*peers)
	o.loads, o.copies, err2 = chooseWork(*work)
	o.bytes = *mib << 20
	if o.turns < 1 || o.duration <= 0 || o.warm < 0 || o.within <= 0 || *mib < 1 || *mib > 1600 {
		// RocketMQ's log of one segment has to hold what is copied: 2 GiB with headers.
		err = errors.Join(err, errors.New("--turns, --duration and --within: want more than 0; --warmup 0 or more; --catchup-mib 1 to 1600"))
	}
	if err = errors.Join(err, err1, err2); err != nil {
		err = fmt.Errorf("%w: %w", errUsage, err)
	}
	return o, err
}

// command is main without its process.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.list {
		for _, p := range allPeers() {
			fmt.Fprintf(stdout, "peer  %s\n", p.Name())
		}
		for _, w := range allWork() {
			fmt.Fprintf(stdout, "work  %-11s %s\n", w.Name, w.Title)
		}
		fmt.Fprintf(stdout, "work  %-11s a replica that joins late\n", catchUp)
		return nil
	}
	dir, err := os.MkdirTemp(o.dir, "haengine-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.dir = dir
	r := o.run(ctx)
	r.summarize()
	if o.json {
		err = r.writeJSON(stdout)
	} else {
		r.writeText(stdout)
	}
	if o.markdown != "" {
		err = errors.Join(err, r.writePage(o.markdown))
	}
	return errors.Join(err, r.incomplete())
}
