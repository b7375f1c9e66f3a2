package main

import (
	"context"
	"io"

	"github.com/haengine/haengine/remoting/client"
	"github.com/spf13/cobra"
)

// groupDeletion is what group delete would do, or did.
type groupDeletion struct {
	Group   string        `json:"group"`
	Members []groupMember `json:"members"`
	Queues  []groupQueue  `json:"queues"`
	Done    bool          `json:"done"`
}

func newGroupDelete() *cobra.Command {
	var (
		flags       clientFlags
		yes, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "delete GROUP",
		Short: "Delete a consumer group and its offsets from all brokers",
		Long: "Says who is in a group and of how many queues it has offsets; with --yes it deletes it, and its\n" +
			"offsets, at the masters of all brokers. While members run, it is refused: they would make the\n" +
			"group again. Its retry topic stays, for haengine topic delete.",
		Example: "  haengine group delete shop\n  haengine group delete shop --yes",
		Args:    oneName("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if client.IsSystemGroup(args[0]) {
				return usagef(cmd, "group %s is the brokers' own", args[0])
			}
			return flags.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				g, err := c.DescribeGroup(ctx, args[0])
				if err != nil {
					return err
				}
				d := describeGroup(g)
				r := groupDeletion{Group: d.Group, Members: d.Members, Queues: d.Queues}
				if yes {
					if err := c.DeleteGroup(ctx, args[0]); err != nil {
						return err
					}
					r.Done = true
				}
				return answer(cmd, asJSON, r, r.print)
			})
		},
	}
	addClientFlags(cmd, &flags)
	addYesFlag(cmd, &yes)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func (r groupDeletion) print(w io.Writer) {
	result := "nothing was changed; --yes deletes it"
	switch {
	case r.Done:
		result = "deleted"
	case len(r.Members) > 0:
		result = "nothing was changed; stop the members first"
	}
	fields(w, "group", r.Group, "members", len(r.Members), "offsets", "of "+plural(int64(len(r.Queues)), "queue"), "result", result)
}
