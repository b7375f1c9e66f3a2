package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

// reseed is what haengine reseed would do, or did.
type reseed struct {
	Store     string   `json:"store"`
	MinOffset *int64   `json:"min_offset"` // null: the log cannot be opened
	MaxOffset *int64   `json:"max_offset"`
	With      diffSide `json:"with"`
	ClusterID string   `json:"cluster_id"`
	ReplicaID string   `json:"replica_id"`
	Moved     []string `json:"moved"` // names below the store
	Files     int      `json:"files"`
	Bytes     int64    `json:"bytes"`
	Done      bool     `json:"done"`
	Kept      string   `json:"kept_in,omitempty"`
	Next      string   `json:"next"` // the command that follows
	Notes     []string `json:"notes"`
}

// errNoStore means that there is nothing to set aside.
var errNoStore = errors.New("there is no log to set aside; start the node as a slave")

func newReseed() *cobra.Command {
	var (
		store, from string
		yes, asJSON bool
		secret      *secretFlag
	)
	cmd := &cobra.Command{
		Use:   "reseed",
		Short: "Set a stopped store's log aside, to copy a node's anew",
		Long: "Moves the log of a stopped node's store, with its queues and epochs, into cut/ below\n" +
			"the store, so that the node copies its master's log from the first byte when it is\n" +
			"started. Who the store is stays: its replica and cluster id. Nothing is deleted.\n" +
			"Without --yes it only says what it would do.\n\n" +
			"The node where replicas connect at HOST:PORT has to answer first, and to hold a log of\n" +
			"the same cluster.",
		Example: "  haengine reseed --store ./b --from 127.0.0.1:10912\n  haengine reseed --store ./b --from 127.0.0.1:10912 --yes",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				return usagef(cmd, "--from HOST:PORT is missing: the node whose log is to be copied")
			}
			known, err := secret.read()
			if err != nil {
				return err
			}
			r, err := planReseed(cmd, store, from, known)
			r.Next = serveCommand(store, from, secret.path)
			if err == nil && yes {
				r.Kept, err = commitlog.SetAside(writeOptions(cmd, store))
				r.Done = err == nil
			}
			if err != nil {
				return err
			}
			return answer(cmd, asJSON, r, r.print)
		},
	}
	addStoreFlag(cmd, &store)
	cmd.Flags().StringVar(&from, "from", "", "HOST:PORT of the running node whose log is to be copied")
	secret = addSecretFlag(cmd)
	addYesFlag(cmd, &yes)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func planReseed(cmd *cobra.Command, store, from string, secret []byte) (reseed, error) {
	r := reseed{Store: store, Notes: []string{}}
	o := writeOptions(cmd, store)
	if err := commitlog.CheckFree(o); err != nil {
		return r, err
	}
	own, err := engine.ReadIdentity(store)
	if err != nil {
		return r, err
	}
	r.ClusterID, r.ReplicaID = own.ClusterID, own.ReplicaID
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	node, err := engine.AskNode(ctx, from, secret)
	if err != nil {
		return r, err
	}
	if err := node.Follows(own); err != nil {
		return r, fmt.Errorf("%s: %w", from, err)
	}
	r.With = diffSide{from, node.MinOffset, node.MaxOffset}
	p, err := commitlog.PlanAside(o)
	if errors.Is(err, commitlog.ErrHalfAside) {
		r.Notes = append(r.Notes, err.Error())
	} else if err != nil {
		return r, err
	} else if len(p.Names) == 0 {
		return r, fmt.Errorf("%s: %w", store, errNoStore)
	}
	r.Moved, r.Files, r.Bytes = append([]string{}, p.Names...), p.Files, p.Bytes
	if l, err := openStore(cmd, store); err == nil {
		low, end := l.MinOffset(), l.EndOffset()
		r.MinOffset, r.MaxOffset = &low, &end
		if epoch, theirs := engine.LastWritten(l), node.Epoch(); epoch > theirs {
			return r, errors.Join(fmt.Errorf("%s is in epoch %d, the store's log in epoch %d: it is an older master, and what it lacks would be given up; start this store as the master, or move it away by hand", from, theirs, epoch), l.Close())
		}
		if known := l.Confirmed(); known > node.MaxOffset {
			r.Notes = append(r.Notes, fmt.Sprintf("puts up to offset %d are known to be complete on replicas, and the node's log ends at %d", known, node.MaxOffset))
		}
		if end > node.MaxOffset {
			r.Notes = append(r.Notes, fmt.Sprintf("the node's log ends at %d, this one at %d: what the node does not have is only in cut/ then", node.MaxOffset, end))
		}
		err = l.Close()
		return r, err
	} else if !errors.Is(err, commitlog.ErrHalfAside) {
		r.Notes = append(r.Notes, fmt.Sprintf("the log cannot be opened: %v", err))
	}
	return r, nil
}

func (r reseed) print(w io.Writer) {
	pairs := []any{"store", r.Store}
	if r.MinOffset != nil {
		pairs = append(pairs, "range", fmt.Sprintf("%s to %s", count(*r.MinOffset), count(*r.MaxOffset)))
	}
	pairs = append(pairs,
		"node", fmt.Sprintf("%s, %s to %s", r.With.Path, count(r.With.MinOffset), count(r.With.MaxOffset)),
		"stays", fmt.Sprintf("replica id %s, cluster id %q", r.ReplicaID, r.ClusterID),
		"moves", fmt.Sprintf("%s (%s, %s)", strings.Join(r.Moved, ", "), plural(int64(r.Files), "file"), shortBytes(r.Bytes)))
	if r.Done {
		pairs = append(pairs, "result", "done; the old log is in "+r.Kept)
	} else {
		pairs = append(pairs, "result", "nothing was changed; --yes moves it into "+filepath.Join(r.Store, "cut"))
	}
	fields(w, pairs...)
	printNotes(w, r.Notes)
	if r.Done {
		fmt.Fprintln(w, "next:", r.Next)
	}
}
