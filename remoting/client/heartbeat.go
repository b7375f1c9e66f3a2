package client

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/haengine/haengine/remoting"
)

// heartbeatInterval is RocketMQ's heartbeatBrokerInterval. A connection that is
// silent for 120 s is closed by brokers.
const heartbeatInterval = 30 * time.Second

// heartbeat is the body of HEART_BEAT (RocketMQ HeartbeatData).
type heartbeat struct {
	ClientID  string           `json:"clientID"`
	Consumers []groupHeartbeat `json:"consumerDataSet"`
	Producers []groupName      `json:"producerDataSet"`
}

type groupName struct {
	Group string `json:"groupName"`
}

type groupHeartbeat struct {
	groupName
	Type          string         `json:"consumeType"`
	Model         string         `json:"messageModel"`
	From          string         `json:"consumeFromWhere"`
	Subscriptions []subscription `json:"subscriptionDataSet"`
	Unit          bool           `json:"unitMode"`
}

type subscription struct {
	Topic           string   `json:"topic"`
	Text            string   `json:"subString"`
	Type            string   `json:"expressionType"`
	Tags            []string `json:"tagsSet"`
	Codes           []int32  `json:"codeSet"`
	Version         int64    `json:"subVersion"`
	ClassFilterMode bool     `json:"classFilterMode"`
}

func (c *Client) heartbeats() {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
			c.beatAll()
		}
	}
}

// beatAll tells all brokers that there is a connection to: at once, so that one that
// does not answer costs the others nothing. Who is needed otherwise is connected to
// by those who need it.
func (c *Client) beatAll() {
	addrs := c.linked()
	c.mu.Lock()
	idle := len(c.mu.members)+len(c.mu.produce) == 0
	c.mu.Unlock()
	if idle {
		return
	}
	var all sync.WaitGroup
	for _, addr := range addrs {
		all.Go(func() {
			if err := c.beat(c.ctx, addr); err != nil {
				c.o.Logger.Debug("heartbeat", "error", err)
			}
		})
	}
	all.Wait()
}

// beat tells a broker who is here: producers and members of groups.
func (c *Client) beat(ctx context.Context, addr string) error {
	c.beats.RLock()
	defer c.beats.RUnlock()
	h := heartbeat{ClientID: c.o.ID, Consumers: []groupHeartbeat{}, Producers: []groupName{}}
	c.mu.Lock()
	for group := range c.mu.produce {
		h.Producers = append(h.Producers, groupName{group})
	}
	for _, m := range c.mu.members {
		h.Consumers = append(h.Consumers, m.heartbeat())
	}
	c.mu.Unlock()
	body, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = c.call(ctx, addr, &remoting.Command{Code: remoting.CodeHeartbeat, Body: body}, "heartbeat", 0)
	return err
}

// leave tells brokers that a group is left, which heartbeats no longer name.
func (c *Client) leave(ctx context.Context, field, group string) {
	c.beats.Lock() // those that still named it are over: none comes behind this
	addrs := c.linked()
	c.beats.Unlock()
	var all sync.WaitGroup
	for _, addr := range addrs {
		all.Go(func() {
			request := &remoting.Command{Code: remoting.CodeUnregisterClient, Ext: remoting.Ext{{Name: "clientID", Value: c.o.ID}, {Name: field, Value: group}}}
			if _, err := c.call(ctx, addr, request, "leave group "+group, 0); err != nil {
				c.o.Logger.Debug("leave", "error", err)
			}
		})
	}
	all.Wait()
}
