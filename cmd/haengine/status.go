package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

func newStatus() *cobra.Command {
	var (
		address  string
		watch    bool
		asJSON   bool
		interval time.Duration
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a running node: role, log, replicas, its view of the master",
		Example: "  haengine status\n" +
			"  haengine status --admin 127.0.0.1:10920 --watch\n" +
			"  haengine status --json | jq .replicas",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 10*time.Millisecond {
				return usagef(cmd, "--interval %v is too short, want at least 10ms", interval)
			}
			if !watch {
				s, raw, err := fetchStatus(cmd.Context(), address)
				if err != nil {
					return err
				}
				return answer(cmd, asJSON, raw, func(w io.Writer) { printStatus(w, s) })
			}
			return watchStatus(cmd, address, interval, asJSON)
		},
	}
	cmd.Flags().StringVar(&address, "admin", defaultAdminListen, "the node's admin address")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again, until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "between two looks with --watch")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// nodeStatus is /status as this command reads it. The engine's type cannot
// stand here: its enumerations are written as text and never read.
type nodeStatus struct {
	Role         string                   `json:"role"`
	State        string                   `json:"state"`
	Reason       string                   `json:"reason"`
	Epoch        int32                    `json:"epoch"`
	Min          int64                    `json:"min_offset"`
	Max          int64                    `json:"max_offset"`
	Flushed      int64                    `json:"flushed_offset"`
	Confirmed    int64                    `json:"confirmed_offset"`
	Queued       int64                    `json:"queued_offset"`
	SegmentBytes int64                    `json:"segment_bytes"`
	Segments     int                      `json:"segments"`
	Waiters      int                      `json:"waiters"`
	HAListen     string                   `json:"ha_listen"`
	HASecret     bool                     `json:"ha_secret"`
	Replicas     []engine.ReplicaStatus   `json:"replicas"`
	Departed     []engine.Departed        `json:"departed_replicas"`
	Master       *engine.MasterStatus     `json:"master"`
	Trouble      *engine.Trouble          `json:"trouble"`
	Comparison   *engine.ComparisonStatus `json:"comparison"`
}

// statusClient keeps no connection: a look is seldom, and a node that stops
// should not wait for one.
var statusClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// fetchStatus reads a node's status, parsed and as it came.
func fetchStatus(ctx context.Context, address string) (s nodeStatus, raw json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/status", nil)
	if err != nil {
		return s, nil, fmt.Errorf("admin address %q: %w", address, err)
	}
	resp, err := statusClient.Do(req)
	if err != nil {
		return s, nil, fmt.Errorf("no node answers at admin address %s (see serve --admin-listen): %w", address, cause(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	switch {
	case err != nil:
		return s, nil, fmt.Errorf("status of %s: %w", address, err)
	case resp.StatusCode != http.StatusOK:
		return s, nil, fmt.Errorf("status of %s: answer is %s; is it a node's admin address?", address, resp.Status)
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return s, nil, fmt.Errorf("status of %s: %w; is it a node's admin address?", address, err)
	}
	return s, json.RawMessage(body), nil
}

// lateError is context.DeadlineExceeded, for people.
type lateError struct{}

func (lateError) Error() string { return "no answer in time" }
func (lateError) Unwrap() error { return context.DeadlineExceeded }

// cause is the innermost error: "connection refused" without the URL around it.
func cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return lateError{}
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// watchStatus shows the status until interrupted. A node that does not answer
// is shown as such and asked again.
func watchStatus(cmd *cobra.Command, address string, interval time.Duration, asJSON bool) error {
	ctx, stop := untilInterrupt(cmd.Context())
	defer stop()
	out := cmd.OutOrStdout()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		s, raw, err := fetchStatus(ctx, address)
		switch {
		case ctx.Err() != nil:
			return nil
		case asJSON && err == nil:
			if err := writeJSON(out, raw); err != nil {
				return err
			}
		case asJSON:
			fmt.Fprintf(cmd.ErrOrStderr(), "haengine: %v\n", err)
		default:
			var page strings.Builder
			if isTerminal(out) {
				page.WriteString("\x1b[H\x1b[2J")
			}
			fmt.Fprintf(&page, "%s  %s\n", address, time.Now().Format(time.TimeOnly))
			if err != nil {
				fmt.Fprintln(&page, err)
			} else {
				printStatus(&page, s)
			}
			if _, err := io.WriteString(out, page.String()); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func printStatus(w io.Writer, s nodeStatus) {
	state := s.State
	if s.Reason != "" {
		state += ": " + s.Reason
	}
	pairs := []any{
		"role", s.Role, "state", state, "epoch", epochText(s.Epoch),
		"log", fmt.Sprintf("%s to %s (%s in %s of %s)", count(s.Min), count(s.Max), shortBytes(s.Max-s.Min), plural(int64(s.Segments), "segment"), shortBytes(s.SegmentBytes)),
		"flushed", fmt.Sprintf("%s (%s to go)", count(s.Flushed), shortBytes(max(s.Max-s.Flushed, 0))),
		"confirmed", fmt.Sprintf("%s (%s to go)", count(s.Confirmed), shortBytes(max(s.Max-s.Confirmed, 0))),
		"waiters", s.Waiters,
	}
	if s.HAListen != "" {
		pairs = append(pairs, "replicas at", s.HAListen)
	}
	if s.HASecret {
		pairs = append(pairs, "secret", "each peer has to prove to know it")
	}
	if m := s.Master; m != nil {
		pairs = append(pairs, "master", m.Address, "  state", m.State, "  mode", cmp.Or(m.Mode, "-"), "  behind", masterLag(m))
		if m.LastError != "" {
			pairs = append(pairs, "  last error", m.LastError)
		}
	}
	if t := s.Trouble; t != nil {
		pairs = append(pairs, "trouble", t.Cause+": "+t.Reason, "  what to do", cmp.Or(t.Remedy, "-"))
	}
	for _, d := range s.Departed {
		pairs = append(pairs, "left", fmt.Sprintf("%s at %s: %s", cmp.Or(d.ReplicaID, d.Address), time.UnixMilli(d.Time).Format(time.DateTime), d.Reason))
	}
	if c := s.Comparison; c != nil {
		pairs = append(pairs, "compared", comparisonText(c))
	}
	fields(w, pairs...)
	if s.HAListen == "" && len(s.Replicas) == 0 {
		return
	}
	fmt.Fprintln(w)
	if len(s.Replicas) == 0 {
		fmt.Fprintln(w, "no replicas connected")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "REPLICA\tIDENTITY\tMODE\tPHASE\tACKED\tFLUSHED\tLAG\tBEHIND\tRATE\tIN SYNC\tWHY")
	for _, r := range s.Replicas {
		flushed := "-"
		if r.FlushedOffset != nil {
			flushed = count(*r.FlushedOffset)
		}
		inSync := "no"
		if r.InSync {
			inSync = "yes"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1fs\t%s/s\t%s\t%s\n", r.Address, cmp.Or(r.ReplicaID, "-"), r.Mode, cmp.Or(r.Phase, "-"),
			count(r.AckedOffset), flushed, shortBytes(r.LagBytes), r.LagSeconds, shortBytes(int64(r.BytesPerSecond)), inSync, humanBytes(r.Reason))
	}
	tw.Flush()
}

// bytesInReason are the sizes in the sentences of a node.
var bytesInReason = regexp.MustCompile(`\b(\d+)( bytes\b|$)`)

// humanBytes writes the sizes of a reason for people.
func humanBytes(reason string) string {
	return bytesInReason.ReplaceAllStringFunc(reason, func(s string) string {
		n, err := strconv.ParseInt(strings.TrimSuffix(s, " bytes"), 10, 64)
		if err != nil {
			return s
		}
		return shortBytes(n)
	})
}

func epochText(epoch int32) string {
	if epoch == 0 {
		return "-"
	}
	return strconv.Itoa(int(epoch))
}

// comparisonText says what a slave's comparison with its master has come to.
func comparisonText(c *engine.ComparisonStatus) string {
	text := fmt.Sprintf("equal from %s to %s", count(c.FromOffset), count(c.ComparedOffset))
	switch {
	case c.FirstDifference != nil:
		return fmt.Sprintf("the log differs from the master's at offset %d", *c.FirstDifference)
	case c.Running:
		text += ", goes on to " + count(c.ToOffset)
	case c.LastError != "":
		text += ", then: " + c.LastError
	case c.FinishedMS == nil:
		return "not yet"
	}
	if c.FinishedMS != nil {
		text += fmt.Sprintf("; %s, the last ended %s", plural(int64(c.Rounds), "round"), when(*c.FinishedMS))
	}
	return text
}

func masterLag(m *engine.MasterStatus) string {
	if m.LagBytes == nil && m.Mode == "" {
		return "unknown"
	}
	if m.LagBytes == nil {
		return "unknown (the plain protocol does not say)"
	}
	text := shortBytes(*m.LagBytes)
	if m.LagSeconds != nil {
		text += fmt.Sprintf(", %.1fs", *m.LagSeconds)
	}
	return text
}
