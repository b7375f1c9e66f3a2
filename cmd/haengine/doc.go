// Command haengine runs and inspects a replicated log that speaks RocketMQ's
// master-slave replication and keeps RocketMQ's store directory.
//
// Every verb is one file. A verb asks the engine (a running node), the
// commitlog package (a store directory, read only), a node's admin address
// (HTTP) or brokers (remoting/client), and talks to people; it knows nothing of sockets or frames.
//
//	serve                one node until a signal
//	status               a running node, over its admin address
//	log info|dump|verify|diff   a store directory, offline or beside a node
//	put, tail            send to brokers and read from them, ours or RocketMQ's
//	topic, group         what administrators do there
//	demo                 the main job in one command, with real child processes
//	bench                figures beside the machine's own limits
//	tune                 which settings suit this machine, and why
//	version, completion, help
//
// The answer goes to stdout, talk goes to stderr. Exit codes: 0 done, 1 failed
// or found something wrong, 2 wrong command line or configuration. The names
// of flags and of JSON fields are a contract: docs/cli-json.md.
package main
