package remoting

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// RegistrarOptions say who registers, and where. Times of zero mean defaults.
type RegistrarOptions struct {
	NameServers []string    // HOST:PORT of each; all are told
	Local       *NameServer // the one of this process; nil: none

	Cluster, Broker    string
	ID                 func() int64 // 0: master; asked at each registration
	Address, HAAddress string       // HOST:PORT that clients, and slaves, are told

	// Topics appends the JSON of all topics with their version
	// (TopicConfigSerializeWrapper). The first time it has none or at least two.
	Topics func(dst []byte) []byte
	// OnMaster is told what a slave's registration says of its master, each time;
	// it must not block. nil: nobody is.
	OnMaster func(Registered)

	Every   time.Duration // between registrations; 0: 30 s (registerNameServerPeriod)
	Again   time.Duration // until the next try after one that failed, or told a slave no master; 0: 3 s
	Timeout time.Duration // of one; 0: 3 s
	Logger  *slog.Logger  // nil: slog.Default()
}

// Registrar keeps a broker registered at all its name servers, each on a
// connection that stays open: when it ends, the name server forgets the broker.
// One goroutine for each name server. All methods may be called from any.
type Registrar struct {
	o      RegistrarOptions
	ctx    context.Context // over when it closes
	cancel context.CancelFunc
	ended  sync.WaitGroup
	all    []*registration
}

// registration is the broker at one name server.
type registration struct {
	r    *Registrar
	addr string // empty: the local one
	wake chan struct{}
	mu   struct {
		sync.Mutex
		waiting []chan error // told of the next registration that begins
	}
	failed atomic.Bool // the last one, and that is logged; its goroutine stores
	client *Client     // its goroutine's, as all below
	lonely int         // registrations in a row that a slave was told no master at
}

// lonelyTries is how often a slave that is told no master asks again soon: most
// often it was started first. Then it is told with its next registrations.
const lonelyTries = 20

// StartRegistrar registers at once, and again and again until Close.
func StartRegistrar(o RegistrarOptions) *Registrar {
	o.Every = cmp.Or(o.Every, 30*time.Second)
	o.Again = min(cmp.Or(o.Again, 3*time.Second), o.Every)
	o.Timeout = cmp.Or(o.Timeout, 3*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	r := &Registrar{o: o}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	addrs := o.NameServers
	if o.Local != nil {
		addrs = append([]string{""}, addrs...)
	}
	for _, addr := range addrs {
		g := &registration{r: r, addr: addr, wake: make(chan struct{}, 1)}
		r.all = append(r.all, g)
		r.ended.Go(g.run)
	}
	return r
}

// Register registers everywhere now, with topics as they are now or later, and
// waits until all name servers have answered or ctx is over. It does not wait for
// one at which the last registration failed: nobody should for as long as it is
// away. The error names those that have not taken it.
func (r *Registrar) Register(ctx context.Context) error {
	waits := make([]chan error, len(r.all))
	var errs []error
	for i, g := range r.all {
		if g.failed.Load() {
			g.poke()
			errs = append(errs, fmt.Errorf("name server %s: %w", g.name(), errAway))
			continue
		}
		waits[i] = g.ask()
	}
	for i, w := range waits {
		if w == nil {
			continue
		}
		select {
		case err := <-w:
			errs = append(errs, err)
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("name server %s: %w", r.all[i].name(), ctx.Err()))
		case <-r.ctx.Done():
			errs = append(errs, ErrClosed)
		}
	}
	return errors.Join(errs...)
}

// errAway stands for the error that was logged when it began.
var errAway = errors.New("it did not take the last registration; trying again")

// Poke is Register without waiting.
func (r *Registrar) Poke() {
	for _, g := range r.all {
		g.poke()
	}
}

// Close unregisters everywhere and ends. It takes little longer than Timeout.
func (r *Registrar) Close() {
	r.cancel()
	r.ended.Wait()
}

// ask has the goroutine register and returns where its result comes.
func (g *registration) ask() chan error {
	w := make(chan error, 1)
	g.mu.Lock()
	g.mu.waiting = append(g.mu.waiting, w)
	g.mu.Unlock()
	g.poke()
	return w
}

func (g *registration) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *registration) name() string { return cmp.Or(g.addr, "of this process") }

func (g *registration) run() {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		var over <-chan struct{} // the name server has ended, or closed us
		if g.client != nil {
			over = g.client.Done()
		}
		select {
		case <-g.r.ctx.Done():
			g.unregister()
			return
		case <-next.C:
		case <-g.wake:
		case <-over:
			// At once, but not in a circle: it may come again and again.
			g.drop()
			next.Reset(g.r.o.Again)
			continue
		}
		g.mu.Lock()
		waiting := g.mu.waiting
		g.mu.waiting = nil
		g.mu.Unlock()
		alone, err := g.register()
		if g.r.ctx.Err() == nil {
			g.tell(err)
		}
		for _, w := range waiting {
			w <- err
		}
		next.Reset(g.pause(alone, err))
	}
}

// pause is the time until the next registration.
func (g *registration) pause(alone bool, err error) time.Duration {
	switch {
	case err != nil:
		return g.r.o.Again
	case !alone:
		g.lonely = 0
	case g.lonely < lonelyTries:
		g.lonely++
		return g.r.o.Again
	}
	return g.r.o.Every
}

// tell logs when registrations begin to fail, and when they no longer do.
func (g *registration) tell(err error) {
	switch o := &g.r.o; {
	case err != nil && !g.failed.Load():
		o.Logger.Warn("broker is not registered; trying again", "name_server", g.name(), "every", o.Again, "error", err)
	case err == nil && g.failed.Load():
		o.Logger.Info("broker is registered again", "name_server", g.name())
	}
	g.failed.Store(err != nil)
}

// register tells whether this is a slave that was told no master.
func (g *registration) register() (alone bool, err error) {
	o := &g.r.o
	id := o.ID()
	body := append(o.Topics([]byte(`{"filterServerList":[],"topicConfigSerializeWrapper":`)), '}')
	ctx, cancel := context.WithTimeout(g.r.ctx, o.Timeout)
	defer cancel()
	var told Registered
	if g.addr == "" {
		told, err = g.registerLocally(id, body)
	} else {
		told, err = g.registerAt(ctx, id, body)
	}
	if err != nil {
		return false, fmt.Errorf("register at name server %s: %w", g.name(), err)
	}
	if id != 0 && o.OnMaster != nil {
		o.OnMaster(told)
	}
	return id != 0 && told.MasterAddress == "", nil
}

func (g *registration) registerLocally(id int64, body []byte) (Registered, error) {
	o := &g.r.o
	topics, version, err := registeredTopics(body)
	if err != nil {
		return Registered{}, err
	}
	return o.Local.Register(&Registration{
		Cluster: o.Cluster, Broker: o.Broker, ID: id, Address: o.Address, HAAddress: o.HAAddress,
		Version: version, Topics: topics, MaySubstitute: true,
	}, nil)
}

// registeredTopics reads the body of a registration.
func registeredTopics(text []byte) (map[string]Queues, DataVersion, error) {
	var body registerBody
	if err := json.Unmarshal(quoteKeys(text), &body); err != nil {
		return nil, DataVersion{}, err
	}
	topics := make(map[string]Queues, len(body.Topics.Table))
	for name, t := range body.Topics.Table {
		topics[name] = Queues{ReadQueues: t.ReadQueues, WriteQueues: t.WriteQueues, Perm: t.Perm, SysFlag: t.SysFlag}
	}
	return topics, body.Topics.Version, nil
}

func (g *registration) registerAt(ctx context.Context, id int64, body []byte) (Registered, error) {
	answer, err := g.call(ctx, &Command{
		Code: CodeRegisterBroker,
		Ext: g.fields(id).With("haServerAddr", g.r.o.HAAddress).With("enableActingMaster", "false").With("compressed", "false").
			WithInt("bodyCrc32", bodySum(body)),
		Body: body,
	})
	if err != nil {
		return Registered{}, err
	}
	return Registered{MasterAddress: answer.Ext.Text("masterAddr"), MasterHAAddress: answer.Ext.Text("haServerAddr")}, nil
}

// fields are those that name the broker.
func (g *registration) fields(id int64) Ext {
	o := &g.r.o
	return Ext{{"brokerName", o.Broker}, {"brokerAddr", o.Address}, {"clusterName", o.Cluster}, {"brokerId", strconv.FormatInt(id, 10)}}
}

// call sends a request on the connection, which is made if there is none.
func (g *registration) call(ctx context.Context, request *Command) (*Command, error) {
	if g.client == nil {
		c, err := Dial(ctx, g.addr, nil)
		if err != nil {
			return nil, err
		}
		g.client = c
	}
	answer, err := g.client.Call(ctx, request)
	if err != nil {
		g.drop() // what it did not answer in time would come as the answer to nothing
		return nil, err
	}
	return answer, answer.Err()
}

func (g *registration) drop() {
	if g.client != nil {
		g.client.Close()
		g.client = nil
	}
}

func (g *registration) unregister() {
	o := &g.r.o
	id := o.ID()
	if g.addr == "" {
		o.Local.Unregister(o.Cluster, o.Broker, id, o.Address)
		return
	}
	defer g.drop()
	if g.client == nil {
		return // it is not registered
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	defer cancel()
	if _, err := g.call(ctx, &Command{Code: CodeUnregisterBroker, Ext: g.fields(id)}); err != nil {
		o.Logger.Warn("broker is not unregistered", "name_server", g.name(), "error", err)
	}
}
