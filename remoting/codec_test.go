package remoting

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sendV2 is the header of a single message as the Java client 5.3.3 sends it.
const sendV2 = `{"code":310,"extFields":{"a":"PG","b":"CapT","c":"TBW102","d":"4","e":"3","f":"0","g":"1795963032047","h":"0",` +
	`"i":"KEYS\u0001k1\u0002UNIQ_KEY\u00017F0000010001\u0002WAIT\u0001true\u0002TAGS\u0001TagA\u0002","j":"0","k":"false","l":"0","m":"false","n":"broker-a"},` +
	`"flag":0,"language":"JAVA","opaque":17,"serializeTypeCurrentRPC":"JSON","version":479}`

// rawFrame makes a frame of a header word's type, a header and a body.
func rawFrame(kind byte, header, body string) []byte {
	n := 4 + len(header) + len(body)
	h := len(header)
	b := []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), kind, byte(h >> 16), byte(h >> 8), byte(h)}
	return append(append(b, header...), body...)
}

func mustParse(t *testing.T, frame []byte) Command {
	t.Helper()
	var c Command
	if err := ParseFrame(frame, &c); err != nil {
		t.Fatalf("%q: %v", frame, err)
	}
	return c
}

func TestHeaderOfASendIsRead(t *testing.T) {
	c := mustParse(t, rawFrame(0, sendV2, "hello"))
	if c.Code != 310 || c.Language != "JAVA" || c.Version != 479 || c.Opaque != 17 || c.Flag != 0 || string(c.Body) != "hello" || len(c.Ext) != 14 {
		t.Errorf("read %+v", c)
	}
	if got, want := c.Ext.Text("i"), "KEYS\x01k1\x02UNIQ_KEY\x017F0000010001\x02WAIT\x01true\x02TAGS\x01TagA\x02"; got != want {
		t.Errorf("properties %q, want %q", got, want)
	}
}

func TestJSONHeaders(t *testing.T) {
	ext := func(fields ...string) (x Ext) {
		x = Ext{}
		for i := 0; i < len(fields); i += 2 {
			x = x.With(fields[i], fields[i+1])
		}
		return x
	}
	for _, test := range []struct {
		name, header string
		want         Command
	}{
		{"nothing", `{}`, Command{}},
		{"any order", `{"version":1,"flag":2,"opaque":-3,"code":4,"language":"GO","remark":"r"}`, Command{Code: 4, Version: 1, Flag: 2, Opaque: -3, Language: "GO", Remark: "r"}},
		{"space", " { \"code\" :\t7 ,\r\n\"extFields\" : { \"a\" : \"b\" , \"c\" : \"d\" } } \n", Command{Code: 7, Ext: ext("a", "b", "c", "d")}},
		{"unknown ones", `{"x":{"code":9,"y":[1,{"z":"}]\""},[]]},"code":1,"w":[],"v":null,"u":-1.5e+3,"t":true}`, Command{Code: 1}},
		{"the last of one name", `{"code":1,"code":2,"extFields":{"a":"1"},"extFields":{"b":"1","b":"2"}}`, Command{Code: 2, Ext: ext("b", "1", "b", "2")}},
		{"nulls", `{"code":null,"language":null,"remark":null,"extFields":null}`, Command{}},
		{"null field", `{"extFields":{"a":null,"b":"null"}}`, Command{Ext: ext("b", "null")}},
		{"fields that are no texts", `{"extFields":{"a":1,"b":true,"c":{"d":[1]},"e":-0.5}}`, Command{Ext: ext("a", "1", "b", "true", "c", `{"d":[1]}`, "e", "-0.5")}},
		{"an object as it is written", `{"extFields":{"a":{"b\u0041":"c\n"},"d":"e\u0001f","g":["\u0001"]}}`, Command{Ext: ext("a", `{"b\u0041":"c\n"}`, "d", "e\x01f", "g", `["\u0001"]`)}},
		{"fields behind an escape", `{"extFields":{"i":"k\u0001v\u0002","j\u0030":"0","k":"\\"},"remark":"r"}`, Command{Ext: ext("i", "k\x01v\x02", "j0", "0", "k", `\`), Remark: "r"}},
		{"numbers in quotes", `{"code":"34","opaque":"-1"}`, Command{Code: 34, Opaque: -1}},
		{"escapes", `{"remark":"\"\\\/\b\f\n\r\t\u0001\u00e9\u20ac\uD83D\uDE00"}`, Command{Remark: "\"\\/\b\f\n\r\t\x01é€😀"}},
		{"what only looks like an escape", `{"remark":"\\u","language":"\\u0041\\"}`, Command{Remark: `\u`, Language: `\u0041\`}},
		{"half surrogates", `{"remark":"\ud83d|\ude00|\ud83d\ud83d\ude00|\ud83d\u0041"}`, Command{Remark: "\uFFFD|\uFFFD|\uFFFD😀|\uFFFDA"}},
		{"escaped name", `{"c\u006fde":5}`, Command{Code: 5}},
		{"control characters as they are", "{\"remark\":\"a\x01b\nc\"}", Command{Remark: "a\x01b\nc"}},
		{"not UTF-8", "{\"remark\":\"a\xffb\"}", Command{Remark: "a\uFFFDb"}},
		{"bounds", `{"code":2147483647,"opaque":-2147483648}`, Command{Code: 1<<31 - 1, Opaque: -1 << 31}},
	} {
		if got := mustParse(t, rawFrame(0, test.header, "")); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %s\nread %#v\nwant %#v", test.name, test.header, got, test.want)
		}
	}
}

func deep(n int, open, shut string) string {
	return `{"x":` + strings.Repeat(open, n) + "1" + strings.Repeat(shut, n) + `}`
}

func manyFields(n int) string {
	return `{"extFields":{` + strings.TrimSuffix(strings.Repeat(`"":"",`, n), ",") + `}}`
}

func TestBadFramesAreRefusedWithTheirReason(t *testing.T) {
	for _, test := range []struct {
		name  string
		frame []byte
		want  Reason
		text  string
	}{
		{"length 0", unhex("00000000"), FrameTooShort, "length 0"},
		{"length 3", unhex("00000003000000"), FrameTooShort, "length 3"},
		{"header longer than the frame", unhex("0000000400000010"), HeaderTooLong, "header of 16 bytes in a frame of 8"},
		{"header one byte longer than the frame", unhex("00000008000000057B7D2020"), HeaderTooLong, "header of 5 bytes in a frame of 12"},
		{"header of the largest length", unhex("0000000400FFFFFF"), HeaderTooLong, "16777215"},
		{"type 127", unhex("000000087F00000400000000"), HeaderType, "type 127"},
		{"type 2", unhex("000000080200000400000000"), HeaderType, "type 2"},
		{"length -1", unhex("FFFFFFFF"), FrameTooLong, "4294967299 bytes"},
		{"length one above the limit", unhex("00FFFFFD"), FrameTooLong, "16777217 bytes"},
		{"length 16 MiB and one", unhex("01000001"), FrameTooLong, "16777221 bytes"},
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), FrameTooLong, ""},
		{"no header", rawFrame(0, "", "body"), HeaderJSON, "want '{'"},
		{"no object", rawFrame(0, "[]", ""), HeaderJSON, "want '{'"},
		{"null", rawFrame(0, "null", ""), HeaderJSON, "want '{'"},
		{"half an object", rawFrame(0, `{"code":1`, ""), HeaderJSON, "want ','"},
		{"half a text", rawFrame(0, `{"remark":"ab`, ""), HeaderJSON, "does not end"},
		{"half an escape", rawFrame(0, `{"remark":"ab\`, ""), HeaderJSON, "does not end"},
		{"half a hex escape", rawFrame(0, `{"remark":"\u00"}`, ""), HeaderJSON, "four hex digits"},
		{"control characters for hex digits", rawFrame(0, "{\"remark\":\"\\u\x10\x10\x10\x11\"}", ""), HeaderJSON, "four hex digits"},
		{"unknown escape", rawFrame(0, `{"remark":"\x"}`, ""), HeaderJSON, "unknown escape"},
		{"no value", rawFrame(0, `{"x":}`, ""), HeaderJSON, "want a value"},
		{"no colon", rawFrame(0, `{"x" 1}`, ""), HeaderJSON, "want ':'"},
		{"a comma too many", rawFrame(0, `{"code":1,}`, ""), HeaderJSON, `want '"'`},
		{"no comma", rawFrame(0, `{"code":1 "flag":2}`, ""), HeaderJSON, "want ','"},
		{"something behind", rawFrame(0, `{"code":1}}`, ""), HeaderJSON, "follows"},
		{"code of 33 bits", rawFrame(0, `{"code":4294967296}`, ""), HeaderJSON, "code is no"},
		{"code with a point", rawFrame(0, `{"code":1.5}`, ""), HeaderJSON, "code is no"},
		{"fields in an array", rawFrame(0, `{"extFields":["a"]}`, ""), HeaderJSON, "object of fields"},
		{"deep arrays", rawFrame(0, deep(100000, "[", "]"), ""), HeaderJSON, "levels"},
		{"deep objects", rawFrame(0, deep(100000, `{"a":`, "}"), ""), HeaderJSON, "levels"},
		{"deep and open", rawFrame(0, `{"x":`+strings.Repeat("[", 1<<20), ""), HeaderJSON, "levels"},
		{"too many fields", rawFrame(0, manyFields(fieldsMax+1), ""), HeaderFields, "more than 1024"},
		{"binary: cut short", rawFrame(1, string(unhex("000A")), ""), HeaderBinary, "ends in its language"},
		{"binary: remark of 2 GiB", rawFrame(1, string(unhex("000A00000100000007000000007FFFFFFF00000000")), ""), HeaderBinary, "remark of 2147483647"},
		{"binary: remark of -1", rawFrame(1, string(unhex("000A0000010000000700000000FFFFFFFF00000000")), ""), HeaderBinary, "remark of -1"},
		{"binary: ext of -1", rawFrame(1, string(unhex("000A000001000000070000000000000000FFFFFFFF")), ""), HeaderBinary, "ext fields of -1"},
		{"binary: ext of 4 and none there", rawFrame(1, string(unhex("000A00000100000007000000000000000000000004")), ""), HeaderBinary, "ext fields of 4"},
		{"binary: bytes behind", rawFrame(1, string(unhex("000A0000010000000700000000000000000000000000")), ""), HeaderBinary, "ext fields of 0"},
		{"binary: name of -1", rawFrame(1, string(unhex("000A00000100000007000000000000000000000006FFFF00000000")), ""), HeaderBinary, "field name of -1"},
		{"binary: value longer than the rest", rawFrame(1, string(unhex("000A00000100000007000000000000000000000007000161"+"00000001")), ""), HeaderBinary, "field value of 1"},
	} {
		var c Command
		err := parseAll(test.frame, &c)
		var refused *RefusalError
		if !errors.As(err, &refused) || !errors.Is(err, ErrRefused) || refused.Reason != test.want || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, want %v with %q", test.name, err, test.want, test.text)
		}
	}
	mustParse(t, rawFrame(0, deep(depthMax, "[", "]"), ""))
	mustParse(t, rawFrame(0, manyFields(fieldsMax), ""))
}

// parseAll is what a stream makes of bytes: they may be refused before the frame
// is whole.
func parseAll(b []byte, c *Command) error {
	frame, err := nextFrame(&cutStream{have: b}, FrameBytesMax)
	if err == nil && frame != nil {
		err = ParseFrame(frame, c)
	}
	return err
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func TestGoldenFrames(t *testing.T) {
	c := Command{Code: 17, Remark: "no \"T\"\\\x01é\xff", Opaque: 5, Flag: 1, Version: 479, Language: "GO", Ext: Ext{{"a", "1"}, {"i", "k\x01v\x02"}}, Body: []byte("{}")}
	const header = `{"code":17,"extFields":{"a":"1","i":"k\u0001v\u0002"},"flag":1,"language":"GO","opaque":5,"remark":"no \"T\"\\\u0001é�","serializeTypeCurrentRPC":"JSON","version":479}`
	if got, want := AppendFrame([]byte("x"), &c), append([]byte("x"), rawFrame(0, header, "{}")...); !bytes.Equal(got, want) {
		t.Errorf("JSON:\n%q, want\n%q", got, want)
	}
	if got, want := AppendFrame(nil, &Command{}), rawFrame(0, `{"code":0,"flag":0,"opaque":0,"serializeTypeCurrentRPC":"JSON","version":0}`, ""); !bytes.Equal(got, want) {
		t.Errorf("an empty command: %q, want %q", got, want)
	}
	binary := "000A" + "00" + "01DF" + "00000007" + "00000002" + "00000002" + "6869" + "0000000B" + "0001" + "61" + "00000004" + "50473132"
	c = Command{Code: 10, Language: "JAVA", Version: 479, Opaque: 7, Flag: 2, Remark: "hi", Ext: Ext{{"a", "PG12"}}, Body: []byte("b")}
	frame := rawFrame(1, string(unhex(binary)), "b")
	if got := mustParse(t, frame); !reflect.DeepEqual(got, c) {
		t.Errorf("binary: read %+v, want %+v", got, c)
	}
	if got := AppendBinaryFrame(nil, &c); !bytes.Equal(got, frame) {
		t.Errorf("binary: wrote %x, want %x", got, frame)
	}
}

// drawCommand draws what both headers can carry.
func drawCommand(t *rapid.T) *Command {
	text := rapid.StringOfN(rapid.Rune(), 0, 20, -1)
	c := &Command{
		Code: int32(rapid.Int16().Draw(t, "code")), Language: rapid.SampledFrom(languages).Draw(t, "language"),
		Version: int32(rapid.Int16().Draw(t, "version")), Opaque: rapid.Int32().Draw(t, "opaque"), Flag: rapid.Int32().Draw(t, "flag"),
		Remark: text.Draw(t, "remark"), Body: rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "body"),
	}
	for range rapid.IntRange(0, 6).Draw(t, "fields") {
		c.Ext = append(c.Ext, Field{text.Draw(t, "name"), text.Draw(t, "value")})
	}
	if len(c.Body) == 0 {
		c.Body = nil
	}
	return c
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t)
		var got Command
		if err := ParseFrame(AppendFrame(nil, c), &got); err != nil || !reflect.DeepEqual(&got, c) {
			t.Fatalf("JSON: %v, read %+v of %+v", err, got, *c)
		}
		if err := ParseFrame(AppendBinaryFrame(nil, c), &got); err != nil || !reflect.DeepEqual(&got, c) {
			t.Fatalf("binary: %v, read %+v of %+v", err, got, *c)
		}
		if frame := AppendFrame(nil, c); !json.Valid(frame[frameHead : len(frame)-len(c.Body)]) {
			t.Fatalf("no JSON: %q", frame)
		}
	})
}

// cutStream is a stream of which only the first bytes came yet.
type cutStream struct{ have, later []byte }

func (s *cutStream) Peek(n int) ([]byte, error) { return s.have[:n], nil }

func (s *cutStream) InboundBuffered() int { return len(s.have) }

func (s *cutStream) Discard(n int) (int, error) {
	s.have = s.have[n:]
	return n, nil
}

// come lets n more bytes come.
func (s *cutStream) come(n int) {
	s.have, s.later = append(s.have, s.later[:n]...), s.later[n:]
}

func TestFramesAreReadHoweverTheStreamIsCut(t *testing.T) {
	first, second := Command{Code: 1, Ext: Ext{{"a", "b"}}, Body: []byte("one")}, Command{Code: 2, Opaque: 9}
	all := AppendFrame(AppendFrame(nil, &first), &second)
	for cut := range len(all) + 1 {
		s := &cutStream{later: bytes.Clone(all)}
		var got []Command
		for _, n := range []int{cut, len(all) - cut} {
			s.come(n)
			for {
				frame, err := nextFrame(s, FrameBytesMax)
				if err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				if frame == nil {
					break
				}
				var c Command
				if err := ParseFrame(bytes.Clone(frame), &c); err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				got = append(got, c)
				if _, err := s.Discard(len(frame)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if want := []Command{first, second}; !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %d: read %+v, want %+v", cut, got, want)
		}
	}
}
