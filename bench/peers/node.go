package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// nodeVerb is the first argument of this program when it is a part of a peer.
// It is no part of the contract.
const nodeVerb = "node"

// node is a part of a peer that runs in this program.
type node interface {
	// status tells what the node holds.
	status(ctx context.Context) (event, error)
	close()
}

// driver is a node that takes load.
type driver interface {
	node
	// wait returns nil when enough replicas hold everything.
	wait(ctx context.Context) error
	// producer makes one of several that put bodies of some size at the same
	// time, each with so many under way.
	producer(size, outstanding int) (producer, error)
}

// startNode is how a kind of node starts; the text is where others connect.
type startNode func(ctx context.Context, o nodeOptions) (node, string, error)

// nodeKinds are the nodes that runNode knows.
var nodeKinds = map[string]startNode{
	"haengine":   startHaengine,
	"raft":       startRaft,
	"nats":       startNATS,
	"nats-load":  startNATSLoad,
	"redis-load": startRedisLoad,
}

// nodeOptions are all nodes' flags; each kind reads those that it needs.
type nodeOptions struct {
	id      string   // of this node
	dir     string   // its store
	listen  string   // where it is reached by clients
	cluster string   // where it is reached by its like
	members []string // all of them, this one too
	master  string   // whom it follows, or puts to
	alone   bool     // puts need nobody else
	durable bool     // put through to the disk
}

func parseNode(args []string) (o nodeOptions, err error) {
	f := flag.NewFlagSet(nodeVerb, flag.ContinueOnError)
	f.StringVar(&o.id, "id", "", "")
	f.StringVar(&o.dir, "dir", "", "")
	f.StringVar(&o.listen, "listen", "", "")
	f.StringVar(&o.cluster, "cluster", "", "")
	f.StringVar(&o.master, "master", "", "")
	f.BoolVar(&o.alone, "alone", false, "")
	f.BoolVar(&o.durable, "durable", false, "")
	f.Func("members", "", func(s string) error { o.members = strings.Split(s, ","); return nil })
	if err = f.Parse(args); err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected %q", f.Arg(0))
	}
	return o, err
}

// runNode runs a node until its standard input ends.
func runNode(args []string, in io.Reader, out io.Writer) error {
	answers := json.NewEncoder(out)
	err := func() error {
		if len(args) == 0 || nodeKinds[args[0]] == nil {
			return fmt.Errorf("no such node: %q", args)
		}
		o, err := parseNode(args[1:])
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		n, address, err := nodeKinds[args[0]](ctx, o)
		if err != nil {
			return err
		}
		defer n.close()
		if err := answers.Encode(event{Event: "serving", Address: address}); err != nil {
			return err
		}
		return obey(n, in, answers)
	}()
	if err != nil {
		err = errors.Join(err, answers.Encode(event{Event: "failed", Reason: err.Error()}))
	}
	return err
}

// obey answers commands until there are no more.
func obey(n node, in io.Reader, answers *json.Encoder) error {
	commands := bufio.NewScanner(in)
	for commands.Scan() {
		name, argument, _ := strings.Cut(commands.Text(), " ")
		e, err := answerTo(n, name, argument)
		if err != nil {
			return fmt.Errorf("%s: %w", commands.Text(), err)
		}
		if err := answers.Encode(e); err != nil {
			return err
		}
	}
	return commands.Err()
}

func answerTo(n node, name, argument string) (event, error) {
	d, drives := n.(driver)
	switch {
	case name == "status":
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		e, err := n.status(ctx)
		e.Event = "status"
		return e, err
	case name == "phase" && drives:
		p, err := parsePhase(argument)
		if err != nil {
			return event{}, err
		}
		return p.run(d)
	case name == "wait" && drives:
		seconds, err := strconv.Atoi(argument)
		if err != nil {
			return event{}, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
		defer cancel()
		if err := d.wait(ctx); err != nil {
			return event{Event: "wait", Reason: err.Error()}, nil
		}
		return event{Event: "wait", InSync: true}, nil
	}
	return event{Event: "unknown", Reason: name}, nil
}

// nodeMain is main of a node.
func nodeMain(args []string) int {
	if err := runNode(args, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// poll calls done until it is true.
func poll(ctx context.Context, every time.Duration, what string, done func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s: %w", what, context.Cause(ctx)), err)
		case <-tick.C:
		}
	}
}
