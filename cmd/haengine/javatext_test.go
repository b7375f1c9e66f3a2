package main

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// The wanted values were printed by fastjson2 2.0.59 and by a Java 17 String.
func TestStringsAreEscapedAsFastjson2Does(t *testing.T) {
	const want = `"\u0000\u0001\u0007\b\t\n\u000b\f\r\u000e\u001a\u001f !\"#&'/<=>\\` + "\u007f\u0080é\u2028\ufeff\U0001F680" + `"`
	in := "\x00\x01\x07\b\t\n\x0b\f\r\x0e\x1a\x1f !\"#&'/<=>\\\u007f\u0080é\u2028\ufeff\U0001F680"
	if got := string(appendJSONString(nil, in)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestEscapedStringsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		var got string
		if err := json.Unmarshal(appendJSONString(nil, want), &got); err != nil || got != want {
			t.Fatalf("%q reads back as %q, %v", want, got, err)
		}
	})
}

func TestBrokenTextIsDecodedAsJavaDoes(t *testing.T) {
	const x = "\uFFFD"
	for in, want := range map[string]string{
		"ab": "ab", "ключ\U0001F680": "ключ\U0001F680",
		"\xffa": x + "a", "\xe4\xb8a": x + "a", "\xe4\xb8": x, "\xed\xa0\x80a": x + "a", "\xf0\x9f\x9aa": x + "a",
		"\xf0\x9f\x9a": x, "\xc0\x80a": x + x + "a", "\xf5\x80\x80\x80": x + x + x + x, "\xe0\x80\x80b": x + x + x + "b",
		"\xf4\x90\x80\x80b": x + x + x + x + "b", "\xc3": x, "\xf0\x9f": x, "\xf0abc": x + "abc", "\xf0\x80\x80\x80": x + x + x + x,
		"\xf8\x88\x80\x80\x80": x + x + x + x + x, "\xed\xa0\x80\xed\xb0\x80": x + x, "\xf0\x9fab": x + "ab",
	} {
		if got := javaText([]byte(in)); got != want {
			t.Errorf("% x is decoded to %q, want %q", in, got, want)
		}
	}
}

func TestKeysAreInTheOrderOfUTF16(t *testing.T) {
	got := sortedJavaKeys(map[string]string{"\uff01": "", "\U0001F680": "", "b": "", "a": "", "ab": "", "": ""})
	want := []string{"", "a", "ab", "b", "\U0001F680", "\uff01"}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("order %q, want %q", got, want)
		}
	}
}

func TestHashesAreJavas(t *testing.T) {
	for in, want := range map[string]int64{"": 0, "TagA": 0x27A807, "polygenelubricants": -2147483648, "\U0001F680": 1773027} {
		if got := javaHash(in); got != want {
			t.Errorf("hash of %q is %d, want %d", in, got, want)
		}
	}
}

func FuzzJavaText(f *testing.F) {
	f.Add([]byte("a\xe4\xb8"))
	f.Add([]byte("\xed\xa0\x80"))
	f.Fuzz(func(t *testing.T, b []byte) {
		text := javaText(b)
		if !utf8.ValidString(text) {
			t.Fatalf("% x is decoded to broken text %q", b, text)
		}
		if utf8.Valid(b) && text != string(b) {
			t.Fatalf("valid text %q became %q", b, text)
		}
	})
}
