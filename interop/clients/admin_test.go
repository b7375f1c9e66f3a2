package clients

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

var (
	moment    = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?`)
	anAddress = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	spaces    = regexp.MustCompile(`[ \t]+`)
	anID      = regexp.MustCompile(`[0-9A-F]{32}`)
)

// canonical makes what mqadmin printed comparable: without times, addresses and
// offsets in the log, and of lists only what the test made. A time that is none is
// told from one.
func canonical(arguments, prefix string, at *cluster, text string) string {
	text = strings.NewReplacer(at.master, "MASTER", at.slave, "SLAVE").Replace(text)
	text = anAddress.ReplaceAllString(text, "ADDRESS")
	text = moment.ReplaceAllStringFunc(text, func(time string) string {
		if strings.HasPrefix(time, "1970") {
			return "NEVER"
		}
		return "TIME"
	})
	text = anID.ReplaceAllString(text, "ID")
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(spaces.ReplaceAllString(line, " ")); line != "" {
			lines = append(lines, line)
		}
	}
	name, _, _ := strings.Cut(arguments, " ")
	switch {
	case name == "clusterList":
		lines = mapped(lines, func(line string) string {
			fields := strings.Fields(line)
			return strings.Join(fields[:min(5, len(fields))], " ")
		})
		// Two words in the head, and the version last.
		lines = mapped(lines, func(line string) string { return line[:max(0, strings.LastIndexByte(line, ' '))] })
	case name == "brokerStatus":
		lines = slices.DeleteFunc(mapped(lines, brokerKey), func(line string) bool {
			return inner.MatchString(line) || prefix == "J4" && strings.HasPrefix(line, "brokerActive") // which 4.9 does not have
		})
		slices.Sort(lines)
	case name == "haStatus":
		lines = ends(lines)
	case name == "topicList" || arguments == "consumerProgress":
		lines = slices.DeleteFunc(lines, func(line string) bool {
			return !strings.Contains(line, prepare) || strings.Contains(line, "%") || !strings.HasPrefix(line, prefix) || strings.Contains(line, "-made")
		})
		slices.Sort(lines)
	case name == "consumerProgress":
		// A group has an offset in its retry topic as soon as it has asked there.
		lines = slices.DeleteFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, "Consume TPS") || strings.HasPrefix(line, "%RETRY%")
		})
		slices.Sort(lines[min(1, len(lines)):])
	case name == "queryMsgById":
		lines = mapped(lines, messageField)
	}
	return strings.Join(lines, "\n")
}

func mapped(lines []string, f func(string) string) []string {
	var all []string
	for _, line := range lines {
		all = append(all, f(line))
	}
	return all
}

// inner are what a broker tells of its own thread pools, buffers, timer and counters,
// another set in each version.
var inner = regexp.MustCompile(`^(EndTransaction|ackThreadPool|litePull|query|timer|putLatency|putMessage(Average|Distribute|Entire|SizeTotal)|getMessageEntire|` +
	`getTransfer|commitLogDiskRatio_|dispatchMaxBuffer|remainTransient|scheduleMessageOffset_|brokerVersion$)`)

// brokerKey leaves the name of a value, and the value where it has to be the same.
func brokerKey(line string) string {
	key, value, _ := strings.Cut(line, ":")
	key = strings.TrimSpace(key)
	if i := strings.IndexByte(key, '/'); i > 0 {
		key = key[:i] + "PATH"
	}
	if key == "brokerActive" || key == "commitLogMinOffset" || key == "dispatchBehindBytes" {
		return key + ":" + value
	}
	return key
}

// A number is an offset, a speed what a link carries in a second.
var (
	number = regexp.MustCompile(`\b\d{3,}\b`)
	speed  = regexp.MustCompile(`\b\d+\.\d\d\b`)
)

// ends replaces offsets in the log: the first is its end, and what is equal to it
// is so, too.
func ends(lines []string) []string {
	text := speed.ReplaceAllString(strings.Join(lines, "\n"), "SPEED")
	end := cmp.Or(number.FindString(text), "none")
	text = number.ReplaceAllStringFunc(text, func(n string) string {
		if n == end {
			return "END"
		}
		return "OTHER"
	})
	return strings.Split(text, "\n")
}

var offsetField = regexp.MustCompile(`^(Queue Offset|CommitLog Offset|Born Timestamp|Store Timestamp|CRC|.*Path|Properties): ?.*`)

// messageField leaves out what differs from run to run.
func messageField(line string) string {
	if m := offsetField.FindStringSubmatch(line); m != nil && m[1] != "Queue Offset" {
		return m[1]
	}
	return line
}
