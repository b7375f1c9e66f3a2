package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

func newPace() *cobra.Command {
	var (
		address, replica string
		live, catchUp    byteSize
		asJSON           bool
	)
	cmd := &cobra.Command{
		Use:   "pace",
		Short: "Show or change how fast a running node may send to its replicas",
		Long: "Shows how fast a running node may send to each of its replicas, in bytes a second, and\n" +
			"changes it when rates are given, at once. A replica is live until it is more than 16 MiB\n" +
			"behind, and then catching up until it has all; each limit holds in its phase only. What is\n" +
			"set for one replica is its own, also after a reconnect; without --replica it is set for\n" +
			"all, those to come included. It lasts until the node stops.",
		Example: "  haengine pace\n" +
			"  haengine pace --replica b --catchup 10MiB\n" +
			"  haengine pace --live 0 --catchup 0 --admin 127.0.0.1:10920",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			values := url.Values{}
			if replica != "" {
				values.Set("replica", replica)
			}
			method := http.MethodGet
			for name, rate := range map[string]byteSize{"live": live, "catchup": catchUp} {
				if cmd.Flags().Changed(name) {
					method = http.MethodPost
					values.Set(name, strconv.FormatInt(int64(rate), 10))
				}
			}
			return askPace(cmd, method, address, values, asJSON)
		},
	}
	cmd.Flags().StringVar(&address, "admin", defaultAdminListen, "the node's admin address")
	cmd.Flags().StringVar(&replica, "replica", "", "identity of one replica, as haengine status shows it (default: all)")
	cmd.Flags().Var(&live, "live", "bytes a second to a live replica; 0: no limit")
	cmd.Flags().Var(&catchUp, "catchup", "bytes a second to a replica that catches up; 0: no limit")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// paceAnswer is what a node says of its pace, or why it does not.
type paceAnswer struct {
	engine.PaceStatus
	Error string `json:"error,omitempty"`
}

// askPace asks a node and prints what is in force then.
func askPace(cmd *cobra.Command, method, address string, values url.Values, asJSON bool) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
	defer cancel()
	var a paceAnswer
	code, body, err := askAdmin(ctx, method, address, "/pace", values, &a)
	switch {
	case err != nil:
		return err
	case code == http.StatusBadRequest:
		return usagef(cmd, "%s", a.Error)
	case a.Error != "":
		return errors.New(a.Error)
	}
	return answer(cmd, asJSON, body, func(w io.Writer) { printPace(w, a.PaceStatus) })
}

func printPace(w io.Writer, s engine.PaceStatus) {
	fmt.Fprintf(w, "new replicas: live %s, catch-up %s\n\n", limitText(s.Live), limitText(s.CatchUp))
	if len(s.Replicas) == 0 {
		fmt.Fprintln(w, "no replicas connected")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "IDENTITY\tREPLICA\tPHASE\tLIVE\tCATCH-UP\tRATE\tLAG")
	for _, r := range s.Replicas {
		rate, lag := "-", "-"
		if r.LagBytes != nil {
			rate, lag = shortBytes(int64(r.BytesPerSecond))+"/s", shortBytes(*r.LagBytes)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.ReplicaID, cmp.Or(r.Address, "-"), cmp.Or(r.Phase, "gone"),
			limitText(r.Live), limitText(r.CatchUp), rate, lag)
	}
	tw.Flush()
}

// limitText writes a rate for people.
func limitText(bytesPerSecond int64) string {
	if bytesPerSecond == 0 {
		return "no limit"
	}
	return shortBytes(bytesPerSecond) + "/s"
}

// pace answers what is in force, of one replica if it is named.
func (a *admin) pace(w http.ResponseWriter, r *http.Request) {
	a.answerPace(w, r, func(*engine.Engine, string) error { return nil })
}

// setPace takes the rates live and catchup; one that is missing stays as it is.
func (a *admin) setPace(w http.ResponseWriter, r *http.Request) {
	a.answerPace(w, r, func(node *engine.Engine, replica string) error {
		to := engine.Pace{Live: engine.KeepRate, CatchUp: engine.KeepRate}
		for name, rate := range map[string]*int64{"live": &to.Live, "catchup": &to.CatchUp} {
			text, given := r.URL.Query()[name]
			if !given {
				continue
			}
			n, err := strconv.ParseInt(text[0], 10, 64)
			if err != nil || n < 0 {
				return fmt.Errorf("%s is %q, want bytes a second, 0 (no limit) or more: %w", name, text[0], engine.ErrOptions)
			}
			*rate = n
		}
		return node.SetPace(replica, to)
	})
}

func (a *admin) answerPace(w http.ResponseWriter, r *http.Request, do func(node *engine.Engine, replica string) error) {
	node, replica := a.node.Load(), r.URL.Query().Get("replica")
	if node == nil {
		reply(w, http.StatusServiceUnavailable, errorAnswer{a.ready().Error()})
		return
	}
	err := do(node, replica)
	var s engine.PaceStatus
	if err == nil {
		s, err = node.Pace(replica)
	}
	switch {
	case err == nil:
		reply(w, http.StatusOK, s)
	case errors.Is(err, engine.ErrOptions):
		reply(w, http.StatusBadRequest, errorAnswer{err.Error()})
	case errors.Is(err, engine.ErrUnknownReplica):
		reply(w, http.StatusNotFound, errorAnswer{err.Error()})
	default:
		reply(w, http.StatusConflict, errorAnswer{err.Error()})
	}
}

// errorAnswer says why a node did not do what it was asked.
type errorAnswer struct {
	Error string `json:"error"`
}
