package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

func TestClientBatchIsReadBackAsItWasWritten(t *testing.T) {
	messages := []Message{
		{Flag: 7, Body: []byte("one"), Properties: "KEYS\x01a\x02"},
		{Body: []byte{}},
		{Flag: -1, Body: bytes.Repeat([]byte("x"), 5000), Properties: "TAGS\x01TagA"},
	}
	var batch []byte
	for i := range messages {
		batch = AppendClientMessage(batch, &messages[i])
	}
	got, err := DecodeClientBatch(batch)
	if err != nil || len(got) != len(messages) {
		t.Fatalf("%d messages, %v; want %d", len(got), err, len(messages))
	}
	for i, m := range got {
		if m.Flag != messages[i].Flag || !bytes.Equal(m.Body, messages[i].Body) || m.Properties != messages[i].Properties {
			t.Errorf("message %d: %+v, want %+v", i, m, messages[i])
		}
	}
}

func TestBadClientBatchesAreRefused(t *testing.T) {
	good := AppendClientMessage(nil, &Message{Body: []byte("body"), Properties: "a\x011\x02"})
	set := func(at int, v ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], v)
		return b
	}
	for name, b := range map[string][]byte{
		"nothing":                     nil,
		"one byte":                    {1},
		"a byte behind the last":      append(bytes.Clone(good), 0),
		"cut":                         good[:len(good)-1],
		"size zero":                   set(0, 0, 0, 0, 0),
		"size negative":               set(0, 0xFF, 0xFF, 0xFF, 0xFF),
		"size huge":                   set(0, 0x7F, 0xFF, 0xFF, 0xFF),
		"body length negative":        set(16, 0x80, 0, 0, 0),
		"body length huge":            set(16, 0x7F, 0xFF, 0xFF, 0xFF),
		"body length one more":        set(19, 5),
		"properties length negative":  set(24, 0xFF, 0xFF),
		"properties length one less":  set(25, 3),
		"a second message of nothing": append(bytes.Clone(good), make([]byte, 22)...),
	} {
		if got, err := DecodeClientBatch(b); !errors.Is(err, ErrMessageIllegal) || got != nil {
			t.Errorf("%s: %d messages, %v; want %v", name, len(got), err, ErrMessageIllegal)
		}
	}
}

func FuzzDecodeClientBatch(f *testing.F) {
	f.Add(AppendClientMessage(AppendClientMessage(nil, &Message{Body: []byte("b")}), &Message{Properties: "a\x011\x02"}))
	f.Add(make([]byte, 44))
	f.Fuzz(func(t *testing.T, b []byte) {
		messages, err := DecodeClientBatch(b)
		if err != nil {
			if !errors.Is(err, ErrMessageIllegal) {
				t.Fatalf("error of another package: %v", err)
			}
			return
		}
		var again []byte
		for i := range messages {
			again = AppendClientMessage(again, &messages[i])
		}
		// Magic and checksum are not read, so they are not written back.
		for at := 0; at < len(b); at += int(binary.BigEndian.Uint32(b[at:])) {
			clear(b[at+4 : at+12])
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("written back as\n%x, was\n%x", again, b)
		}
	})
}
