package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// admin answers /healthz, /readyz, /status, /pace and /metrics, and takes
// /promote, /follow and /pace. It listens before the store is opened, so that a
// long recovery can be watched. Every method may be called from any goroutine.
type admin struct {
	role     engine.Role
	maxLag   int64
	node     atomic.Pointer[engine.Engine] // nil while recovering
	done     atomic.Int64                  // recovery: bytes read
	total    atomic.Int64                  // recovery: bytes to read
	server   *http.Server                  // nil: no admin address
	listener net.Listener                  // nil: no admin address
	served   chan struct{}                 // closed when server has ended
}

// openAdmin listens on addr; an empty one gives an admin that only keeps the
// state.
func openAdmin(addr string, o engine.Options, gatherer prometheus.Gatherer, logger *slog.Logger) (*admin, error) {
	a := &admin{role: o.Role, maxLag: o.MaxLag, served: make(chan struct{})}
	if addr == "" {
		close(a.served)
		return a, nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, listenError("admin-listen", addr, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", a.healthz)
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.HandleFunc("GET /status", a.statusz)
	mux.HandleFunc("POST /promote", a.promote)
	mux.HandleFunc("POST /follow", a.follow)
	mux.HandleFunc("GET /pace", a.pace)
	mux.HandleFunc("POST /pace", a.setPace)
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	a.listener = listener
	a.server = &http.Server{
		// A web page must not change a node's role or pace.
		Handler: http.NewCrossOriginProtection().Handler(mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: roleChangeTimeout + 5*time.Second,
		IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(a.served)
		if err := a.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("admin address failed", "error", err)
		}
	}()
	return a, nil
}

// listenError names the flag, and what to do when the address is taken.
func listenError(flag, addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("--%s %s: %w; stop what listens there, or give another address", flag, addr, cause(err))
	}
	return fmt.Errorf("--%s %s: %w", flag, addr, err)
}

// addr is where it listens; empty without an address.
func (a *admin) addr() string {
	if a.listener == nil {
		return ""
	}
	return a.listener.Addr().String()
}

func (a *admin) recovery(done, total int64) {
	a.done.Store(done)
	a.total.Store(total)
}

func (a *admin) opened(node *engine.Engine) { a.node.Store(node) }

func (a *admin) close() {
	if a.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if a.server.Shutdown(ctx) != nil {
		a.server.Close()
	}
	<-a.served
}

// status is the node's, or what is known while it recovers.
func (a *admin) status() engine.Status {
	if node := a.node.Load(); node != nil {
		return node.Status()
	}
	return engine.Status{
		Role: a.role, State: engine.StateRecovering, Replicas: []engine.ReplicaStatus{},
		Reason: fmt.Sprintf("%s of %s read", shortBytes(a.done.Load()), shortBytes(a.total.Load())),
	}
}

// ready is nil when the node can do its job, or says why it cannot.
func (a *admin) ready() error {
	node := a.node.Load()
	if node == nil {
		s := a.status()
		return fmt.Errorf("%s: %s", s.State, s.Reason)
	}
	if err := node.Ready(); err != nil {
		return err
	}
	return lagWithin(node.Status().Master, a.maxLag)
}

// lagWithin judges how far a slave is behind, as far as the wire tells it.
func lagWithin(m *engine.MasterStatus, maxLag int64) error {
	if m != nil && m.LagBytes != nil && *m.LagBytes > maxLag {
		return fmt.Errorf("%s behind the master, more than max-lag %s", shortBytes(*m.LagBytes), shortBytes(maxLag))
	}
	return nil
}

type healthAnswer struct {
	State          engine.State `json:"state"`
	RecoveredBytes *int64       `json:"recovered_bytes,omitempty"`
	RecoverBytes   *int64       `json:"recover_bytes,omitempty"`
}

func (a *admin) healthz(w http.ResponseWriter, _ *http.Request) {
	h := healthAnswer{State: engine.StateRecovering}
	if node := a.node.Load(); node != nil {
		h.State = node.Status().State
	} else {
		done, total := a.done.Load(), a.total.Load()
		h.RecoveredBytes, h.RecoverBytes = &done, &total
	}
	reply(w, http.StatusOK, h)
}

type readyAnswer struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason"`
}

func (a *admin) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := a.ready(); err != nil {
		reply(w, http.StatusServiceUnavailable, readyAnswer{Reason: err.Error()})
		return
	}
	reply(w, http.StatusOK, readyAnswer{Ready: true})
}

func (a *admin) statusz(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, a.status()) }

func reply(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // who asked is gone if this fails
}
