// Package rocketmq runs the real Apache RocketMQ for tests: what run.sh starts, and
// any other process that is told commands on its standard input and answers in
// JSON lines.
//
//	test ── commands, a line each ──▶ JVM of run.sh, or another program
//	     ◀── events, a JSON object a line ──
//
// A process is killed at the end of its test if it is still there, and shows its
// last words when the test failed. Processes do not outlive the test's process.
package rocketmq
