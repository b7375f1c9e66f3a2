// Package interop proves that haengine and the real Apache RocketMQ are one
// replicated log: RocketMQ's own store, HA service, brokers and clients run as
// Java processes beside nodes of ours, in both directions and in two versions.
//
//	test ──▶ run.sh ──▶ JVM: RocketMQ's store and HA service, its broker, its client
//	  │                  │  JSON lines: commands in, events out
//	  │                  ▼
//	  │       relay: cuts, fragments, slow links, addresses of other hosts
//	  │                  ▲
//	  └──▶ engine, in the test's process, or the haengine daemon where it is killed
//
// Each case is a subtest for a version of RocketMQ. It compares the SHA-256 of
// the log's bytes on both sides, and every message as RocketMQ decodes it. What
// a case found stands as a row in docs/interop.md, which `make interop-full`
// writes. Without Java 17 and Maven the tests are left out, and say so.
package interop
