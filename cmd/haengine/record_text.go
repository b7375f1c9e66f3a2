package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
	"unicode"

	"github.com/haengine/haengine/commitlog"
)

// appendRecordJSON writes a record with RocketMQ's field names, in the order
// of testdata/*.expected.jsonl. body is none, text or base64.
func appendRecordJSON(dst []byte, r *commitlog.Record, body string) []byte {
	number := func(name string, v int64) {
		dst = append(dst, ',', '"')
		dst = append(dst, name...)
		dst = append(dst, '"', ':')
		dst = strconv.AppendInt(dst, v, 10)
	}
	text := func(name, v string) {
		dst = append(dst, ',', '"')
		dst = append(dst, name...)
		dst = append(dst, '"', ':')
		dst = appendJSONString(dst, v)
	}
	dst = append(dst, `{"physicOffset":`...)
	dst = strconv.AppendInt(dst, r.PhysicalOffset, 10)
	number("size", int64(r.Size))
	text("magic", fmt.Sprintf("0x%08x", r.Magic))
	number("bodyCRC", int64(int32(r.BodyCRC))) // a Java int
	number("queueId", int64(r.QueueID))
	number("flag", int64(r.Flag))
	number("queueOffset", r.QueueOffset)
	number("sysFlag", int64(r.SysFlag))
	number("bornTimestamp", r.BornTimestamp)
	text("bornHost", r.BornHost.String())
	number("storeTimestamp", r.StoreTimestamp)
	text("storeHost", r.StoreHost.String())
	number("reconsumeTimes", int64(r.ReconsumeTimes))
	number("preparedTransactionOffset", r.PreparedTransactionOffset)
	text("topic", javaText([]byte(r.Topic)))
	dst = append(dst, `,"properties":`...)
	properties := javaText([]byte(r.Properties))
	dst = appendStringMap(dst, commitlog.ParseProperties(properties))
	text("propertiesString", properties)
	number("bodyLength", int64(len(r.Body)))
	digest := sha256.Sum256(r.Body)
	text("bodySha256", hex.EncodeToString(digest[:]))
	text("offsetMsgId", r.OffsetMsgID())
	if body != "none" {
		text("body", bodyText(r.Body, body))
	}
	return append(dst, '}')
}

func appendStringMap(dst []byte, m map[string]string) []byte {
	dst = append(dst, '{')
	for i, k := range sortedJavaKeys(m) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONString(dst, k)
		dst = append(dst, ':')
		dst = appendJSONString(dst, m[k])
	}
	return append(dst, '}')
}

func bodyText(body []byte, as string) string {
	if as == "base64" {
		return base64.StdEncoding.EncodeToString(body)
	}
	return javaText(body)
}

// printable keeps text from a log from moving the reader's terminal: anything
// that is not a graphic character or a space is escaped.
func printable(s string) string {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			q := strconv.Quote(s)
			return q[1 : len(q)-1]
		}
	}
	return s
}

// when writes a store timestamp for people; "-" if there is none.
func when(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
