package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/engine"
)

// nodeSettings is everything that serve may be told.
type nodeSettings struct {
	engine.Options
	adminListen     string
	clients         clientSettings
	secretFile      string // empty: no secret
	secretOpen      bool   // any user may read it
	load            loadPlan
	logFormat       string
	logLevel        slog.Level
	shutdownTimeout time.Duration

	table       *settings
	preallocate bool
	populate    int64
}

const (
	defaultHAListen    = "127.0.0.1:10912"
	defaultAdminListen = "127.0.0.1:10919"
)

// define fills the table of settings, in the order of help.
func (n *nodeSettings) define(s *settings) {
	n.table = s
	o := &n.Options
	s.add("store", "DIR", "./haengine-store", "RocketMQ store directory, made if missing", toString(&o.Store))
	s.add("role", "ROLE", "ASYNC_MASTER", "ASYNC_MASTER, SYNC_MASTER or SLAVE", toEnum(&o.Role, engine.ParseRole))
	s.add("ha-listen", "ADDR", "", "where replicas connect (default: "+defaultHAListen+" on a master, nowhere on a slave)", toString(&o.HAListen))
	n.clients.define(s)
	s.add("master", "HOST:PORT", "", "a slave's master", toString(&o.Master))
	s.add("flush", "MODE", "ASYNC_FLUSH", "ASYNC_FLUSH, or SYNC_FLUSH: a put waits for its fdatasync", toEnum(&o.Flush, engine.ParseFlushMode))
	s.add("in-sync-replicas", "N", "2", "copies that a synchronous put waits for, the master's own included", toInt(&o.InSyncReplicas, 1, 64))
	s.add("min-in-sync-replicas", "N", "1", "refuse a synchronous put before the append when fewer copies are in sync", toInt(&o.MinInSyncReplicas, 1, 64))
	s.add("slave-timeout", "DURATION", "3s", "how long a put waits for replicas", toDuration(&o.SlaveTimeout, time.Millisecond))
	s.add("flush-timeout", "DURATION", "5s", "how long a put waits for the disk", toDuration(&o.FlushTimeout, time.Millisecond))
	s.add("max-lag", "BYTES", "256MiB", "a replica further behind does not count as in sync", toBytes(&o.MaxLag, 1, math.MaxInt64))
	s.add("ack", "KIND", "received", "received or flushed; slave: what its reports mean; master: what a synchronous put waits for: flushed is what only haengine replicas can tell", toEnum(&o.Ack, engine.ParseAckKind))
	s.add("segment-bytes", "BYTES", "", "segment file size of a new store, 64KiB to 2GiB-1 (default: the store's own, or 1GiB)", toBytes(&o.SegmentBytes, engine.SegmentBytesMin, engine.SegmentBytesMax))
	s.add("retention", "DURATION", "72h", "age of a segment's last record after which it goes; 0 keeps all; a store of RocketMQ's is cleaned only when this is given", toDuration(&o.Retention, 0))
	s.add("retention-disk", "PERCENT", "85", "disk use above which the oldest segments go early; 0: never", toInt(&o.RetentionDisk, 0, 100))
	s.add("wire", "MODE", "auto", "auto, which asks a peer for the extended protocol and speaks RocketMQ's if it does not know it, or plain, which never asks", toEnum(&o.Wire, engine.ParseWireMode))
	s.add("ha-secret-file", "FILE", "", "the secret that all nodes of a group share, at least 16 bytes: each end of a replication connection proves to know it, and RocketMQ's protocol is not spoken; no encryption (default: none, whoever reaches the port is served)", n.readSecretFile)
	s.add("plain-identity", "KIND", "ip", "what one replica is in plain mode: ip or connection", toEnum(&o.PlainIdentity, engine.ParsePlainIdentity))
	s.add("plain-history", "KIND", "last", "what an empty plain slave gets: the last segment, or everything from the first", toEnum(&o.PlainHistory, engine.ParsePlainHistory))
	s.add("from", "WHERE", "first", "where an empty slave's log begins: first (the master's first byte), last-segment, or an offset, which stands for its segment", toEnum(&o.From, engine.ParseFrom))
	s.add("cluster-id", "ID", "", "who may replicate with whom (default: the store's own)", toString(&o.ClusterID))
	s.add("replica-id", "ID", "", "who is one replica (default: the store's own)", toString(&o.ReplicaID))
	s.add("compare-interval", "DURATION", "0s", "a slave compares its whole log with its haengine master's so often, in the background; 0: never", toDuration(&o.CompareInterval, 0))
	s.add("compare-rate", "BYTES", "8MiB", "bytes a second of that; 0: no limit", toBytes(&o.CompareRate, 0, math.MaxInt64))
	s.add("store-host", "IP:PORT", "", "written into records as their store host (default: what clients are told, or 127.0.0.1:10911)", n.setStoreHost)
	s.add("max-body-bytes", "BYTES", "4MiB", "largest message body that a put may have", toBytes(&o.MaxBody, 1, 1<<30))
	s.add("admin-listen", "ADDR", defaultAdminListen, "/healthz, /readyz, /status and /metrics; empty: none", n.setAdminListen)
	s.add("load", "RATE,SIZE,COUNT", "", "built-in producer on a master: puts a second (0: no limit), body bytes, puts (0: endless)", n.setLoad)
	s.add("load-outstanding", "N", "1", "puts of --load that may wait at once", toInt(&n.load.outstanding, 1, 1<<16))
	s.add("load-replicas", "N", "0", "--load begins when so many replicas are in sync", toInt(&n.load.replicas, 0, 64))
	s.add("log-format", "FORMAT", "text", "text or json", n.setLogFormat)
	s.add("log-level", "LEVEL", "info", "debug, info, warn or error", func(v string) error { return n.logLevel.UnmarshalText([]byte(v)) })
	s.add("shutdown-timeout", "DURATION", "10s", "how long a stop waits for puts that wait", toDuration(&n.shutdownTimeout, 0))
	n.defineTuning(s)
}

// defineTuning fills in what changes how fast things go and nothing else.
func (n *nodeSettings) defineTuning(s *settings) {
	o := &n.Options
	s.add("reactors", "N", "", "event loops (default: the cores, at most 4)", toInt(&o.Reactors, 1, 256))
	s.add("pin-cpus", "LIST", "", "cores that the loops are pinned to, as 0,2-5", toCPUs(&o.PinCPUs, allowedCPUs))
	s.add("spin", "DURATION", "0s", "how long an idle loop polls before it sleeps; 0: for 50µs where events follow each other that closely", toDuration(&o.Spin, 0))
	s.add("sndbuf", "BYTES", "", "socket send buffer (default: the kernel's)", toBytes(&o.SendBuffer, 1, 1<<30))
	s.add("rcvbuf", "BYTES", "", "socket receive buffer (default: the kernel's)", toBytes(&o.ReceiveBuffer, 1, 1<<30))
	s.add("tcp-congestion", "NAME", "", "TCP congestion control (default: the kernel's)", toString(&o.Congestion))
	s.add("frame-bytes", "BYTES", "", "body of a frame at most (default: 32KiB to a RocketMQ slave, 1MiB to a haengine one)", toBytes(&o.FrameBytes, engine.FrameBytesMin, engine.FrameBytesMax))
	s.add("sendfile-min-bytes", "BYTES", "16KiB", "frames of at least this go by sendfile, smaller ones by writev", toBytes(&o.SendfileMinBytes, 1, 1<<30))
	s.add("ring-size", "N", "65536", "puts that may wait at once, for each kind of wait", toInt(&o.RingSize, 2, 1<<24))
	s.add("transfer-rate", "BYTES", "0", "bytes a second to each replica, whatever they are; 0: no limit", toBytes(&o.TransferRate, 0, math.MaxInt64))
	s.add("catchup-rate", "BYTES", "0", "bytes a second to a replica that is more than 16MiB behind, until it has caught up; 0: --transfer-rate only", toBytes(&o.CatchUpRate, 0, math.MaxInt64))
	s.add("preallocate", "bool", "true", "allocate segments when they are made", toBool(&n.preallocate))
	s.add("populate", "BYTES", "4MiB", "window ahead of the log's end whose pages are there and mapped; 0: none", toBytes(&n.populate, 0, 1<<30))
	s.add("mlock", "bool", "false", "lock the open segment in memory", toBool(&o.Mlock))
	s.add("flush-interval", "DURATION", "500ms", "between flushes with ASYNC_FLUSH", toDuration(&o.FlushInterval, time.Millisecond))
	s.add("flush-pages", "N", "4", "pages that make a flush worth while", toInt(&o.FlushPages, 1, 1<<20))
	s.add("flush-thorough", "DURATION", "10s", "between flushes of whatever there is", toDuration(&o.FlushThorough, time.Millisecond))
	s.add("heartbeat", "DURATION", "5s", "silence after which a heartbeat is sent", toDuration(&o.Heartbeat, time.Millisecond))
	s.add("hello-wait", "DURATION", "1s", "silence after which a master that was asked for the extended protocol is taken for RocketMQ's", toDuration(&o.HelloWait, time.Millisecond))
	s.add("housekeeping", "DURATION", "20s", "silence after which a peer is given up", toDuration(&o.Housekeeping, time.Millisecond))
}

// resolve reads all layers. The error names every wrong setting.
func (n *nodeSettings) resolve(configFile string, environ func() []string) (ignored []string, err error) {
	ignored, err = n.table.resolve(configFile, environ)
	o := &n.Options
	if o.Role != engine.Slave && !n.table.given("ha-listen") {
		o.HAListen = defaultHAListen
	}
	err = errors.Join(err, n.resolveClients())
	if o.Retention == 0 {
		o.RetentionDisk = 0
	}
	o.RetentionGiven = n.table.given("retention") || n.table.given("retention-disk")
	o.NoPreallocate = !n.preallocate
	n.setPopulate()
	if n.table.bad["role"] && o.Master != "" {
		o.Role = engine.Slave // as was meant, so that no other mistake is made up
	}
	var mistakes *engine.OptionsError
	if vErr := o.Validate(); errors.As(vErr, &mistakes) {
		err = errors.Join(append([]error{err}, n.table.name(mistakes.Mistakes)...)...)
	} else {
		err = errors.Join(err, vErr)
	}
	return ignored, err
}

func (n *nodeSettings) setPopulate() {
	if n.PopulateBytes = n.populate; n.populate == 0 {
		n.PopulateBytes = -1 // in Options, 0 is the default
	}
}

func (n *nodeSettings) readSecretFile(path string) (err error) {
	n.secretFile = path
	if path != "" {
		n.HASecret, n.secretOpen, err = readSecret(path)
	}
	return err
}

func (n *nodeSettings) setStoreHost(s string) error {
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return fmt.Errorf("%q is no IP:PORT", s)
	}
	n.StoreHost = commitlog.Host{Addr: ap.Addr().Unmap(), Port: int32(ap.Port())}
	return nil
}

func (n *nodeSettings) setAdminListen(s string) error {
	n.adminListen = s
	return checkListen(s)
}

// checkListen says what is wrong with a HOST:PORT to listen on; empty is nowhere.
func checkListen(s string) error {
	if s == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if wrong := (*net.AddrError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("%q: %s, want HOST:PORT", s, wrong.Err)
	}
	if p, err := strconv.Atoi(port); err != nil || p < 0 || p > 65535 {
		return fmt.Errorf("%q: port must be a number from 0 to 65535", s)
	}
	return nil
}

func (n *nodeSettings) setLoad(s string) error {
	plan, err := parseLoadPlan(s)
	plan.outstanding, plan.replicas = cmp.Or(n.load.outstanding, plan.outstanding), n.load.replicas
	n.load = plan
	return err
}

func (n *nodeSettings) setLogFormat(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("%q is neither text nor json", s)
	}
	n.logFormat = s
	return nil
}
