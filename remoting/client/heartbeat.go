package client

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
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
		case <-c.stop:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		idle := len(c.mu.members)+len(c.mu.produce) == 0
		addrs := slices.Collect(maps.Keys(c.mu.conns))
		c.mu.Unlock()
		if idle {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.o.Timeout)
		for _, addr := range addrs {
			if !slices.Contains(c.o.NameServers, addr) {
				if err := c.beat(ctx, addr); err != nil {
					c.o.Logger.Debug("heartbeat", "error", err)
				}
			}
		}
		cancel()
	}
}

// beat tells a broker who is here: producers and members of groups.
func (c *Client) beat(ctx context.Context, addr string) error {
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

// leave tells brokers that a group is left.
func (c *Client) leave(ctx context.Context, field, group string) {
	c.mu.Lock()
	addrs := slices.Collect(maps.Keys(c.mu.conns))
	c.mu.Unlock()
	for _, addr := range addrs {
		if slices.Contains(c.o.NameServers, addr) {
			continue
		}
		c.mu.Lock()
		n := c.mu.conns[addr]
		c.mu.Unlock()
		n.Lock()
		client := n.client
		n.Unlock()
		if client == nil || client.Err() != nil {
			continue // it knows of us no more
		}
		request := &remoting.Command{Code: remoting.CodeUnregisterClient, Ext: remoting.Ext{{Name: "clientID", Value: c.o.ID}, {Name: field, Value: group}}}
		if _, err := c.call(ctx, addr, request, "leave group "+group, 0); err != nil {
			c.o.Logger.Debug("leave", "error", err)
		}
	}
}
