package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// Exit codes, as docs/cli-json.md promises them.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// run is the whole command: it maps the verb's error to an exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var wrong *usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "haengine: %v\nTry: %s\n", wrong.err, strings.TrimSpace("haengine help "+wrong.topic))
		return exitUsage
	default:
		fmt.Fprintf(stderr, "haengine: %v\n", err)
		return exitFailed
	}
}
