package remoting

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

// FuzzJSONHeader: what encoding/json takes for a header is taken, and read alike;
// what is taken is written so that it reads the same; nothing panics.
func FuzzJSONHeader(f *testing.F) {
	for _, s := range []string{
		sendV2, `{}`, `{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"GO","opaque":1,"version":317}`,
		`{"x":[[{"a":null}]],"remark":"\ud83d\ude00\u0001"}`, `{"code":"3"}`, `{"extFields":{"a":1,"a":null}}`, deep(70, "[", "]"),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		var c Command
		err := parseJSONHeader(header, &c, nil)
		var want struct {
			Code, Version, Opaque, Flag int32
			Language, Remark            string
		}
		var names map[string]json.RawMessage
		if json.Unmarshal(header, &names) == nil && names != nil {
			// encoding/json takes names in any case; only those spelled alike count.
			plain := true
			for name := range names {
				switch name {
				case "code", "version", "opaque", "flag", "language", "remark":
				default:
					plain = false
				}
			}
			if plain && json.Unmarshal(header, &want) == nil {
				if err != nil {
					t.Fatalf("%q: %v", header, err)
				}
				if c.Code != want.Code || c.Version != want.Version || c.Opaque != want.Opaque || c.Flag != want.Flag {
					t.Fatalf("%q: read %+v, want %+v", header, c, want)
				}
			}
		}
		if err != nil {
			if !errors.Is(err, ErrRefused) {
				t.Fatalf("%q: %v", header, err)
			}
			return
		}
		var again Command
		if err := ParseFrame(AppendFrame(nil, &c), &again); err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%q: %v, read %+v again, first %+v", header, err, again, c)
		}
	})
}

// FuzzBinaryHeader: only refusals, and what is taken writes back the same bytes.
func FuzzBinaryHeader(f *testing.F) {
	c := &Command{Code: 10, Language: "JAVA", Version: 479, Opaque: 7, Remark: "hi", Ext: Ext{{"a", "PG"}, {"", ""}}}
	f.Add(AppendBinaryFrame(nil, c)[frameHead:])
	f.Add(unhex("000A0000010000000700000000FFFFFFFF00000000"))
	f.Fuzz(func(t *testing.T, header []byte) {
		if len(header) >= 1<<24 {
			return
		}
		var c Command
		if err := parseBinaryHeader(header, &c, nil); err != nil {
			if !errors.Is(err, ErrRefused) {
				t.Fatalf("%x: %v", header, err)
			}
			return
		}
		var again Command
		if err := ParseFrame(AppendBinaryFrame(nil, &c), &again); err != nil || c.Code != again.Code || !reflect.DeepEqual(c.Ext, again.Ext) || c.Remark != again.Remark {
			t.Fatalf("%x: %v, read %+v again, first %+v", header, err, again, c)
		}
	})
}

// FuzzStream: any bytes, cut anywhere, give the same commands and the same end
// as in one piece.
func FuzzStream(f *testing.F) {
	f.Add(AppendBinaryFrame(AppendFrame(nil, &Command{Code: 34, Body: []byte("x")}), &Command{Code: 15}), uint8(3))
	f.Add(unhex("0000000400000010"), uint8(1))
	f.Add(append(rawFrame(0, sendV2, "body"), unhex("00000000")...), uint8(64))
	f.Fuzz(func(t *testing.T, all []byte, step uint8) {
		whole, wholeErr := readStream(t, all, len(all))
		cut, cutErr := readStream(t, all, int(step)+1)
		if len(whole) != len(cut) || !reflect.DeepEqual(whole, cut) || (wholeErr == nil) != (cutErr == nil) {
			t.Fatalf("%x: in one piece %+v, %v; in pieces of %d %+v, %v", all, whole, wholeErr, int(step)+1, cut, cutErr)
		}
	})
}

func readStream(t *testing.T, all []byte, step int) (commands []Command, err error) {
	s := &cutStream{later: all}
	for len(s.later) > 0 {
		s.come(min(step, len(s.later)))
		for {
			frame, err := nextFrame(s, FrameBytesMax)
			if err == nil && frame != nil {
				var c Command
				if err = ParseFrame(frame, &c); err == nil {
					commands = append(commands, c)
					_, err = s.Discard(len(frame))
				}
			}
			if err != nil {
				if !errors.Is(err, ErrRefused) {
					t.Fatal(err)
				}
				return commands, err
			}
			if frame == nil {
				break
			}
		}
	}
	return commands, nil
}
