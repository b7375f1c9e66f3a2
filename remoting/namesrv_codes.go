package remoting

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"time"
)

// orderTopicConfig is the namespace whose keys brokers are told (NamesrvUtil).
const orderTopicConfig = "ORDER_TOPIC_CONFIG"

// answer serves the codes of a name server (DefaultRequestProcessor,
// ClientRequestProcessor).
func (s *NameServer) answer(r *Request) {
	var answer *Command
	var err error
	switch r.Code {
	case CodeRegisterBroker:
		answer, err = s.serveRegister(r)
	case CodeUnregisterBroker:
		answer, err = s.serveUnregister(r)
	case CodeBrokerHeartbeat:
		answer, err = s.serveHeartbeat(r)
	case CodeGetRouteInfo:
		answer, err = s.serveRoute(r)
	case CodeGetClusterInfo:
		answer = &Command{Body: s.clusterInfo()}
	case CodeGetAllTopicsFromNames:
		answer = &Command{Body: s.topicList("")}
	case CodeGetTopicsByCluster:
		answer, err = s.serveTopicsOf(r)
	case CodeDeleteTopicInNames:
		answer, err = s.serveDeleteTopic(r)
	case CodePutKVConfig, CodeGetKVConfig, CodeDeleteKVConfig:
		answer, err = s.serveKey(r)
	case CodeGetKVList:
		answer, err = s.serveKeys(r)
	default:
		r.ReplyCode(RequestCodeNotSupported, " request type %d not supported", r.Code)
		return
	}
	if err != nil {
		answer = &Command{Code: SystemError, Remark: err.Error()}
	}
	r.Reply(answer)
}

// registerBody is the body of REGISTER_BROKER as far as it matters.
type registerBody struct {
	Topics struct {
		Version DataVersion `json:"dataVersion"`
		Table   map[string]struct {
			Perm        int32 `json:"perm"`
			ReadQueues  int32 `json:"readQueueNums"`
			WriteQueues int32 `json:"writeQueueNums"`
			SysFlag     int32 `json:"topicSysFlag"`
		} `json:"topicConfigTable"`
	} `json:"topicConfigSerializeWrapper"`
}

func (s *NameServer) serveRegister(r *Request) (*Command, error) {
	var reg Registration
	if err := r.readBroker(&reg); err != nil {
		return nil, err
	}
	var err error
	if reg.HAAddress, err = r.Ext.Need("haServerAddr"); err != nil {
		return nil, err
	}
	if err := checkName("haServerAddr", reg.HAAddress); err != nil {
		return nil, err
	}
	reg.HAAddress = strings.Clone(reg.HAAddress)
	timeout, err := r.Ext.IntOr("heartbeatTimeoutMillis", 0, int64(24*time.Hour/time.Millisecond), 0)
	if err != nil {
		return nil, err
	}
	reg.Timeout = time.Duration(timeout) * time.Millisecond
	_, reg.MaySubstitute = r.Ext.Get("enableActingMaster")
	sum, err := r.Ext.IntOr("bodyCrc32", 0, 1<<32-1, 0)
	if err != nil {
		return nil, err
	}
	if sum != 0 && sum != bodySum(r.Body) {
		return &Command{Code: SystemError, Remark: "crc32 not match"}, nil
	}
	if len(r.Body) > 0 {
		read := registeredTopics
		if r.Ext.Bool("compressed") {
			read = inflateTopics
		}
		if reg.Topics, reg.Version, err = read(r.Body); err != nil {
			return nil, fmt.Errorf("registration of broker %s cannot be read: %w", reg.Broker, err)
		}
	}
	for topic := range reg.Topics {
		if len(topic) > groupTopicNameMax {
			return nil, fmt.Errorf("registration of broker %s: topic %.20q… has %d bytes, want at most %d", reg.Broker, topic, len(topic), groupTopicNameMax)
		}
	}
	told, err := s.Register(&reg, r.Peer)
	if err != nil {
		return nil, err
	}
	answer := &Command{Ext: Ext{}, Body: s.keys(orderTopicConfig)}
	if told.MasterAddress != "" {
		answer.Ext = answer.Ext.With("haServerAddr", told.MasterHAAddress).With("masterAddr", told.MasterAddress)
	}
	return answer, nil
}

// bodySum is the checksum of a registration's body (UtilAll.crc32).
func bodySum(body []byte) int64 { return int64(crc32.ChecksumIEEE(body) & 0x7FFFFFFF) }

// checkName refuses a name that nobody has, and routes would carry.
func checkName(field, name string) error {
	if len(name) > groupTopicNameMax {
		return fmt.Errorf("%w: %s has %d bytes, want at most %d", ErrField, field, len(name), groupTopicNameMax)
	}
	return nil
}

// readBroker reads the fields that name a broker.
func (r *Request) readBroker(reg *Registration) (err error) {
	for _, f := range []struct {
		name string
		into *string
	}{{"brokerName", &reg.Broker}, {"brokerAddr", &reg.Address}, {"clusterName", &reg.Cluster}} {
		if *f.into, err = r.Ext.Need(f.name); err != nil {
			return err
		}
		if *f.into == "" {
			return fmt.Errorf("%w: %s is empty", ErrField, f.name)
		}
		if err := checkName(f.name, *f.into); err != nil {
			return err
		}
		*f.into = strings.Clone(*f.into) // it outlives the request's header
	}
	reg.ID, err = r.Ext.Int("brokerId", 0, 1<<62)
	return err
}

func (s *NameServer) serveUnregister(r *Request) (*Command, error) {
	var reg Registration
	if err := r.readBroker(&reg); err != nil {
		return nil, err
	}
	s.Unregister(reg.Cluster, reg.Broker, reg.ID, reg.Address)
	return &Command{}, nil
}

func (s *NameServer) serveHeartbeat(r *Request) (*Command, error) {
	address, err := r.Ext.Need("brokerAddr")
	if err != nil {
		return nil, err
	}
	s.heartbeat(address)
	return &Command{}, nil
}

func (s *NameServer) serveRoute(r *Request) (*Command, error) {
	topic, err := r.Ext.Need("topic")
	if err != nil {
		return nil, err
	}
	if body := s.Route(topic); body != nil {
		return &Command{Body: body}, nil
	}
	return &Command{Code: TopicNotExist, Remark: "No topic route info in name server for the topic: " + topic}, nil
}

// The JSON of routes. The names are in RocketMQ's order, and there is no space:
// the Go client cuts brokerAddrs at commas and colons.
type (
	routeJSON struct {
		Brokers       []brokerJSON        `json:"brokerDatas"`
		FilterServers map[string][]string `json:"filterServerTable"`
		Queues        []queuesJSON        `json:"queueDatas"`
	}
	brokerJSON struct {
		Addrs  map[int64]string `json:"brokerAddrs"`
		Name   string           `json:"brokerName"`
		Group  string           `json:"cluster"`
		Acting bool             `json:"enableActingMaster"`
	}
	queuesJSON struct {
		Broker      string `json:"brokerName"`
		Perm        int32  `json:"perm"`
		ReadQueues  int32  `json:"readQueueNums"`
		SysFlag     int32  `json:"topicSysFlag"`
		WriteQueues int32  `json:"writeQueueNums"`
	}
	clusterJSON struct {
		Brokers  map[string]brokerJSON `json:"brokerAddrTable"`
		Clusters map[string][]string   `json:"clusterAddrTable"`
	}
	topicListJSON struct {
		Topics []string `json:"topicList"`
	}
	tableJSON struct {
		Table map[string]string `json:"table"`
	}
)

// toJSON is v as compact JSON; nothing that is given to it can fail.
func toJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("remoting: %T is not to be written as JSON: %v", v, err))
	}
	return b
}

// Route is the JSON of a topic's route (TopicRouteData); nil if no broker has it.
func (s *NameServer) Route(topic string) []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	route := routeJSON{Brokers: []brokerJSON{}, FilterServers: map[string][]string{}, Queues: []queuesJSON{}}
	of := s.topics[topic]
	for _, name := range slices.Sorted(maps.Keys(of)) {
		q := of[name]
		route.Queues = append(route.Queues, queuesJSON{
			Broker: name, Perm: q.Perm, ReadQueues: q.ReadQueues, SysFlag: q.SysFlag, WriteQueues: q.WriteQueues,
		})
		if b := s.brokers[name]; b != nil {
			route.Brokers = append(route.Brokers, b.json(name))
		}
	}
	if len(route.Brokers) == 0 {
		return nil
	}
	return toJSON(route)
}

// json needs the lock; toJSON has to be called with it, too.
func (b *brokerEntry) json(name string) brokerJSON {
	return brokerJSON{Addrs: b.addrs, Name: name, Group: b.cluster}
}

// clusterInfo is the JSON of all brokers (ClusterInfo).
func (s *NameServer) clusterInfo() []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	info := clusterJSON{Brokers: map[string]brokerJSON{}, Clusters: map[string][]string{}}
	for _, name := range slices.Sorted(maps.Keys(s.brokers)) {
		b := s.brokers[name]
		info.Brokers[name] = b.json(name)
		info.Clusters[b.cluster] = append(info.Clusters[b.cluster], name)
	}
	return toJSON(info)
}

// topicList is the JSON of the topics that a cluster has, or all for "".
func (s *NameServer) topicList(cluster string) []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := topicListJSON{Topics: []string{}}
	for _, topic := range slices.Sorted(maps.Keys(s.topics)) {
		for name := range s.topics[topic] {
			if b := s.brokers[name]; cluster == "" || b != nil && b.cluster == cluster {
				list.Topics = append(list.Topics, topic)
				break
			}
		}
	}
	return toJSON(list)
}

func (s *NameServer) serveTopicsOf(r *Request) (*Command, error) {
	cluster, err := r.Ext.Need("cluster")
	if err != nil {
		return nil, err
	}
	if cluster == "" {
		return nil, fmt.Errorf("%w: cluster is empty", ErrField)
	}
	return &Command{Body: s.topicList(cluster)}, nil
}

func (s *NameServer) serveDeleteTopic(r *Request) (*Command, error) {
	topic, err := r.Ext.Need("topic")
	if err != nil {
		return nil, err
	}
	cluster := r.Ext.Text("clusterName")
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.topics[topic] {
		if b := s.brokers[name]; cluster == "" || b != nil && b.cluster == cluster {
			s.forgetLocked(topic, name)
		}
	}
	return &Command{}, nil
}

// Limits of the key-value configuration, which anybody may fill.
const (
	keysMax    = 10000
	kvBytesMax = 1 << 20 // of all names and values
)

func (s *NameServer) serveKey(r *Request) (*Command, error) {
	namespace, err := r.Ext.Need("namespace")
	if err != nil {
		return nil, err
	}
	key, err := r.Ext.Need("key")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Code {
	case CodeGetKVConfig:
		if v, ok := s.kv[namespace][key]; ok {
			return &Command{Ext: Ext{{"value", v}}}, nil
		}
		return &Command{Code: QueryNotFound, Remark: fmt.Sprintf("No config item, Namespace: %s Key: %s", namespace, key)}, nil
	case CodeDeleteKVConfig:
		s.deleteKeyLocked(namespace, key)
		return &Command{}, nil
	}
	value, err := r.Ext.Need("value")
	if err != nil {
		return nil, err
	}
	return &Command{}, s.putKeyLocked(namespace, key, value)
}

func (s *NameServer) putKeyLocked(namespace, key, value string) error {
	n := 0
	for _, of := range s.kv {
		n += len(of)
	}
	grows := len(value)
	if old, there := s.kv[namespace][key]; there {
		grows -= len(old)
	} else if grows += len(namespace) + len(key); n >= keysMax {
		return fmt.Errorf("%w: there are %d keys, as many as may be", ErrTooMany, n)
	}
	if s.kvBytes+grows > kvBytesMax {
		return fmt.Errorf("%w: keys and values would have %d bytes, at most %d may be", ErrTooMany, s.kvBytes+grows, kvBytesMax)
	}
	s.kvBytes += grows
	if s.kv[namespace] == nil {
		s.kv[strings.Clone(namespace)] = map[string]string{}
	}
	s.kv[namespace][strings.Clone(key)] = strings.Clone(value)
	return nil
}

func (s *NameServer) deleteKeyLocked(namespace, key string) {
	old, there := s.kv[namespace][key]
	if !there {
		return
	}
	s.kvBytes -= len(namespace) + len(key) + len(old)
	delete(s.kv[namespace], key)
	if len(s.kv[namespace]) == 0 {
		delete(s.kv, namespace)
	}
}

// keys is the JSON of a namespace's keys (KVTable); nil if there are none.
func (s *NameServer) keys(namespace string) []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.kv[namespace]) == 0 {
		return nil
	}
	return toJSON(tableJSON{s.kv[namespace]})
}

func (s *NameServer) serveKeys(r *Request) (*Command, error) {
	namespace, err := r.Ext.Need("namespace")
	if err != nil {
		return nil, err
	}
	if body := s.keys(namespace); body != nil {
		return &Command{Body: body}, nil
	}
	return &Command{Code: QueryNotFound, Remark: "No config item, Namespace: " + namespace}, nil
}
