package clients

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/haengine/haengine/interop/rocketmq"
)

// client is a program that runs scenarios.
type client struct {
	name   string // as the table has it
	prefix string // of topics and groups
	*rocketmq.Process
	mu      sync.Mutex
	next    int
	waiting map[string]chan rocketmq.Event
}

func startJava(t testing.TB, v rocketmq.Version) *client {
	t.Helper()
	kit := rocketmq.Kit{Version: v, Broker: true, Env: []string{quick + " -Drocketmq.client.localOffsetStoreDir=" + t.TempDir()}}
	return newClient(t, "Java "+string(v), "J"+string(v[:1]), kit.Launch(t, "clients", "--threads", "16"))
}

func startGo(t testing.TB) *client {
	t.Helper()
	return newClient(t, "Go v2", "G", rocketmq.Start(t, "the client for Go", exec.Command(goProgram)))
}

// newClient takes a program that was started; it need not be up.
func newClient(t testing.TB, name, prefix string, p *rocketmq.Process) *client {
	t.Helper()
	c := &client{name: name, prefix: prefix, Process: p, waiting: map[string]chan rocketmq.Event{}}
	done := make(chan struct{})
	t.Cleanup(func() { p.Kill(); <-done })
	go func() {
		defer close(done)
		for e := range p.Events {
			if e["event"] != "result" {
				continue
			}
			c.mu.Lock()
			answer := c.waiting[fmt.Sprint(e["id"])]
			delete(c.waiting, fmt.Sprint(e["id"]))
			c.mu.Unlock()
			if answer != nil {
				answer <- e
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, answer := range c.waiting {
			close(answer) // the program is gone
		}
		c.waiting = nil
	}()
	return c
}

// outcome is what a scenario gave.
type outcome struct {
	result string // JSON
	text   string // of an exception, or of mqadmin
	took   time.Duration
}

// limit is how long a scenario may take, those before it included.
const limit = 4 * time.Minute

// ask gives a command, and waits for its result.
func (c *client) ask(command, argument string) outcome {
	answer := make(chan rocketmq.Event, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return outcome{result: "the program is gone"}
	}
	c.next++
	id := fmt.Sprint(c.next)
	c.waiting[id] = answer
	c.Order(fmt.Sprintf("%s id=%s,%s", command, id, argument))
	c.mu.Unlock()
	select {
	case e, ok := <-answer:
		if !ok {
			return outcome{result: "the program ended: " + strings.Join(c.Tail(10), "\n")}
		}
		b, err := json.Marshal(e["result"])
		if err != nil {
			return outcome{result: err.Error()}
		}
		text, _ := e["text"].(string)
		return outcome{result: string(b), text: text, took: time.Duration(e.Float("milliseconds") * float64(time.Millisecond))}
	case <-time.After(limit):
		return outcome{result: fmt.Sprintf("no answer within %v", limit)}
	}
}

// run runs a scenario at a cluster; name is what the topics' names begin with.
func (c *client) run(at *cluster, scenario, name string) outcome {
	return c.ask("run", fmt.Sprintf("scenario=%s,namesrv=%s,master=%s,name=%s-%s", scenario, at.names, at.master, c.prefix, name))
}

// mqadmin runs a command of RocketMQ's administration; an argument ID stands for
// that of a message that was prepared by name. On a busy machine a broker of
// RocketMQ's may not answer within the command's own limit: a command that says so
// is run again.
func (c *client) mqadmin(at *cluster, arguments, name string) (o outcome) {
	for range 3 {
		if o = c.mqadminOnce(at, arguments, name); !strings.Contains(o.text, "RemotingTimeoutException") {
			break
		}
	}
	return o
}

func (c *client) mqadminOnce(at *cluster, arguments, name string) outcome {
	o := c.ask("mqadmin", fmt.Sprintf("namesrv=%s,name=%s-%s,arguments=%s", at.names, c.prefix, name, arguments))
	var said struct {
		Text      string `json:"text"`
		Complaint string `json:"complaint"` // other threads' among it
	}
	if err := json.Unmarshal([]byte(o.result), &said); err == nil {
		o.text = said.Text
		for _, e := range exception.FindAllString(said.Complaint, -1) {
			o.text += "\n" + e
		}
	}
	return o
}

// exception is the head of what mqadmin prints of one; the rest differs from run to
// run.
var exception = regexp.MustCompile(`(?m)^(Caused by: )?org\.apache\.rocketmq\.[\w.]+Exception(: CODE: \d+)?`)
