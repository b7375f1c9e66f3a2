package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/spf13/cobra"
)

func newPromote() *cobra.Command {
	var (
		address  string
		role     string
		newEpoch bool
		force    bool
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "promote",
		Short: "Make a running slave a master",
		Long: "Makes a running slave a master: it leaves its master and begins a new epoch before it\n" +
			"takes the first put. Make sure that the old master takes no more puts, then let it\n" +
			"follow this node: what it wrote and nobody else has is cut there and kept aside.",
		Example: "  haengine promote --admin 127.0.0.1:10920 --role SYNC_MASTER",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parsed, err := engine.ParseRole(role)
			if err == nil && parsed == engine.Slave {
				err = errors.New("a slave is no master; see haengine follow")
			}
			if err != nil {
				return usagef(cmd, "--role: %v", err)
			}
			return changeRole(cmd, address, "/promote", url.Values{"role": {parsed.String()}, "new_epoch": {strconv.FormatBool(newEpoch)}, "force": {strconv.FormatBool(force)}}, asJSON)
		},
	}
	cmd.Flags().StringVar(&address, "admin", defaultAdminListen, "the node's admin address")
	cmd.Flags().StringVar(&role, "role", engine.AsyncMaster.String(), "ASYNC_MASTER or SYNC_MASTER")
	cmd.Flags().BoolVar(&newEpoch, "new-epoch", false, "let a master begin another epoch, above those of an old one that wrote with nobody following")
	cmd.Flags().BoolVar(&force, "force", false, "promote a slave whose log is known to differ from its master's, too")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func newFollow() *cobra.Command {
	var (
		address string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "follow HOST:PORT",
		Short: "Make a running node a slave of another master",
		Long: "Makes a running node a slave of the master at HOST:PORT, its --ha-listen address. A\n" +
			"master takes no more puts, and those that wait for replicas end as not replicated.\n" +
			"What its log holds and the new master's does not is cut once the epochs tell so, and\n" +
			"kept in cut/ at the store's root.",
		Example: "  haengine follow 127.0.0.1:10912 --admin 127.0.0.1:10919",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef(cmd, "want one argument, the master's HOST:PORT, got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeRole(cmd, address, "/follow", url.Values{"master": {args[0]}}, asJSON)
		},
	}
	cmd.Flags().StringVar(&address, "admin", defaultAdminListen, "the node's admin address")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// roleChangeTimeout covers the wait for puts in their append and for the disk.
const roleChangeTimeout = 30 * time.Second

const (
	roleChangeSlack = 5 * time.Second // for the answer on its way
	roleChangeSlow  = 3 * time.Second // until the wait is told of
)

// roleAnswer is what a node says of a change that it was asked for.
type roleAnswer struct {
	Role      string `json:"role"`
	Epoch     int32  `json:"epoch"`
	EndOffset int64  `json:"end_offset"`
	Cut       string `json:"cut,omitempty"`
	HAListen  string `json:"ha_listen"`
	Error     string `json:"error,omitempty"`
}

// changeRole asks a node for a change and prints what it came to.
func changeRole(cmd *cobra.Command, address, path string, values url.Values, asJSON bool) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), roleChangeTimeout+roleChangeSlack)
	defer cancel()
	var a roleAnswer
	slow := time.AfterFunc(roleChangeSlow, func() { fmt.Fprintf(cmd.ErrOrStderr(), "haengine: waiting for the node at %s\n", address) })
	code, body, err := askAdmin(ctx, http.MethodPost, address, path, values, &a)
	slow.Stop()
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the node at admin address %s has not answered in %v: it may still make the change; look with haengine status --admin %s",
			address, roleChangeTimeout+roleChangeSlack, address)
	}
	if err != nil {
		return err
	}
	if code == http.StatusBadRequest {
		return usagef(cmd, "%s", a.Error)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return answer(cmd, asJSON, body, func(w io.Writer) {
		fmt.Fprintf(w, "role        %s\nepoch       %d\nend offset  %s\n", a.Role, a.Epoch, count(a.EndOffset))
		if a.Cut != "" {
			fmt.Fprintf(w, "cut         %s\n", a.Cut)
		}
		if a.Role != engine.Slave.String() && a.HAListen == "" {
			fmt.Fprintln(w, "It was started without --ha-listen: no replica can follow it.")
		}
	})
}

// askAdmin asks a node's admin address, and gives its answer as it came and
// parsed into v, whatever its code is.
func askAdmin(ctx context.Context, method, address, path string, values url.Values, v any) (code int, body json.RawMessage, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path+"?"+values.Encode(), nil)
	if err != nil {
		return 0, nil, fmt.Errorf("admin address %q: %w", address, err)
	}
	resp, err := statusClient.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("no node answers at admin address %s (see serve --admin-listen): %w", address, cause(err))
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || json.Unmarshal(body, v) != nil {
		return 0, nil, fmt.Errorf("%s: answer is %s; is it a node's admin address?", address, resp.Status)
	}
	return resp.StatusCode, body, nil
}

func (a *admin) promote(w http.ResponseWriter, r *http.Request) {
	role, err := engine.ParseRole(r.URL.Query().Get("role"))
	if err != nil {
		reply(w, http.StatusBadRequest, roleAnswer{Error: err.Error()})
		return
	}
	newEpoch, _ := strconv.ParseBool(r.URL.Query().Get("new_epoch"))
	force, _ := strconv.ParseBool(r.URL.Query().Get("force"))
	a.change(w, r, func(ctx context.Context, node *engine.Engine) (engine.RoleChange, error) {
		return node.Promote(ctx, engine.PromoteOptions{Role: role, NewEpoch: newEpoch, Force: force})
	})
}

func (a *admin) follow(w http.ResponseWriter, r *http.Request) {
	a.change(w, r, func(ctx context.Context, node *engine.Engine) (engine.RoleChange, error) {
		return node.Follow(ctx, r.URL.Query().Get("master"))
	})
}

func (a *admin) change(w http.ResponseWriter, r *http.Request, do func(context.Context, *engine.Engine) (engine.RoleChange, error)) {
	node := a.node.Load()
	if node == nil {
		reply(w, http.StatusServiceUnavailable, roleAnswer{Error: a.ready().Error()})
		return
	}
	// Who asked may leave: a change that was begun is finished.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), roleChangeTimeout)
	defer cancel()
	change, err := do(ctx, node)
	switch {
	case errors.Is(err, engine.ErrOptions):
		reply(w, http.StatusBadRequest, roleAnswer{Error: err.Error()})
	case err != nil:
		reply(w, http.StatusConflict, roleAnswer{Error: err.Error()})
	default:
		reply(w, http.StatusOK, roleAnswer{
			Role: change.Role.String(), Epoch: change.Epoch, EndOffset: change.EndOffset, Cut: change.Cut, HAListen: node.Status().HAListen,
		})
	}
}
