package main

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

// repair is what haengine repair found, would do, or did.
type repair struct {
	Store     string        `json:"store"`
	MinOffset int64         `json:"min_offset"`
	MaxOffset int64         `json:"max_offset"`
	With      *diffSide     `json:"with,omitempty"` // the node that was compared with
	Compared  *[2]int64     `json:"compared,omitempty"`
	Differs   *int64        `json:"first_difference"`
	Damage    *repairDamage `json:"damage"`
	Asked     *int64        `json:"asked_at"` // where the cut was asked for
	Cut       *int64        `json:"cut_at"`   // where it is; null: nothing is to be cut
	Bytes     int64         `json:"cut_bytes"`
	Records   int64         `json:"cut_records"`
	Replaced  string        `json:"replaced_segment,omitempty"`
	Removed   []string      `json:"removed_segments"`
	Done      bool          `json:"done"`
	Kept      string        `json:"kept_in,omitempty"`
	Notes     []string      `json:"notes"`

	next string // the command that follows
}

// repairDamage is damage that the log has.
type repairDamage struct {
	Offset int64  `json:"offset"`
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

func newRepair() *cobra.Command {
	var (
		store, from string
		at          int64
		yes, asJSON bool
		secret      *secretFlag
	)
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Cut a stopped store's log where it is damaged or leaves a node's history",
		Long: "Cuts the log of a stopped node's store. Without --yes it only says what it would do.\n\n" +
			"--truncate-at cuts at the last record border at or below an offset. --from compares\n" +
			"with the running node where replicas connect at HOST:PORT, and cuts at the first\n" +
			"difference or damage, whichever comes first; started as that node's slave, this one\n" +
			"fetches what follows. What is cut is kept in cut/ below the store.",
		Example: "  haengine repair --store ./b --from 127.0.0.1:10912\n" +
			"  haengine repair --store ./b --from 127.0.0.1:10912 --yes\n" +
			"  haengine repair --store ./b --truncate-at 1048576 --yes",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("truncate-at") == (from != "") {
				return usagef(cmd, "one of --truncate-at OFFSET and --from HOST:PORT is needed, and not both")
			}
			known, err := secret.read()
			if err != nil {
				return err
			}
			r, err := planRepair(cmd, store, from, known, at)
			r.next = serveCommand(store, from, secret.path)
			if err == nil && yes && r.Cut != nil {
				r.Kept, err = engine.CutStore(writeOptions(cmd, store), *r.Cut, r.MaxOffset)
				r.Done = err == nil
			}
			if err != nil {
				return err
			}
			return answer(cmd, asJSON, r, r.print)
		},
	}
	addStoreFlag(cmd, &store)
	cmd.Flags().Int64Var(&at, "truncate-at", 0, "cut at the last record border at or below this offset")
	cmd.Flags().StringVar(&from, "from", "", "HOST:PORT of the running node that is right")
	secret = addSecretFlag(cmd)
	addYesFlag(cmd, &yes)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func addYesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "yes", false, "do it; without it nothing is changed")
}

// writeOptions are those of a store that is changed offline.
func writeOptions(cmd *cobra.Command, dir string) commitlog.Options {
	return commitlog.Options{Dir: dir, Preallocate: true, Logger: newLogger(cmd.ErrOrStderr(), "text", slog.LevelError)}
}

// planRepair finds where the log is to be cut, and what that takes.
func planRepair(cmd *cobra.Command, store, from string, secret []byte, at int64) (repair, error) {
	r := repair{Store: store, Removed: []string{}, Notes: []string{}}
	if err := commitlog.CheckFree(writeOptions(cmd, store)); err != nil {
		return r, err
	}
	l, err := openStore(cmd, store)
	if err != nil {
		return r, err
	}
	defer l.Close()
	r.MinOffset, r.MaxOffset = l.MinOffset(), l.EndOffset()
	if from != "" {
		if at, err = r.compare(cmd, l, store, from, secret); err != nil || at < 0 {
			return r, err
		}
	}
	show := newProgress(cmd.ErrOrStderr(), "reading", r.MaxOffset-r.MinOffset)
	defer show.done()
	p, err := commitlog.PlanCut(l, at, func(done, _ int64) { show.at(done) })
	if err != nil {
		return r, err
	}
	r.take(p)
	if known := l.Confirmed(); r.Cut != nil && known > *r.Cut {
		r.Notes = append(r.Notes, fmt.Sprintf("puts up to offset %d are known to be complete on replicas: give up what lies from %d on only if no other node has it, or the one that stays does", known, *r.Cut))
	}
	return r, nil
}

// compare finds where the log leaves a node's, or is damaged; -1: nowhere.
func (r *repair) compare(cmd *cobra.Command, l *commitlog.Log, store, address string, secret []byte) (int64, error) {
	own, err := engine.ReadIdentity(store)
	if err != nil {
		return 0, err
	}
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	show := newProgress(cmd.ErrOrStderr(), "comparing", r.MaxOffset-r.MinOffset)
	defer show.done()
	p, err := engine.FindRepairPoint(ctx, address, l, own, engine.CompareOptions{Secret: secret, Progress: func(c engine.Comparison) { show.chunk(c.Compared) }})
	if err != nil {
		return 0, err
	}
	c := &p.Comparison
	r.With = &diffSide{address, c.Node.MinOffset, c.Node.MaxOffset}
	r.Compared = &[2]int64{c.From, c.To}
	if c.Differs >= 0 {
		r.Differs = &c.Differs
	}
	r.noteDamage(p.Damage)
	if p.Epochs >= 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("from offset %d on the epochs of both are not the same", p.Epochs))
	}
	if d := p.Damage; d != nil && d.Offset >= c.From && d.Offset < c.To && (c.Differs < 0 || c.Differs > d.Offset && c.Differs-d.Offset > 1<<20) {
		r.Notes = append(r.Notes, fmt.Sprintf("at the damage at offset %d the node has the same bytes: look at its log, too", d.Offset))
	}
	return p.At, nil
}

func (r *repair) noteDamage(d *commitlog.CorruptError) {
	if d != nil && r.Damage == nil {
		r.Damage = &repairDamage{Offset: d.Offset, Kind: d.Kind, Detail: strings.TrimSpace(d.Detail)}
	}
}

func (r *repair) take(p commitlog.CutPlan) {
	r.noteDamage(p.Damage)
	r.Asked = &p.Asked
	if p.Below != nil {
		r.noteDamage(p.Below)
		r.Notes = append(r.Notes, fmt.Sprintf("damage at offset %d, below the cut, would stay: %s", p.Below.Offset, p.Below.Kind))
	}
	if p.Nothing() {
		return
	}
	r.Cut, r.Bytes, r.Records = &p.To, p.End-p.To, p.Records
	for _, path := range p.Removed {
		r.Removed = append(r.Removed, filepath.Base(path))
	}
	if p.Replaced != "" {
		r.Replaced = filepath.Base(p.Replaced)
	}
}

func (r repair) print(w io.Writer) {
	pairs := []any{"store", r.Store, "range", fmt.Sprintf("%s to %s", count(r.MinOffset), count(r.MaxOffset))}
	if r.With != nil {
		pairs = append(pairs, "node", fmt.Sprintf("%s, %s to %s", r.With.Path, count(r.With.MinOffset), count(r.With.MaxOffset)),
			"compared", fmt.Sprintf("%s to %s", count(r.Compared[0]), count(r.Compared[1])))
	}
	if r.Differs != nil {
		pairs = append(pairs, "first difference", fmt.Sprintf("offset %d", *r.Differs))
	}
	if r.Damage != nil {
		pairs = append(pairs, "damage", fmt.Sprintf("offset %d: %s", r.Damage.Offset, r.Damage.Kind))
	}
	if r.Cut == nil {
		fields(w, append(pairs, "result", "nothing to do")...)
		printNotes(w, r.Notes)
		return
	}
	moved := ""
	if *r.Asked != *r.Cut {
		moved = fmt.Sprintf(", the record border below %d", *r.Asked)
	}
	pairs = append(pairs,
		"cut at", fmt.Sprintf("offset %d%s", *r.Cut, moved),
		"goes", fmt.Sprintf("%s, %s", shortBytes(r.Bytes), plural(r.Records, "whole record")))
	if r.Replaced != "" {
		pairs = append(pairs, "replaced by a copy", r.Replaced)
	}
	if len(r.Removed) > 0 {
		pairs = append(pairs, "removed", strings.Join(r.Removed, ", "))
	}
	switch {
	case !r.Done:
		pairs = append(pairs, "result", "nothing was changed; --yes does it and keeps what goes in "+filepath.Join(r.Store, "cut"))
	case r.Kept == "":
		pairs = append(pairs, "result", "done; no byte was cut")
	default:
		pairs = append(pairs, "result", "done; what was cut is in "+r.Kept)
	}
	fields(w, pairs...)
	printNotes(w, r.Notes)
	if r.Done && r.With != nil {
		fmt.Fprintln(w, "next:", r.next)
	}
}

// serveCommand starts a store as a slave.
func serveCommand(store, master, secretFile string) string {
	return fmt.Sprintf("haengine serve --store %s --role SLAVE --master %s%s", shellWord(store), shellWord(master), secretArgs(secretFile))
}
