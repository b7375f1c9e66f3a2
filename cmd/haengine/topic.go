package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/haengine/haengine/remoting"
	"github.com/haengine/haengine/remoting/client"
	"github.com/spf13/cobra"
)

func newTopic() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topic",
		Short: "List, make, delete and describe topics",
		Example: "  haengine topic list\n" +
			"  haengine topic create orders --queues 8\n" +
			"  haengine topic describe orders",
	}
	asGroup(cmd)
	cmd.AddCommand(newTopicList(), newTopicCreate(), newTopicDelete(), newTopicDescribe())
	return cmd
}

// ownTopic tells the topics that people have made from those that brokers and
// groups have of themselves.
func ownTopic(name string, brokers []client.Broker) bool {
	if remoting.IsSystemTopic(name) || strings.HasPrefix(strings.ToLower(name), "rmq_sys_") || strings.HasPrefix(name, remoting.RetryPrefix) || strings.HasPrefix(name, remoting.DLQPrefix) ||
		strings.HasSuffix(name, "_REPLY_TOPIC") {
		return false
	}
	for i := range brokers {
		if name == brokers[i].Name || name == brokers[i].Cluster {
			return false
		}
	}
	return true
}

func newTopicList() *cobra.Command {
	var (
		flags       clientFlags
		all, asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Print the names of topics",
		Long:    "Prints the topics that the name server knows, without those that brokers and groups have of\nthemselves (retry and dead-letter topics among them), which --all prints, too.",
		Example: "  haengine topic list\n  haengine topic list --all --namesrv 127.0.0.1:9876 --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				names, err := c.Topics(ctx)
				if err != nil {
					return err
				}
				var brokers []client.Broker
				if !all {
					if brokers, err = c.Brokers(ctx); err != nil {
						return err
					}
				}
				return printNames(cmd, asJSON, "topic", names, func(name string) bool { return all || ownTopic(name, brokers) })
			})
		},
	}
	addClientFlags(cmd, &flags)
	cmd.Flags().BoolVar(&all, "all", false, "brokers' and groups' own topics, too")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// printNames prints those names that are wanted, one a line.
func printNames(cmd *cobra.Command, asJSON bool, field string, names []string, wanted func(string) bool) error {
	for _, name := range names {
		if !wanted(name) {
			continue
		}
		err := answer(cmd, asJSON, map[string]string{field: name}, func(w io.Writer) { fmt.Fprintln(w, printable(name)) })
		if err != nil {
			return err
		}
	}
	return nil
}

func newTopicCreate() *cobra.Command {
	var (
		flags  clientFlags
		queues int
		perm   string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "create TOPIC",
		Short: "Make a topic at the masters of all brokers",
		Long: "Makes a topic at the masters of all brokers that the name server knows. If it is there already\n" +
			"with the same settings, nothing is done; with others, nothing is changed, and the exit code is 1.",
		Example: "  haengine topic create orders\n  haengine topic create orders --queues 8 --json",
		Args:    oneName("topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			bits, ok := map[string]int32{"rw": remoting.PermRead | remoting.PermWrite, "r": remoting.PermRead, "w": remoting.PermWrite}[perm]
			if !ok {
				return usagef(cmd, "--perm %q is none of rw, r, w", perm)
			}
			if queues < 1 || queues > 1024 {
				return usagef(cmd, "--queues %d: want 1 to 1024", queues)
			}
			return flags.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				settings := client.TopicSettings{ReadQueues: int32(queues), WriteQueues: int32(queues), Perm: bits}
				created, err := c.CreateTopic(ctx, args[0], settings)
				if err != nil {
					return err
				}
				result := struct {
					Topic   string   `json:"topic"`
					Queues  int      `json:"queues"`
					Created []string `json:"created_at"`
				}{args[0], queues, append([]string{}, created...)}
				return answer(cmd, asJSON, result, func(w io.Writer) {
					if len(created) == 0 {
						fmt.Fprintf(w, "topic %s is there already, with %s\n", args[0], plural(int64(queues), "queue"))
						return
					}
					fmt.Fprintf(w, "topic %s made at %s, with %s\n", args[0], strings.Join(created, ", "), plural(int64(queues), "queue"))
				})
			})
		},
	}
	addClientFlags(cmd, &flags)
	cmd.Flags().IntVar(&queues, "queues", 4, "how many `queues` it has at each broker")
	cmd.Flags().StringVar(&perm, "perm", "rw", "`what` is allowed: rw, r or w")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// topicDeletion is what topic delete would do, or did.
type topicDeletion struct {
	Topic    string   `json:"topic"`
	Messages int64    `json:"messages"`
	Brokers  []string `json:"brokers"`
	Groups   []string `json:"groups"`
	Done     bool     `json:"done"`
}

func newTopicDelete() *cobra.Command {
	var (
		flags       clientFlags
		yes, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "delete TOPIC",
		Short: "Delete a topic from all brokers and name servers",
		Long: "Says how many messages and which groups a topic has; with --yes it deletes it at the masters of\n" +
			"all brokers and at all name servers of --namesrv: it cannot be sent to or read any more, and the\n" +
			"groups' offsets are forgotten. A haengine broker keeps its messages in the log for as long as\n" +
			"it keeps the log: a topic that is made again under that name has them again.",
		Example: "  haengine topic delete orders\n  haengine topic delete orders --yes",
		Args:    oneName("topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if remoting.IsSystemTopic(args[0]) {
				return usagef(cmd, "topic %s is the brokers' own", args[0])
			}
			return flags.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				d := topicDeletion{Topic: args[0], Brokers: []string{}, Groups: []string{}}
				brokers, err := c.DescribeTopic(ctx, args[0])
				if err != nil {
					return err
				}
				for i := range brokers {
					d.Brokers = append(d.Brokers, brokers[i].Broker.Name)
					d.Messages += brokers[i].Messages()
				}
				groups, err := c.TopicGroups(ctx, args[0], brokers)
				if err != nil {
					return err
				}
				d.Groups = append(d.Groups, groups...)
				if yes {
					if err := c.DeleteTopic(ctx, args[0]); err != nil {
						return err
					}
					d.Done = true
				}
				return answer(cmd, asJSON, d, d.print)
			})
		},
	}
	addClientFlags(cmd, &flags)
	addYesFlag(cmd, &yes)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func (d topicDeletion) print(w io.Writer) {
	result := "nothing was changed; --yes deletes it"
	if d.Done {
		result = "deleted"
	}
	fields(w, "topic", d.Topic, "brokers", strings.Join(d.Brokers, ", "), "messages", count(d.Messages), "groups", orNone(d.Groups), "result", result)
}

// topicDescription is the answer of topic describe.
type topicDescription struct {
	Topic    string        `json:"topic"`
	Messages int64         `json:"messages"`
	Brokers  []topicBroker `json:"brokers"`
	Groups   []string      `json:"groups"`
}

type topicBroker struct {
	Broker      string           `json:"broker"`
	Cluster     string           `json:"cluster"`
	Nodes       map[int64]string `json:"nodes"` // by broker id; 0 is the master
	ReadQueues  int32            `json:"read_queues"`
	WriteQueues int32            `json:"write_queues"`
	Perm        string           `json:"perm"`
	Queues      []topicQueue     `json:"queues"`
}

type topicQueue struct {
	Queue     int32 `json:"queue"`
	MinOffset int64 `json:"min_offset"`
	MaxOffset int64 `json:"max_offset"`
	Last      int64 `json:"last_store_timestamp_ms"`
}

func newTopicDescribe() *cobra.Command {
	var (
		flags  clientFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "describe TOPIC",
		Short:   "Show where a topic is, its queues, and who reads it",
		Example: "  haengine topic describe orders\n  haengine topic describe orders --json",
		Args:    oneName("topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				d := topicDescription{Topic: args[0], Brokers: []topicBroker{}, Groups: []string{}}
				brokers, err := c.DescribeTopic(ctx, args[0])
				if err != nil {
					return err
				}
				for i := range brokers {
					d.add(&brokers[i])
				}
				groups, err := c.TopicGroups(ctx, args[0], brokers)
				if err != nil {
					return err
				}
				d.Groups = append(d.Groups, groups...)
				return answer(cmd, asJSON, d, d.print)
			})
		},
	}
	addClientFlags(cmd, &flags)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func (d *topicDescription) add(t *client.TopicState) {
	b := topicBroker{
		Broker: t.Broker.Name, Cluster: t.Broker.Cluster, Nodes: t.Broker.Nodes, ReadQueues: t.Settings.ReadQueues,
		WriteQueues: t.Settings.WriteQueues, Perm: client.PermText(t.Settings.Perm), Queues: []topicQueue{},
	}
	for _, q := range t.Queues {
		b.Queues = append(b.Queues, topicQueue{q.Queue.QueueID, q.MinOffset, q.MaxOffset, q.LastStored})
	}
	d.Messages += t.Messages()
	d.Brokers = append(d.Brokers, b)
}

func (d *topicDescription) print(w io.Writer) {
	fields(w, "topic", d.Topic, "messages", count(d.Messages), "groups", orNone(d.Groups))
	for i := range d.Brokers {
		b := &d.Brokers[i]
		nodes := client.Broker{Name: b.Broker, Nodes: b.Nodes}
		fmt.Fprintf(w, "\nbroker %s, %s to read, %d to write, perm %s\n", nodes.String(), plural(int64(b.ReadQueues), "queue"), b.WriteQueues, b.Perm)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "QUEUE\tFROM\tTO\tLAST MESSAGE")
		for _, q := range b.Queues {
			fmt.Fprintf(tw, "%d\t%d\t%d\t%s\n", q.Queue, q.MinOffset, q.MaxOffset, when(q.Last))
		}
		tw.Flush()
	}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
