package commitlog

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// DefaultBodyBytes is RocketMQ's maxMessageSize.
	DefaultBodyBytes = 4 << 20

	// recordOverheadBytes is what a record may be larger than the largest
	// body (MessageExtEncoder).
	recordOverheadBytes = 64 << 10

	// topicBytesMaxRetry is the limit for the topics that the consumer side
	// makes from a group's name (HookUtils.checkBeforePutMessage).
	topicBytesMaxRetry = 255
	retryTopicPrefix   = "%RETRY%"
)

// Limits is what a put may ask for. The codec reads and writes whatever the
// format allows; limits are for what is new.
type Limits struct {
	BodyBytes int // the largest body; 0: DefaultBodyBytes
}

// Validate says whether the message may be appended to a log with segments of
// segmentBytes. It fails with ErrMessageIllegal or ErrPropertiesTooLong,
// wrapped in a *LimitError when a number is over its limit. Nothing is
// allocated unless it fails. Any goroutine.
//
// RocketMQ HookUtils.checkBeforePutMessage and MessageExtEncoder.encode. The
// topic must also be usable as a directory's name, because it is one.
func (l Limits) Validate(m *Message, segmentBytes int64) error {
	_, err := l.check(m, segmentBytes)
	return err
}

// check is Validate that gives the record's size.
func (l Limits) check(m *Message, segmentBytes int64) (size int, err error) {
	if err := validateTopic(m.Topic); err != nil {
		return 0, err
	}
	if m.QueueID < 0 {
		return 0, fmt.Errorf("%w: queue id %d is negative", ErrMessageIllegal, m.QueueID)
	}
	bodyMax := int64(l.BodyBytes)
	if bodyMax <= 0 {
		bodyMax = DefaultBodyBytes
	}
	if err := limit("body", int64(len(m.Body)), bodyMax); err != nil {
		return 0, err
	}
	if size, err = RecordSize(m); err != nil {
		return 0, err
	}
	if err := limit("record", int64(size), bodyMax+recordOverheadBytes); err != nil {
		return 0, err
	}
	if err := limit("record in one segment", int64(size), segmentBytes-fillerHeaderBytes); err != nil {
		return 0, err
	}
	// No checksum covers the properties. Zeros in them would look like what a
	// power cut left out, and recovery would take a whole record for a torn one.
	if strings.IndexByte(m.Properties, 0) >= 0 {
		return 0, fmt.Errorf("%w: the properties have a zero byte", ErrMessageIllegal)
	}
	return size, nil
}

// ValidateBatch is Validate for messages that are appended as one piece: each
// by itself, all of them together within one segment, and one topic and queue
// without transactions or delays (CommitLog.asyncPutMessages).
func (l Limits) ValidateBatch(messages []*Message, segmentBytes int64) error {
	if len(messages) == 0 {
		return fmt.Errorf("%w: a batch of no messages", ErrMessageIllegal)
	}
	first, total := messages[0], int64(0)
	for i, m := range messages {
		size, err := l.check(m, segmentBytes)
		if err != nil {
			return fmt.Errorf("message %d of the batch: %w", i, err)
		}
		total += int64(size)
		if m.Topic != first.Topic || m.QueueID != first.QueueID {
			return fmt.Errorf("%w: message %d of the batch is for %s queue %d, the first for %s queue %d",
				ErrMessageIllegal, i, m.Topic, m.QueueID, first.Topic, first.QueueID)
		}
		if m.SysFlag&FlagTransactionMask != 0 {
			return fmt.Errorf("%w: message %d of the batch is of a transaction", ErrMessageIllegal, i)
		}
		if level, ok := delayLevel(m.Properties); ok && level > 0 {
			return fmt.Errorf("%w: message %d of the batch is delayed", ErrMessageIllegal, i)
		}
	}
	return limit("batch in one segment", total, segmentBytes-fillerHeaderBytes)
}

func limit(what string, value, most int64) error {
	if value > most {
		return &LimitError{What: what, Value: value, Max: most, sentinel: ErrMessageIllegal}
	}
	return nil
}

func validateTopic(topic string) error {
	most := topicBytesMaxV1
	if strings.HasPrefix(topic, retryTopicPrefix) {
		most = topicBytesMaxRetry
	}
	if err := limit("topic", int64(len(topic)), int64(most)); err != nil {
		return err
	}
	if !topicIsName(topic) {
		return fmt.Errorf("%w: topic %q cannot be a directory's name", ErrMessageIllegal, topic)
	}
	if !utf8.ValidString(topic) {
		return fmt.Errorf("%w: topic %q is not UTF-8", ErrMessageIllegal, topic)
	}
	for i := range len(topic) {
		if topic[i] < ' ' || topic[i] == 0x7F {
			return fmt.Errorf("%w: topic %q has a control character", ErrMessageIllegal, topic)
		}
	}
	return nil
}

// topicIsName says whether a consume queue directory can have the topic's
// name. Records of other topics may come from elsewhere; they stay in the log
// without a queue.
func topicIsName(topic string) bool {
	if len(topic) == 0 || len(topic) > topicBytesMaxRetry || topic == "." || topic == ".." {
		return false
	}
	return strings.IndexByte(topic, '/') < 0 && strings.IndexByte(topic, 0) < 0
}
