package remoting

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// GroupConfig is a consumer group's settings (RocketMQ SubscriptionGroupConfig).
// It is not changed once others can see it.
type GroupConfig struct {
	Name                   string
	ConsumeEnable          bool
	ConsumeFromMinEnable   bool
	ConsumeBroadcastEnable bool
	ConsumeMessageOrderly  bool
	RetryQueues            int32 // of %RETRY%group; 0: messages that are sent back are dropped
	RetryMax               int32 // times, before a message goes to %DLQ%group
	BrokerID               int64
	WhichBrokerWhenSlow    int64
	NotifyConsumersChanged bool
	SysFlag                int32
	ConsumeTimeoutMinutes  int32
	Attributes             map[string]string
	rest                   object
}

// toolsGroup is what administrators' tools read with; every broker has it
// (MixAll.TOOLS_CONSUMER_GROUP).
const toolsGroup = "TOOLS_CONSUMER"

// NewGroupConfig gives a group with RocketMQ's defaults.
func NewGroupConfig(name string) GroupConfig {
	return GroupConfig{
		Name: name, ConsumeEnable: true, ConsumeFromMinEnable: true, ConsumeBroadcastEnable: true,
		RetryQueues: 1, RetryMax: 16, WhichBrokerWhenSlow: 1, NotifyConsumersChanged: true, ConsumeTimeoutMinutes: 15,
	}
}

// RetryTopic and DLQTopic are where a group's failed messages go.
func (c *GroupConfig) RetryTopic() string { return RetryPrefix + c.Name }

// DLQTopic is where they go in the end.
func (c *GroupConfig) DLQTopic() string { return DLQPrefix + c.Name }

// AppendJSON appends the group as RocketMQ writes it.
func (c *GroupConfig) AppendJSON(dst []byte) []byte { return encodeGroup(*c).append(dst) }

func encodeGroup(c GroupConfig) object {
	o := c.rest.clone()
	if o == nil {
		o = object{"groupRetryPolicy": []byte(`{"type":"CUSTOMIZED"}`)}
	}
	o.text("groupName", c.Name)
	o.truth("consumeEnable", c.ConsumeEnable)
	o.truth("consumeFromMinEnable", c.ConsumeFromMinEnable)
	o.truth("consumeBroadcastEnable", c.ConsumeBroadcastEnable)
	o.truth("consumeMessageOrderly", c.ConsumeMessageOrderly)
	o.number("retryQueueNums", int64(c.RetryQueues))
	o.number("retryMaxTimes", int64(c.RetryMax))
	o.number("brokerId", c.BrokerID)
	o.number("whichBrokerWhenConsumeSlowly", c.WhichBrokerWhenSlow)
	o.truth("notifyConsumerIdsChangedEnable", c.NotifyConsumersChanged)
	o.number("groupSysFlag", int64(c.SysFlag))
	o.number("consumeTimeoutMinute", int64(c.ConsumeTimeoutMinutes))
	o.texts("attributes", c.Attributes)
	return o
}

func decodeGroup(name string, o object) (GroupConfig, error) {
	c := NewGroupConfig(name)
	err := o.takeAll(objectField{"groupName", &c.Name}, objectField{"consumeEnable", &c.ConsumeEnable},
		objectField{"consumeFromMinEnable", &c.ConsumeFromMinEnable},
		objectField{"consumeBroadcastEnable", &c.ConsumeBroadcastEnable},
		objectField{"consumeMessageOrderly", &c.ConsumeMessageOrderly},
		objectField{"retryQueueNums", &c.RetryQueues}, objectField{"retryMaxTimes", &c.RetryMax},
		objectField{"brokerId", &c.BrokerID}, objectField{"whichBrokerWhenConsumeSlowly", &c.WhichBrokerWhenSlow},
		objectField{"notifyConsumerIdsChangedEnable", &c.NotifyConsumersChanged},
		objectField{"groupSysFlag", &c.SysFlag}, objectField{"consumeTimeoutMinute", &c.ConsumeTimeoutMinutes},
		objectField{"attributes", &c.Attributes})
	if err == nil && c.Name != name {
		err = fmt.Errorf("it stands under another name than its groupName %q", c.Name)
	}
	c.rest = o
	return c, err
}

// groupBytesMax is the longest that a group's settings may be: RocketMQ's have 500
// bytes, and what we do not know of them is kept as it is.
const groupBytesMax = 16 << 10

// ParseGroupConfig reads one group, the body of
// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.
func ParseGroupConfig(body []byte) (GroupConfig, error) {
	if len(body) > groupBytesMax {
		return GroupConfig{}, fmt.Errorf("%w: a group of %d bytes, want at most %d", errParameter, len(body), groupBytesMax)
	}
	o, err := parseObject(quoteKeys(body))
	if err != nil {
		return GroupConfig{}, err
	}
	var name string
	if err := o.take("groupName", &name); err != nil {
		return GroupConfig{}, err
	}
	if wrong := ValidateGroup(name); wrong != "" {
		return GroupConfig{}, fmt.Errorf("%w: %s", errParameter, wrong)
	}
	c, err := decodeGroup(name, o)
	if err == nil && (c.RetryQueues < 0 || c.RetryQueues > queuesMax) {
		err = fmt.Errorf("%w: retryQueueNums is %d, want 0 to %d", errParameter, c.RetryQueues, queuesMax)
	}
	return c, err
}

// GroupsOptions are the settings of Groups.
type GroupsOptions struct {
	ConfigOptions
	NoAutoCreate bool // groups have to be made by an administrator (autoCreateSubscriptionGroup)
}

// Groups are the consumer groups of a broker, kept in
// config/subscriptionGroup.json (SubscriptionGroupManager). Any goroutine.
type Groups struct {
	o     GroupsOptions
	table table[GroupConfig]
	mu    struct {
		sync.Mutex
		fresh map[string]GroupConfig // made by Lookup, not durable yet
	}
}

// OpenGroups reads the groups of a store. The caller must Close them.
func OpenGroups(o GroupsOptions) (*Groups, error) {
	g := &Groups{o: o}
	g.mu.fresh = map[string]GroupConfig{}
	g.table.what, g.table.field = "group", "subscriptionGroupTable"
	g.table.encode, g.table.decode = encodeGroup, decodeGroup
	g.table.also = object{"forbiddenTable": []byte("{}")}
	if err := g.table.open(o.ConfigOptions, "subscriptionGroup.json"); err != nil {
		return nil, err
	}
	return g, nil
}

// Close ends the changes that are under way and refuses others.
func (g *Groups) Close() { g.table.close() }

// Lookup gives a group's settings. One that is not there is made with RocketMQ's
// defaults if its name may be one and creation is on: it is given at once and
// written afterwards, for its settings are what they would be without the file.
func (g *Groups) Lookup(name string) (GroupConfig, bool) {
	if c, ok := g.table.lookup(name); ok {
		return c, true
	}
	if g.o.NoAutoCreate && name != toolsGroup || ValidateGroup(name) != "" {
		return GroupConfig{}, false
	}
	return g.fresh(name)
}

// Peek gives a group's settings and makes none.
func (g *Groups) Peek(name string) (GroupConfig, bool) { return g.table.lookup(name) }

func (g *Groups) fresh(name string) (GroupConfig, bool) {
	c, made, ok := g.remember(name)
	if !made {
		return c, ok
	}
	g.table.change(func(items map[string]GroupConfig) ([]string, error) {
		if _, ok := items[name]; ok {
			return nil, nil
		}
		if err := g.table.room(items, name, c); err != nil {
			return nil, err
		}
		items[name] = c
		return []string{name}, nil
	}, func(err error) {
		if err != nil {
			g.table.o.Logger.Warn("a new consumer group is not kept; it is made again when it is asked for", "group", name, "error", err)
		}
		g.mu.Lock()
		delete(g.mu.fresh, name)
		g.mu.Unlock()
	})
	return c, true
}

// freshBytes is no less than what a group that Lookup makes takes in the table.
const freshBytes = 512 + 2*groupNameMax

// remember makes a group that only Lookup knows of, until it is written.
func (g *Groups) remember(name string) (c GroupConfig, made, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok = g.mu.fresh[name]; ok {
		return c, false, true
	}
	if c, ok = g.table.lookup(name); ok {
		return c, false, true // written since the first look
	}
	state := g.table.current.Load()
	all, size := len(state.items), state.size
	for name := range g.mu.fresh {
		if _, written := state.items[name]; !written {
			all++
			size += freshBytes
		}
	}
	if all >= g.table.o.Most || size+freshBytes > g.table.o.Bytes {
		return c, false, false
	}
	c = NewGroupConfig(name)
	g.mu.fresh[name] = c
	return c, true, true
}

// Update makes a group or changes it.
func (g *Groups) Update(c GroupConfig, done func(error)) {
	g.table.change(func(items map[string]GroupConfig) ([]string, error) {
		if old := items[c.Name]; c.rest == nil {
			c.rest = old.rest
		}
		if err := g.table.room(items, c.Name, c); err != nil {
			return nil, err
		}
		items[c.Name] = c
		return []string{c.Name}, nil
	}, done)
}

// Delete removes a group's settings; one that is not there is no error.
func (g *Groups) Delete(name string, done func(error)) {
	g.table.change(func(items map[string]GroupConfig) ([]string, error) {
		if _, ok := items[name]; !ok {
			return nil, nil
		}
		delete(items, name)
		return []string{name}, nil
	}, done)
}

// Names gives all groups in order.
func (g *Groups) Names() []string {
	return slices.Sorted(maps.Keys(g.table.current.Load().items))
}

// Version is the version of the groups as they are now.
func (g *Groups) Version() DataVersion { return g.table.current.Load().version }

// AppendJSON appends all groups and their version, compact: the body of
// GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
func (g *Groups) AppendJSON(dst []byte) []byte {
	return g.table.appendBody(dst)
}

// Replace takes over another broker's groups, as Topics.Replace.
func (g *Groups) Replace(body []byte, may func() error) error {
	state, _, err := g.table.parse(quoteKeys(body))
	if err != nil {
		return fmt.Errorf("groups of the master: %w", err)
	}
	return await(func(done func(error)) { g.table.replace(state, may, done) })
}
