package remoting

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"strings"
	"testing"
)

// deflated is a compressed registration as RegisterBrokerBody.encode makes it.
func deflated(t testing.TB, count int, parts ...string) []byte {
	t.Helper()
	var plain []byte
	for i, p := range parts {
		if i == 1 {
			plain = binary.BigEndian.AppendUint32(plain, uint32(count))
		}
		plain = append(binary.BigEndian.AppendUint32(plain, uint32(len(p))), p...)
	}
	var out bytes.Buffer
	z := zlib.NewWriter(&out)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func registerCompressed(body []byte) *Command {
	r := registerCommand("b", "0", "h:1", "1", twoTopics)
	r.Body = body
	r.Ext = r.Ext.With("compressed", "true").WithInt("bodyCrc32", bodySum(body))
	return r
}

func TestCompressedRegistration(t *testing.T) {
	_, s := nameServer(t, NameServerOptions{})
	c := dial(t, s, nil)
	const version = `{"counter":8,"stateVersion":0,"timestamp":1795963032047}`
	mustCall(t, c, registerCompressed(deflated(t, 2, version, "T 4 3 6 SINGLE_TAG {}", "old 8 8 7 SINGLE_TAG", "[]", "0")))
	if got := route(t, c, "T"); !strings.Contains(got, `"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":3`) {
		t.Errorf("route %s", got)
	}
	if route(t, c, "old") == "" {
		t.Error("a topic without attributes has no route")
	}
	bomb := deflated(t, 0, string(make([]byte, inflatedMax)), "")
	for want, body := range map[string][]byte{
		"zlib":              []byte("no zlib"),
		"larger than":       bomb,
		"do not fit":        deflated(t, 1000, version, "T 4 3 6 SINGLE_TAG {}"),
		"ends too early":    deflated(t, 2, version, "T 4 3 6 SINGLE_TAG {}"),
		"too few fields":    deflated(t, 1, version, "T 4 3"),
		"invalid syntax":    deflated(t, 1, version, "T 4 x 6 SINGLE_TAG {}"),
		"unexpected end of": deflated(t, 1, "{", "T 4 3 6 SINGLE_TAG {}"),
	} {
		if a := ask(t, c, registerCompressed(body)); a.Code != SystemError || !strings.Contains(a.Remark, want) {
			t.Errorf("want %q: answer %d %q", want, a.Code, a.Remark)
		}
	}
}

// FuzzInflate: any body is read or refused.
func FuzzInflate(f *testing.F) {
	f.Add(deflated(f, 1, `{"counter":1}`, "T 4 3 6 SINGLE_TAG {}", "[]"))
	f.Fuzz(func(_ *testing.T, body []byte) {
		_, _, _ = inflateTopics(body)
	})
}
