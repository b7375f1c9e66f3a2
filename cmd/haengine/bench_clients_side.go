package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/remoting"
)

// clientsSide is one of the brokers that are measured.
type clientsSide struct {
	name, addr string
	pids       []int
	load       *sendLoad
	rounds     []*sendRound
}

func newClientsSide(ctx context.Context, o *clientsOptions, name, addr string, pids []int) (*clientsSide, error) {
	s := &clientsSide{name: name, addr: addr, pids: pids}
	if err := makeTopic(ctx, addr, o.topic); err != nil {
		return nil, s.failed(err)
	}
	t, err := newSendTemplate(o.topic, int(o.size))
	if err != nil {
		return nil, err
	}
	if s.load, err = newSendLoad(t, addr, o.connections, o.outstanding, o.rate); err != nil {
		return nil, s.failed(err)
	}
	return s, nil
}

func (s *clientsSide) close() { s.load.close() }

func (s *clientsSide) failed(err error) error { return fmt.Errorf("broker %s: %w", s.addr, err) }

func (s *clientsSide) turn(ctx context.Context, d time.Duration) error {
	cpu, err := cpuTimes(s.pids)
	if err != nil {
		return err
	}
	r, err := s.load.run(ctx, d)
	if err != nil {
		return s.failed(err)
	}
	after, err := cpuTimes(s.pids)
	if err != nil {
		return err
	}
	if r.messages == 0 {
		return s.failed(fmt.Errorf("no message was stored in a round; answers by code: %v", r.codes))
	}
	r.broker = after - cpu
	s.rounds = append(s.rounds, r)
	return nil
}

// askTimeout is how long a broker may take for a question.
const askTimeout = 10 * time.Second

func askBroker(ctx context.Context, addr string, c *remoting.Command) (*remoting.Command, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client, err := remoting.Dial(ctx, addr, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	a, err := client.Call(ctx, c)
	if err == nil && a.Code != remoting.Success {
		err = fmt.Errorf("request %d is answered with code %d: %s", c.Code, a.Code, a.Remark)
	}
	return a, err
}

// makeTopic makes the topic, as administrators do.
func makeTopic(ctx context.Context, addr, topic string) error {
	_, err := askBroker(ctx, addr, &remoting.Command{Code: remoting.CodeUpdateTopic, Ext: remoting.Ext{
		{Name: "topic", Value: topic}, {Name: "defaultTopic", Value: "TBW102"}, {Name: "readQueueNums", Value: strconv.Itoa(benchQueues)},
		{Name: "writeQueueNums", Value: strconv.Itoa(benchQueues)}, {Name: "perm", Value: "6"}, {Name: "topicFilterType", Value: "SINGLE_TAG"},
		{Name: "topicSysFlag", Value: "0"}, {Name: "order", Value: "false"},
	}})
	if err != nil {
		return fmt.Errorf("make topic %s: %w", topic, err)
	}
	return nil
}

// masterOf asks a name server for a master: that of the first broker that takes
// topics.
func masterOf(ctx context.Context, namesrv string) (string, error) {
	a, err := askBroker(ctx, namesrv, &remoting.Command{Code: remoting.CodeGetRouteInfo, Ext: remoting.Ext{
		{Name: "topic", Value: "TBW102"}, {Name: "acceptStandardJsonOnly", Value: "true"},
	}})
	if err != nil {
		return "", fmt.Errorf("name server %s: %w", namesrv, err)
	}
	var route struct {
		BrokerDatas []struct {
			BrokerAddrs map[string]string `json:"brokerAddrs"`
		} `json:"brokerDatas"`
	}
	if err := json.Unmarshal(a.Body, &route); err != nil {
		return "", fmt.Errorf("name server %s: its route is not understood: %w", namesrv, err)
	}
	for _, b := range route.BrokerDatas {
		if addr := b.BrokerAddrs["0"]; addr != "" {
			return addr, nil
		}
	}
	return "", fmt.Errorf("name server %s knows no master", namesrv)
}

// brokerPair is a master with clients and its slave, both children.
type brokerPair struct {
	addr          string
	master, slave *child
}

// startBrokers starts a pair, and waits until the slave is in sync.
func startBrokers(ctx context.Context, role, dir string) (p *brokerPair, err error) {
	r, err := engine.ParseRole(role)
	if err != nil || r == engine.Slave {
		return nil, fmt.Errorf("--role %s: want SYNC_MASTER or ASYNC_MASTER", role)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	p = &brokerPair{}
	defer func() {
		if err != nil {
			p.kill()
		}
	}()
	if p.master, err = startChild("master", nil, "serve", "--role", role, "--store", filepath.Join(dir, "master"), "--log-format", "json",
		"--ha-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", "--namesrv-listen", ""); err != nil {
		return p, err
	}
	m, err := p.master.waitServing(ctx)
	if err != nil {
		return p, err
	}
	p.addr = m.ClientListen
	if p.slave, err = startChild("slave", nil, "serve", "--role", "SLAVE", "--store", filepath.Join(dir, "slave"), "--log-format", "json",
		"--master", m.HAListen, "--admin-listen", "", "--client-listen", ""); err != nil {
		return p, err
	}
	for {
		s, _, err := fetchStatus(ctx, m.AdminListen)
		if err == nil && len(s.Replicas) > 0 && s.Replicas[0].InSync {
			return p, nil
		}
		if p.slave.gone() || ctx.Err() != nil {
			return p, p.slave.failure(errors.Join(errors.New("does not follow its master"), err))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *brokerPair) pids() []int { return []int{p.master.cmd.Process.Pid, p.slave.cmd.Process.Pid} }

// kill ends both at once: their stores are thrown away.
func (p *brokerPair) kill() {
	for _, c := range []*child{p.slave, p.master} {
		if c != nil {
			c.kill()
		}
	}
}
