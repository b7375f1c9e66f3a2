package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/haengine/haengine/remoting"
	"github.com/haengine/haengine/remoting/client"
	"github.com/spf13/cobra"
)

// tailOptions say what tail prints.
type tailOptions struct {
	clientFlags
	topic, from, group, tag, body string
	queue                         int
	limit                         int64
	follow, long, json            bool
	patience                      time.Duration
}

func newTail() *cobra.Command {
	var o tailOptions
	cmd := &cobra.Command{
		Use:   "tail --topic T",
		Short: "Print the messages of a topic, and wait for more with -f",
		Long: "Prints the bodies of a topic's messages, one a line, from all of its queues; what there is\n" +
			"in the order of store time. It ends where the topic ended when it began; with -f it waits for\n" +
			"more, until a signal. A queue's master is read, and while that does not answer a slave\n" +
			"(which has to serve reads: haengine's --slave-reads, RocketMQ's slaveReadEnable).\n\n" +
			"With --group it is a member of a consumer group: the members share the queues, the brokers\n" +
			"keep how far the group is, and the next tail goes on there; --from is then for queues that\n" +
			"the group has no offset of. Without, nothing is kept. A member that joins may print again what\n" +
			"others have printed in the last 5 seconds: that is how often offsets are stored.\n\n" +
			"Bodies that were compressed with ZLIB, as RocketMQ's clients do, are inflated. LZ4 and ZSTD are\n" +
			"not: a line says so in place of the body, and the exit code is 1.",
		Example: "  haengine tail --topic orders\n" +
			"  haengine tail --topic orders -f --from last --long\n" +
			"  haengine tail --topic orders --from 10m --limit 20 --json\n" +
			"  haengine tail --topic orders --queue 0 --from 100\n" +
			"  haengine tail --topic orders --group shop -f",
		Args: topicIsAFlag(&o.topic),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ro, err := o.reader(cmd)
			if err != nil {
				return err
			}
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error { return tail(ctx, cmd, c, o, ro) })
		},
	}
	addClientFlags(cmd, &o.clientFlags)
	f := cmd.Flags()
	f.StringVar(&o.topic, "topic", "", "the `topic`")
	f.StringVar(&o.from, "from", "first", "`where` to begin: first, last, a time (RFC 3339, a day, or 10m for ten minutes ago), or an offset in the queue of --queue")
	f.StringVar(&o.group, "group", "", "be a member of this consumer `group`")
	f.StringVar(&o.tag, "tag", "*", "only messages with one of these `tags`, as \"a || b\"")
	f.IntVar(&o.queue, "queue", -1, "only this `queue` (default: all)")
	f.Int64Var(&o.limit, "limit", 0, "end after so many `messages` (0: do not)")
	f.BoolVarP(&o.follow, "follow", "f", false, "wait for more messages")
	f.BoolVar(&o.long, "long", false, "print where and when a message was stored, its key and its tag, too")
	f.StringVar(&o.body, "body", "text", "`how` to print bodies: text, base64 or none")
	f.DurationVar(&o.patience, "patience", 10*time.Second, "without -f: give up when a queue gives nothing for so long")
	addJSONFlag(cmd, &o.json)
	return cmd
}

// reader makes a reader's options of the flags.
func (o *tailOptions) reader(cmd *cobra.Command) (client.ReaderOptions, error) {
	r := client.ReaderOptions{Topic: o.topic, Tags: o.tag, Group: o.group, Follow: o.follow, Patience: o.patience}
	var wrong []error
	if err := checkTopic(cmd, o.topic); err != nil {
		wrong = append(wrong, fmt.Errorf("--topic: %w", err))
	}
	var err error
	if r.From, err = client.ParsePosition(o.from, time.Now()); err != nil {
		wrong = append(wrong, fmt.Errorf("--from: %w", err))
	} else if r.From.IsOffset() && o.group != "" {
		wrong = append(wrong, fmt.Errorf("--from %s: an offset is of one queue, and a group reads all: haengine group reset sets one of its offsets", o.from))
	} else if r.From.IsOffset() && o.queue < 0 {
		wrong = append(wrong, fmt.Errorf("--from %s is an offset in one queue: name it with --queue", o.from))
	}
	if o.queue < -1 {
		wrong = append(wrong, fmt.Errorf("--queue %d: want a queue's number", o.queue))
	}
	if o.queue >= 0 {
		r.Queues = []int32{int32(o.queue)}
	}
	if o.group != "" {
		if bad := remoting.ValidateGroup(o.group); bad != "" {
			wrong = append(wrong, fmt.Errorf("--group: %s", bad))
		}
		if o.queue >= 0 {
			wrong = append(wrong, errors.New("--queue and --group: the members of a group share the queues by themselves"))
		}
	}
	if o.limit < 0 {
		wrong = append(wrong, errors.New("--limit is 0 or more"))
	}
	switch o.body {
	case "text", "base64", "none":
	default:
		wrong = append(wrong, fmt.Errorf("--body %q is none of text, base64, none", o.body))
	}
	if len(wrong) > 0 {
		return r, usage(cmd, errors.Join(wrong...))
	}
	return r, nil
}

// closeTimeout is how long a group's offsets may take to be stored at the end.
const closeTimeout = 10 * time.Second

func tail(ctx context.Context, cmd *cobra.Command, c *client.Client, o tailOptions, ro client.ReaderOptions) (err error) {
	r, err := c.OpenReader(ctx, ro)
	if err != nil {
		return err
	}
	t := &tailer{tailOptions: o, out: bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10), terminal: isTerminal(cmd.OutOrStdout())}
	err = t.run(ctx, r)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err = errors.Join(err, r.Close(closing))
	if err == nil && t.notDecoded > 0 {
		err = fmt.Errorf("the bodies of %s were not decoded; --json with --body base64 prints them as they are stored", plural(t.notDecoded, "message"))
	}
	return err
}

// messageSource is a client.Reader.
type messageSource interface {
	TryNext() (*client.Received, error)
	Next(ctx context.Context) (*client.Received, error)
	Consumed(m *client.Received)
}

// tailPending is how many messages are printed before they are let go of, if there
// is no pause: they are memory, and a group is told only then that it has them.
const tailPending = 256

// tailPendingBytes is how much their bodies, which may be 64 MiB each, have at most.
const tailPendingBytes = 1 << 20

// tailer prints messages. A group's message counts as consumed when it is printed.
type tailer struct {
	tailOptions
	out                 *bufio.Writer
	terminal            bool
	line                []byte
	printed, notDecoded int64
	pending             []*client.Received // printed into the buffer, not flushed yet
	pendingBytes        int                // of their bodies
}

func (t *tailer) run(ctx context.Context, r messageSource) error {
	for t.limit == 0 || t.printed < t.limit {
		m, err := t.next(ctx, r)
		if errors.Is(err, io.EOF) || ctx.Err() != nil && t.follow {
			break // a signal is how following ends
		}
		if ctx.Err() != nil {
			err = errors.New("interrupted before the end")
		}
		if err != nil {
			return errors.Join(err, t.flush(r))
		}
		t.printed++
		if _, err := t.out.Write(t.format(m)); err != nil {
			return err
		}
		t.pending = append(t.pending, m)
		if t.pendingBytes += len(m.Content); len(t.pending) >= tailPending || t.pendingBytes >= tailPendingBytes {
			if err := t.flush(r); err != nil {
				return err
			}
		}
	}
	return t.flush(r)
}

// next gives the next message. Before it waits, it lets go of what is printed.
func (t *tailer) next(ctx context.Context, r messageSource) (*client.Received, error) {
	if m, err := r.TryNext(); m != nil || err != nil {
		return m, err
	}
	if err := t.flush(r); err != nil {
		return nil, err
	}
	return r.Next(ctx)
}

func (t *tailer) flush(r messageSource) error {
	if err := t.out.Flush(); err != nil {
		return err
	}
	for _, m := range t.pending {
		r.Consumed(m)
	}
	clear(t.pending)
	t.pending, t.pendingBytes = t.pending[:0], 0
	return nil
}

func (t *tailer) format(m *client.Received) []byte {
	t.line = t.line[:0]
	if m.NotDecoded != "" {
		t.notDecoded++
	}
	switch {
	case t.json:
		t.line = t.appendJSON(t.line, m)
	case t.long:
		t.line = t.appendLong(t.line, m)
	default:
		t.line = t.appendBody(t.line, m, t.terminal)
	}
	return append(t.line, '\n')
}

// appendJSON writes the record as log dump does, with the body as it was sent.
func (t *tailer) appendJSON(line []byte, m *client.Received) []byte {
	line = appendRecordJSON(line, &m.Record, "none")
	line = append(line[:len(line)-1], `,"brokerName":`...)
	line = appendJSONString(line, m.Broker)
	switch {
	case t.body == "none":
	case m.NotDecoded != "":
		line = appendJSONString(append(line, `,"notDecoded":`...), m.NotDecoded)
		if t.body == "base64" {
			line = appendJSONString(append(line, `,"body":`...), bodyText(m.Body, t.body))
		}
	default:
		line = appendJSONString(append(line, `,"body":`...), bodyText(m.Content, t.body))
	}
	return append(line, '}')
}

func (t *tailer) appendLong(line []byte, m *client.Received) []byte {
	line = fmt.Appendf(line, "%s  %s  %s/%d@%d", when(m.StoreTimestamp), m.Broker, printable(m.Topic), m.QueueID, m.QueueOffset)
	for _, p := range []struct{ name, property string }{{"keys", "KEYS"}, {"tags", "TAGS"}} {
		if v, ok := m.Property(p.property); ok {
			line = fmt.Appendf(line, "  %s=%s", p.name, printable(v))
		}
	}
	if t.body == "none" {
		return line
	}
	return t.appendBody(append(line, "  "...), m, true)
}

// appendBody writes the body; one that is for people without what would move their
// terminal.
func (t *tailer) appendBody(line []byte, m *client.Received, people bool) []byte {
	switch {
	case t.body == "none":
		return line
	case m.NotDecoded != "":
		return fmt.Appendf(line, "(%s, %s)", plural(int64(len(m.Body)), "byte"), m.NotDecoded)
	case t.body == "base64":
		return base64.StdEncoding.AppendEncode(line, m.Content)
	case people:
		return append(line, printable(string(m.Content))...)
	}
	return append(line, m.Content...)
}
