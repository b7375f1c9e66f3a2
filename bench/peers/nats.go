package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// jetstream is NATS JetStream: three servers with a stream of three replicas on
// files.
type jetstream struct{}

func (*jetstream) Name() string { return "nats" }

func (*jetstream) About() About {
	return About{
		Version:      "NATS JetStream " + server.VERSION + ", nats.go " + moduleVersion("github.com/nats-io/nats.go"),
		Nodes:        "three servers, three processes; a stream with 3 replicas on files, synced every 2 minutes as by default. The second follower is sent everything, too, and no put waits for it",
		Acknowledged: "in the page cache of the stream's leader and of one more server",
		Load:         "a client process over loopback, connected to the stream's leader; all producers share the connection, which is faster here than several",
		Settings:     "all default but the client's limit of pending publishes",
		CatchUp:      "a server that was stopped before the records came and has lost its files; until its copy of the stream counts all records",
	}
}

func (*jetstream) Prepare(context.Context) error { return nil }

const (
	natsServers = 3
	natsStream  = "bench"
	natsSubject = "bench"
)

// natsCluster is the addresses of the servers.
type natsCluster struct {
	dir             string
	clients, routes []string
}

func (c *natsCluster) name(i int) string { return "n" + strconv.Itoa(i) }

func (c *natsCluster) start(ctx context.Context, i int) (*process, error) {
	p, err := launchNode("NATS server "+c.name(i), "nats", "--id", c.name(i), "--dir", filepath.Join(c.dir, c.name(i)),
		"--listen", c.clients[i], "--cluster", c.routes[i], "--members", strings.Join(c.routes, ","))
	if err != nil {
		return nil, err
	}
	_, err = p.await(ctx, "serving")
	return p, err
}

func (*jetstream) Start(ctx context.Context, plan Plan) (_ *System, err error) {
	s := new(System)
	defer closeUnless(s, &err)
	ports, err := freePorts(2 * natsServers)
	if err != nil {
		return nil, err
	}
	c := &natsCluster{dir: plan.Dir}
	for i := range natsServers {
		c.clients, c.routes = append(c.clients, address(ports[2*i])), append(c.routes, address(ports[2*i+1]))
	}
	for i := range natsServers {
		if _, err := s.add(c.start(ctx, i)); err != nil {
			return nil, err
		}
	}
	if s.driver, err = s.add(launchNode("NATS client", "nats-load", "--members", strings.Join(c.clients, ","))); err != nil {
		return nil, err
	}
	s.driver.load = true
	if _, err := s.driver.await(ctx, "serving"); err != nil {
		return nil, err
	}
	if err := s.waitInSync(ctx); err != nil || !plan.Late {
		return s, err
	}
	return s, c.leaveOut(ctx, s)
}

// leaveOut stops a server that does not lead the stream, and takes its files.
func (c *natsCluster) leaveOut(ctx context.Context, s *System) error {
	e, err := s.driver.ask(ctx, "status", "status")
	if err != nil {
		return err
	}
	late := 0
	for c.name(late) == e.Leader {
		late++
	}
	s.processes[late].kill()
	s.processes = slices.Delete(s.processes, late, late+1)
	if err := os.RemoveAll(filepath.Join(c.dir, c.name(late))); err != nil {
		return err
	}
	s.join = func(ctx context.Context) (*process, error) { return c.start(ctx, late) }
	return nil
}

// natsNode is a server in this process.
type natsNode struct{ server *server.Server }

func startNATS(ctx context.Context, o nodeOptions) (node, string, error) {
	host, port, err1 := splitAddress(o.listen)
	clusterHost, clusterPort, err2 := splitAddress(o.cluster)
	if err := errors.Join(err1, err2); err != nil {
		return nil, "", err
	}
	options := &server.Options{
		ServerName: o.id, Host: host, Port: port, JetStream: true, StoreDir: o.dir, NoSigs: true,
		Cluster: server.ClusterOpts{Name: "bench", Host: clusterHost, Port: clusterPort},
	}
	for _, member := range o.members {
		if member != o.cluster {
			options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: member})
		}
	}
	s, err := server.NewServer(options)
	if err != nil {
		return nil, "", err
	}
	s.Start()
	for !s.ReadyForConnections(100 * time.Millisecond) {
		if ctx.Err() != nil {
			s.Shutdown()
			return nil, "", errors.New("the server takes no connections")
		}
	}
	return &natsNode{s}, s.ClientURL(), nil
}

func splitAddress(s string) (host string, port int, err error) {
	host, text, ok := strings.Cut(s, ":")
	port, err = strconv.Atoi(text)
	if !ok || err != nil {
		return "", 0, fmt.Errorf("%q is no address", s)
	}
	return host, port, nil
}

// status counts the records of this server's copy of the stream.
func (n *natsNode) status(context.Context) (e event, err error) {
	all, err := n.server.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return e, err
	}
	for _, account := range all.AccountDetails {
		for _, s := range account.Streams {
			if s.Name == natsStream {
				e.MaxOffset = int64(s.State.Msgs)
			}
		}
	}
	return e, nil
}

func (n *natsNode) close() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}

// natsLoad is the client. All producers publish to the stream's leader.
type natsLoad struct {
	connection *nats.Conn        // to any server, for the stream's own matters
	urls       map[string]string // by server name
	stream     natsjs.Stream
	leader     *nats.Conn // of the producers; nil between phases
	producers  int        // that share it
}

func startNATSLoad(ctx context.Context, o nodeOptions) (node, string, error) {
	l := &natsLoad{urls: map[string]string{}}
	for i, member := range o.members {
		l.urls[(&natsCluster{}).name(i)] = "nats://" + member
	}
	c, err := nats.Connect("nats://" + strings.Join(o.members, ",nats://"))
	if err != nil {
		return nil, "", err
	}
	l.connection = c
	js, err := natsjs.New(c)
	if err != nil {
		return nil, "", err
	}
	// The servers take a moment to elect the one that makes streams.
	err = poll(ctx, 50*time.Millisecond, "make a stream with 3 replicas", func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		l.stream, err = js.CreateStream(ctx, natsjs.StreamConfig{
			Name: natsStream, Subjects: []string{natsSubject}, Storage: natsjs.FileStorage, Replicas: natsServers,
		})
		return err == nil, err
	})
	return l, "", err
}

func (l *natsLoad) status(ctx context.Context) (event, error) {
	info, err := l.stream.Info(ctx)
	if err != nil {
		return event{}, err
	}
	return event{MaxOffset: int64(info.State.Msgs), Leader: info.Cluster.Leader}, nil
}

func (l *natsLoad) close() {
	l.connection.Close()
	if l.leader != nil {
		l.leader.Close()
	}
}

func (l *natsLoad) wait(ctx context.Context) error {
	return poll(ctx, 20*time.Millisecond, "all replicas of the stream are current", func() (bool, error) {
		info, err := l.stream.Info(ctx)
		if err != nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) < natsServers-1 {
			return false, err
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current || r.Offline {
				return false, fmt.Errorf("%s has %d to go", r.Name, r.Lag)
			}
		}
		return true, nil
	})
}

// producer connects to the stream's leader, if it is the first one of a phase.
func (l *natsLoad) producer(size, outstanding int) (producer, error) {
	if l.producers == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		info, err := l.stream.Info(ctx)
		if err != nil {
			return nil, err
		}
		if l.leader, err = nats.Connect(l.urls[info.Cluster.Leader]); err != nil {
			return nil, fmt.Errorf("connect to the stream's leader %q: %w", info.Cluster.Leader, err)
		}
	}
	js, err := natsjs.New(l.leader, natsjs.WithPublishAsyncMaxPending(outstanding))
	if err != nil {
		return nil, err
	}
	l.producers++ // close takes it back
	return &natsProducer{load: l, js: js, body: newBody(size), outstanding: outstanding}, nil
}

type natsProducer struct {
	load        *natsLoad
	js          natsjs.JetStream
	body        []byte
	outstanding int
}

func (p *natsProducer) put() error {
	_, err := p.js.Publish(context.Background(), natsSubject, p.body)
	return err
}

func (p *natsProducer) pipeline(more func() bool, ended func(begun time.Time)) error {
	return inOrder(p.outstanding, more,
		func() (natsjs.PubAckFuture, error) {
			return p.js.PublishAsync(natsSubject, p.body, natsjs.WithStallWait(time.Minute))
		},
		func(f natsjs.PubAckFuture) error {
			select {
			case <-f.Ok():
				return nil
			case err := <-f.Err():
				return err
			}
		}, ended)
}

// close ends the connection with the last producer of a phase.
func (p *natsProducer) close() {
	if p.load.producers--; p.load.producers == 0 {
		p.load.leader.Close()
		p.load.leader = nil
	}
}
