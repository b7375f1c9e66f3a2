// Package client sends to RocketMQ brokers and reads from them, haengine's or
// RocketMQ's own, in plain Go: it is what haengine put, tail, topic and group are
// made of, and small enough to embed.
//
//	c, err := client.New(client.Options{NameServers: []string{"127.0.0.1:9876"}})
//	p, err := c.NewProducer(ctx, "orders", client.ProducerOptions{})
//	sent, err := p.Send(ctx, &client.Message{Body: []byte("order 1")})
//
//	r, err := c.OpenReader(ctx, client.ReaderOptions{Topic: "orders", Group: "shop", Follow: true})
//	m, err := r.Next(ctx) // then work with m.Content, and
//	r.Consumed(m)
//
// # The idea
//
// Name servers say which nodes a topic has, and requests go to the nodes:
//
//	name server ──▶ Route: brokers (master, slaves) and their queues
//	                  │
//	Producer ─────────┼──▶ masters        one message on the way for each queue
//	Reader ───────────┴──▶ masters, or slaves while there is no master
//	                         one goroutine (stint) for each queue, two answers ahead
//
// # What is certain
//
//   - A message is sent again only if it is certain that nobody has stored it. What
//     one request meets, its limit or a broker that goes away, leaves those beside
//     it on the connection alone.
//   - Messages of one queue are read in order. A group sees each message at least
//     once: its offsets are stored after Reader.Consumed, every few seconds and
//     when a queue or the group is left.
//   - What waits is bounded: messages on the way by Outstanding or the number of
//     queues, messages to be read by three answers for each queue, as they are
//     stored.
//   - Every request has its time limit, and every error names the address.
//
// Not here: transactions, delayed messages, request and reply, SQL92 filters,
// consumption in order over members (locks), and sending back what failed.
//
// RocketMQ: MQClientInstance, DefaultMQProducer, DefaultLitePullConsumer,
// DefaultMQAdminExt.
package client
