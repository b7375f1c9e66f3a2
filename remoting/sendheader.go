package remoting

import (
	"fmt"
	"strconv"
)

// sendHeader is the header of a send in either spelling (SendMessageRequestHeader,
// SendMessageRequestHeaderV2).
type sendHeader struct {
	topic, template, properties string
	templateQueues, queueID     int32
	sysFlag, flag               int32
	reconsumeTimes              int32
	maxReconsumeTimes           int32 // -1: not given
	bornTimestamp               int64 // ms
	unit, batch                 bool
}

// sendField is a field by its letter in V2.
type sendField = byte

// Names of the required fields in both spellings, for errors.
var sendRequired = [...]struct {
	letter sendField
	name   string
}{
	{'a', "producerGroup"}, {'b', "topic"}, {'c', "defaultTopic"}, {'d', "defaultTopicQueueNums"},
	{'e', "queueId"}, {'f', "sysFlag"}, {'g', "bornTimestamp"}, {'h', "flag"},
}

// sendFieldOf gives the letter of a field, and 0 for one that does not matter.
func sendFieldOf(name string) sendField {
	if len(name) == 1 {
		return name[0]
	}
	switch name {
	case "producerGroup":
		return 'a'
	case "topic":
		return 'b'
	case "defaultTopic":
		return 'c'
	case "defaultTopicQueueNums":
		return 'd'
	case "queueId":
		return 'e'
	case "sysFlag":
		return 'f'
	case "bornTimestamp":
		return 'g'
	case "flag":
		return 'h'
	case "properties":
		return 'i'
	case "reconsumeTimes":
		return 'j'
	case "unitMode":
		return 'k'
	case "maxReconsumeTimes":
		return 'l'
	case "batch":
		return 'm'
	}
	return 0
}

// parse reads the header, of which both spellings may be mixed. The last field of
// one name counts. Nothing is allocated unless it fails, with ErrField.
func (h *sendHeader) parse(x Ext) error {
	*h = sendHeader{maxReconsumeTimes: -1}
	seen := uint32(0)
	for i := range x {
		letter := sendFieldOf(x[i].Name)
		if letter < 'a' || letter > 'm' {
			continue
		}
		if !h.set(letter, x[i].Value) {
			return fmt.Errorf("%w: %s is %q, want a number", ErrField, x[i].Name, x[i].Value)
		}
		seen |= 1 << (letter - 'a')
	}
	for i := range sendRequired {
		if f := &sendRequired[i]; seen&(1<<(f.letter-'a')) == 0 {
			return fmt.Errorf("%w: %s (%c) is missing", ErrField, f.name, f.letter)
		}
	}
	return nil
}

// set sets a field; false: it is not a number.
func (h *sendHeader) set(letter sendField, v string) bool {
	switch letter {
	case 'b':
		h.topic = v
	case 'c':
		h.template = v
	case 'd':
		return parseInt32(v, &h.templateQueues)
	case 'e':
		return parseInt32(v, &h.queueID)
	case 'f':
		return parseInt32(v, &h.sysFlag)
	case 'g':
		var err error
		h.bornTimestamp, err = strconv.ParseInt(v, 10, 64)
		return err == nil
	case 'h':
		return parseInt32(v, &h.flag)
	case 'i':
		h.properties = v
	case 'j':
		return v == "" || parseInt32(v, &h.reconsumeTimes)
	case 'k':
		h.unit = Ext{{"", v}}.Bool("")
	case 'l':
		return v == "" || parseInt32(v, &h.maxReconsumeTimes)
	case 'm':
		h.batch = Ext{{"", v}}.Bool("")
	}
	return true
}

func parseInt32(v string, into *int32) bool {
	n, err := strconv.ParseInt(v, 10, 32)
	*into = int32(n)
	return err == nil
}
