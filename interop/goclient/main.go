// Command goclient runs scenarios of RocketMQ's client for Go: commands on standard
// input, a JSON line for each answer, as the Java program beside it.
//
//	run id=1,scenario=send-sync,namesrv=127.0.0.1:9876,master=127.0.0.1:10911,name=T
//
// A result is the same for every broker that does what RocketMQ's does.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// result is a scenario's answer.
type result map[string]any

type scenario func(p *place) (result, error)

func scenarios() map[string]scenario {
	return map[string]scenario{
		"send-sync": sendSync, "send-async": sendAsync, "send-oneway": sendOneWay, "send-batch": sendBatch,
		"send-orderly": sendOrderly, "send-compressed": sendCompressed, "send-properties": sendProperties,
		"send-refused": sendRefused, "send-unsupported": sendUnsupported,
		"push-group": pushGroup, "push-broadcast": pushBroadcast, "push-tags": pushTags, "push-retry": pushRetry,
		"push-continue": pushContinue, "push-last": pushLast, "push-time": pushTime, "orderly-group": orderlyGroup,
		"pull-poll": pullPoll, "pull-queue": pullQueue,
		"slave-prepare": slavePrepare, "slave-running": slaveRunning, "slave-push": slavePush, "slave-pull": slavePull, "slave-send": slaveSend,
	}
}

// atOnce bounds the scenarios that run side by side.
const atOnce = 32

func main() {
	rlog.SetLogger(quiet{})
	known := scenarios()
	var names []string
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	say(result{"event": "serving", "scenarios": names})
	slots := make(chan struct{}, atOnce)
	clusters := map[string]*cluster{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		given := pairs(argument)
		run := known[given["scenario"]]
		if command != "run" || run == nil {
			say(result{"event": "unknown", "command": lines.Text()})
			continue
		}
		key := given["namesrv"]
		if clusters[key] == nil {
			clusters[key] = &cluster{servers: strings.Split(key, ";"), master: given["master"]}
		}
		c := clusters[key]
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			answer(given["id"], run, newPlace(c, given["name"]))
		}()
	}
}

func answer(id string, run scenario, p *place) {
	begun := time.Now()
	line := result{"event": "result", "id": id}
	r, err := run(p)
	p.close()
	if err != nil {
		r, line["text"] = result{"exception": failure(err)}, err.Error()
	}
	line["result"], line["milliseconds"] = r, time.Since(begun).Milliseconds()
	say(line)
}

func pairs(text string) map[string]string {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	return all
}

var stdout sync.Mutex

func say(r result) {
	b, err := json.Marshal(r)
	if err != nil {
		b = fmt.Appendf(nil, `{"event":"failed","reason":%q}`, err)
	}
	stdout.Lock()
	defer stdout.Unlock()
	fmt.Println(string(b))
}

// failure names an error without what differs from run to run: the code in the
// broker's answer, or its words without numbers.
func failure(err error) string {
	if err == nil {
		return "none"
	}
	text := err.Error()
	for _, known := range []string{"route info not found", "topic not exist", "broker can not found", "no route", "request timeout", "CODE: "} {
		if i := strings.Index(text, known); i >= 0 {
			if known != "CODE: " {
				return known
			}
			return strings.TrimRight(strings.SplitN(text[i:], " ", 3)[1], ",")
		}
	}
	return text
}

// quiet drops what the client logs, or shows it with GOCLIENT_LOG set.
type quiet struct{}

func (quiet) show(level, msg string, fields map[string]any) {
	if os.Getenv("GOCLIENT_LOG") != "" {
		fmt.Fprintln(os.Stderr, level, msg, fields)
	}
}

func (quiet) Debug(string, map[string]any)                {}
func (q quiet) Info(msg string, fields map[string]any)    { q.show("info", msg, fields) }
func (q quiet) Warning(msg string, fields map[string]any) { q.show("warning", msg, fields) }
func (q quiet) Error(msg string, fields map[string]any)   { q.show("error", msg, fields) }
func (q quiet) Fatal(msg string, fields map[string]any)   { q.show("fatal", msg, fields) }
func (quiet) Level(string)                                {}
func (quiet) OutputPath(string) error                     { return nil }
