package house

import (
	"path"
	"slices"
)

// Module is the module path that the rules are about.
const Module = "github.com/haengine/haengine"

// Rules are what a source tree has to keep. The zero value forbids every
// package and every directory.
type Rules struct {
	// Directories that may stand at the top of the tree. What .gitignore names
	// as "/name/" is not looked at.
	Directories []string
	// Rooms, one for each package. A package without a room is a finding.
	Rooms []Room
	// TestImports are modules and packages that any test file may import too.
	TestImports []string
	// Only lists what is allowed in the named files and nowhere else.
	Only []Only
	// LinesMax is the longest Go file allowed, in lines.
	LinesMax int
}

// Room is a package and what it may know.
type Room struct {
	// Package is its directory, relative to the top with slashes; "." is the top.
	Package string
	// Imports are the packages outside the standard library that it may import.
	// A trailing "/..." allows everything below, too.
	Imports []string
	// Unknown are standard library packages that it must not import.
	Unknown []string
	// Uncalled are functions, as "import/path.Name", that it must not use.
	Uncalled []string
	// NoGoroutines forbids the go statement.
	NoGoroutines bool
}

// Only restricts an import or some functions to a few files.
type Only struct {
	Import string   // an import path, or empty
	Calls  []string // functions as "import/path.Name"
	Rooms  []string // the rule holds in these packages; empty: in all
	Files  []string // the files that are free of it, as patterns of path.Match
	Why    string   // said in the finding
}

// free tells whether a file is not bound by the rule.
func (o Only) free(file string) bool {
	return slices.ContainsFunc(o.Files, func(pattern string) bool {
		ok, err := path.Match(pattern, file)
		return ok && err == nil
	})
}

// Project returns the rules of this repository.
func Project() Rules {
	const (
		commitlog = Module + "/commitlog"
		transfer  = Module + "/transfer"
		reactor   = Module + "/reactor"
		engine    = Module + "/engine"
		invariant = Module + "/internal/invariant"
		sys       = "golang.org/x/sys/..."
	)
	library := []string{"commitlog", "transfer", "reactor", "engine"}
	return Rules{
		Directories: []string{
			".ci", "bench", "cmd", "commitlog", "docs", "engine", "internal", "interop", "reactor", "remoting", "testdata", "transfer",
		},
		Rooms: []Room{
			{Package: "internal/e2e", Imports: []string{commitlog}},
			{Package: "interop", Imports: []string{engine, commitlog, Module + "/interop/rocketmq"}},
			{Package: "interop/clients", Imports: []string{Module + "/remoting", Module + "/interop/rocketmq"}},
			// A module of its own, which keeps RocketMQ's client out of the product's.
			{Package: "interop/goclient", Imports: []string{"github.com/apache/rocketmq-client-go/v2/..."}},
			{Package: "interop/rocketmq"},
			{
				// A module of its own: what haengine is compared with is nothing that it needs.
				Package: "bench/peers",
				Imports: []string{
					engine, sys, "github.com/gomodule/redigo/redis", "github.com/hashicorp/go-hclog", "github.com/hashicorp/raft", "github.com/hashicorp/raft-wal",
					"github.com/nats-io/nats-server/v2/server", "github.com/nats-io/nats.go/...",
				},
			},
			{
				Package: "commitlog",
				Imports: []string{sys, "github.com/valyala/bytebufferpool", invariant},
				Unknown: []string{"net", "net/http", "flag"},
			},
			{
				Package:      "transfer",
				Imports:      []string{"golang.org/x/sys/cpu", invariant},
				Unknown:      []string{"net", "net/http", "os", "os/exec", "syscall", "flag", "log/slog"},
				Uncalled:     clockAndChance(),
				NoGoroutines: true,
			},
			{
				Package: "reactor",
				Imports: []string{sys, invariant},
				Unknown: []string{"net/http", "flag"},
			},
			{
				Package: "engine",
				Imports: []string{commitlog, transfer, reactor, invariant, "golang.org/x/sys/cpu"},
				Unknown: []string{"net/http", "flag"},
			},
			{
				Package: "remoting",
				Imports: []string{engine, "github.com/panjf2000/gnet/v2/...", "github.com/valyala/bytebufferpool"},
				Unknown: []string{"net/http", "flag"},
			},
			{
				Package: "remoting/client",
				Imports: []string{engine, Module + "/remoting"},
				Unknown: []string{"net/http", "flag"},
			},
			{
				Package: "cmd/haengine",
				Imports: []string{
					engine, commitlog, Module + "/remoting", Module + "/remoting/client", Module + "/internal/tune", "golang.org/x/sys/...",
					"github.com/spf13/cobra", "github.com/spf13/pflag",
					"github.com/knadh/koanf/...", "github.com/prometheus/client_golang/...",
				},
			},
			{Package: "bench/report"},
			{Package: "internal/sim", Imports: []string{transfer, commitlog, invariant}},
			{Package: "internal/tune", Imports: []string{sys}, Unknown: []string{"net/http", "flag"}},
			{Package: "internal/fixture"},
			{Package: "internal/invariant"},
			{Package: "internal/mutants"},
			{Package: "internal/house"},
			{Package: ".", Imports: []string{engine, commitlog, transfer, reactor, sys}},
		},
		TestImports: []string{
			"pgregory.net/rapid", "go.uber.org/goleak", "golang.org/x/sys/...", Module + "/internal/fixture",
		},
		Only: []Only{
			{
				Calls: both("EpollCreate", "EpollCreate1", "EpollCtl", "EpollWait"),
				Rooms: library,
				Files: []string{"reactor/poller.go"},
				Why:   "a loop waits in one place, which does not keep a processor from others",
			},
			{
				Calls: mappingAndSync(),
				// The limit programs of the benchmark do the bare work on purpose, and
				// so does what measures a machine.
				Files: []string{"commitlog/file.go", "commitlog/disk_os.go", "cmd/haengine/bench_*.go", "internal/tune/measure_file.go"},
				Why:   "the disk interface is the only way to a mapping, a sync or an allocation, so that its twin can stand in",
			},
			{
				Calls: directoryEntries(),
				Rooms: library,
				Files: []string{"commitlog/file.go", "commitlog/disk_os.go"},
				Why:   "a rename or an unlink has to be made durable, and the twin has to see it",
			},
		},
		LinesMax: 500,
	}
}

// clockAndChance are the ways to read a clock or to draw a number that no
// seed decides.
func clockAndChance() []string {
	var all []string
	for _, name := range []string{
		"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker",
	} {
		all = append(all, "time."+name)
	}
	for _, name := range []string{
		"Int", "IntN", "Int32", "Int32N", "Int64", "Int64N", "Uint32", "Uint64", "Uint64N", "N", "Float64", "Perm", "Shuffle",
	} {
		all = append(all, "math/rand/v2."+name)
	}
	return all
}

func mappingAndSync() []string {
	return both(
		"Mmap", "MmapPtr", "Munmap", "MunmapPtr", "Mremap", "Msync", "Fsync", "Fdatasync", "Fallocate", "SyncFileRange",
	)
}

func directoryEntries() []string {
	return append(both("Rename", "Renameat", "Renameat2", "Unlink", "Unlinkat", "Link", "Linkat"),
		"os.Rename", "os.Remove", "os.RemoveAll", "os.Link", "os.Truncate", "os.WriteFile")
}

// both names functions in the two packages that make system calls.
func both(names ...string) []string {
	var all []string
	for _, name := range names {
		all = append(all, "golang.org/x/sys/unix."+name, "syscall."+name)
	}
	return all
}
