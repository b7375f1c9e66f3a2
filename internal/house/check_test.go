package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree writes the files of a small module into a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		full := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Each case is a tree with one thing wrong, or with something that only looks
// wrong; want is the one finding, empty for none.
func TestCheckFinds(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{
			name:  "a tidy package",
			files: map[string]string{"transfer/frame.go": "// Package transfer decides.\npackage transfer\n\nimport _ \"time\"\n"},
		},
		{
			name:  "an arrow that goes up",
			files: map[string]string{"commitlog/log.go": "// Package commitlog stores.\npackage commitlog\n\nimport _ \"github.com/haengine/haengine/engine\"\n"},
			want:  "commitlog/log.go:4: import: commitlog must not know github.com/haengine/haengine/engine",
		},
		{
			name:  "an arrow across",
			files: map[string]string{"reactor/loop.go": "// Package reactor moves.\npackage reactor\n\nimport _ \"github.com/haengine/haengine/transfer\"\n"},
			want:  "reactor/loop.go:4: import: reactor must not know github.com/haengine/haengine/transfer",
		},
		{
			name:  "an arrow across in a test",
			files: map[string]string{"reactor/loop_test.go": "// Package reactor moves.\npackage reactor\n\nimport _ \"github.com/haengine/haengine/commitlog\"\n"},
			want:  "reactor/loop_test.go:4: import: reactor must not know github.com/haengine/haengine/commitlog",
		},
		{
			name:  "a module that nobody agreed on",
			files: map[string]string{"engine/put.go": "// Package engine puts.\npackage engine\n\nimport _ \"example.com/queue/v3\"\n"},
			want:  "engine/put.go:4: import: engine must not know example.com/queue/v3",
		},
		{
			name:  "the test tools, in a test",
			files: map[string]string{"engine/put_test.go": "// Package engine_test tests.\npackage engine_test\n\nimport (\n\t_ \"github.com/haengine/haengine/engine\"\n\t_ \"pgregory.net/rapid\"\n)\n"},
		},
		{
			name:  "the test tools, outside of a test",
			files: map[string]string{"engine/put.go": "// Package engine puts.\npackage engine\n\nimport _ \"pgregory.net/rapid\"\n"},
			want:  "engine/put.go:4: import: engine must not know pgregory.net/rapid",
		},
		{
			name:  "HTTP in the engine",
			files: map[string]string{"engine/status.go": "// Package engine reports.\npackage engine\n\nimport _ \"net/http\"\n"},
			want:  "engine/status.go:4: import: engine must not know net/http",
		},
		{
			name:  "a file in the pure package",
			files: map[string]string{"transfer/frame.go": "// Package transfer decides.\npackage transfer\n\nimport _ \"os\"\n"},
			want:  "transfer/frame.go:4: import: transfer must not know os",
		},
		{
			name:  "a clock in the pure package, under another name",
			files: map[string]string{"transfer/session.go": "// Package transfer decides.\npackage transfer\n\nimport clock \"time\"\n\nvar start = clock.Now()\n"},
			want:  "transfer/session.go:6: call: transfer must not use time.Now",
		},
		{
			name:  "chance without a seed in the pure package",
			files: map[string]string{"transfer/backoff.go": "// Package transfer decides.\npackage transfer\n\nimport \"math/rand/v2\"\n\nvar jitter = rand.Int64N(9)\n"},
			want:  "transfer/backoff.go:6: call: transfer must not use math/rand/v2.Int64N",
		},
		{
			name:  "a goroutine in the pure package",
			files: map[string]string{"transfer/ring.go": "// Package transfer decides.\npackage transfer\n\nfunc run() { go run() }\n"},
			want:  "transfer/ring.go:4: goroutine: transfer starts no goroutine of its own",
		},
		{
			name:  "epoll behind a build tag in a second file",
			files: map[string]string{"reactor/loop.go": "//go:build fast\n\n// Package reactor moves.\npackage reactor\n\nimport \"golang.org/x/sys/unix\"\n\nvar wait = unix.EpollWait\n"},
			want:  "reactor/loop.go:8: call: golang.org/x/sys/unix.EpollWait is for reactor/poller.go",
		},
		{
			name:  "epoll in its place",
			files: map[string]string{"reactor/poller.go": "// Package reactor moves.\npackage reactor\n\nimport \"golang.org/x/sys/unix\"\n\nvar wait = unix.EpollWait\n"},
		},
		{
			name:  "a sync outside of the disk",
			files: map[string]string{"commitlog/flush.go": "// Package commitlog stores.\npackage commitlog\n\nimport \"golang.org/x/sys/unix\"\n\nvar sync = unix.Fdatasync\n"},
			want:  "commitlog/flush.go:6: call: golang.org/x/sys/unix.Fdatasync is for commitlog/file.go, commitlog/disk_os.go",
		},
		{
			name:  "a mapping in a limit program",
			files: map[string]string{"cmd/haengine/bench_raw.go": "// Command haengine talks.\npackage main\n\nimport \"golang.org/x/sys/unix\"\n\nvar mmap = unix.Mmap\n"},
		},
		{
			name:  "a mapping elsewhere in the command",
			files: map[string]string{"cmd/haengine/serve.go": "// Command haengine talks.\npackage main\n\nimport \"golang.org/x/sys/unix\"\n\nvar mmap = unix.Mmap\n"},
			want:  "cmd/haengine/serve.go:6: call: golang.org/x/sys/unix.Mmap is for commitlog/file.go",
		},
		{
			name:  "a sync in the disk",
			files: map[string]string{"commitlog/disk_os.go": "// Package commitlog stores.\npackage commitlog\n\nimport \"golang.org/x/sys/unix\"\n\nvar sync = unix.Fdatasync\n"},
		},
		{
			name:  "a rename outside of the disk",
			files: map[string]string{"engine/open.go": "// Package engine opens.\npackage engine\n\nimport \"os\"\n\nvar move = os.Rename\n"},
			want:  "engine/open.go:6: call: os.Rename is for commitlog/file.go, commitlog/disk_os.go",
		},
		{
			name: "a rename in a test and in the command",
			files: map[string]string{
				"commitlog/log_test.go": "// Package commitlog stores.\npackage commitlog\n\nimport \"os\"\n\nvar move = os.Rename\n",
				"cmd/haengine/demo.go":  "// Command haengine talks.\npackage main\n\nimport \"os\"\n\nvar drop = os.RemoveAll\n",
			},
		},
		{
			name:  "a package without a comment",
			files: map[string]string{"engine/put.go": "package engine\n"},
			want:  "engine: comment: no file of the package says what it is for",
		},
		{
			name:  "a package that nobody planned",
			files: map[string]string{"internal/util/util.go": "// Package util is everything.\npackage util\n"},
			want:  "internal/util/util.go: room: package internal/util has no room in the rules",
		},
		{
			name:  "a long file",
			files: map[string]string{"engine/put.go": "// Package engine puts.\npackage engine\n" + strings.Repeat("\n", 500)},
			want:  "engine/put.go: lines: 502 lines, at most 500: it holds two nouns",
		},
		{
			name:  "a directory at the top that nobody planned",
			files: map[string]string{"pkg/README": ""},
			want:  "pkg: directory: not on the list of directories at the top",
		},
		{
			name:  "a store left at the top, which git does not see",
			files: map[string]string{".gitignore": "/haengine-store/\n", "haengine-store/bad.go": "not Go"},
		},
		{
			name:  "a link to nothing",
			files: map[string]string{"docs/operations.md": "See\n[the protocol](protocol.md#frames).\n"},
			want:  "docs/operations.md:2: link: nothing stands at docs/protocol.md",
		},
		{
			name: "links that hold, and one in an example",
			files: map[string]string{
				"README.md":        "[a](docs/protocol.md#frames) [b](https://example.com) [c](#here)\n```\n[d](nowhere.md)\n```\n",
				"docs/protocol.md": "[back](../README.md)\n",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			findings, err := Check(tree(t, test.files), Project())
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case test.want == "" && len(findings) == 0:
			case test.want != "" && len(findings) == 1 && strings.HasPrefix(findings[0].String(), test.want):
			default:
				t.Errorf("found %v, want %q", findings, test.want)
			}
		})
	}
}

func TestFileThatDoesNotParseIsAnError(t *testing.T) {
	root := tree(t, map[string]string{"engine/put.go": "package"})
	if _, err := Check(root, Project()); err == nil || !strings.Contains(err.Error(), "put.go") {
		t.Errorf("error %v, want one that names put.go", err)
	}
}

func TestFlagsAreReadFromSourceAndPage(t *testing.T) {
	root := tree(t, map[string]string{
		"serve.go": "package main\n\nfunc define(s *settings) { s.add(\"ha-listen\", \"ADDR\", \"\", \"where\", nil); other(\"json\") }\n",
		"page.md":  "Use `--ha-listen ADDR`\nor |--json| and well--known words.\n",
	})
	words, err := WordsOf(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(words.Settings) != 1 || words.Settings[0] != "ha-listen" || !words.Literals["json"] {
		t.Errorf("settings %v, literals %v", words.Settings, words.Literals)
	}
	flags, err := FlagsIn(filepath.Join(root, "page.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(flags) != 2 || flags["ha-listen"] != 1 || flags["json"] != 2 {
		t.Errorf("flags %v, want ha-listen on line 1 and json on line 2", flags)
	}
}
