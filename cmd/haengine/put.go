package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/haengine/haengine/remoting/client"
	"github.com/spf13/cobra"
)

// putOptions say what put sends.
type putOptions struct {
	clientFlags
	topic, file, key, tag string
	rate                  float64
	count, size           int64
	outstanding, queue    int
	patience              time.Duration
	json, madeUp          bool
}

func newPut() *cobra.Command {
	var o putOptions
	cmd := &cobra.Command{
		Use:   "put --topic T [--file F | -]",
		Short: "Send lines, or messages that are made up, to a topic",
		Long: "Sends each line of the standard input, or of a file, as one message, without the end of the\n" +
			"line. Empty lines are left out, because brokers take no empty messages. With --size, nothing\n" +
			"is read, and messages are made up: their number in decimal, from 0, padded with spaces.\n\n" +
			"Prints at the end how many messages got which status, and how long they took. The exit code\n" +
			"is 0 only if all are SEND_OK, and are as many as --count says. FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and\n" +
			"SLAVE_NOT_AVAILABLE are stored, but not known to be where they should be: sent again, they\n" +
			"are there twice. NO_ANSWER and SYSTEM_ERROR may be stored, and are not sent again. Nothing\n" +
			"else is. A message that is refused for itself is left out. When nobody has taken messages for\n" +
			"--patience, put ends, and says after which line.\n\n" +
			"Each queue has one message on the way, so that messages of one queue are in the order of the\n" +
			"lines. --queue sends to that queue only: with one broker that orders all of them. --outstanding\n" +
			"sends more at once, in no certain order.",
		Example: "  echo hello | haengine put --topic orders\n" +
			"  haengine put --topic orders --file lines.txt --tag paid --key 4711\n" +
			"  haengine put --topic orders --count 10000 --size 200 --rate 1000\n" +
			"  seq 1 100 | haengine put --topic orders --queue 0 --json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "-" && o.file == "" {
				o.file = "-"
				return nil
			}
			return topicIsAFlag(&o.topic)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			o.madeUp = cmd.Flags().Changed("size")
			return o.withClient(cmd, func(ctx context.Context, c *client.Client) error { return put(ctx, cmd, c, o) })
		},
	}
	addClientFlags(cmd, &o.clientFlags)
	f := cmd.Flags()
	f.StringVar(&o.topic, "topic", "", "the `topic`; its first message makes it, where brokers allow that")
	f.StringVar(&o.file, "file", "", "read lines from this `file`; -: the standard input (default)")
	f.StringVar(&o.key, "key", "", "`key` that the messages are found by; several with spaces between")
	f.StringVar(&o.tag, "tag", "", "`tag` that consumers filter by")
	f.Float64Var(&o.rate, "rate", 0, "`messages` a second at most (0: as many as there are answers)")
	f.Int64Var(&o.count, "count", 0, "send so many `messages`; with fewer lines, put fails (0: all lines; made up ones until a signal)")
	f.Var((*byteSize)(&o.size), "size", "read nothing: make messages up, of so many `bytes`")
	f.IntVar(&o.outstanding, "outstanding", 0, "so many `messages` on the way at once, in no certain order (default: one a queue)")
	f.IntVar(&o.queue, "queue", -1, "send to this `queue` only (default: all in turn)")
	f.DurationVar(&o.patience, "patience", 10*time.Second, "how long to try while nobody takes messages, or answers")
	addJSONFlag(cmd, &o.json)
	return cmd
}

func (o *putOptions) check(cmd *cobra.Command) error {
	var wrong []error
	if err := checkTopic(cmd, o.topic); err != nil {
		wrong = append(wrong, fmt.Errorf("--topic: %w", err))
	}
	if o.file != "" && cmd.Flags().Changed("size") {
		wrong = append(wrong, errors.New("--size makes messages up, and --file or - reads them: not both"))
	}
	if o.rate < 0 || o.count < 0 {
		wrong = append(wrong, errors.New("--rate and --count are 0 or more"))
	}
	if o.size == 0 && cmd.Flags().Changed("size") {
		wrong = append(wrong, errors.New("--size 0: brokers take no empty messages"))
	}
	if o.size > lineMax {
		wrong = append(wrong, fmt.Errorf("--size: %s is more than any broker takes", shortBytes(o.size)))
	}
	if o.outstanding < 0 || o.outstanding > outstandingMax {
		wrong = append(wrong, fmt.Errorf("--outstanding %d: want 0 to %d", o.outstanding, outstandingMax))
	}
	if o.queue < -1 {
		wrong = append(wrong, fmt.Errorf("--queue %d: want a queue's number", o.queue))
	}
	for _, f := range []struct{ name, value string }{{"key", o.key}, {"tag", o.tag}} {
		if strings.ContainsAny(f.value, "\x01\x02") {
			wrong = append(wrong, fmt.Errorf("--%s: the bytes 1 and 2 cannot be stored in it", f.name))
		}
	}
	if strings.Contains(o.tag, "||") || strings.TrimSpace(o.tag) != o.tag {
		wrong = append(wrong, fmt.Errorf("--tag %q: a message has one tag, and one with || or spaces around it is never found", o.tag))
	}
	if len(wrong) > 0 {
		return usage(cmd, errors.Join(wrong...))
	}
	return nil
}

// outstandingMax is far above what any broker takes at once from one connection.
const outstandingMax = 65536

// source opens where messages come from.
func (o *putOptions) source(cmd *cobra.Command) (next func() ([]byte, error), closer io.Closer, err error) {
	if o.madeUp {
		n := int64(-1)
		return func() ([]byte, error) { n++; return appendLoadBody(nil, n, int(o.size)), nil }, io.NopCloser(nil), nil
	}
	if o.file == "" || o.file == "-" {
		if f, ok := cmd.InOrStdin().(*os.File); ok && isTerminal(f) {
			fmt.Fprintln(cmd.ErrOrStderr(), "haengine: each line is a message; Ctrl-D ends")
		}
		return newLineReader(cmd.InOrStdin()).next, io.NopCloser(nil), nil
	}
	f, err := os.Open(o.file)
	if err != nil {
		return nil, nil, err
	}
	return newLineReader(f).next, f, nil
}

// settleTimeout bounds the wait at the end until consumers can see what was stored.
const settleTimeout = 2 * time.Second

func put(ctx context.Context, cmd *cobra.Command, c *client.Client, o putOptions) error {
	next, closer, err := o.source(cmd)
	if err != nil {
		return err
	}
	defer closer.Close()
	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	po := client.ProducerOptions{Group: "haengine-put", Outstanding: o.outstanding, Patience: o.patience}
	if o.queue >= 0 {
		po.Queues = []int32{int32(o.queue)}
	}
	p, err := c.NewProducer(ctx, o.topic, po)
	if err != nil {
		return err
	}
	w := newPutter(o, stop)
	err = w.feed(sending, p, next)
	p.Wait() // for what is on the way
	visible, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	_ = p.Settle(visible) // so that who reads next finds it; that it is stored is certain either way
	cancel()
	p.Close()
	if ctx.Err() != nil {
		w.interrupted()
	}
	s := w.summary()
	if s.Messages > 0 || err == nil {
		if err := answer(cmd, o.json, s, s.print); err != nil {
			return err
		}
	}
	return w.verdict(s, err)
}

// feed sends until there is no more to send, a signal comes, or nobody takes it.
// What was read when it ends and not sent is not counted.
func (w *putter) feed(ctx context.Context, p *client.Producer, next func() ([]byte, error)) error {
	lines := readAhead(ctx, next)
	pace := time.Duration(0)
	if w.o.rate > 0 {
		pace = time.Duration(float64(time.Second) / w.o.rate)
	}
	due := time.Now()
	for n := int64(0); w.o.count == 0 || n < w.o.count; n++ {
		if pace > 0 {
			if !pauseUntil(ctx, due) {
				return nil
			}
			due = nextDue(due, pace, time.Now())
		}
		var line sourceLine
		select {
		case line = <-lines:
		case <-ctx.Done():
			return nil
		}
		if errors.Is(line.err, io.EOF) {
			w.end = endOfInput
			return nil
		}
		if line.err != nil {
			return line.err
		}
		if len(line.body) == 0 {
			w.empty++
			n--
			continue
		}
		m := &client.Message{Body: line.body, Keys: w.o.key, Tags: w.o.tag}
		number := n + 1 + w.empty // of the line
		w.begin()
		if err := p.Start(ctx, m, func(s client.Sent, err error) { w.done(number, len(line.body), s, err) }); err != nil {
			return nil // a signal, or nobody takes it: said elsewhere
		}
		w.last = number
	}
	w.end = endOfCount
	return nil
}

// nextDue is when the message after the one that was due is sent. What a pause of the
// broker's has held up is not made up for: the rate is the most that is sent. That
// timers are late is.
func nextDue(due time.Time, pace time.Duration, now time.Time) time.Time {
	const late = 200 * time.Millisecond
	if next := due.Add(pace); next.After(now.Add(-late)) {
		return next
	}
	return now.Add(pace)
}

func pauseUntil(ctx context.Context, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
