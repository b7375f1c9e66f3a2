package remoting

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// inflatedMax is how large a compressed registration may become: far above what a
// broker with as many topics as it can have sends, and far below what 16 MiB of
// zeros becomes.
const inflatedMax = 16 << 20

// inflateTopics reads the body of a compressed registration
// (RegisterBrokerBody.decode), as far as it matters:
//
//	bytes  field
//	4 + n  DataVersion as JSON
//	4      topics
//	4 + n  for each: name, read queues, write queues, perm, filter type, with a space between
//	rest   filter servers, queue mappings
func inflateTopics(body []byte) (map[string]Queues, DataVersion, error) {
	var version DataVersion
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, version, err
	}
	text, err := io.ReadAll(io.LimitReader(z, inflatedMax+1))
	if err != nil {
		return nil, version, err
	}
	if len(text) > inflatedMax {
		return nil, version, fmt.Errorf("it is larger than %d bytes", inflatedMax)
	}
	part, text, err := cutPart(text)
	if err != nil {
		return nil, version, err
	}
	if err := json.Unmarshal(part, &version); err != nil {
		return nil, version, err
	}
	if len(text) < 4 {
		return nil, version, errPart
	}
	n := binary.BigEndian.Uint32(text)
	text = text[4:]
	if int64(n) > int64(len(text))/4 {
		return nil, version, fmt.Errorf("%d topics do not fit into %d bytes", n, len(text))
	}
	topics := make(map[string]Queues, min(n, 1<<16))
	for range n {
		if part, text, err = cutPart(text); err != nil {
			return nil, version, err
		}
		fields := strings.SplitN(string(part), " ", 5)
		if len(fields) < 4 {
			return nil, version, fmt.Errorf("topic %q has too few fields", part)
		}
		var q Queues
		for i, into := range []*int32{&q.ReadQueues, &q.WriteQueues, &q.Perm} {
			number, err := strconv.ParseInt(fields[i+1], 10, 32)
			if err != nil {
				return nil, version, fmt.Errorf("topic %q: %w", part, err)
			}
			*into = int32(number)
		}
		topics[fields[0]] = q
	}
	return topics, version, nil
}

var errPart = errors.New("it ends too early")

// cutPart reads a length and so many bytes.
func cutPart(b []byte) (part, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errPart
	}
	n := int64(int32(binary.BigEndian.Uint32(b)))
	if b = b[4:]; n < 0 || n > int64(len(b)) {
		return nil, nil, fmt.Errorf("a part of %d bytes, where there are %d", n, len(b))
	}
	return b[:n], b[n:], nil
}
