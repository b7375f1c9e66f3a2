package remoting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// object is a JSON object of which some fields are known and all are kept.
type object map[string]json.RawMessage

// parseObject reads an object. Null is an empty one.
func parseObject(text []byte) (object, error) {
	o := object{}
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	if o == nil {
		o = object{}
	}
	return o, nil
}

// take reads a field into v and removes it; one that is missing or null leaves v
// as it is.
func (o object) take(name string, v any) error {
	raw, ok := o[name]
	if !ok {
		return nil
	}
	delete(o, name)
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// takeAll is take of several fields, to the first that is wrong.
func (o object) takeAll(fields ...objectField) error {
	for _, f := range fields {
		if err := o.take(f.name, f.into); err != nil {
			return err
		}
	}
	return nil
}

type objectField struct {
	name string
	into any
}

func (o object) text(name, v string)         { o[name] = appendText(nil, v) }
func (o object) number(name string, v int64) { o[name] = strconv.AppendInt(nil, v, 10) }
func (o object) truth(name string, v bool)   { o[name] = strconv.AppendBool(nil, v) }

// texts sets a field that is an object of strings.
func (o object) texts(name string, v map[string]string) {
	inner := make(object, len(v))
	for k, s := range v {
		inner.text(k, s)
	}
	o[name] = inner.append(nil)
}

// append appends the object, compact and its names in order.
func (o object) append(dst []byte) []byte {
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(o)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendCompact(append(appendText(dst, name), ':'), o[name])
	}
	return append(dst, '}')
}

// appendCompact appends JSON without space in it, and anything else as it is.
func appendCompact(dst, raw []byte) []byte {
	b := bytes.NewBuffer(dst)
	if json.Compact(b, raw) != nil {
		return append(dst, raw...)
	}
	return b.Bytes()
}

func (o object) clone() object { return maps.Clone(o) }
