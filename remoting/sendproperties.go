package remoting

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/haengine/haengine/engine"
)

// Properties that a broker looks at (MessageConst).
const (
	propertyDelay       = "DELAY"
	propertyTransaction = "TRAN_MSG"
	propertyUnique      = "UNIQ_KEY"
	propertyWait        = "WAIT"
	propertyRetryTopic  = "RETRY_TOPIC"
	propertyOriginID    = "ORIGIN_MESSAGE_ID"
	propertyPop         = "POP_CK"
	propertyRealTopic   = "REAL_TOPIC"
	propertyRealQueue   = "REAL_QID"
)

// sendProperties is what a broker has to know of a message's properties.
type sendProperties struct {
	unique      string
	delay       int64  // level; 0 or below: none
	timer       string // the property that asks for a time; "": none
	transaction bool
	innerBatch  bool
	noWait      bool
	pop         bool
}

// parse looks through a properties text once. Nothing is allocated.
func (p *sendProperties) parse(text string) error {
	*p = sendProperties{}
	for len(text) > 0 {
		var name, value string
		name, value, text = engine.NextProperty(text)
		switch name {
		case propertyUnique:
			p.unique = value
		case propertyDelay:
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return fmt.Errorf("property DELAY is %q, want a level", value)
			}
			p.delay = n
		case "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS":
			p.timer = name
		case propertyTransaction:
			p.transaction = strings.EqualFold(value, "true")
		case propertyWait:
			p.noWait = !strings.EqualFold(value, "true")
		case "INNER_NUM":
			p.innerBatch = true
		case propertyPop:
			p.pop = true
		}
	}
	return nil
}

// setProperty gives a properties text with one value of a name, at its end; an
// empty value removes it. What else stands there stays as it is.
func setProperty(text, name, value string) string {
	var b strings.Builder
	b.Grow(len(text) + len(name) + len(value) + 3)
	for len(text) > 0 {
		n, _, rest := engine.NextProperty(text)
		if n != name {
			b.WriteString(text[:len(text)-len(rest)])
		}
		text = rest
	}
	if value == "" {
		return b.String()
	}
	if s := b.String(); s != "" && s[len(s)-1] != 0x02 {
		b.WriteByte(0x02)
	}
	b.WriteString(name)
	b.WriteByte(0x01)
	b.WriteString(value)
	b.WriteByte(0x02)
	return b.String()
}
