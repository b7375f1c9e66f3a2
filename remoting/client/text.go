package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/haengine/haengine/remoting"
)

// plainJSON makes JSON of what fastjson writes, which brokers and name servers
// answer with: keys of maps that are numbers get quotes, and keys that are objects
// become texts that hold the object. What is JSON already stays as it is.
func plainJSON(text []byte) []byte {
	out := make([]byte, 0, len(text)+len(text)/8)
	var objects []bool // of the braces and brackets that are open: is it an object?
	key := false       // a key of an object comes next
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '"':
			end := skipText(text, i)
			out, i, key = append(out, text[i:end]...), end, false
			continue
		case key && c == '{':
			end := skipObject(text, i)
			quoted, err := json.Marshal(string(text[i:end]))
			if err != nil {
				return text // a text never fails
			}
			out, i, key = append(out, quoted...), end, false
			continue
		case key && (c == '-' || c >= '0' && c <= '9'):
			end := i + 1
			for end < len(text) && text[end] >= '0' && text[end] <= '9' {
				end++
			}
			out = append(append(append(out, '"'), text[i:end]...), '"')
			i, key = end, false
			continue
		case c == '{' || c == '[':
			objects = append(objects, c == '{')
			key = c == '{'
		case c == '}' || c == ']':
			if len(objects) > 0 {
				objects = objects[:len(objects)-1]
			}
			key = false
		case c == ',':
			key = len(objects) > 0 && objects[len(objects)-1]
		}
		out = append(out, c)
		i++
	}
	return out
}

// skipText gives where the text ends that begins at i with its quote.
func skipText(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// skipObject gives where the object ends that begins at i.
func skipObject(text []byte, i int) int {
	for depth := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = skipText(text, i) - 1
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// readJSON reads the body of an answer; what names it for errors.
func readJSON(body []byte, what string, into any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return fmt.Errorf("%s: the answer has no body", what)
	}
	if err := json.Unmarshal(plainJSON(body), into); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// queueTable is a map whose keys are queues (MessageQueue).
type queueTable[T any] map[Queue]T

// UnmarshalJSON reads a map whose keys are texts that hold a queue as JSON, as
// plainJSON leaves them.
func (t *queueTable[T]) UnmarshalJSON(text []byte) error {
	var raw map[string]T
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*t = make(queueTable[T], len(raw))
	for name, v := range raw {
		var q Queue
		if err := json.Unmarshal([]byte(name), &q); err != nil {
			return fmt.Errorf("queue %.80q: %w", name, err)
		}
		(*t)[q] = v
	}
	return nil
}

// Queue is a queue of a topic at a broker (RocketMQ MessageQueue).
type Queue = remoting.QueueName

// compareQueues orders queues as RocketMQ's clients do: all members of a group
// have to agree.
func compareQueues(a, b Queue) int {
	if c := bytes.Compare([]byte(a.Topic), []byte(b.Topic)); c != 0 {
		return c
	}
	if c := bytes.Compare([]byte(a.BrokerName), []byte(b.BrokerName)); c != 0 {
		return c
	}
	return int(a.QueueID) - int(b.QueueID)
}

// queueNumbers names queues for people.
func queueNumbers(ids []int32) string {
	var b strings.Builder
	b.WriteString("queue")
	if len(ids) > 1 {
		b.WriteString("s")
	}
	for i, id := range ids {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %d", id)
	}
	return b.String()
}
