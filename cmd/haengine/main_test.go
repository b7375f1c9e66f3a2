package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// asCommand makes the test binary be the command: tests start nodes with it,
// and so do the verbs that start this program again.
const asCommand = "TEST_OF_HAENGINE_AS_COMMAND"

func TestMain(m *testing.M) {
	// A fuzz worker inherits the variable, and is a test all the same.
	if os.Getenv(asCommand) != "" && !slices.Contains(os.Args, "-test.fuzzworker") {
		main()
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, envPrefix) {
			os.Unsetenv(name) // settings of whoever runs the tests
		}
	}
	os.Setenv(asCommand, "1")
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet starts goroutines when it is imported
}

// outcome is what a command line gave.
type outcome struct {
	code           int
	stdout, stderr string
}

// invoke runs a command line in this process.
func invoke(t *testing.T, args ...string) outcome {
	t.Helper()
	return invokeContext(t.Context(), args...)
}

func invokeContext(ctx context.Context, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

// expect fails the test unless the command line ends with code.
func expect(t *testing.T, code int, args ...string) outcome {
	t.Helper()
	o := invoke(t, args...)
	if o.code != code {
		t.Fatalf("haengine %s: exit code %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), o.code, code, o.stdout, o.stderr)
	}
	return o
}

func mustContain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// fixture unpacks a store that RocketMQ wrote and gives its directory.
func fixture(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(filepath.Join("..", "..", "testdata", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(zipped); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(dir, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// treeDigest is a digest of all names, sizes, times and bytes below dir.
func treeDigest(t *testing.T, dir string) string {
	t.Helper()
	digest := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(digest, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		if d.IsDir() {
			return nil
		}
		data, err := os.ReadFile(path)
		digest.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// segmentPath is the segment file that holds an offset of the fixtures, whose
// segments are 1 MiB.
func segmentPath(store string, offset int64) (path string, at int64) {
	return filepath.Join(store, "commitlog", fmt.Sprintf("%020d", offset-offset%(1<<20))), offset % (1 << 20)
}

// flipByte changes one byte of a store's log.
func flipByte(t *testing.T, store string, offset int64) {
	t.Helper()
	path, at := segmentPath(store, offset)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xFF
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

func TestWrongCommandLinesAreExplainedWithExitCode2(t *testing.T) {
	for _, c := range []struct{ args, wants string }{
		{"sreve", `"sreve" is no command of "haengine"; did you mean serve?` + "\nTry: haengine help\n"},
		{"log dmp", "did you mean dump?\nTry: haengine help log\n"},
		{"log dump extra", "Try: haengine help log dump\n"},
		{"log dump --limit x", "want a whole number, 0 or more\nTry: haengine help log dump\n"},
		{"log dump --from -5", "want a whole number, 0 or more\nTry: haengine help log dump\n"},
		{"log dump --from 5 --to 3", "--to 3 is below --from 5\n"},
		{"log dump --limit -1", "Try: haengine help log dump\n"},
		{"log dump --body hex", "none of text, base64, none"},
		{"log diff", "--with DIR or --with HOST:PORT is missing"},
		{"repair", "one of --truncate-at OFFSET and --from HOST:PORT is needed"},
		{"repair --truncate-at 5 --from a:1", "and not both"},
		{"reseed", "--from HOST:PORT is missing"},
		{"version --bogus", "unknown flag: --bogus\nTry: haengine help version\n"},
		{"status --interval 1ns", "too short"},
		{"demo --slaves 0", "Try: haengine help demo\n"},
		{"bench sync --producers 0 --size 0", "--size 0 is out of range, want 1 to 4194304\n--producers 0 is out of range"},
		{"completion tcsh", "Try: haengine help completion\n"},
		{"help nothing", `there is no command "nothing"`},
	} {
		o := expect(t, exitUsage, strings.Fields(c.args)...)
		mustContain(t, o.stderr, c.wants)
		if o.stdout != "" {
			t.Errorf("%s: stdout is not empty: %s", c.args, o.stdout)
		}
	}
}

func TestEveryVerbHasHelpWithExamples(t *testing.T) {
	for _, verb := range []string{
		"serve", "status", "promote", "follow", "pace", "log", "log info", "log dump", "log verify", "log diff", "repair", "reseed", "demo", "bench", "bench sync", "bench async",
		"bench catchup", "bench limit", "bench sweep", "bench sweep size", "bench sweep outstanding", "bench sweep producers", "bench sweep replicas",
		"bench sweep load", "bench sweep lag", "bench flush", "bench start", "bench idle", "bench busy", "bench stuck", "bench outage", "version",
	} {
		o := expect(t, exitDone, append([]string{"help"}, strings.Fields(verb)...)...)
		mustContain(t, o.stdout, "Usage:\n  haengine "+verb, "Examples:\n  haengine ")
	}
	mustContain(t, expect(t, exitDone).stdout, "serve", "demo", "status")
}

func TestCompletionIsPrinted(t *testing.T) {
	mustContain(t, expect(t, exitDone, "completion", "bash").stdout, "haengine")
}
