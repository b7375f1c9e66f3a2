package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/haengine/haengine/remoting"
)

// sendTemplate is a send's frame (SEND_MESSAGE_V2 with a JSON header, as
// RocketMQ's own clients send it) that is encoded once. What differs from one
// message to the next has a fixed width and is written over.
type sendTemplate struct {
	frame  []byte
	opaque int // where they stand in frame
	queue  int
	born   int
	unique int
}

// What the template has in the places that are written over: nothing else in
// it is alike.
const (
	opaqueBase   = 1_000_000 // request numbers have seven digits
	opaqueDigits = 7
	holdQueue    = 7
	holdBorn     = 8_888_888_888_888 // ms: thirteen digits until the year 2286
	bornDigits   = 13
	uniqueDigits = 32
	benchQueues  = 8 // of the topic: one digit
)

func newSendTemplate(topic string, size int) (*sendTemplate, error) {
	unique := strings.Repeat("F", uniqueDigits)
	c := remoting.Command{
		Code: remoting.CodeSendMessageV2, Language: "JAVA", Version: remoting.Version, Opaque: opaqueBase,
		Ext: remoting.Ext{
			{Name: "a", Value: "haengine_bench"}, {Name: "b", Value: topic}, {Name: "c", Value: "TBW102"}, {Name: "d", Value: "4"},
			{Name: "e", Value: strconv.Itoa(holdQueue)}, {Name: "f", Value: "0"}, {Name: "g", Value: strconv.Itoa(holdBorn)}, {Name: "h", Value: "0"},
			{Name: "i", Value: "UNIQ_KEY\x01" + unique + "\x02WAIT\x01true\x02TAGS\x01TagA\x02"},
			{Name: "j", Value: "0"}, {Name: "k", Value: "false"}, {Name: "m", Value: "false"},
		},
		Body: bytes.Repeat([]byte("x"), size),
	}
	t := &sendTemplate{frame: remoting.AppendFrame(nil, &c)}
	for _, place := range []struct {
		at   *int
		name string
		text string
	}{
		{&t.opaque, `"opaque":`, strconv.Itoa(opaqueBase)}, {&t.queue, `"e":"`, strconv.Itoa(holdQueue)},
		{&t.born, `"g":"`, strconv.Itoa(holdBorn)}, {&t.unique, `UNIQ_KEY\u0001`, unique},
	} {
		i := bytes.Index(t.frame, []byte(place.name+place.text))
		if i < 0 {
			return nil, fmt.Errorf("a send's frame has no place %s", place.name)
		}
		*place.at = i + len(place.name)
	}
	return t, nil
}

// append appends the frame of one message. number makes it unlike all others.
func (t *sendTemplate) append(dst []byte, slot int, born, number int64) []byte {
	at := len(dst)
	dst = append(dst, t.frame...)
	frame := dst[at:]
	putDecimal(frame[t.opaque:t.opaque+opaqueDigits], opaqueBase+int64(slot))
	putDecimal(frame[t.born:t.born+bornDigits], born)
	putDecimal(frame[t.unique:t.unique+uniqueDigits], number)
	frame[t.queue] = '0' + byte(number%benchQueues)
	return dst
}

// putDecimal fills dst with a number that is not negative.
func putDecimal(dst []byte, n int64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = '0' + byte(n%10)
		n /= 10
	}
}

// scanAnswer reads a response's code and the slot that its request was given.
// It does not look at anything else, so that the load costs little.
func scanAnswer(frame []byte) (code int32, slot int, err error) {
	const head, fixed = 8, 21
	if len(frame) < head {
		return 0, 0, fmt.Errorf("an answer of %d bytes", len(frame))
	}
	word := binary.BigEndian.Uint32(frame[4:])
	header := frame[head:]
	if n := int(word & 0xFFFFFF); n <= len(header) {
		header = header[:n]
	}
	if word>>24 == 1 {
		if len(header) < fixed {
			return 0, 0, fmt.Errorf("an answer with a header of %d bytes", len(header))
		}
		code = int32(int16(binary.BigEndian.Uint16(header)))
		return code, int(binary.BigEndian.Uint32(header[5:])) - opaqueBase, nil
	}
	c, ok1 := scanNumber(header, `"code":`)
	o, ok2 := scanNumber(header, `"opaque":`)
	if !ok1 || !ok2 {
		return 0, 0, fmt.Errorf("an answer that is not understood: %.200q", header)
	}
	return int32(c), int(o) - opaqueBase, nil
}

// scanNumber reads the number behind a name, which no text in a header can look
// like: quotes are escaped there.
func scanNumber(header []byte, name string) (n int64, ok bool) {
	i := bytes.Index(header, []byte(name))
	if i < 0 {
		return 0, false
	}
	for _, b := range header[i+len(name):] {
		if b < '0' || b > '9' {
			break
		}
		n, ok = n*10+int64(b-'0'), true
	}
	return n, ok
}
