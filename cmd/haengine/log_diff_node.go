package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

// isNode tells whether a name is a running node's HOST:PORT. A directory of that
// name comes first.
func isNode(name string) bool {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return false
	}
	_, port, err := net.SplitHostPort(name)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// diffNode compares a store with a running node, which gives checksums of its
// log.
func diffNode(cmd *cobra.Command, store, address string, secret []byte) (logDiff, error) {
	l, err := openStore(cmd, store)
	if err != nil {
		return logDiff{}, err
	}
	defer l.Close()
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	c, err := compareNode(ctx, cmd, l, address, secret, l.EndOffset())
	if err != nil {
		return logDiff{}, err
	}
	d := logDiff{
		Store: diffSide{store, l.MinOffset(), l.EndOffset()},
		With:  diffSide{address, c.Node.MinOffset, c.Node.MaxOffset},
		From:  c.From, To: c.To, Equal: c.Equal(),
		Notes: append(damageNotes(l), nodeNotes(store, address, c.Node)...),
	}
	if c.Differs < 0 {
		return d, nil
	}
	var b [1]byte
	if err := readFull(l, b[:], c.Differs); err != nil {
		return d, err
	}
	d.Differs, d.StoreItem = &c.Differs, itemAt(l, c.Differs, b[0])
	return d, nil
}

// compareNode compares a log with a node's up to an offset, and shows how far it
// is.
func compareNode(ctx context.Context, cmd *cobra.Command, l *commitlog.Log, address string, secret []byte, to int64) (engine.Comparison, error) {
	var show *progress
	c, err := engine.Compare(ctx, address, l, engine.CompareOptions{To: to, Secret: secret, Progress: func(c engine.Comparison) {
		if show == nil {
			show = newProgress(cmd.ErrOrStderr(), "comparing", c.To-c.From)
		}
		show.chunk(c.Compared)
	}})
	if show != nil {
		show.done()
	}
	return c, err
}

// nodeNotes says what is remarkable about comparing a store with a node.
func nodeNotes(store, address string, node engine.NodeInfo) []string {
	own, err := engine.ReadIdentity(store)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("whose store this is cannot be told: %v", err)}
	case own.ReplicaID == node.ReplicaID:
		return []string{fmt.Sprintf("%s is the node of %s itself, or a copy of it: both have the replica id %s", address, store, own.ReplicaID)}
	case own.ClusterID != "" && node.ClusterID != "" && own.ClusterID != node.ClusterID:
		return []string{fmt.Sprintf("%s belongs to cluster %q, %s to %q: neither is to follow the other", address, node.ClusterID, store, own.ClusterID)}
	}
	return nil
}
