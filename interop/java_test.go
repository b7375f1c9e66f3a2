package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// version is a version of RocketMQ.
type version string

// The newest that is published whole, and the last of 4.9, of which the broker's
// parts are published up to 4.9.7 only.
const (
	v5       version = "5.5.0"
	v4       version = "4.9.8"
	v4broker version = "4.9.7"
)

var (
	storeVersions  = []version{v5, v4}
	brokerVersions = []version{v5, v4broker}
)

func (v version) readsV2() bool { return v == v5 }

// needRocketMQ leaves the test out where the real one cannot run.
func needRocketMQ(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts JVMs")
	}
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs Java 17 and Maven: %v", err)
		}
	}
}

// builds are the builds of run.sh, each made once.
var builds sync.Map // of name to func() error

func (v version) environ(broker bool) []string {
	env := append(os.Environ(), "INTEROP_ROCKETMQ="+string(v))
	if os.Getenv("INTEROP_HEAP") == "" {
		env = append(env, "INTEROP_HEAP=-Xms128m -Xmx768m")
	}
	if broker {
		env = append(env, "INTEROP_BROKER=1")
	}
	return env
}

func (v version) build(t testing.TB, broker bool) {
	t.Helper()
	once, _ := builds.LoadOrStore(fmt.Sprint(v, broker), sync.OnceValue(func() error {
		cmd := exec.Command("./run.sh", "build")
		cmd.Env = v.environ(broker)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build RocketMQ %s: %w\n%s", v, err, out)
		}
		return nil
	}))
	err := once.(func() error)()
	if err != nil && os.Getenv("INTEROP_REQUIRED") == "" {
		t.Skipf("needs RocketMQ's artifacts, Java 17 and Maven (INTEROP_REQUIRED=1 makes this a failure): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// event is a line that a Java process prints.
type event map[string]any

func (e event) number(name string) int64 {
	n, _ := e[name].(json.Number)
	i, err := n.Int64()
	if err != nil {
		f, _ := n.Float64()
		return int64(f)
	}
	return i
}

func (e event) float(name string) float64 {
	n, _ := e[name].(json.Number)
	f, _ := n.Float64()
	return f
}

// java is a running process of the real RocketMQ.
type java struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	events chan event
	exited chan struct{}
	said   struct {
		sync.Mutex
		lines []string
	}
}

// start runs a command of run.sh. It is killed at the end of the test if it is
// still there.
func (v version) start(t testing.TB, args ...string) *java { return v.launch(t, false, args...) }

func (v version) launch(t testing.TB, broker bool, args ...string) *java {
	t.Helper()
	v.build(t, broker)
	j := &java{
		t: t, name: fmt.Sprintf("RocketMQ %s %s", v, args[0]), cmd: exec.Command("./run.sh", args...),
		events: make(chan event, 4096), exited: make(chan struct{}),
	}
	j.cmd.Env = v.environ(broker)
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var err error
	if j.stdin, err = j.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := j.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { eachLine(stdout, j.heard) })
	readers.Go(func() { eachLine(stderr, func(line []byte) { j.say("stderr: " + string(line)) }) })
	go func() {
		readers.Wait()
		_ = j.cmd.Wait() // its state is asked for where it matters
		close(j.events)
		close(j.exited)
	}()
	t.Cleanup(func() {
		j.kill()
		if t.Failed() {
			t.Logf("%s said:\n  %s", j.name, strings.Join(j.tail(30), "\n  "))
		}
	})
	return j
}

func eachLine(r io.Reader, do func([]byte)) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 16<<20)
	for s.Scan() {
		do(s.Bytes())
	}
	_, _ = io.Copy(io.Discard, r) // a line too long must not block the process
}

func (j *java) heard(line []byte) {
	j.say(string(line))
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var e event
	if err := d.Decode(&e); err == nil && e["event"] != nil {
		j.events <- e
	}
}

func (j *java) say(line string) {
	j.said.Lock()
	defer j.said.Unlock()
	if len(line) > 400 {
		line = line[:400] + "…"
	}
	j.said.lines = append(j.said.lines, line)
}

func (j *java) tail(most int) []string {
	j.said.Lock()
	defer j.said.Unlock()
	return append([]string{}, j.said.lines[max(0, len(j.said.lines)-most):]...)
}

// await waits for an event and passes over others.
func (j *java) await(name string) event {
	j.t.Helper()
	e, err := j.wait(name)
	if err != nil {
		j.t.Fatal(err)
	}
	return e
}

func (j *java) wait(name string) (event, error) {
	limit := time.NewTimer(2 * patience)
	defer limit.Stop()
	for {
		select {
		case e, ok := <-j.events:
			switch {
			case !ok:
				return nil, fmt.Errorf("%s ended with %v before it said %q:\n  %s", j.name, j.cmd.ProcessState, name, strings.Join(j.tail(20), "\n  "))
			case e["event"] == name:
				return e, nil
			case e["event"] == "failed":
				return nil, fmt.Errorf("%s failed: %v", j.name, e)
			}
		case <-limit.C:
			return nil, fmt.Errorf("%s did not say %q within %v:\n  %s", j.name, name, 2*patience, strings.Join(j.tail(20), "\n  "))
		}
	}
}

// order gives a command, whose answer is awaited apart.
func (j *java) order(command string) {
	j.t.Helper()
	if _, err := io.WriteString(j.stdin, command+"\n"); err != nil {
		j.t.Fatalf("%s takes no command: %v\n  %s", j.name, err, strings.Join(j.tail(20), "\n  "))
	}
}

// ask gives a command and waits for its answer.
func (j *java) ask(command, answer string) event {
	j.t.Helper()
	j.order(command)
	return j.await(answer)
}

// quit ends the process as a stop does, and gives its last word.
func (j *java) quit() event {
	j.t.Helper()
	j.stdin.Close()
	e := j.await("closed")
	<-j.exited
	return e
}

// kill ends the process as a crash does.
func (j *java) kill() {
	_ = j.cmd.Process.Kill() // an error means that it is gone already
	for range j.events {
		continue // its reader must not wait for us
	}
	<-j.exited
}

// output runs a command of run.sh to its end.
func (v version) output(t testing.TB, args ...string) []byte {
	t.Helper()
	v.build(t, false)
	cmd := exec.CommandContext(t.Context(), "./run.sh", args...)
	cmd.Env = v.environ(false)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("RocketMQ %s %s: %v\n%s%s", v, strings.Join(args, " "), err, stderr.Bytes(), out[max(0, len(out)-2000):])
	}
	return out
}

// freePort finds a TCP port that nobody listens on, below those that the kernel
// gives to outgoing connections: it stays free while its node is down.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(10000)
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port between 20000 and 30000")
	return 0
}

const segmentBytes = 1 << 20

// realMaster is RocketMQ's store as a master.
type realMaster struct {
	*java
	store   string
	port    int
	address string
	end     int64 // of the log that it found
}

// master starts a master that waits for nobody, unless args say otherwise.
func (v version) master(t testing.TB, store string, args ...string) *realMaster {
	t.Helper()
	return v.masterAt(t, store, freePort(t), args...)
}

func (v version) masterAt(t testing.TB, store string, port int, args ...string) *realMaster {
	t.Helper()
	m := &realMaster{store: store, port: port, address: fmt.Sprintf("127.0.0.1:%d", port)}
	m.java = v.start(t, append([]string{
		"master", "--store", store, "--ha-port", fmt.Sprint(port), "--segment-bytes", fmt.Sprint(segmentBytes), "--role", "ASYNC_MASTER",
	}, args...)...)
	m.end = m.await("serving").number("max_offset")
	return m
}

// mixed puts traffic of many shapes, at least bytes of it.
func (m *realMaster) mixed(v version, seed uint64, bytes int) event {
	m.t.Helper()
	v2 := 0
	if v.readsV2() {
		v2 = 1
	}
	return m.ask(fmt.Sprintf("mixed seed=%d,bytes=%d,max_body=200000,v2=%d,v6=1", seed, bytes, v2), "mixed")
}

// followedBy waits until so many slaves are connected and hold everything.
func (m *realMaster) followedBy(slaves int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%d slaves of RocketMQ's master hold everything", slaves), func() bool {
		s := m.ask("status", "status")
		connections, _ := s["acked"].([]any)
		for _, c := range connections {
			if event(c.(map[string]any)).number("acked_offset") < s.number("max_offset") {
				return false
			}
		}
		return len(connections) == slaves
	})
}

// inSync waits until a slave has acknowledged everything.
func (m *realMaster) inSync() {
	m.t.Helper()
	if e := m.ask("wait 60", "wait"); e["in_sync"] != true {
		m.t.Fatalf("no slave follows: %v", e)
	}
}

// realSlave is RocketMQ's store as a slave.
type realSlave struct {
	*java
	store string
}

func (v version) slave(t testing.TB, store, master string, args ...string) *realSlave {
	t.Helper()
	s := &realSlave{store: store}
	s.java = v.start(t, append([]string{"slave", "--store", store, "--master", master, "--segment-bytes", fmt.Sprint(segmentBytes)}, args...)...)
	s.await("serving")
	return s
}
