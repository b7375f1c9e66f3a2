// Package clients proves that RocketMQ's own clients, unmodified, find the same at a
// haengine node as at RocketMQ's broker.
//
//	               scenario                     the same scenario
//	haengine ◀──────────────── client program ────────────────▶ RocketMQ's broker
//	master, slave              Java 5.5.0, 4.9.7, Go            master, slave
//	       └──────────── one line of result each, compared ───────────┘
//
// A scenario is run first with both masters there, others after both were killed,
// at the slaves that are left. A result holds what must be the same anywhere:
// counts, sets of statuses, whether an order was kept; and testdata/results.txt holds
// what RocketMQ's broker gave when the scenario was written, so that a scenario that
// finds nothing at both is noticed.
//
// Two more clusters are of both kinds: our master with RocketMQ's slave, and
// RocketMQ's master with ours, at RocketMQ's name server. The table of all results
// stands in docs/interop.md.
package clients
