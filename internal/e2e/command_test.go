package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// ran is the end of a command.
type ran struct {
	stdout, stderr string
	code           int
}

// run runs the command and waits for its end.
func run(t testing.TB, args ...string) ran {
	t.Helper()
	return runAs(t, nil, args...)
}

func runAs(t testing.TB, user *syscall.Credential, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: user}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("haengine %s: %v %v", strings.Join(args, " "), err, ctx.Err())
	}
	return ran{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// ask runs a command with --json, which must end with exit code 0, and reads
// its answer.
func ask(t testing.TB, into any, args ...string) {
	t.Helper()
	r := run(t, append(args, "--json")...)
	if r.code != 0 {
		t.Fatalf("haengine %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	if err := json.Unmarshal([]byte(r.stdout), into); err != nil {
		t.Fatalf("haengine %s prints %q: %v", strings.Join(args, " "), r.stdout, err)
	}
}

// verdict is the answer of log verify.
type verdict struct {
	OK       bool  `json:"ok"`
	Messages int64 `json:"messages"`
	Max      int64 `json:"max_offset"`
}

// mustVerify wants log verify to find nothing wrong in a store.
func mustVerify(t testing.TB, store string) (v verdict) {
	t.Helper()
	ask(t, &v, "log", "verify", "--store", store)
	if !v.OK {
		t.Fatalf("log verify of %s: %+v with exit code 0", store, v)
	}
	return v
}

// logInfo is the answer of log info.
type logInfo struct {
	Min      int64  `json:"min_offset"`
	Max      int64  `json:"max_offset"`
	Segments int    `json:"segments"`
	Messages int64  `json:"messages"`
	Clean    bool   `json:"clean_shutdown"`
	SHA256   string `json:"sha256"`
}

func info(t testing.TB, store string) (i logInfo) {
	t.Helper()
	ask(t, &i, "log", "info", "--sha256", "--store", store)
	return i
}

// mustEqual wants two stores to hold the same log: the same ends, the same
// minimums, and no difference between.
func mustEqual(t testing.TB, store, with string) {
	t.Helper()
	type side struct {
		Min int64 `json:"min_offset"`
		Max int64 `json:"max_offset"`
	}
	var d struct {
		Store side `json:"store"`
		With  side `json:"with"`
		Equal bool `json:"equal"`
	}
	ask(t, &d, "log", "diff", "--store", store, "--with", with)
	if !d.Equal || d.Store != d.With {
		t.Fatalf("log diff of %s with %s: %+v", store, with, d)
	}
}
