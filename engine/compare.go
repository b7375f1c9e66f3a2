package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/haengine/haengine/commitlog"
	"github.com/haengine/haengine/transfer"
)

// Errors of a comparison with a running node.
var (
	// ErrNotSpoken means that the node at an address gives no checksums of its
	// log: it is a RocketMQ broker, an earlier version, or something else.
	ErrNotSpoken = errors.New("no checksums of a log are given there")
	// ErrChanging means that one of two logs changed while they were compared.
	ErrChanging = errors.New("a log changed while it was compared")
)

// CompareOptions bound a comparison. Zero values: as much as both logs hold, as
// fast as it goes.
type CompareOptions struct {
	From int64 // compare from here on, or from where both logs begin
	To   int64 // compare up to here, or up to where the shorter one ends; 0: to that end

	BytesPerSecond int64              // of the local log; 0: no limit
	Progress       func(c Comparison) // as far as it is; called by the caller's goroutine

	Secret []byte // that the node has to prove to know, as Options.HASecret; empty: none

	HelloTimeout  time.Duration // how long the node may be silent at first; 0: 5 s. RocketMQ's is for ever
	AnswerTimeout time.Duration // how long it may take for one answer; 0: 1 min

	node  string                                          // replica id that the node must have; empty: any
	until func(node transfer.Hello) (to int64, err error) // up to where both should be the same; nil: all
}

// NodeInfo is what a node says of itself to somebody who compares.
type NodeInfo struct {
	ClusterID, ReplicaID string
	SegmentBytes         int64
	MinOffset, MaxOffset int64
	Epochs               []commitlog.Epoch // ascending
	Answers              bool              // it gives checksums of its log
}

// Epoch is the number of the node's last epoch; 0: none.
func (n *NodeInfo) Epoch() int32 {
	if len(n.Epochs) == 0 {
		return 0
	}
	return n.Epochs[len(n.Epochs)-1].Number
}

// Comparison is what a comparison found.
type Comparison struct {
	Node      NodeInfo
	From, To  int64 // what both hold, within the options; From when they hold nothing in common
	Differs   int64 // the first offset where the bytes differ; -1: nowhere
	Compared  int64 // bytes, from From on
	Questions int   // round trips, without the first
}

// Equal tells whether there was something to compare, and it is the same.
func (c *Comparison) Equal() bool { return c.Differs < 0 && c.To > c.From }

// The pieces of one round of questions each: large ones to find where, then ever
// smaller ones inside the first that differs, down to the byte.
var comparePieces = []int64{1 << 20, 256, 1}

// Compare compares a log with that of a running node, by checksums that the
// node gives: its bytes are not fetched. The log may be open for reading beside
// its own node. It is compared up to where the shorter of both ends at the first
// look. Equal checksums of a piece are taken for equal bytes.
//
// The errors are ctx's, the log's, the dial's; ErrNotSpoken; ErrChanging; what
// wraps transfer.ErrUnanswered or transfer.ErrRefused, with the node's reason;
// the latter also if one of both has a secret that the other does not know.
func Compare(ctx context.Context, address string, log *commitlog.Log, o CompareOptions) (Comparison, error) {
	p, err := dialPeer(ctx, address, &o)
	if err != nil {
		return Comparison{Differs: -1}, err
	}
	defer p.close()
	return p.compareLog(log, &o)
}

// compareLog compares what the log and the node's have in common.
func (p *peer) compareLog(log *commitlog.Log, o *CompareOptions) (Comparison, error) {
	c := Comparison{Node: p.info(), Differs: -1}
	if o.node != "" && o.node != c.Node.ReplicaID {
		return c, fmt.Errorf("%s: %w: replica %q answers, not %q", p.address, ErrChanging, c.Node.ReplicaID, o.node)
	}
	c.From = max(o.From, log.MinOffset(), c.Node.MinOffset)
	c.To = min(log.EndOffset(), c.Node.MaxOffset)
	if o.To > 0 {
		c.To = min(c.To, o.To)
	}
	if o.until != nil {
		hello, _ := p.asker.Hello()
		to, err := o.until(hello)
		if err != nil {
			return c, err
		}
		c.To = min(c.To, to)
	}
	c.To = max(c.To, c.From)
	if c.To > c.From && !c.Node.Answers {
		return c, fmt.Errorf("%s: %w: %w", p.address, ErrNotSpoken, transfer.ErrNoAnswers)
	}
	return c, p.compare(log, &c, o)
}

// AskNode asks a running node who it is and what its log holds. secret is as
// CompareOptions.Secret.
func AskNode(ctx context.Context, address string, secret []byte) (NodeInfo, error) {
	p, err := dialPeer(ctx, address, &CompareOptions{Secret: secret})
	if err != nil {
		return NodeInfo{}, err
	}
	defer p.close()
	return p.info(), nil
}

func (p *peer) compare(log *commitlog.Log, c *Comparison, o *CompareOptions) error {
	pace := pacer{rate: o.BytesPerSecond, began: time.Now()}
	for at := c.From; at < c.To; {
		q := p.question(at, c.To, comparePieces[0])
		if o.BytesPerSecond > 0 {
			// Small enough that the node hears of us more often than once a second.
			q.To = min(q.To, at+max(o.BytesPerSecond/2, comparePieces[1]))
		}
		from, to, err := p.firstDifference(log, q, c)
		if err != nil {
			return err
		}
		for _, piece := range comparePieces[1:] {
			if from == to {
				break
			}
			was := from
			if from, to, err = p.firstDifference(log, p.question(from, to, piece), c); err != nil {
				return err
			}
			if from == to {
				return fmt.Errorf("%w: what differed from offset %d on does not any more; compare again", ErrChanging, was)
			}
		}
		if from < to {
			c.Differs, c.Compared = from, from-c.From
			return nil
		}
		at = q.To
		c.Compared = at - c.From
		if o.Progress != nil {
			o.Progress(*c)
		}
		if err := pace.wait(p.ctx, c.Compared); err != nil {
			return err
		}
	}
	return nil
}

// question asks for as much of [from, to) as the node answers at once.
func (p *peer) question(from, to, piece int64) transfer.Question {
	hello, _ := p.asker.Hello()
	// No more than we answer ourselves: an answer has to fit what we read.
	limits := transfer.QuestionLimits{Sums: min(hello.Questions.Sums, transfer.QuestionSumsMax), Bytes: min(hello.Questions.Bytes, transfer.QuestionBytesMax)}
	piece = min(piece, limits.Bytes)
	return transfer.Question{From: from, To: min(to, from+min(limits.Bytes, limits.Sums*piece)), Piece: piece}
}

// firstDifference finds the first piece whose checksum is not ours; from and to
// are the same if there is none. Ours are computed while the node computes its.
func (p *peer) firstDifference(log *commitlog.Log, q transfer.Question, c *Comparison) (from, to int64, err error) {
	c.Questions++
	if err := p.ask(q); err != nil {
		return 0, 0, err
	}
	own := make([]uint32, q.Sums())
	for n := range own {
		if own[n], err = log.Checksum(q.PieceAt(n)); err != nil {
			return 0, 0, err
		}
	}
	a, err := p.answer()
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", p.address, err)
	}
	for n := range own {
		if own[n] != a.Sums[n] {
			from, to = q.PieceAt(n)
			return from, to, nil
		}
	}
	return q.To, q.To, nil
}

// pacer keeps a rate over the whole of a comparison.
type pacer struct {
	rate  int64
	began time.Time
}

func (p *pacer) wait(ctx context.Context, done int64) error {
	if p.rate <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(time.Until(p.began.Add(time.Duration(float64(done) / float64(p.rate) * float64(time.Second)))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// peer is a connection to a node that is asked. Blocking; one goroutine.
type peer struct {
	ctx     context.Context
	address string
	conn    net.Conn
	free    func() bool // ends ctx's hold of the connection
	asker   *transfer.Asker
	patient time.Duration // for one answer
	buf     []byte
}

// dialPeer connects and waits for the node's hello.
func dialPeer(ctx context.Context, address string, o *CompareOptions) (*peer, error) {
	dialer := net.Dialer{Timeout: resolveTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("nobody answers at %s: %w", address, err)
	}
	p := &peer{ctx: ctx, address: address, conn: conn, asker: transfer.NewAsker(o.Secret), patient: o.AnswerTimeout, buf: make([]byte, 16<<10)}
	if p.patient <= 0 {
		p.patient = time.Minute
	}
	p.free = context.AfterFunc(ctx, func() { conn.Close() })
	if err := p.greet(o.HelloTimeout); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *peer) close() {
	p.free()
	p.conn.Close()
}

func (p *peer) greet(timeout time.Duration) error {
	if timeout <= 0 {
		timeout = transfer.DefaultHeartbeat
	}
	if err := p.send(p.asker.Begin(), timeout); err != nil {
		return err
	}
	for {
		if _, ok := p.asker.Hello(); ok {
			return nil
		}
		err := p.read()
		if err == nil && p.asker.Challenged() {
			err = p.prove(timeout)
		}
		switch {
		case err == nil:
		case p.ctx.Err() != nil:
			return p.ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("%s: %w: it is silent for %v; it is a RocketMQ broker, or a node with --wire plain", p.address, ErrNotSpoken, timeout)
		case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
			return fmt.Errorf("%s: %w: it closed the connection without a word; is it the HA address of a node?", p.address, ErrNotSpoken)
		case errors.Is(err, transfer.ErrUnit), errors.Is(err, transfer.ErrHello):
			return fmt.Errorf("%s: %w: what it says is not our protocol (%w); is it the HA address of a node?", p.address, ErrNotSpoken, err)
		default:
			return fmt.Errorf("%s: %w", p.address, err)
		}
	}
}

// prove answers a node that has a secret.
func (p *peer) prove(timeout time.Duration) error {
	b, err := p.asker.Prove(newNonce())
	if err != nil {
		_ = p.send(p.asker.Refuse(err), timeout) // it counts who goes without a proof, and why
		return err
	}
	return p.send(b, timeout)
}

func (p *peer) send(b []byte, patience time.Duration) error {
	err := p.conn.SetDeadline(time.Now().Add(patience))
	if err == nil {
		_, err = p.conn.Write(b)
	}
	if err != nil {
		return p.lost(err)
	}
	return nil
}

func (p *peer) lost(err error) error {
	if p.ctx.Err() != nil {
		return p.ctx.Err()
	}
	return fmt.Errorf("connection to %s: %w", p.address, err)
}

// read takes what has come, at most the unit that is being received.
func (p *peer) read() error {
	n, err := p.conn.Read(p.buf[:min(len(p.buf), p.asker.Missing())])
	if n > 0 {
		return p.asker.Feed(p.buf[:n])
	}
	return err
}

func (p *peer) ask(q transfer.Question) error {
	b, err := p.asker.Ask(q)
	if err != nil {
		return err
	}
	return p.send(b, p.patient)
}

func (p *peer) answer() (transfer.Answer, error) {
	for {
		if a, ok := p.asker.Answer(); ok {
			return a, nil
		}
		if err := p.read(); err != nil {
			return transfer.Answer{}, p.lost(err)
		}
	}
}

func (p *peer) info() NodeInfo {
	h, _ := p.asker.Hello()
	i := NodeInfo{
		ClusterID: h.ClusterID, ReplicaID: h.ReplicaID, SegmentBytes: h.SegmentBytes,
		MinOffset: h.Log.Min, MaxOffset: h.Log.End, Answers: h.Questions != transfer.QuestionLimits{},
	}
	for _, e := range h.Epochs {
		i.Epochs = append(i.Epochs, commitlog.Epoch(e))
	}
	return i
}
