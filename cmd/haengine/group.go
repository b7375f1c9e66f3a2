package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/haengine/haengine/remoting"
	"github.com/haengine/haengine/remoting/client"
	"github.com/spf13/cobra"
)

func newGroup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group",
		Short: "List, describe, reset and delete consumer groups",
		Example: "  haengine group list\n" +
			"  haengine group describe shop\n" +
			"  haengine group reset shop --topic orders --to first",
	}
	asGroup(cmd)
	cmd.AddCommand(newGroupList(), newGroupDescribe(), newGroupReset(), newGroupDelete())
	return cmd
}

func newGroupList() *cobra.Command {
	var (
		flags       clientFlags
		all, asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Print the names of consumer groups",
		Long:    "Prints the consumer groups that brokers know, without their own, which --all prints, too.",
		Example: "  haengine group list\n  haengine group list --all --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				names, err := c.Groups(ctx)
				if err != nil {
					return err
				}
				return printNames(cmd, asJSON, "group", names, func(name string) bool { return all || !client.IsSystemGroup(name) })
			})
		},
	}
	addClientFlags(cmd, &flags)
	cmd.Flags().BoolVar(&all, "all", false, "brokers' own groups, too")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// groupDescription is the answer of group describe.
type groupDescription struct {
	Group   string        `json:"group"`
	Lag     int64         `json:"lag"`
	Model   string        `json:"message_model"`
	Topics  []string      `json:"topics"`
	Members []groupMember `json:"members"`
	Queues  []groupQueue  `json:"queues"`
}

type groupMember struct {
	ClientID string `json:"client_id"`
	Address  string `json:"address"`
	Language string `json:"language"`
}

type groupQueue struct {
	Topic     string `json:"topic"`
	Broker    string `json:"broker"`
	Queue     int32  `json:"queue"`
	Offset    int64  `json:"offset"`
	MaxOffset int64  `json:"max_offset"`
	Lag       int64  `json:"lag"`
	Last      int64  `json:"last_store_timestamp_ms"`
}

func newGroupDescribe() *cobra.Command {
	var (
		flags  clientFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "describe GROUP",
		Short:   "Show how far a group is in each queue, and who is in it",
		Example: "  haengine group describe shop\n  haengine group describe shop --json",
		Args:    oneName("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				g, err := c.DescribeGroup(ctx, args[0])
				if err != nil {
					return err
				}
				d := describeGroup(g)
				return answer(cmd, asJSON, d, d.print)
			})
		},
	}
	addClientFlags(cmd, &flags)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func describeGroup(g *client.GroupState) groupDescription {
	d := groupDescription{Group: g.Group, Model: g.Model, Topics: append([]string{}, g.Topics...), Members: []groupMember{}, Queues: []groupQueue{}}
	for _, m := range g.Members {
		d.Members = append(d.Members, groupMember{m.ClientID, m.Address, m.Language})
	}
	for i := range g.Queues {
		q := &g.Queues[i]
		d.Lag += q.Lag()
		d.Queues = append(d.Queues, groupQueue{q.Queue.Topic, q.Queue.BrokerName, q.Queue.QueueID, q.Offset, q.End, q.Lag(), q.LastStored})
	}
	return d
}

func (d groupDescription) print(w io.Writer) {
	online := "nobody is there"
	if len(d.Members) > 0 {
		online = plural(int64(len(d.Members)), "member") + ", " + strings.ToLower(d.Model)
	}
	lag := plural(d.Lag, "message")
	if len(d.Queues) == 0 {
		lag = "not known: the group has no offset yet"
	}
	fields(w, "group", d.Group, "lag", lag, "members", online)
	for _, m := range d.Members {
		fmt.Fprintf(w, "  %s  %s  %s\n", printable(m.ClientID), m.Address, printable(m.Language))
	}
	if len(d.Queues) == 0 {
		return
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TOPIC\tBROKER\tQUEUE\tOFFSET\tEND\tLAG\tLAST CONSUMED")
	for _, q := range d.Queues {
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%d\t%d\t%s\n", printable(q.Topic), printable(q.Broker), q.Queue, q.Offset, q.MaxOffset, q.Lag, when(q.Last))
	}
	tw.Flush()
}

// groupReset is what group reset would do, or did.
type groupReset struct {
	Group   string        `json:"group"`
	Topic   string        `json:"topic"`
	To      string        `json:"to"`
	Members []groupMember `json:"members"`
	Queues  []resetQueue  `json:"queues"`
	Done    bool          `json:"done"`
}

type resetQueue struct {
	Broker string `json:"broker"`
	Queue  int32  `json:"queue"`
	From   *int64 `json:"from_offset"` // null: the group has none
	To     int64  `json:"to_offset"`
}

func newGroupReset() *cobra.Command {
	var (
		flags       clientFlags
		topic, to   string
		queue       int
		yes, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "reset GROUP --topic T --to WHERE",
		Short: "Have a group go on elsewhere in a topic",
		Long: "Says where a group is and where it would go on; with --yes it does that. Members that run are\n" +
			"told, and go there within 20 seconds; without any, the brokers' offsets are set. Where members\n" +
			"run, WHERE is for all queues and no offset.",
		Example: "  haengine group reset shop --topic orders --to first\n" +
			"  haengine group reset shop --topic orders --to 30m --yes\n" +
			"  haengine group reset shop --topic orders --queue 2 --to 100 --yes",
		Args: oneName("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			position, err := checkReset(topic, to, queue)
			if err != nil {
				return usage(cmd, err)
			}
			return flags.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				p, err := c.PlanReset(ctx, args[0], topic, position, queue)
				if err != nil {
					return err
				}
				if err := groupKnown(ctx, c, args[0]); err != nil {
					return err
				}
				r := describeReset(p, to)
				if yes {
					if err := c.Reset(ctx, p); err != nil {
						return err
					}
					r.Done = true
				}
				return answer(cmd, asJSON, r, r.print)
			})
		},
	}
	addClientFlags(cmd, &flags)
	f := cmd.Flags()
	f.StringVar(&topic, "topic", "", "the `topic`")
	f.StringVar(&to, "to", "", "`where` to go on: first, last, a time (RFC 3339, a day, or 10m for ten minutes ago), or an offset in the queue of --queue")
	f.IntVar(&queue, "queue", -1, "only this `queue` (default: all)")
	addYesFlag(cmd, &yes)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func checkReset(topic, to string, queue int) (client.Position, error) {
	var wrong []error
	if topic == "" {
		wrong = append(wrong, errors.New("--topic: the topic is missing"))
	} else if bad := remoting.ValidateTopic(topic); bad != "" {
		wrong = append(wrong, fmt.Errorf("--topic: %s", bad))
	}
	if to == "" {
		wrong = append(wrong, errors.New("--to: say where to go on, as first"))
		return client.Position{}, errors.Join(wrong...)
	}
	position, err := client.ParsePosition(to, time.Now())
	if err != nil {
		wrong = append(wrong, fmt.Errorf("--to: %w", err))
	} else if position.IsOffset() && queue < 0 {
		wrong = append(wrong, fmt.Errorf("--to %s is an offset in one queue: name it with --queue", to))
	}
	if queue < -1 {
		wrong = append(wrong, fmt.Errorf("--queue %d: want a queue's number", queue))
	}
	return position, errors.Join(wrong...)
}

// groupKnown keeps a mistyped name from becoming a group.
func groupKnown(ctx context.Context, c *client.Client, group string) error {
	names, err := c.Groups(ctx)
	if err == nil && !slices.Contains(names, group) {
		err = fmt.Errorf("group %s: %w", group, client.ErrNoGroup)
	}
	return err
}

func describeReset(p *client.ResetPlan, to string) groupReset {
	r := groupReset{Group: p.Group, Topic: p.Topic, To: to, Members: []groupMember{}, Queues: []resetQueue{}}
	for _, m := range p.Members {
		r.Members = append(r.Members, groupMember{m.ClientID, m.Address, m.Language})
	}
	for i := range p.Queues {
		q := &p.Queues[i]
		line := resetQueue{Broker: q.Queue.BrokerName, Queue: q.Queue.QueueID, To: q.To}
		if q.From >= 0 {
			line.From = &q.From
		}
		r.Queues = append(r.Queues, line)
	}
	return r
}

func (r groupReset) print(w io.Writer) {
	members, how := "nobody is there", "sets the brokers' offsets"
	if n := len(r.Members); n > 0 {
		members, how = plural(int64(n), "member"), "tells the members to go there"
	}
	result := "nothing was changed; --yes " + how
	if r.Done {
		result = "done"
		if len(r.Members) > 0 {
			result = "done; the members go there within 20 seconds"
		}
	}
	fields(w, "group", r.Group, "topic", r.Topic, "to", r.To, "members", members, "result", result)
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "BROKER\tQUEUE\tFROM\tTO")
	for _, q := range r.Queues {
		from := "-"
		if q.From != nil {
			from = fmt.Sprint(*q.From)
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t%d\n", printable(q.Broker), q.Queue, from, q.To)
	}
	tw.Flush()
}
