package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

var rewrite = flag.Bool("rewrite", false, "write the golden scripts' outputs as they are now")

// The stories of the protocol, each in a script: blocks set apart by an empty
// line, with comments, commands (a verb a line), a line of dashes, and what the
// commands told. The checker looks at each step.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %d scripts", err, len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := newStage().play(string(want))
			if got == string(want) {
				return
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s tells another story (go test ./internal/sim -run %s -rewrite, then read the diff); now:\n%s", file, t.Name(), got)
		})
	}
}

// stage is a world that a script plays in.
type stage struct {
	*World
	nodes map[string]*Node
	told  []string
}

func newStage() *stage {
	s := &stage{nodes: map[string]*Node{}}
	cfg := Config{Seed: 1, Copies: 2, PutTimeout: time.Second, Preallocate: true, Trace: s.tell}.filled()
	s.World = emptyWorld(cfg)
	s.scripted = true
	return s
}

var noise = []*regexp.Regexp{
	regexp.MustCompile(`; again in \S+$`),
	regexp.MustCompile(`id [0-9a-f]{16} `),
}

// tell notes what happens, but for the logs' own lines and what depends on draws.
func (s *stage) tell(_ time.Duration, text string) {
	if strings.Contains(text, " logs ") || strings.Contains(text, " opens: ") || strings.HasPrefix(text, "history ") {
		return
	}
	for _, n := range noise {
		text = n.ReplaceAllString(text, "")
	}
	if !slices.Contains(s.told, text) { // tried again and again
		s.told = append(s.told, text)
	}
}

func (s *stage) play(script string) string {
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		commands, _, answers := strings.Cut(block, "\n----")
		s.told = nil
		for line := range strings.SplitSeq(commands, "\n") {
			if line != "" && !strings.HasPrefix(line, "#") {
				if err := s.do(strings.Fields(line)); err != nil {
					s.told = append(s.told, fmt.Sprintf("%s: %v", line, err))
				}
			}
		}
		if s.failed != nil {
			s.told = append(s.told, "VIOLATION "+s.failed.Text)
		}
		if answers || len(s.told) > 0 {
			commands += "\n----\n" + strings.Join(s.told, "\n")
		}
		out = append(out, strings.TrimRight(commands, "\n"))
	}
	return strings.Join(out, "\n\n") + "\n"
}

// run lets time pass.
func (s *stage) run(d time.Duration) {
	for until := s.clock.Now() + d; s.failed == nil && s.clock.Step(until); {
		s.check()
	}
}

// do carries out a command.
func (s *stage) do(words []string) error {
	verb, args := words[0], words[1:]
	switch verb {
	case "node":
		return s.node(args)
	case "run":
		d, err := time.ParseDuration(args[0])
		s.run(d)
		return err
	case "delay":
		d, err := time.ParseDuration(args[0])
		s.net.DelayMin, s.net.DelayMax = d, d+time.Millisecond
		return err
	case "ack": // what a report of RocketMQ's protocol says
		s.cfg.Ack = map[string]transfer.Kind{"flushed": transfer.Flushed}[args[0]]
		return nil
	case "copies": // that puts wait for, by the nodes' settings
		copies, err := strconv.Atoi(args[0])
		s.cfg.Copies = copies
		return err
	case "show":
		s.show()
		return nil
	}
	n := s.nodes[args[0]]
	if n == nil {
		return fmt.Errorf("there is no node %s", args[0])
	}
	switch verb {
	case "start":
		n.start()
	case "stop":
		n.stopClean()
	case "kill":
		n.stopHard(true, false)
	case "power-cut":
		n.stopHard(true, true)
	case "half-open": // the replica's side is gone, and the master does not know
		n.slave.client.socket.Break(true, false)
	case "fail-sync":
		n.disk.Fail("sync", &commitlog.TwinFault{Err: syscall.EIO, Path: "/commitlog/"})
		s.cfg.DiskFaults = true
	case "promote":
		return n.promote()
	case "follow":
		n.demote(s.nodes[args[1]])
	case "copy-of": // its disk is a copy of another's, as it is
		n.disk = s.nodes[args[1]].disk.Clone(1)
		n.disk.Kill()
	case "flip":
		return s.flip(n, args[1])
	case "kept":
		return s.kept(n)
	case "put":
		return s.put(n, args[1:])
	default:
		return fmt.Errorf("no verb %q", verb)
	}
	return nil
}

// node adds one: NAME master|follows OTHER|down [plain] [cluster C] [segment N].
func (s *stage) node(args []string) error {
	n := s.add(args[0], nil)
	n.cluster = "c1"
	s.nodes[n.name] = n
	for i, word := range args {
		switch word {
		case "follows":
			n.upstream = s.nodes[args[i+1]]
		case "plain":
			n.plain = true
		case "cluster":
			n.cluster = args[i+1]
		case "segment":
			n.segment, _ = strconv.ParseInt(args[i+1], 10, 64)
		}
	}
	if !slices.Contains(args, "down") {
		n.start()
	}
	return nil
}

// put puts messages of 100 bytes: COUNT [received|flushed REPLICAS].
func (s *stage) put(n *Node, args []string) error {
	count, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	key := ringKey{}
	if len(args) > 2 {
		if args[1] == "flushed" {
			key.kind = transfer.Flushed
		}
		if key.replicas, err = strconv.Atoi(args[2]); err != nil {
			return err
		}
	}
	results := map[string]int{}
	var order []string
	for range count {
		p, err := n.produce(&commitlog.Message{Topic: "orders", Body: make([]byte, 100)}, key, s.cfg.SyncFlush)
		result := "PUT_OK"
		switch {
		case err != nil:
			result = "refused: " + err.Error()
		case p.noReplica:
			result = "SLAVE_NOT_AVAILABLE"
		default:
			for until := p.deadline + time.Second; !p.ended && s.failed == nil && s.clock.Step(until); {
				s.check()
			}
			if p.failed {
				result = "FLUSH_SLAVE_TIMEOUT"
			}
		}
		s.check()
		if results[result]++; results[result] == 1 {
			order = append(order, result)
		}
	}
	for _, result := range order {
		s.told = append(s.told, fmt.Sprintf("%d %s", results[result], result))
	}
	return nil
}

// flip changes a byte of a record's body on the disk of a node that is down.
func (s *stage) flip(n *Node, record string) error {
	k, err := strconv.Atoi(record)
	if err != nil {
		return err
	}
	at := s.histories[0].ends[k-1] + 100
	s.flips[at], n.tainted = true, true
	return n.disk.Flip(fmt.Sprintf("%s/commitlog/%020d", store, at-at%s.segment()), at%s.segment(), 1)
}

// kept lists what was cut off.
func (s *stage) kept(n *Node) error {
	files, err := n.disk.ReadDir(store + "/cut")
	for _, f := range files {
		name := strings.Join(strings.Split(f.Name, "-")[:2], " to ")
		s.told = append(s.told, fmt.Sprintf("%s keeps %d bytes from offset %s", n.name, f.Size, name))
	}
	return err
}

// show tells how all nodes are.
func (s *stage) show() {
	for _, n := range s.World.nodes {
		text := n.name + ": "
		if !n.up {
			s.told = append(s.told, text+"down")
			continue
		}
		held := n.span()
		if n.slave == nil {
			text += "master"
		} else {
			text += fmt.Sprintf("follows %s, %v", n.upstream.name, n.slave.follower.State())
		}
		text += fmt.Sprintf(", [%d, %d), epochs", held.Min, held.End)
		for _, e := range n.log.Epochs() {
			text += fmt.Sprintf(" %d@%d", e.Number, e.Start)
		}
		if err := n.log.Writable(); err != nil {
			text += ", read-only"
		}
		s.told = append(s.told, text)
		for _, c := range n.servers {
			if c.member == nil {
				continue
			}
			mode := "plain"
			if c.extended {
				mode = "extended"
			}
			acks := c.session.Acks()
			text := fmt.Sprintf("  %s in %s: received %d", c.peer.name, mode, acks.Received)
			if c.extended {
				text += fmt.Sprintf(", flushed %d", acks.Flushed)
			}
			if acks.Damaged >= 0 {
				text += fmt.Sprintf(", damaged at %d", acks.Damaged)
			}
			s.told = append(s.told, text)
		}
		if n.slave != nil && n.slave.follower.Reason() != "" {
			reason := n.slave.follower.Reason()
			for _, r := range noise {
				reason = r.ReplaceAllString(reason, "")
			}
			s.told = append(s.told, "  "+reason)
		}
	}
}
