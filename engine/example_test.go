package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/haengine/haengine/engine"
)

var quiet = slog.New(slog.DiscardHandler)

// A synchronous master and its replica in one process: a put returns when the
// replica holds the record.
func Example() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "haengine")
	defer os.RemoveAll(dir)

	master, err := engine.Open(engine.Options{Store: dir + "/master", Role: engine.SyncMaster, HAListen: "127.0.0.1:0", SegmentBytes: 1 << 20, Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer master.Close(ctx)
	events, cancel := master.Subscribe(16)
	defer cancel()
	slave, err := engine.Open(engine.Options{Store: dir + "/slave", Role: engine.Slave, Master: master.HAAddr().String(), SegmentBytes: 1 << 20, Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer slave.Close(ctx)
	for e := range events {
		if e.Kind == engine.ReplicaInSync {
			break
		}
	}

	r, err := master.Put(ctx, &engine.Message{Topic: "orders", Body: []byte("one book")})
	fmt.Println(r.Status, err)
	rec, err := slave.Get(r.Offset)
	fmt.Println(string(rec.Body), err)
	// Output:
	// PUT_OK <nil>
	// one book <nil>
}

// The error tells what is not known of a record that was stored.
func ExampleEngine_Put() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "haengine")
	defer os.RemoveAll(dir)
	master, err := engine.Open(engine.Options{Store: dir, Role: engine.SyncMaster, SegmentBytes: 1 << 20, Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer master.Close(ctx)

	_, err = master.Put(ctx, &engine.Message{Topic: "orders", Body: []byte("one book")})
	var pe *engine.PutError
	if errors.As(err, &pe) {
		fmt.Println(pe.Status, "stored:", pe.Offset >= 0)
	}
	// Output:
	// SLAVE_NOT_AVAILABLE stored: true
}

// Many puts outstanding, pulled in batches as they end.
func ExampleEngine_NewCompletions() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	dir, _ := os.MkdirTemp("", "haengine")
	defer os.RemoveAll(dir)
	master, err := engine.Open(engine.Options{Store: dir, SegmentBytes: 1 << 20, Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer master.Close(ctx)

	puts := master.NewCompletions(64)
	go func() {
		for i := range 1000 {
			if err := puts.Put(ctx, &engine.Message{Topic: "orders", Body: []byte("one book")}, uint64(i)); err != nil {
				return
			}
		}
	}()
	batch := make([]engine.Completion, 64)
	for ended := 0; ended < 1000; {
		n, err := puts.Pull(ctx, batch)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, done := range batch[:n] {
			if done.Err != nil {
				fmt.Println(done.Tag, done.Err)
			}
		}
		ended += n
	}
	fmt.Println("all ended")
	// Output:
	// all ended
}

// A master under a coordinator that elects: it takes puts while it holds a lease.
func ExampleEngine_Renew() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "haengine")
	defer os.RemoveAll(dir)
	node, err := engine.Open(engine.Options{Store: dir, Role: engine.AsyncMaster, Leased: true, SegmentBytes: 1 << 20, Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close(ctx)

	const ttl, margin = 10 * time.Second, time.Second
	asked := time.Now() // before the coordinator is asked for epoch 7
	if _, err := node.Promote(ctx, engine.PromoteOptions{Role: engine.AsyncMaster, Epoch: 7}); err != nil {
		fmt.Println(err)
		return
	}
	if err := node.Renew(7, asked.Add(ttl-margin)); err != nil { // and again after each answer of its
		fmt.Println(err)
		return
	}
	r, err := node.Put(ctx, &engine.Message{Topic: "orders", Body: []byte("one book")})
	fmt.Println(r.Status, err)
	err = node.Renew(6, time.Now().Add(ttl))
	fmt.Println(errors.Is(err, engine.ErrNoLease))
	// Output:
	// PUT_OK <nil>
	// true
}
