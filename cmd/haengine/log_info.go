package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/haengine/haengine/commitlog"
	"github.com/spf13/cobra"
)

type logInfo struct {
	Store         string         `json:"store"`
	MinOffset     int64          `json:"min_offset"`
	MaxOffset     int64          `json:"max_offset"`
	SegmentBytes  int64          `json:"segment_bytes"`
	Segments      int            `json:"segments"`
	Messages      int64          `json:"messages"`
	CleanShutdown bool           `json:"clean_shutdown"`
	Checkpoint    checkpointInfo `json:"checkpoint"`
	SHA256        string         `json:"sha256,omitempty"` // of [min_offset, max_offset)
	Notes         []string       `json:"notes"`            // damage that makes a node read-only
}

// checkpointInfo is RocketMQ's checkpoint file. Zeros mean that it is missing
// or was never written to.
type checkpointInfo struct {
	PhysicTimestamp     int64 `json:"physic_timestamp_ms"`
	LogicsTimestamp     int64 `json:"logics_timestamp_ms"`
	IndexTimestamp      int64 `json:"index_timestamp_ms"`
	MasterFlushedOffset int64 `json:"master_flushed_offset"`
	ConfirmOffset       int64 `json:"confirm_offset"`
	LogicsOffset        int64 `json:"logics_offset"`
}

func newLogInfo() *cobra.Command {
	var (
		store        string
		asJSON, hash bool
	)
	cmd := &cobra.Command{
		Use:     "info",
		Short:   "Print a store's range, counts and shutdown state",
		Example: "  haengine log info --store ./a\n  haengine log info --store ./a --sha256 --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := openStore(cmd, store)
			if err != nil {
				return err
			}
			defer l.Close()
			info, err := readLogInfo(l, store, hash, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return answer(cmd, asJSON, info, info.print)
		},
	}
	addStoreFlag(cmd, &store)
	cmd.Flags().BoolVar(&hash, "sha256", false, "also print the digest of the log's bytes")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func readLogInfo(l *commitlog.Log, store string, hash bool, stderr io.Writer) (logInfo, error) {
	i := l.Info()
	info := logInfo{
		Store: store, MinOffset: l.MinOffset(), MaxOffset: l.EndOffset(), SegmentBytes: l.SegmentBytes(),
		Segments: i.Segments, CleanShutdown: i.CleanShutdown, Notes: damageNotes(l),
		Checkpoint: checkpointInfo{
			PhysicTimestamp: i.Checkpoint.PhysicTimestamp, LogicsTimestamp: i.Checkpoint.LogicsTimestamp, IndexTimestamp: i.Checkpoint.IndexTimestamp,
			MasterFlushedOffset: i.Checkpoint.MasterFlushedOffset, ConfirmOffset: i.Checkpoint.ConfirmOffset, LogicsOffset: i.Checkpoint.LogicsOffset,
		},
	}
	show := newProgress(stderr, "counting", info.MaxOffset-info.MinOffset)
	for item := range l.Scan(info.MinOffset, info.MaxOffset) {
		if item.Kind == commitlog.ItemRecord {
			info.Messages++
		}
		show.at(item.Offset - info.MinOffset)
	}
	show.done()
	if !hash {
		return info, nil
	}
	show = newProgress(stderr, "hashing", info.MaxOffset-info.MinOffset)
	defer show.done()
	digest := sha256.New()
	if err := copyLog(digest, l, info.MinOffset, info.MaxOffset, show); err != nil {
		return info, err
	}
	info.SHA256 = hex.EncodeToString(digest.Sum(nil))
	return info, nil
}

func (i logInfo) print(w io.Writer) {
	shutdown := "unclean: an abort file is there"
	if i.CleanShutdown {
		shutdown = "clean"
	}
	pairs := []any{
		"store", i.Store,
		"range", fmt.Sprintf("%s to %s (%s)", count(i.MinOffset), count(i.MaxOffset), shortBytes(i.MaxOffset-i.MinOffset)),
		"segments", fmt.Sprintf("%d of %s", i.Segments, byteSize(i.SegmentBytes)),
		"messages", count(i.Messages),
		"shutdown", shutdown,
		"checkpoint", fmt.Sprintf("log %s, queues %s, index %s", when(i.Checkpoint.PhysicTimestamp), when(i.Checkpoint.LogicsTimestamp), when(i.Checkpoint.IndexTimestamp)),
	}
	if i.SHA256 != "" {
		pairs = append(pairs, "sha256", i.SHA256)
	}
	fields(w, pairs...)
	printNotes(w, i.Notes)
}
