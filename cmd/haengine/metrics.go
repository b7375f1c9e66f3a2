package main

import (
	"time"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/remoting"
	"github.com/prometheus/client_golang/prometheus"
)

// nodeMetrics counts what the engine reports as it happens. It implements
// engine.Metrics; its methods allocate nothing.
type nodeMetrics struct {
	registry   *prometheus.Registry
	puts       []prometheus.Counter // by engine.PutStatus
	putSeconds prometheus.Histogram
	fsync      prometheus.Histogram
	reconnects *prometheus.CounterVec
	unproven   *prometheus.CounterVec
}

func newNodeMetrics() *nodeMetrics {
	puts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "haengine_put_total", Help: "Puts that ended, by status.",
	}, []string{"status"})
	m := &nodeMetrics{
		registry: prometheus.NewRegistry(),
		putSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "haengine_put_seconds", Help: "From the call of a put to its end, waits included.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 2, 24), // 1 µs to 8 s
		}),
		fsync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "haengine_fsync_seconds", Help: "Each fdatasync of a segment.",
			Buckets: prometheus.ExponentialBuckets(25e-6, 2, 18), // 25 µs to 3.3 s
		}),
		reconnects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "haengine_reconnects_total", Help: "Connections to the master that a slave lost, by reason.",
		}, []string{"reason"}),
		unproven: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "haengine_ha_unproven_total", Help: "HA connections that ended because one of both ends did not prove to know the secret, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range engine.UnprovenReasons() {
		m.unproven.WithLabelValues(reason)
	}
	for _, status := range engine.PutStatuses() {
		m.puts = append(m.puts, puts.WithLabelValues(status.String()))
	}
	m.registry.MustRegister(puts, m.putSeconds, m.fsync, m.reconnects, m.unproven)
	return m
}

// Put implements engine.Metrics.
func (m *nodeMetrics) Put(status engine.PutStatus, d time.Duration) {
	m.puts[status].Inc()
	m.putSeconds.Observe(d.Seconds())
}

// Fsync implements engine.Metrics.
func (m *nodeMetrics) Fsync(d time.Duration) { m.fsync.Observe(d.Seconds()) }

// Reconnect implements engine.Metrics.
func (m *nodeMetrics) Reconnect(reason string) { m.reconnects.WithLabelValues(reason).Inc() }

// Unproven implements engine.Metrics.
func (m *nodeMetrics) Unproven(reason string) { m.unproven.WithLabelValues(reason).Inc() }

// statusCollector makes samples of the node's status at each scrape: a replica
// that is gone has no series from then on.
type statusCollector struct{ status func() engine.Status }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("haengine_"+name, help, labels, nil)
}

var (
	descMin       = describe("min_offset_bytes", "First offset that the log holds.")
	descMax       = describe("max_offset_bytes", "One past the log's last byte.")
	descFlushed   = describe("flushed_offset_bytes", "One past the last byte that is durable.")
	descConfirmed = describe("confirmed_offset_bytes", "Up to where a put with the node's own settings is complete.")
	descQueued    = describe("queued_offset_bytes", "Up to where all records are in their consume queues.")
	descSegments  = describe("segments", "Segment files.")
	descSegment   = describe("segment_bytes", "Size of a segment file.")
	descWaiters   = describe("waiters", "Puts that wait for replicas or disk.")
	descState     = describe("state", "1 for the node's state, 0 for the others.", "state")

	descReplicaAcked   = describe("replica_acked_offset_bytes", "One past the last byte that a replica says it holds.", "replica")
	descReplicaFlushed = describe("replica_flushed_offset_bytes", "One past the last byte that is durable on a replica, where it says so.", "replica")
	descReplicaLag     = describe("replica_lag_bytes", "Bytes that a replica does not hold yet.", "replica")
	descReplicaLagTime = describe("replica_lag_seconds", "Time since a replica last held all there was.", "replica")
	descReplicaBehind  = describe("replica_catching_up", "1 while a replica is sent what was written long before, 0 while it is live.", "replica")
	descReplicaInSync  = describe("replica_in_sync", "1 if a replica counts as in sync.", "replica")

	descTrouble  = describe("trouble", "1 while the node needs an operator; the labels say why and what to do.", "cause", "reason", "remedy")
	descDeparted = describe("departed_replicas", "Replicas that left because they, or their copies, are not well, and are not back.")

	descMasterState   = describe("master_state", "On a slave: 1 for the state of its connection to the master.", "state")
	descMasterLag     = describe("master_lag_bytes", "On a slave: bytes behind the master, where the wire tells.")
	descMasterLagTime = describe("master_lag_seconds", "On a slave: time behind the master, where the wire tells.")

	descComparisonRounds   = describe("comparison_rounds", "On a slave: comparisons with the master that came to their end.")
	descComparisonFinished = describe("comparison_finished_timestamp_seconds", "On a slave: when the last of them did.")
	descComparisonOffset   = describe("comparison_compared_offset_bytes", "On a slave: up to where the comparison that runs, or was the last, found both logs equal.")
	descComparisonDiffers  = describe("comparison_differs", "On a slave: 1 if a comparison found a difference.")
)

// Describe sends nothing: which series there are changes with the replicas.
func (c statusCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c statusCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := c.status()
	for state := engine.StateRecovering; state <= engine.StateStopping; state++ {
		gauge(descState, oneIf(s.State == state), state.String())
	}
	if s.State == engine.StateRecovering {
		return
	}
	gauge(descMin, float64(s.MinOffset))
	gauge(descMax, float64(s.MaxOffset))
	gauge(descFlushed, float64(s.FlushedOffset))
	gauge(descConfirmed, float64(s.ConfirmedOffset))
	gauge(descQueued, float64(s.QueuedOffset))
	gauge(descSegments, float64(s.Segments))
	gauge(descSegment, float64(s.SegmentBytes))
	gauge(descWaiters, float64(s.Waiters))
	for _, r := range s.Replicas {
		name := replicaLabel(r)
		gauge(descReplicaAcked, float64(r.AckedOffset), name)
		if r.FlushedOffset != nil {
			gauge(descReplicaFlushed, float64(*r.FlushedOffset), name)
		}
		gauge(descReplicaLag, float64(r.LagBytes), name)
		gauge(descReplicaLagTime, r.LagSeconds, name)
		gauge(descReplicaBehind, oneIf(r.Phase == engine.PhaseCatchUp), name)
		gauge(descReplicaInSync, oneIf(r.InSync), name)
	}
	gauge(descDeparted, float64(len(s.Departed)))
	if t := s.Trouble; t != nil {
		gauge(descTrouble, 1, t.Cause, t.Reason, t.Remedy)
	}
	if m := s.Master; m != nil {
		gauge(descMasterState, 1, m.State)
		if m.LagBytes != nil {
			gauge(descMasterLag, float64(*m.LagBytes))
		}
		if m.LagSeconds != nil {
			gauge(descMasterLagTime, *m.LagSeconds)
		}
	}
	if c := s.Comparison; c != nil {
		gauge(descComparisonRounds, float64(c.Rounds))
		if c.FinishedMS != nil {
			gauge(descComparisonFinished, float64(*c.FinishedMS)/1000)
		}
		gauge(descComparisonOffset, float64(c.ComparedOffset))
		gauge(descComparisonDiffers, oneIf(c.FirstDifference != nil))
	}
}

// replicaLabel names a replica so that no two have one name: a plain replica's
// identity is its IP, which several connections may share, so its address
// stands for it.
func replicaLabel(r engine.ReplicaStatus) string {
	if r.Mode == "plain" || r.ReplicaID == "" {
		return r.Address
	}
	return r.ReplicaID
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// clientCollector makes samples of what serves clients.
type clientCollector struct{ server *remoting.Server }

var (
	descClients  = describe("client_connections", "Connections of clients, and of brokers to this node's name server.")
	descRefusals = describe("client_refusals_total", "Connections of clients that were closed, and requests and answers that were refused, by reason.", "reason")
)

// Describe implements prometheus.Collector.
func (c clientCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- descClients
	ch <- descRefusals
}

// Collect implements prometheus.Collector.
func (c clientCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(descClients, prometheus.GaugeValue, float64(c.server.Connections()))
	for reason, n := range c.server.Counts {
		ch <- prometheus.MustNewConstMetric(descRefusals, prometheus.CounterValue, float64(n), reason)
	}
}
