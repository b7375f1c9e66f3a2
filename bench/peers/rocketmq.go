package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// rocketmqVersion is what interop/run.sh runs when it is not told otherwise.
const rocketmqVersion = "5.5.0"

// rocketmq is the real one: two JVMs, started by interop/run.sh.
type rocketmq struct {
	script string
}

func (*rocketmq) Name() string { return "rocketmq" }

func (*rocketmq) About() About {
	return About{
		Version:      "Apache RocketMQ " + rocketmqVersion + ", its store and HA service on Java 17",
		Nodes:        "SYNC_MASTER and one slave, two JVMs; asynchronous flush, page cache",
		Acknowledged: "in the master's and one replica's page cache (inSyncReplicas 2; the default of 1 waits for nobody)",
		Load:         "in the master's JVM, without broker and client",
		Settings:     "heap of 2 GiB, if INTEROP_HEAP does not say otherwise, G1; inSyncReplicas 2",
		CatchUp: "an ASYNC_MASTER's log of one segment, since an empty slave is given the last segment only; until the slave has it. " +
			"A slave that has just started is silent for 5 s, so see the rate from its first byte",
	}
}

func (p *rocketmq) Prepare(ctx context.Context) error {
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: Java 17 and Maven, in Debian openjdk-17-jdk-headless and maven: %w", ErrAbsent, err)
		}
	}
	top, err := treeTop()
	if err != nil {
		return err
	}
	p.script = filepath.Join(top, "interop", "run.sh")
	cmd := exec.CommandContext(ctx, p.script, "build")
	cmd.Env = append(os.Environ(), "INTEROP_ROCKETMQ="+rocketmqVersion)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: RocketMQ's jars, from Maven Central: %w\n%s", ErrAbsent, err, out)
	}
	return nil
}

// treeTop is the directory of this tree, found from the working directory up.
func treeTop() (string, error) {
	start, err := os.Getwd()
	for dir := start; err == nil; dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "interop", "run.sh")); missing == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = fmt.Errorf("interop/run.sh is in no directory above %s: run this inside the source tree", start)
		}
	}
	return "", err
}

func (p *rocketmq) run(name string, args ...string) (*process, error) {
	return launch(name, []string{"INTEROP_ROCKETMQ=" + rocketmqVersion}, p.script, args...)
}

func (p *rocketmq) Start(ctx context.Context, plan Plan) (_ *System, err error) {
	s := new(System)
	defer closeUnless(s, &err)
	port, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	ha := port[0]
	role, segment := "SYNC_MASTER", int64(1<<30)
	if plan.Late {
		// All in one segment: records have some 100 bytes around their body.
		role, segment = "ASYNC_MASTER", min(plan.Bytes+plan.Bytes/4+64<<20, 1<<31-1)
	}
	size := strconv.FormatInt(segment, 10)
	if s.driver, err = s.add(p.run("RocketMQ's master", "master", "--store", filepath.Join(plan.Dir, "master"),
		"--role", role, "--ha-port", strconv.Itoa(ha), "--segment-bytes", size)); err != nil {
		return nil, err
	}
	if _, err := s.driver.await(ctx, "serving"); err != nil {
		return nil, err
	}
	s.join = func(ctx context.Context) (*process, error) {
		slave, err := p.run("RocketMQ's slave", "slave", "--store", filepath.Join(plan.Dir, "slave"),
			"--master", address(ha), "--segment-bytes", size)
		if err != nil {
			return nil, err
		}
		_, err = slave.await(ctx, "serving")
		return slave, err
	}
	if plan.Late {
		return s, nil
	}
	slave, err := s.add(s.join(ctx))
	if err != nil {
		return nil, err
	}
	if _, err := slave.await(ctx, "connected"); err != nil {
		return nil, err
	}
	// Until its first put the master has nothing that a slave could acknowledge,
	// and the slave says nothing for 5 s.
	return s, s.waitInSync(ctx)
}

// address is a port of this machine.
func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// reached polls until somebody accepts connections at an address.
func reached(ctx context.Context, p *process, addr string) error {
	err := poll(ctx, 5*time.Millisecond, "connect to "+addr, func() (bool, error) {
		select {
		case <-p.exited:
			return true, nil
		default:
			return dials(addr)
		}
	})
	select {
	case <-p.exited:
		err = errors.Join(err, errors.New("ended before it served"))
	default:
	}
	if err != nil {
		return p.failure(err)
	}
	return nil
}
