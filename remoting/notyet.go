package remoting

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/haengine/haengine/engine"
)

// What a broker is asked for that this one does not do. The codes and the first
// words are those of RocketMQ's broker where that is not switched on, so that
// clients and slaves behave as they do there.

const (
	indexAbsent = " request type 12 not supported: this broker keeps no index of keys; " +
		"look for a message by its offset message id, or read its queue from a time on"
	transactionsAbsent = " request type 37 not supported: this broker takes no transaction messages"
	timersAbsent       = "The checkpoint is null: this broker delivers no message at a set time; timerWheelEnable=false on its slaves spares them this question"
	timerCountsAbsent  = "The timer message store is null: this broker delivers no message at a set time"
)

// absent answers QUERY_MESSAGE, END_TRANSACTION, GET_TIMER_CHECK_POINT and
// GET_TIMER_METRICS. A checkpoint of zeros for the last but one would be no kinder:
// RocketMQ's slave takes it over, and loses where its own timers were.
func absent(r *Request) {
	switch r.Code {
	case CodeQueryMessage:
		r.ReplyCode(RequestCodeNotSupported, indexAbsent)
	case CodeEndTransaction:
		r.ReplyCode(RequestCodeNotSupported, transactionsAbsent)
	case CodeGetTimerCheckpoint:
		r.ReplyCode(SystemError, timersAbsent)
	default:
		r.ReplyCode(SystemError, timerCountsAbsent)
	}
}

// requestModes answers GET_ALL_MESSAGE_REQUEST_MODE: no group is said to pop.
func requestModes(r *Request) { r.Reply(&Command{Body: []byte(`{"messageRequestModeMap":{}}`)}) }

// checkConfig answers CHECK_CLIENT_CONFIG, which consumers send before they start
// if their filter is no tag (ClientManageProcessor.checkClientConfig).
func checkConfig(r *Request) {
	var body struct {
		Subscription *struct {
			Type string `json:"expressionType"`
		} `json:"subscriptionData"`
	}
	if len(r.Body) > smallBodyMax {
		r.ReplyCode(SystemError, "a body of %d bytes, at most %d are read", len(r.Body), smallBodyMax)
		return
	}
	if err := json.Unmarshal(quoteKeys(r.Body), &body); err != nil {
		r.ReplyCode(SystemError, "the body of a check of a client: %v", err)
		return
	}
	if s := body.Subscription; s != nil && s.Type != "" && s.Type != tagFilter {
		r.ReplyCode(SystemError, "%v", noFilter(s.Type))
		return
	}
	r.Reply(&Command{})
}

// smallBodyMax is the longest body that is read on an event loop where a client
// has little to say.
const smallBodyMax = 1 << 20

// delayOffsets answers GET_ALL_DELAY_OFFSET. This broker delays nothing; but a store
// that RocketMQ's wrote has them, and a slave of RocketMQ's that was told that there
// are none would deliver all delayed messages of the log again once it is a master.
func (a *admin) delayOffsets(r *Request) {
	path := filepath.Join(a.b.o.Store, "config", "delayOffset.json")
	a.b.pulls.later(r, func() {
		text, err := engine.OSDisk().ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0:
			r.Reply(&Command{Body: append(DataVersion{Timestamp: a.began.UnixMilli()}.AppendJSON([]byte(`{"dataVersion":`)), `,"offsetTable":{}}`...)})
		case err != nil:
			r.ReplyCode(SystemError, "No delay offset in this broker: %v", err)
		default:
			r.Reply(&Command{Body: text})
		}
	})
}
