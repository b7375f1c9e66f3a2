package remoting

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Bits of TopicConfig.Perm (PermName).
const (
	PermInherit = 1 // new topics may be made from this one
	PermWrite   = 2
	PermRead    = 4
)

// Bits of TopicConfig.SysFlag (TopicSysFlag). They are kept and change nothing.
const (
	topicFlagUnit    = 1
	topicFlagUnitSub = 2
)

const filterSingleTag, filterMultiTag = "SINGLE_TAG", "MULTI_TAG"

// TopicConfig is a topic's settings (RocketMQ TopicConfig). It is not changed
// once others can see it: a change replaces it.
type TopicConfig struct {
	Name                    string
	ReadQueues, WriteQueues int32
	Perm                    int32
	FilterType              string // SINGLE_TAG or MULTI_TAG
	SysFlag                 int32
	Order                   bool
	Attributes              map[string]string
	rest                    object // fields that are not ours
}

// NewTopicConfig gives a topic that is read and written, with so many queues.
func NewTopicConfig(name string, queues int32) TopicConfig {
	return TopicConfig{
		Name: name, ReadQueues: queues, WriteQueues: queues, Perm: PermRead | PermWrite, FilterType: filterSingleTag,
	}
}

// Queues is how many queues a send may name.
func (c *TopicConfig) Queues() int32 { return max(c.ReadQueues, c.WriteQueues) }

// AppendJSON appends the topic as RocketMQ writes it.
func (c *TopicConfig) AppendJSON(dst []byte) []byte { return encodeTopic(*c).append(dst) }

func encodeTopic(c TopicConfig) object {
	o := c.rest.clone()
	if o == nil {
		o = object{}
	}
	o.text("topicName", c.Name)
	o.number("readQueueNums", int64(c.ReadQueues))
	o.number("writeQueueNums", int64(c.WriteQueues))
	o.number("perm", int64(c.Perm))
	o.text("topicFilterType", c.FilterType)
	o.number("topicSysFlag", int64(c.SysFlag))
	o.truth("order", c.Order)
	o.texts("attributes", c.Attributes)
	return o
}

// decodeTopic reads a topic; what is missing is as in RocketMQ's constructor.
func decodeTopic(name string, o object) (TopicConfig, error) {
	c := NewTopicConfig(name, 16)
	err := o.takeAll(objectField{"topicName", &c.Name}, objectField{"readQueueNums", &c.ReadQueues},
		objectField{"writeQueueNums", &c.WriteQueues}, objectField{"perm", &c.Perm},
		objectField{"topicFilterType", &c.FilterType}, objectField{"topicSysFlag", &c.SysFlag},
		objectField{"order", &c.Order}, objectField{"attributes", &c.Attributes})
	if err == nil && c.Name != name {
		err = fmt.Errorf("it stands under another name than its topicName %q", c.Name)
	}
	if most := max(c.ReadQueues, c.WriteQueues); err == nil && (min(c.ReadQueues, c.WriteQueues) < 0 || most > queuesMax) {
		err = fmt.Errorf("it has %d read and %d write queues, want 0 to %d", c.ReadQueues, c.WriteQueues, queuesMax)
	}
	c.rest = o
	return c, err
}

func (c *TopicConfig) equal(d *TopicConfig) bool {
	return c.Name == d.Name && c.ReadQueues == d.ReadQueues && c.WriteQueues == d.WriteQueues && c.Perm == d.Perm &&
		c.FilterType == d.FilterType && c.SysFlag == d.SysFlag && c.Order == d.Order && maps.Equal(c.Attributes, d.Attributes)
}

// TopicsOptions are the settings of Topics.
type TopicsOptions struct {
	ConfigOptions
	NoAutoCreate    bool        // do not make a topic at the first send to it (autoCreateTopicEnable)
	Cluster, Broker string      // topics of these names stand for the cluster and the broker
	Master          func() bool // false: administrators have to ask the master; nil: always true
	// Deleted is called after an administrator has deleted a topic, before that is
	// answered; it must not block. nil: nobody is.
	Deleted func(topic string)
}

// Topics are the topics of a broker, kept in config/topics.json
// (TopicConfigManager). Any goroutine. Changes are durable when done is told.
type Topics struct {
	o     TopicsOptions
	table table[TopicConfig]
}

// OpenTopics reads the topics of a store and adds those that every broker has.
// The caller must Close them.
func OpenTopics(o TopicsOptions) (*Topics, error) {
	t := &Topics{o: o}
	t.table.what, t.table.field = "topic", "topicConfigTable"
	t.table.encode, t.table.decode = encodeTopic, decodeTopic
	if err := t.table.open(o.ConfigOptions, "topics.json"); err != nil {
		return nil, err
	}
	if err := await(func(done func(error)) { t.table.change(t.addSystem, done) }); err != nil {
		return nil, err
	}
	return t, nil
}

// addSystem adds the topics that clients, tools and name servers count on. Two at
// least: a name server refuses the first registration of a broker with one.
func (t *Topics) addSystem(items map[string]TopicConfig) ([]string, error) {
	var added []string
	add := func(name string, queues, perm int32) {
		if _, ok := items[name]; ok || ValidateTopic(name) != "" {
			return
		}
		c := NewTopicConfig(name, queues)
		c.Perm = perm
		items[name] = c
		added = append(added, name)
	}
	const all = PermRead | PermWrite | PermInherit
	if !t.o.NoAutoCreate {
		add(TopicTemplate, 8, all)
	}
	add(topicSelfTest, 1, PermRead|PermWrite)
	add(topicOffsetMoved, 1, PermRead|PermWrite)
	add(topicSchedule, 18, PermRead|PermWrite)
	add(t.o.Cluster, 16, all)
	add(t.o.Broker, 1, all)
	return added, nil
}

// OnChange has do called after each change, on the goroutine that made it, with
// the names of the topics that were made, changed or removed. Whoever asked for
// the change is answered when do has returned: a route is there by then if do
// registers it. do must not wait for another change. Set once, before anything
// changes.
func (t *Topics) OnChange(do func(changed []string)) { t.table.hook = do }

// Close ends the changes that are under way and refuses others.
func (t *Topics) Close() { t.table.close() }

// Lookup gives a topic's settings.
func (t *Topics) Lookup(name string) (TopicConfig, bool) { return t.table.lookup(name) }

// Names gives all topics in order.
func (t *Topics) Names() []string {
	return slices.Sorted(maps.Keys(t.table.current.Load().items))
}

// Version is the version of the topics as they are now.
func (t *Topics) Version() DataVersion { return t.table.current.Load().version }

// AppendJSON appends all topics and their version, compact: the body of
// GET_ALL_TOPIC_CONFIG and what a broker registers (TopicConfigSerializeWrapper).
func (t *Topics) AppendJSON(dst []byte) []byte {
	return t.table.appendBody(dst)
}

// Replace takes over another broker's topics with their version, from the body
// that AppendJSON makes. Topics that are not in it are removed. Nothing is if may
// gives an error by the time that it would be: a broker that has become master
// has topics of its own.
func (t *Topics) Replace(body []byte, may func() error) error {
	state, _, err := t.table.parse(quoteKeys(body))
	if err != nil {
		return fmt.Errorf("topics of the master: %w", err)
	}
	return await(func(done func(error)) { t.table.replace(state, may, done) })
}

// errNoTemplate means that a topic cannot be made by a send.
var errNoTemplate = errors.New("it is not made by a send")

// fromTemplate says how a topic that a send names would be made, if it may be:
// from the template that the producer names, with no more queues than that
// (TopicConfigManager.createTopicInSendMessageMethod).
func (t *Topics) fromTemplate(name, template string, queues, sysFlag int32) (TopicConfig, error) {
	from, ok := t.Lookup(template)
	switch {
	case !ok:
		return TopicConfig{}, fmt.Errorf("%w: there is no template %q", errNoTemplate, template)
	case template == TopicTemplate && t.o.NoAutoCreate:
		return TopicConfig{}, fmt.Errorf("%w: automatic creation is off", errNoTemplate)
	case from.Perm&PermInherit == 0:
		return TopicConfig{}, fmt.Errorf("%w: the template %q may not be inherited from (perm %d)", errNoTemplate, template, from.Perm)
	}
	c := NewTopicConfig(name, max(0, min(queues, from.WriteQueues)))
	c.Perm = from.Perm &^ PermInherit
	c.FilterType, c.SysFlag = from.FilterType, sysFlag
	return c, nil
}

// Create makes a topic unless it is there already, which is no error: of many who
// ask at once the first is right.
func (t *Topics) Create(c TopicConfig, done func(error)) {
	t.table.change(func(items map[string]TopicConfig) ([]string, error) {
		if _, ok := items[c.Name]; ok {
			return nil, nil
		}
		if err := t.table.room(items, c.Name, c); err != nil {
			return nil, err
		}
		items[c.Name] = c
		return []string{c.Name}, nil
	}, done)
}

// Update makes a topic or changes it. Fields of the file that we do not know stay.
func (t *Topics) Update(c TopicConfig, done func(error)) {
	t.alter(c.Name, func(TopicConfig, bool) (TopicConfig, error) { return c, nil }, done)
}

// alter replaces a topic by what edit makes of it.
func (t *Topics) alter(name string, edit func(old TopicConfig, there bool) (TopicConfig, error), done func(error)) {
	t.table.change(func(items map[string]TopicConfig) ([]string, error) {
		old, there := items[name]
		c, err := edit(old, there)
		if err != nil {
			return nil, err
		}
		if there && c.equal(&old) {
			return nil, nil
		}
		c.rest = old.rest
		if err := t.table.room(items, name, c); err != nil {
			return nil, err
		}
		items[name] = c
		return []string{name}, nil
	}, done)
}

// Delete removes a topic's settings; one that is not there is no error. Its
// messages stay in the log for as long as the log keeps them.
func (t *Topics) Delete(name string, done func(error)) {
	t.table.change(func(items map[string]TopicConfig) ([]string, error) {
		if _, ok := items[name]; !ok {
			return nil, nil
		}
		delete(items, name)
		return []string{name}, nil
	}, done)
}
