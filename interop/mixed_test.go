package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/engine"
)

// mixer makes messages of many shapes, as a RocketMQ broker stores them.
type mixer struct {
	draw *rand.Rand
	v2   bool  // topics that need a V2 record
	n    int   // messages made
	last int64 // offset of the last record
}

// newMixer prints the seed that replays it.
func newMixer(t testing.TB, v version) *mixer {
	t.Helper()
	seed := rand.Uint64()
	if *seedFlag != 0 {
		seed = *seedFlag
	}
	t.Logf("seed %d (replay: go test ./interop -run '^%s$' -seed %d)", seed, t.Name(), seed)
	return &mixer{draw: rand.New(rand.NewPCG(seed, 0)), v2: v.readsV2()}
}

const maxBody = 200_000

var tags = []string{"TagA", "标签", "étiquette", "Тег", "tag-🚀", ""}

func (x *mixer) body(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(x.draw.Uint32())
	}
	return b
}

func (x *mixer) host(v6 bool) commitlog.Host {
	if v6 {
		a := [16]byte{0x20, 0x01, 0x0d, 0xb8}
		copy(a[4:], x.body(12))
		return commitlog.Host{Addr: netip.AddrFrom16(a), Port: int32(1024 + x.draw.IntN(60000))}
	}
	return commitlog.Host{Addr: netip.AddrFrom4([4]byte{10, byte(x.draw.IntN(256)), 0, 1}), Port: int32(1024 + x.draw.IntN(60000))}
}

func property(name, value string) string { return name + "\x01" + value + "\x02" }

// message makes the next message, or a batch.
func (x *mixer) message() (one *engine.Message, batch []*engine.Message) {
	x.n++
	m := &engine.Message{
		Topic: fmt.Sprintf("topic-%d", x.draw.IntN(5)), QueueID: x.draw.Int32N(8), Body: x.body(x.draw.IntN(2000)),
		BornHost: x.host(false), Properties: property("KEYS", fmt.Sprintf("key-%d ключ 键", x.n)) + property("user-属性", "значение ☃"),
	}
	if tag := tags[x.draw.IntN(len(tags))]; tag != "" {
		m.Properties += property("TAGS", tag)
	}
	switch x.n % 12 {
	case 1:
		m.Body = nil
	case 2:
		m.Topic = fmt.Sprintf("主题-тема-%d", x.draw.IntN(3))
	case 3:
		m.SysFlag |= commitlog.FlagTransactionPrepared
		m.Properties += property("TRAN_MSG", "true")
	case 4:
		m.SysFlag |= commitlog.FlagTransactionCommit
		m.PreparedTransactionOffset = x.last
	case 5:
		m.SysFlag |= commitlog.FlagTransactionRollback
		m.PreparedTransactionOffset = x.last
	case 6:
		for range 2 + x.draw.IntN(5) {
			batch = append(batch, &engine.Message{
				Topic: "batch-topic", QueueID: m.QueueID, Flag: x.draw.Int32N(9), Body: x.body(x.draw.IntN(3000)),
				BornHost: m.BornHost, Properties: m.Properties,
			})
		}
		return nil, batch
	case 7:
		m.BornHost = x.host(true)
	case 8:
		if x.v2 {
			m.Topic = "%RETRY%" + strings.Repeat("T", 128+x.draw.IntN(100)) // no other may be so long
		}
	case 9:
		m.Body = x.body(maxBody/3 + x.draw.IntN(maxBody-maxBody/3))
	case 10:
		m.Properties, m.Flag, m.ReconsumeTimes = "", int32(x.draw.Uint32()), x.draw.Int32N(16)
	}
	return m, nil
}

// fill puts messages, at least bytes of log, each of which must succeed.
func (x *mixer) fill(n *node, bytes int64) {
	n.t.Helper()
	for to := n.Status().MaxOffset + bytes; n.Status().MaxOffset < to; {
		one, batch := x.message()
		var r engine.PutResult
		var err error
		if one != nil {
			r, err = n.Put(context.Background(), one)
		} else {
			r, err = n.PutBatch(context.Background(), batch)
		}
		if err != nil {
			n.t.Fatalf("put %d: %v", x.n, err)
		}
		x.last = r.Offset
	}
}
