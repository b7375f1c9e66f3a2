package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/remoting"
	"github.com/spf13/cobra"
)

func newServe() *cobra.Command {
	n := &nodeSettings{}
	var configFile string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one node, master or slave, until a signal",
		Long: "Runs one node until SIGTERM or SIGINT. The first signal drains: no new puts, those\n" +
			"that wait end, everything is flushed, and the store is left as after a clean\n" +
			"shutdown. A second signal, 200 ms later or more, stops now.\n\n" +
			"Each setting comes, later over earlier, from its default, the YAML file of --config\n" +
			"(keys are the flags' names), the environment (HAENGINE_HA_LISTEN for --ha-listen),\n" +
			"and the flag. Byte sizes are plain numbers or end in KiB, MiB, GiB; durations look\n" +
			"like 500ms, 2s, 72h.",
		Example: "  haengine serve --store ./a --role SYNC_MASTER --load 100,1KiB,0\n" +
			"  haengine serve --store ./b --role SLAVE --master 127.0.0.1:10912 --admin-listen 127.0.0.1:10920 \\\n" +
			"      --client-listen 127.0.0.1:11911 --namesrv 127.0.0.1:9876\n" +
			"  HAENGINE_FLUSH=SYNC_FLUSH haengine serve --config node.yaml",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ignored, err := n.resolve(configFile, os.Environ)
			ignored = slices.DeleteFunc(ignored, flagVariables(cmd.Root()).has)
			if err != nil {
				return usage(cmd, err)
			}
			logger := newLogger(cmd.ErrOrStderr(), n.logFormat, n.logLevel)
			for _, name := range ignored {
				logger.Warn("environment variable is no setting", "name", name)
			}
			if n.secretOpen {
				logger.Warn(openSecretText(n.secretFile))
			}
			err = serve(cmd.Context(), n, logger, cmd.OutOrStdout())
			if errors.Is(err, engine.ErrOptions) || errors.Is(err, engine.ErrOtherCluster) {
				return usage(cmd, err)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&configFile, "config", "", "YAML file with settings")
	cmd.Flags().SortFlags = false
	n.define(newSettings(cmd.Flags()))
	return cmd
}

// errStoppedNow is the end of a node that got a second signal.
var errStoppedNow = errors.New("second signal: stopped without a clean shutdown")

// signalTwice is how soon a second signal is still the first one: timeout(1)
// and a shell that ends a group signal the process and its group.
const signalTwice = 200 * time.Millisecond

// serve runs a node until ctx ends or a signal comes.
func serve(ctx context.Context, n *nodeSettings, logger *slog.Logger, stdout io.Writer) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	ended := make(chan error, 1)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ended <- runNode(stop, n, logger, stdout) }()
	for asked := (time.Time{}); ; {
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			if !asked.IsZero() {
				if time.Since(asked) < signalTwice {
					continue
				}
				return errStoppedNow
			}
			asked = time.Now()
			logger.Info("stopping", "signal", s.String())
			cancel()
		}
	}
}

// runNode opens the store, serves until ctx ends, and closes everything in the
// reverse order.
func runNode(ctx context.Context, n *nodeSettings, logger *slog.Logger, stdout io.Writer) error {
	takeProcessors(n.clients.loops())
	metrics := newNodeMetrics()
	adm, err := openAdmin(n.adminListen, n.Options, metrics.registry, logger)
	if err != nil {
		return err
	}
	defer adm.close()
	if err := metrics.registry.Register(statusCollector{adm.status}); err != nil {
		return err
	}
	o := n.Options
	o.Logger, o.Metrics, o.OnRecovery = logger, metrics, adm.recovery
	store := o.Store
	if absolute, err := filepath.Abs(store); err == nil {
		store = absolute // the command may be run anywhere
	}
	o.Remedy = remedy{store: store, admin: adm.addr(), secretFile: n.secretFile}.of
	node, err := engine.Open(o)
	if errors.Is(err, syscall.EADDRINUSE) {
		return listenError("ha-listen", o.HAListen, err)
	}
	if err != nil {
		return err
	}
	adm.opened(node)
	broker, err := openClients(n, node, logger)
	if err != nil {
		return errors.Join(err, closeNode(n, nil, node))
	}
	if broker != nil {
		metrics.registry.MustRegister(clientCollector{broker.Server()})
	}
	logServing(logger, n, node, adm, broker)

	loadEnded := make(chan error, 1)
	go func() { loadEnded <- runLoad(ctx, n.load, node, logger, stdout) }()
	<-ctx.Done()
	closeErr := closeNode(n, broker, node)
	if err := errors.Join(<-loadEnded, closeErr); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	logger.Info("stopped")
	return nil
}

// closeNode ends what clients use, if there is any, and then the node.
func closeNode(n *nodeSettings, broker *remoting.Broker, node *engine.Engine) error {
	drain, cancel := context.WithTimeout(context.Background(), n.shutdownTimeout)
	defer cancel()
	var err error
	if broker != nil {
		err = broker.Close(drain)
	}
	return errors.Join(err, node.Close(drain))
}

func runLoad(ctx context.Context, plan loadPlan, node *engine.Engine, logger *slog.Logger, stdout io.Writer) error {
	if !plan.on {
		return nil
	}
	if node.Role() == engine.Slave {
		logger.Info("load begins when the node is promoted")
		if !waitForMaster(ctx, node) {
			return nil
		}
	}
	puts, err := plan.run(ctx, node, stdout)
	logger.Info("load ended", "puts", puts)
	return err
}

// logServing writes the one line that says that the node serves.
func logServing(logger *slog.Logger, n *nodeSettings, node *engine.Engine, adm *admin, broker *remoting.Broker) {
	s := node.Status()
	attrs := []any{
		"version", readVersion().Version, "role", s.Role.String(), "store", n.Store, "ha_listen", s.HAListen, "admin_listen", adm.addr(),
		"min_offset", s.MinOffset, "max_offset", s.MaxOffset, "segment_bytes", s.SegmentBytes, "ha_secret", s.HASecret,
	}
	if broker != nil {
		attrs = append(attrs, "client_listen", broker.Server().Addr().String(), "advertised", broker.Address())
		if names := broker.NameServerAddr(); names != nil {
			attrs = append(attrs, "namesrv_listen", names.String())
		}
	}
	if n.Master != "" {
		attrs = append(attrs, "master", n.Master)
	}
	if s.State != engine.StateServing {
		attrs = append(attrs, "state", s.State.String(), "reason", s.Reason)
	}
	logger.Info("serving", attrs...)
	if from := n.namesFromEnvironment(); from != "" {
		logger.Warn("this node runs no name server: the environment names others; unset the variable, or give --namesrv-listen",
			"variable", from, "namesrv", strings.Join(n.clients.nameServers, ";"))
	}
}
