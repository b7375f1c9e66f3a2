//go:build !race

package remoting

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/haengine/haengine/engine"
)

// The race detector's instrumentation allocates, so this runs without it.

// servedAllocationsMax is for one send over a connection, from its bytes to the
// bytes of its answer: the header's text.
const servedAllocationsMax = 1

func TestASendOverAConnectionAllocatesTextsOnly(t *testing.T) {
	f := newSends(t, engine.Options{SegmentBytes: 64 << 20}, SendsOptions{}, TopicsOptions{})
	s := listen(t, f, ServerOptions{Loops: 1})
	c := sendCommand(CodeSendMessageV2, "orders", 0, "UNIQ_KEY\x017F0000010001\x02WAIT\x01true\x02TAGS\x01TagA\x02", strings.Repeat("x", 1024))
	ask(t, dial(t, s, nil), &c)
	conn := raw(t, s)
	c.Opaque = 5
	const atOnce = 16
	var batch []byte
	for range atOnce {
		batch = AppendFrame(batch, &c)
	}
	in := make([]byte, 64<<10)
	send := func() {
		if _, err := conn.Write(batch); err != nil {
			t.Fatal(err)
		}
		for range atOnce {
			if err := skipFrame(conn, in); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What a wake-up of a loop costs is shared by all that are sent at once.
	n := testing.AllocsPerRun(500, send) / atOnce
	t.Logf("%.2f allocations a send", n)
	if n > servedAllocationsMax+0.5 {
		t.Errorf("%v allocations a send, want at most %d", n, servedAllocationsMax)
	}
}

// skipFrame reads a frame without looking at it.
func skipFrame(c net.Conn, room []byte) error {
	if _, err := io.ReadFull(c, room[:4]); err != nil {
		return err
	}
	_, err := io.ReadFull(c, room[:binary.BigEndian.Uint32(room)])
	return err
}
