package remoting

import (
	"encoding/json"
	"fmt"
)

// heartbeat is the body of HEART_BEAT (RocketMQ HeartbeatData).
type heartbeat struct {
	ClientID  string              `json:"clientID"`
	Consumers []consumerHeartbeat `json:"consumerDataSet"`
	Producers []producerHeartbeat `json:"producerDataSet"`
	// WithoutSub: the subscriptions are as they were (heartbeats V2).
	WithoutSub bool `json:"withoutSub"`
}

type producerHeartbeat struct {
	Group string `json:"groupName"`
}

type consumerHeartbeat struct {
	Group         string                  `json:"groupName"`
	Type          string                  `json:"consumeType"`
	Model         string                  `json:"messageModel"`
	From          string                  `json:"consumeFromWhere"`
	Unit          bool                    `json:"unitMode"`
	Subscriptions []subscriptionHeartbeat `json:"subscriptionDataSet"`
}

type subscriptionHeartbeat struct {
	Topic   string `json:"topic"`
	Text    string `json:"subString"`
	Type    string `json:"expressionType"`
	Version int64  `json:"subVersion"`
}

const broadcasting = "BROADCASTING"

// parseHeartbeat reads a body within the limits.
func parseHeartbeat(body []byte, o *ClientsOptions) (*heartbeat, error) {
	if len(body) > o.HeartbeatBytes {
		return nil, fmt.Errorf("%w: a heartbeat of %d bytes, at most %d are read", ErrTooMany, len(body), o.HeartbeatBytes)
	}
	h := &heartbeat{}
	if err := json.Unmarshal(quoteKeys(body), h); err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	if h.ClientID == "" || len(h.ClientID) > clientIDMax {
		return nil, fmt.Errorf("heartbeat: clientID has %d bytes, want 1 to %d", len(h.ClientID), clientIDMax)
	}
	if n := len(h.Consumers) + len(h.Producers); n > o.GroupsPerClient {
		return nil, fmt.Errorf("%w: client %s is in %d groups, at most %d are kept", ErrTooMany, h.ClientID, n, o.GroupsPerClient)
	}
	for _, p := range h.Producers {
		if wrong := ValidateGroup(p.Group); wrong != "" {
			return nil, fmt.Errorf("heartbeat of producer: %s", wrong)
		}
	}
	for _, c := range h.Consumers {
		if wrong := ValidateGroup(c.Group); wrong != "" {
			return nil, fmt.Errorf("heartbeat of consumer: %s", wrong)
		}
		if n := len(c.Subscriptions); n > o.TopicsPerGroup {
			return nil, fmt.Errorf("%w: group %s subscribes to %d topics, at most %d are kept", ErrTooMany, c.Group, n, o.TopicsPerGroup)
		}
		for _, s := range c.Subscriptions {
			if wrong := ValidateTopic(s.Topic); wrong != "" {
				return nil, fmt.Errorf("heartbeat of group %s: %s", c.Group, wrong)
			}
		}
	}
	return h, nil
}

const clientIDMax = 1024 // bytes
