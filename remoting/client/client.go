package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/haengine/haengine/remoting"
)

// Options say where brokers are found. Only NameServers must be given.
type Options struct {
	NameServers []string      // HOST:PORT of each; the first that answers is asked
	Timeout     time.Duration // to connect, and to wait for an answer; 0: 3 s
	ID          string        // names this client in its groups; empty: from host, process and chance
	Logger      *slog.Logger  // what is tried again; nil: nobody is told
}

// Client is this program's connections to name servers and brokers, one to each
// address; producers, readers and administration share them. Any goroutine.
//
// RocketMQ: MQClientInstance.
type Client struct {
	o      Options
	names  map[string]bool // Options.NameServers
	ctx    context.Context // over when the client is closed
	cancel context.CancelFunc
	ended  sync.WaitGroup
	beats  sync.RWMutex // held to read while a heartbeat is under way
	mu     struct {
		sync.Mutex
		closed  bool
		conns   map[string]*conn
		links   map[*link]bool     // all that are open
		named   int                // of the name server that answered last
		members map[string]*Reader // by group
		produce map[string]int     // producers by group
	}
}

// New makes a client. It connects when it has to. The caller must Close it.
func New(o Options) (*Client, error) {
	if len(o.NameServers) == 0 {
		return nil, errors.New("no name server is given")
	}
	for _, addr := range o.NameServers {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("name server %q: want HOST:PORT", addr)
		}
	}
	o.Timeout = cmp.Or(o.Timeout, 3*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.ID == "" {
		host, _ := os.Hostname() // only a name
		o.ID = fmt.Sprintf("%s@%d#%s", cmp.Or(host, "localhost"), os.Getpid(), rand.Text()[:10])
	}
	c := &Client{o: o, names: map[string]bool{}}
	for _, addr := range o.NameServers {
		c.names[addr] = true
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.conns, c.mu.links, c.mu.members, c.mu.produce = map[string]*conn{}, map[*link]bool{}, map[string]*Reader{}, map[string]int{}
	c.ended.Go(c.heartbeats)
	return c, nil
}

// Close ends all connections. Producers and readers are closed before it.
func (c *Client) Close() {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return
	}
	c.mu.closed = true
	all := slices.Collect(maps.Keys(c.mu.links))
	c.mu.Unlock()
	c.cancel()
	for _, l := range all {
		l.Close()
	}
	c.ended.Wait()
}

// CallError is a request that was not answered with success. Err is a
// *remoting.ResponseError if it was answered.
type CallError struct {
	Address, What string
	Sent          bool // false: it did not leave, nobody can have acted on it
	Err           error
}

func (e *CallError) Error() string {
	var answer *remoting.ResponseError
	switch {
	case errors.As(e.Err, &answer):
		why := oneLine(strings.TrimSpace(answer.Remark))
		if name := CodeName(answer.Code); !strings.Contains(why, name) {
			why = name + ": " + why
		}
		return fmt.Sprintf("%s at %s: %s", e.What, e.Address, why)
	case errors.Is(e.Err, remoting.ErrUnsent):
		return fmt.Sprintf("%s at %s: not sent: %v", e.What, e.Address, e.Err)
	case !e.Sent:
		return fmt.Sprintf("%s: cannot connect to %s: %v", e.What, e.Address, shortCause(e.Err))
	case errors.Is(e.Err, context.DeadlineExceeded):
		return fmt.Sprintf("%s at %s: no answer in time", e.What, e.Address)
	}
	return fmt.Sprintf("%s at %s: %v", e.What, e.Address, shortCause(e.Err))
}

// remarkMax is how much of another's text an error shows, in bytes.
const remarkMax = 2000

// oneLine is a text of somebody else's for people: nothing in it does anything to a
// terminal or begins a line that looks like ours.
func oneLine(s string) string {
	if len(s) > remarkMax {
		s = strings.ToValidUTF8(s[:remarkMax], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// Unwrap is why.
func (e *CallError) Unwrap() error { return e.Err }

// codeOf is the code of the answer that err is, -1 if there was none.
func codeOf(err error) int32 {
	var answer *remoting.ResponseError
	if errors.As(err, &answer) {
		return answer.Code
	}
	return -1
}

// call asks an address, and waits for so long; 0: Options.Timeout. The error is a
// *CallError.
func (c *Client) call(ctx context.Context, addr string, request *remoting.Command, what string, wait time.Duration) (*remoting.Command, error) {
	l, err := c.connect(ctx, addr)
	if err != nil {
		return nil, &CallError{Address: addr, What: what, Err: err}
	}
	defer c.release(l)
	limited, cancel := context.WithTimeout(ctx, cmp.Or(wait, c.o.Timeout))
	defer cancel()
	answer, err := l.Call(limited, request)
	if err != nil {
		if ctx.Err() == nil && limited.Err() != nil {
			c.retire(addr, l) // who does not answer may be gone without a word
		}
		return nil, &CallError{Address: addr, What: what, Sent: !errors.Is(err, remoting.ErrUnsent), Err: err}
	}
	if err := answer.Err(); err != nil {
		if answer.Code == remoting.GoAway {
			c.retire(addr, l) // it goes on to answer what it has taken
		}
		return answer, &CallError{Address: addr, What: what, Sent: true, Err: err}
	}
	return answer, nil
}

// askNames asks name servers until one answers with success.
func (c *Client) askNames(ctx context.Context, request *remoting.Command, what string, into any) error {
	return c.eachName(ctx, request, what, func(body []byte, from string) (bool, error) {
		return true, readJSON(body, what+" from name server "+from, into)
	})
}

// eachName asks name servers, the one that answered last first, until do says that
// an answer is enough. The error is nil if there was an answer with success.
func (c *Client) eachName(ctx context.Context, request *remoting.Command, what string, do func(body []byte, from string) (enough bool, err error)) error {
	c.mu.Lock()
	first := c.mu.named
	c.mu.Unlock()
	var errs []error
	answered := false
	for i := range c.o.NameServers {
		at := (first + i) % len(c.o.NameServers)
		one := *request // a call writes into it
		answer, err := c.call(ctx, c.o.NameServers[at], &one, what, 0)
		if err == nil {
			enough, err := do(answer.Body, c.o.NameServers[at])
			if err != nil {
				return err
			}
			answered = true
			if enough {
				c.mu.Lock()
				c.mu.named = at
				c.mu.Unlock()
				return nil
			}
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	if answered {
		return nil
	}
	for _, err := range errs {
		if codeOf(err) >= 0 {
			return err // it says more than that others are not there
		}
	}
	return &NameServerError{Addresses: c.o.NameServers, Errors: errs}
}

// NameServerError means that no name server answers.
type NameServerError struct {
	Addresses []string
	Errors    []error // of each
}

func (e *NameServerError) Error() string {
	why := strings.ReplaceAll(errors.Join(e.Errors...).Error(), "\n", "; ")
	return fmt.Sprintf("no name server answers at %s: %s", strings.Join(e.Addresses, ", "), why)
}

// Unwrap is the error of each.
func (e *NameServerError) Unwrap() []error { return e.Errors }

// serve answers what brokers ask. It runs on the connection's goroutine.
func (c *Client) serve(r *remoting.Request) {
	group := r.Ext.Text("consumerGroup")
	if r.Code == remoting.CodeResetClientOffset {
		group = r.Ext.Text("group")
	}
	c.mu.Lock()
	m := c.mu.members[group]
	c.mu.Unlock()
	switch {
	case r.Code == remoting.CodeNotifyConsumersChanged && m != nil:
		m.poke()
	case r.Code == remoting.CodeResetClientOffset && m != nil:
		m.told(r)
	case r.Code == remoting.CodeNotifyConsumersChanged || r.Code == remoting.CodeResetClientOffset:
	default:
		r.ReplyCode(remoting.RequestCodeNotSupported, "this client does not support request %d", r.Code)
	}
}
