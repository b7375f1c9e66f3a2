package commitlog

import (
	"encoding/hex"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The values are what Java's new String(bytes, UTF_8).hashCode() gives.
func TestTagsHashAsInJava(t *testing.T) {
	for text, want := range map[string]int32{
		"":             0,
		"54616741":     2598919, // TagA
		"d0a2d0b5d0b3": 1051200, "7461672df09f9a80": -879519498,
		// Malformed text: one U+FFFD for each part that could have begun a rune.
		"e2": 65533, "e282": 65533, "e28261": 2031620, "c3": 65533, "c361": 2031620, "80": 65533, "a0": 65533,
		"eda080": 65533, "eda0": 65533, "ed9f": 65533, "ed": 65533, "edaf61": 2031620, "eda061": 2031620,
		"f09f98": 65533, "f09f61": 2031620, "f48fbf": 65533, "f1": 65533, "e1": 65533, "c0af": 2097056,
		"f4908080": 2017367872, "f5808080": 2017367872, "f0808080": 2017367872, "f7bfbfbf": 2017367872,
		"f09f9880f0": 55025402, "e08080": 65074269, "61ff62": 2124838,
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := javaHash(string(b)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

func TestPropertiesAreParsedByRocketMQsRules(t *testing.T) {
	for _, c := range []struct {
		text string
		want map[string]string
	}{
		{"", map[string]string{}},
		{"a\x011\x02b\x012\x02", map[string]string{"a": "1", "b": "2"}},
		{"a\x011\x02b\x012", map[string]string{"a": "1", "b": "2"}},                                           // last separator missing
		{"a\x011\x02a\x012\x02", map[string]string{"a": "2"}},                                                 // a later value wins
		{"a\x01\x02b\x012\x02", map[string]string{"b": "2"}},                                                  // empty value
		{"\x011\x02b\x012\x02", map[string]string{"b": "2"}},                                                  // empty name
		{"a\x02b\x012\x02\x02\x02", map[string]string{"b": "2"}},                                              // no value, empty parts
		{"a\x011\x01x\x02", map[string]string{"a": "1\x01x"}},                                                 // the first separator ends the name
		{"a\x011\x02a\x01\x02", map[string]string{"a": "1"}},                                                  // what is skipped does not win
		{"name\x01значение ☃\x02", map[string]string{"name": "значение ☃"}},                                   // text of any script
		{"\x01\x01\x02\x01\x02\x02\x01", map[string]string{}},                                                 // nothing but separators
		{"TAGSX\x011\x02TAGS\x012\x02TAG\x013\x02", map[string]string{"TAGSX": "1", "TAGS": "2", "TAG": "3"}}, // whole names
	} {
		got := ParseProperties(c.text)
		if !maps.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.text, got, c.want)
		}
		m := Message{Properties: c.text}
		for _, name := range []string{"a", "b", "TAGS", "TAG", "T", ""} {
			value, ok := m.Property(name)
			if want, has := c.want[name]; ok != has || value != want {
				t.Errorf("%q property %q: %q %v, want %q %v", c.text, name, value, ok, want, has)
			}
		}
	}
}

func TestPutWaitsUnlessTheMessageSaysFalse(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "WAIT\x01true\x02": true, "WAIT\x01TRUE": true, "WAIT\x01false\x02": false,
		"WAIT\x01yes\x02": false, "WAIT\x01\x02": true, "WAITS\x01false\x02": true,
	} {
		if got := (&Message{Properties: text}).WaitStore(); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestEncodedPropertiesAreParsedBack(t *testing.T) {
	part := rapid.StringMatching(`[^\x01\x02]{1,12}`)
	rapid.Check(t, func(t *rapid.T) {
		pairs := rapid.MapOfN(part, part, 0, 8).Draw(t, "pairs")
		text := EncodeProperties(pairs)
		if got := ParseProperties(text); !maps.Equal(got, pairs) {
			t.Fatalf("%q parses to %v, want %v", text, got, pairs)
		}
		if got := ParseProperties(strings.TrimSuffix(text, "\x02")); !maps.Equal(got, pairs) {
			t.Fatalf("%q without its last separator parses to %v, want %v", text, got, pairs)
		}
	})
}

func FuzzParseProperties(f *testing.F) {
	f.Add("KEYS\x01key-0 ключ97 键\x02TAGS\x01tag-🚀\x02WAIT\x01true\x02")
	f.Add("a\x011\x01x\x02a\x01\x02\x02b")
	f.Fuzz(func(t *testing.T, text string) {
		pairs := ParseProperties(text)
		for name, value := range pairs {
			if name == "" || value == "" {
				t.Fatalf("empty name or value: %q=%q", name, value)
			}
			if got, ok := findProperty(text, name); !ok || got != value {
				t.Fatalf("property %q is %q %v, the map has %q", name, got, ok, value)
			}
		}
		again := EncodeProperties(pairs)
		if !maps.Equal(ParseProperties(again), pairs) || EncodeProperties(ParseProperties(again)) != again {
			t.Fatalf("%q is encoded as %q, which is read otherwise", text, again)
		}
		tagsCode(text)
	})
}
