package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/pflag"
)

// passed are settings of serve, each name=value, that a benchmark gives to both
// of its nodes: so that the effect of one can be measured.
type passed []string

// passable are those that change how fast things go, and what a put waits for.
// What a benchmark decides itself, as where a node listens, is none of them.
func passable() []string {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	tuning := newSettings(flags)
	new(nodeSettings).defineTuning(tuning)
	names := []string{"ack", "flush", "wire"}
	for _, s := range tuning.list {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// apply puts the settings into a node's options. The error names every mistake.
func (p passed) apply(o *engine.Options) error {
	n := nodeSettings{Options: *o}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	table := newSettings(flags)
	n.define(table)
	var wrong []error
	for _, pair := range p {
		name, value, ok := strings.Cut(pair, "=")
		switch {
		case !ok:
			wrong = append(wrong, fmt.Errorf("--set %s: want name=value", pair))
		case !slices.Contains(passable(), name):
			wrong = append(wrong, fmt.Errorf("--set %s: there is no such setting here, want one of %s", pair, strings.Join(passable(), ", ")))
		default:
			if err := table.find(name).parse(value); err != nil {
				wrong = append(wrong, fmt.Errorf("--set %s: %w", pair, err))
			}
			switch name {
			case "preallocate":
				n.NoPreallocate = !n.preallocate
			case "populate":
				n.setPopulate()
			}
		}
	}
	*o = n.Options
	return errors.Join(wrong...)
}

// arguments are the settings as a node's command line has them. They go last:
// the last of two flags wins.
func (p passed) arguments() (args []string) {
	for _, pair := range p {
		args = append(args, "--"+pair)
	}
	return args
}

// settings are the values by name, for the answer.
func (p passed) settings() map[string]string {
	values := make(map[string]string, len(p))
	for _, pair := range p {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	return values
}
