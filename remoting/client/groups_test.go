package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/haengine/haengine/engine"
	"github.com/haengine/haengine/remoting"
)

// A member would make its group again, without the offsets.
func TestAGroupWithMembersIsNotDeleted(t *testing.T) {
	n := openNode(t, engine.Options{}, remoting.BrokerOptions{})
	c := newClient(t, n.names)
	sendAll(t, c, "orders", ProducerOptions{Queues: []int32{0}}, numbered(3)...)
	ctx := within(t)
	r, err := c.OpenReader(ctx, ReaderOptions{Topic: "orders", Group: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		m, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		r.Consumed(m)
	}
	if err := c.DeleteGroup(ctx, "shop"); err == nil || !strings.Contains(err.Error(), "has members (1)") {
		t.Errorf("a group with a member: %v", err)
	}
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, c, ReaderOptions{Topic: "orders", Group: "shop"}); len(got) != 0 {
		t.Errorf("%d messages come again", len(got))
	}
	if err := c.DeleteGroup(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	if g, err := c.DescribeGroup(ctx, "shop"); !errors.Is(err, ErrNoGroup) {
		t.Errorf("%+v %v", g, err)
	}
	if got := readAll(t, c, ReaderOptions{Topic: "orders", Group: "shop"}); len(got) != 3 {
		t.Errorf("%d messages are read, want all 3", len(got))
	}
}
