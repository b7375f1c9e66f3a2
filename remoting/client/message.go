package client

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/haengine/haengine/engine"
)

// Message is what a producer sends.
type Message struct {
	Body       []byte
	Keys       string            // that it is found by, with spaces between
	Tags       string            // that consumers filter by; one
	Properties map[string]string // of the sender's own: not KEYS, TAGS, UNIQ_KEY or WAIT
	Flag       int32             // the sender's own, brokers do not look at it
}

// Names of properties (MessageConst).
const (
	propertyKeys   = "KEYS"
	propertyTags   = "TAGS"
	propertyUnique = "UNIQ_KEY"
	propertyWait   = "WAIT"
)

// properties writes the message's properties as brokers store them. A name or a
// value that holds the marks between them is refused.
func (m *Message) properties(unique string) (string, error) {
	var b strings.Builder
	add := func(name, value string) error {
		if name == "" || strings.ContainsAny(name, "\x01\x02") || strings.ContainsAny(value, "\x01\x02") {
			return fmt.Errorf("property %q: a name or value may not hold the bytes 1 and 2, and a name is not empty", name)
		}
		b.WriteString(name + "\x01" + value + "\x02")
		return nil
	}
	err := add(propertyUnique, unique)
	if m.Keys != "" {
		err = cmp.Or(err, add(propertyKeys, m.Keys))
	}
	if m.Tags != "" {
		err = cmp.Or(err, add(propertyTags, m.Tags))
	}
	err = cmp.Or(err, add(propertyWait, "true"))
	for _, name := range slices.Sorted(maps.Keys(m.Properties)) {
		switch name {
		case propertyUnique, propertyKeys, propertyTags, propertyWait: // brokers would take the last of two
			err = cmp.Or(err, fmt.Errorf("property %s is not the sender's own: keys and tags have fields, and the others are set here", name))
		}
		err = cmp.Or(err, add(name, m.Properties[name]))
	}
	return b.String(), err
}

// uniqueIDs makes ids of messages in the form of RocketMQ's clients, whose tools
// read the time from them (MessageClientIDSetter): address, process, 4 bytes of
// chance, milliseconds since the month began, counter.
type uniqueIDs struct {
	head [10]byte
	next atomic.Uint32
}

func newUniqueIDs() *uniqueIDs {
	u := &uniqueIDs{}
	copy(u.head[:4], ownAddress())
	binary.BigEndian.PutUint16(u.head[4:], uint16(os.Getpid()))
	_, _ = rand.Read(u.head[6:]) // it does not fail
	return u
}

func (u *uniqueIDs) id(now time.Time) string {
	var b [16]byte
	copy(b[:], u.head[:])
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, now.Location())
	binary.BigEndian.PutUint32(b[10:], uint32(now.Sub(month)/time.Millisecond))
	binary.BigEndian.PutUint16(b[14:], uint16(u.next.Add(1)))
	return fmt.Sprintf("%X", b)
}

// ownAddress is an IPv4 address of this host.
func ownAddress() net.IP {
	addrs, _ := net.InterfaceAddrs() // none will do, too
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.To4()
		}
	}
	return net.IPv4(127, 0, 0, 1).To4()
}

// Received is a message as it is read.
type Received struct {
	engine.Record        // as it is stored
	Broker        string // whose queue it is in
	// Content is the body as it was sent: inflated if the sender had compressed
	// it. It is nil if NotDecoded is not empty.
	Content    []byte
	NotDecoded string // why there is no Content, as "compressed with LZ4"
	queue      Queue
	stint      *stint
}

// ID is the id that the sender gave the message, or the one of its place in the log.
func (m *Received) ID() string {
	if id, ok := m.Property(propertyUnique); ok {
		return id
	}
	return m.OffsetMsgID()
}

// Bits of Record.SysFlag (MessageSysFlag): a compressed body, and how.
const (
	flagCompressed      = 1
	flagCompressionMask = 7 << 8
)

// ContentMax is how large an inflated body may become; brokers take bodies of 4 MiB.
const ContentMax = 64 << 20

// decode fills Content. It is called when a message is given, not when it comes: what
// is read ahead may become a thousand times as large.
func (m *Received) decode() {
	if m.SysFlag&flagCompressed == 0 {
		m.Content = m.Body
		return
	}
	switch kind := m.SysFlag & flagCompressionMask >> 8; kind {
	case 0, 3:
		content, err := inflate(m.Body, ContentMax)
		if err != nil {
			m.NotDecoded = fmt.Sprintf("compressed with ZLIB, and damaged: %v", err)
			return
		}
		m.Content = content
	case 1:
		m.NotDecoded = "compressed with LZ4"
	case 2:
		m.NotDecoded = "compressed with ZSTD"
	default:
		m.NotDecoded = fmt.Sprintf("compressed with kind %d, which is not known", kind)
	}
}

func inflate(body []byte, most int64) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(z, most+1))
	if err == nil && int64(len(content)) > most {
		err = errors.New("it becomes larger than " + fmt.Sprint(most) + " bytes")
	}
	return content, err
}

// decodeRecords reads the records of a pull's answer, without their Content.
func decodeRecords(body []byte, q Queue) ([]*Received, error) {
	var all []*Received
	for len(body) > 0 {
		rec, err := engine.DecodeRecord(body)
		if err != nil {
			return all, fmt.Errorf("topic %s queue %d at broker %s: an answer is no record: %w", q.Topic, q.QueueID, q.BrokerName, err)
		}
		body = body[rec.Size:]
		all = append(all, &Received{Record: rec, Broker: q.BrokerName, queue: q})
	}
	return all, nil
}
