package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haengine/haengine/interop/rocketmq"
)

func TestOurCommandsAtRocketMQsBroker(t *testing.T) {
	runChecks(t, "8. The command line", []check{
		{name: "put, tail, topic and group at RocketMQ's broker", direction: oursToReal, newest: true, versions: brokerVersions, run: commandsAtABroker},
	})
}

// command runs our command, whose exit code must be code.
func command(t testing.TB, code int, stdin string, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var out, talk bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &talk
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("haengine %s: %v, want exit code %d\n%s%s", strings.Join(args, " "), err, code, out.String(), talk.String())
	}
	return out.String(), talk.String()
}

// commandsAtABroker sends, reads and administers at the real broker with our
// commands, and has RocketMQ's client read what they sent.
func commandsAtABroker(c *trial) {
	names := c.version.nameServer(c)
	b := c.version.launch(c, true, "broker", "--store", filepath.Join(c.TempDir(), "broker"), "--role", "ASYNC_MASTER",
		"--listen", fmt.Sprint(rocketmq.FreePort(c)), "--ha-port", fmt.Sprint(rocketmq.FreePort(c)), "--namesrv", names, "--segment-bytes", fmt.Sprint(segmentBytes))
	b.Await("serving")
	at := func(args ...string) []string { return append(args, "--namesrv", names, "--timeout", "30s") }
	eventually(c, "the broker is registered", func() bool {
		out, _ := command(c, 0, "", at("topic", "list", "--all")...)
		return strings.Contains(out, "TBW102")
	})
	ask := func(into any, args ...string) {
		c.Helper()
		out, _ := command(c, 0, "", append(at(args...), "--json")...)
		if err := json.Unmarshal([]byte(out), into); err != nil {
			c.Fatalf("%v: %v in %s", args, err, out)
		}
	}

	command(c, 0, "", at("topic", "create", "orders", "--queues", "4")...)
	var lines strings.Builder
	const count = 500
	for i := range count {
		fmt.Fprintln(&lines, "line", i)
	}
	out, _ := command(c, 0, lines.String(), at("put", "--topic", "orders", "--queue", "2", "--key", "4711", "--tag", "paid")...)
	if !strings.Contains(out, fmt.Sprintf("SEND_OK              %d\n", count)) {
		c.Errorf("put: %s", out)
	}
	for _, args := range [][]string{{"--tag", "paid"}, {"--queue", "2"}, {"--from", "1h"}} {
		if out, _ := command(c, 0, "", at(append([]string{"tail", "--topic", "orders"}, args...)...)...); out != lines.String() {
			c.Errorf("tail %v gives %d of %d bytes", args, len(out), lines.Len())
		}
	}
	if out, _ := command(c, 0, "", at("tail", "--topic", "orders", "--tag", "other")...); out != "" {
		c.Errorf("another tag: %s", out)
	}
	client := c.version.launch(c, true, "client", "--namesrv", names)
	consumed := client.Ask(fmt.Sprintf("consume topic=orders,count=%d,seconds=40", count), "consumed")
	if n := consumed.Number("messages"); n != count {
		c.Errorf("RocketMQ's client reads %d messages, want %d", n, count)
	}
	// Bodies that RocketMQ's client has compressed are read as they were.
	client.Ask("send topic=large,count=3,size=20000", "sent")
	if out, _ := command(c, 0, "", at("tail", "--topic", "large")...); len(out) != 3*20001 {
		c.Errorf("large messages: %d bytes, want %d", len(out), 3*20001)
	}
	client.EndInput()
	<-client.Exited()

	group := func(want int) {
		c.Helper()
		if out, _ := command(c, 0, "", at("tail", "--topic", "orders", "--group", "shop")...); strings.Count(out, "\n") != want {
			c.Errorf("the group reads %d lines, want %d", strings.Count(out, "\n"), want)
		}
	}
	group(count)
	group(0)
	var g struct {
		Lag    int `json:"lag"`
		Queues []struct {
			Topic  string `json:"topic"`
			Offset int    `json:"offset"`
		} `json:"queues"`
	}
	ask(&g, "group", "describe", "shop")
	read := 0
	for _, q := range g.Queues {
		read += q.Offset
	}
	if g.Lag != 0 || read != count {
		c.Errorf("group describe: %+v", g)
	}
	if out, _ := command(c, 0, "", at("group", "list")...); !strings.Contains(out, "shop\n") {
		c.Errorf("group list: %s", out)
	}
	command(c, 0, "", at("group", "reset", "shop", "--topic", "orders", "--to", "450", "--queue", "2", "--yes")...)
	group(count - 450)
	command(c, 0, "", at("group", "reset", "shop", "--topic", "orders", "--to", "first", "--yes")...)
	group(count)

	var d struct {
		Messages int `json:"messages"`
		Brokers  []struct {
			WriteQueues int `json:"write_queues"`
		} `json:"brokers"`
		Groups []string `json:"groups"`
	}
	ask(&d, "topic", "describe", "orders")
	if d.Messages != count || len(d.Brokers) != 1 || d.Brokers[0].WriteQueues != 4 || len(d.Groups) == 0 {
		c.Errorf("topic describe: %+v", d)
	}
	if _, talk := command(c, 1, strings.Repeat("x", 5<<20), at("put", "--topic", "orders")...); !strings.Contains(talk, "MESSAGE_ILLEGAL") {
		c.Errorf("a message that is too long: %s", talk)
	}
	command(c, 0, "", at("topic", "delete", "orders", "--yes")...)
	if out, _ := command(c, 0, "", at("topic", "list")...); strings.Contains(out, "orders") {
		c.Errorf("after it was deleted: %s", out)
	}
	b.Quit()
	c.figure("%d lines put and read, a group reset twice", count)
}
