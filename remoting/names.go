package remoting

import (
	"fmt"
	"strings"
)

// Prefixes of the topics that belong to a consumer group (MixAll).
const (
	RetryPrefix = "%RETRY%"
	DLQPrefix   = "%DLQ%"
)

// Topics that mean something to a broker (TopicValidator, MixAll).
const (
	TopicTemplate      = "TBW102" // what new topics are made from
	topicSchedule      = "SCHEDULE_TOPIC_XXXX"
	topicHalf          = "RMQ_SYS_TRANS_HALF_TOPIC"
	topicOpHalf        = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	topicSelfTest      = "SELF_TEST_TOPIC"
	topicOffsetMoved   = "OFFSET_MOVED_EVENT"
	topicCheckMaxTime  = "TRANS_CHECK_MAX_TIME_TOPIC"
	topicTrace         = "RMQ_SYS_TRACE_TOPIC"
	topicBenchmark     = "BenchmarkTest"
	topicCheckpoint    = "CHECKPOINT_TOPIC"
	systemTopicsPrefix = "rmq_sys_"
)

const (
	topicNameMax      = 127 // bytes; of a group's topics 255
	groupTopicNameMax = 255
	groupNameMax      = 120
)

// ValidateTopic says what is wrong with a topic's name; "" means that it may be
// one (TopicValidator.validateTopic).
func ValidateTopic(name string) string {
	most := topicNameMax
	if isGroupTopic(name) {
		most = groupTopicNameMax
	}
	return validateName("topic", name, most)
}

// ValidateGroup says what is wrong with a group's name; "" means that it may be
// one.
func ValidateGroup(name string) string { return validateName("group", name, groupNameMax) }

func validateName(what, name string, most int) string {
	if strings.TrimSpace(name) == "" {
		return "The specified " + what + " is blank."
	}
	if len(name) > most {
		return fmt.Sprintf("The specified %s has %d bytes, at most %d are allowed.", what, len(name), most)
	}
	for i := range len(name) {
		c := name[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '%' && c != '-' && c != '_' && c != '|' {
			return fmt.Sprintf("The specified %s %q contains illegal characters, allowing only ^[%%|a-zA-Z0-9_-]+$", what, name)
		}
	}
	return ""
}

func isGroupTopic(name string) bool {
	return strings.HasPrefix(name, RetryPrefix) || strings.HasPrefix(name, DLQPrefix)
}

// sendForbidden tells the topics that only the broker writes
// (TopicValidator.isNotAllowedSendTopic).
func sendForbidden(topic string) bool {
	switch topic {
	case topicSchedule, topicHalf, topicOpHalf, topicCheckMaxTime, topicSelfTest, topicOffsetMoved:
		return true
	}
	return false
}

// IsSystemTopic tells topics that are a broker's own and cannot be changed by
// administrators (TopicValidator.isSystemTopic).
func IsSystemTopic(topic string) bool {
	switch topic {
	case TopicTemplate, topicSchedule, topicHalf, topicOpHalf, topicCheckMaxTime, topicSelfTest, topicOffsetMoved,
		topicTrace, topicBenchmark, topicCheckpoint:
		return true
	}
	return strings.HasPrefix(topic, systemTopicsPrefix)
}
