package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/haengine/haengine/remoting"
	"github.com/haengine/haengine/remoting/client"
	"github.com/spf13/cobra"
)

// clientFlags are those of the verbs that are clients of brokers.
type clientFlags struct {
	nameServers string
	timeout     time.Duration
}

func addClientFlags(cmd *cobra.Command, o *clientFlags) {
	cmd.Flags().StringVar(&o.nameServers, "namesrv", defaultNamesrvListen, "name servers as `HOST:PORT;HOST:PORT`; the first that answers is asked")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 3*time.Second, "to connect, and for an answer that need not wait for messages, replicas or disks")
}

// open makes a client. What it tries again is told on stderr.
func (o *clientFlags) open(cmd *cobra.Command) (*client.Client, error) {
	var addrs []string
	for addr := range strings.SplitSeq(o.nameServers, ";") {
		if addr = strings.TrimSpace(addr); addr == "" {
			continue
		}
		if strings.Contains(addr, ",") {
			return nil, usagef(cmd, "--namesrv: %q: between name servers stands ;", addr)
		}
		host, port, _ := net.SplitHostPort(addr)
		if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
			return nil, usagef(cmd, "--namesrv: %q, want HOST:PORT of a name server", addr)
		}
		addrs = append(addrs, addr)
	}
	if len(addrs) == 0 {
		return nil, usagef(cmd, "--namesrv: want HOST:PORT of a name server")
	}
	if o.timeout <= 0 {
		return nil, usagef(cmd, "--timeout %v: want a time", o.timeout)
	}
	return client.New(client.Options{NameServers: addrs, Timeout: o.timeout, Logger: slog.New(&talk{w: cmd.ErrOrStderr()})})
}

// withClient runs a verb with a client, until a signal.
func (o *clientFlags) withClient(cmd *cobra.Command, do func(ctx context.Context, c *client.Client) error) error {
	c, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	err = do(ctx, c)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	return advise(err)
}

// advise adds what to do to an error that leaves one at a loss.
func advise(err error) error {
	var names *client.NameServerError
	switch {
	case errors.As(err, &names):
		return fmt.Errorf("%w\nStart a node there (haengine serve is a name server, too), or name another one with --namesrv", err)
	case errors.Is(err, client.ErrNoGroup):
		return fmt.Errorf("%w\nhaengine group list shows the groups", err)
	case errors.Is(err, client.ErrNoTopic):
		return fmt.Errorf("%w\nhaengine topic list shows the topics; haengine topic create makes one, and so does the first haengine put", err)
	case errors.Is(err, client.ErrNoMaster):
		return fmt.Errorf("%w\nStart the master again, or make a slave the master: haengine promote --admin HOST:PORT", err)
	}
	return err
}

func checkTopic(cmd *cobra.Command, name string) error {
	if name == "" {
		return usagef(cmd, "the topic is missing")
	}
	if wrong := remoting.ValidateTopic(name); wrong != "" {
		return usagef(cmd, "%s", wrong)
	}
	return nil
}

// topicIsAFlag refuses arguments, and says how a topic is named.
func topicIsAFlag(topic *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && *topic == "" && remoting.ValidateTopic(args[0]) == "" {
			return usagef(cmd, "%q is not expected here; did you mean --topic %s?", args[0], args[0])
		}
		return noArgs(cmd, args)
	}
}

// oneName takes the one argument of a verb.
func oneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef(cmd, "want one %s, as: %s %s", what, cmd.CommandPath(), strings.ToUpper(what))
		}
		wrong := remoting.ValidateTopic(args[0])
		if what == "group" {
			wrong = remoting.ValidateGroup(args[0])
		}
		if wrong != "" {
			return usagef(cmd, "%s", wrong)
		}
		return nil
	}
}

// talk writes log lines as sentences for people who watch a terminal.
type talk struct {
	w     io.Writer
	attrs []slog.Attr
}

func (t *talk) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle writes the message, then what it is about, then the error, which may name
// that already.
func (t *talk) Handle(_ context.Context, r slog.Record) error {
	all := append([]slog.Attr{}, t.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		all = append(all, a)
		return true
	})
	why := ""
	for _, a := range all {
		if a.Key == "error" {
			why = strings.ReplaceAll(a.Value.String(), "\n", "; ")
		}
	}
	var about []string
	for _, a := range all {
		if text := a.Value.String(); a.Key != "error" && !strings.Contains(why, text) {
			about = append(about, strings.ReplaceAll(a.Key, "_", " ")+" "+text)
		}
	}
	line := "haengine: " + r.Message
	if len(about) > 0 {
		line += " (" + strings.Join(about, ", ") + ")"
	}
	if why != "" {
		line += ": " + why
	}
	_, err := fmt.Fprintln(t.w, printable(line))
	return err
}

func (t *talk) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &talk{w: t.w, attrs: append(append([]slog.Attr{}, t.attrs...), attrs...)}
}

func (t *talk) WithGroup(string) slog.Handler { return t }
