#!/usr/bin/env bash
# Measures sends of RocketMQ's client protocol: haengine's brokers beside the
# real RocketMQ's, taking turns on this machine.
#
#   bench/clients.sh [FIGURE...]     figures: busy single one paced idle (default: all)
#
# Each side is a synchronous master with a slave, two processes over loopback,
# with asynchronous flush, 2 copies in sync and 1 GiB segments: an answer SUCCESS
# means the same on both. One load generator (haengine bench clients) sends the
# same frames to both, in rounds that alternate. RocketMQ's brokers stay the same
# ones for all figures, so that they are warm; ours are new for each. Before each
# figure free memory is filled (bench/memory.sh says why).
#
#   busy     64 connections with 16 messages under way each
#   single   64 connections with 1 message under way each
#   one      1 connection, 1 message
#   paced    a fixed rate that both can keep; latency from when a message was due
#   idle     10,000 idle connections beside the load, of ours only
#
# Prints a table. The goals of rate and p99 are for "busy", where each side gives the
# most that it can; with less under way both wait for each other. Exit 1 if one is
# missed (GOAL_…, below).
#
#   ROUNDS=5          turns of each side
#   DURATION=15       seconds of each side, all rounds together
#   WARMUP=10         seconds of load on RocketMQ before the first figure
#   RATE=2000         messages a second of "paced"
#   GOAL_RATE=4 GOAL_P99=0.3 GOAL_IDLE=52428800
#   OUT=DIR           results.jsonl and table.md (default: a new temporary directory)
#   SCRATCH=DIR       where the stores go (default: a new temporary directory)
#   WARM=1            0: leave memory as it is
#   PORT=23876        of RocketMQ's name server; the brokers take the next 40
#   HAENGINE=FILE     the binary (default: built from this tree)
#   INTEROP_…         see interop/run.sh
#
# Needs Go, Java 17, Maven, jq.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly rounds=${ROUNDS:-5} seconds=${DURATION:-15} warmup=${WARMUP:-10} rate=${RATE:-2000} port=${PORT:-23876}
readonly goal_rate=${GOAL_RATE:-4} goal_p99=${GOAL_P99:-0.3} goal_idle=${GOAL_IDLE:-52428800}
work=${SCRATCH:-}
if [[ -n $work ]]; then mkdir -p "$work" && work=$(mktemp -d "$work/clients-XXXXXX"); else work=$(mktemp -d); fi
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
results=$(realpath "$out")/results.jsonl
readonly work out results
: >"$results"
export INTEROP_BROKER=1 INTEROP_HEAP=${INTEROP_HEAP:--Xms2g -Xmx2g}
pids=()

say() { printf '%s\n' "$*" >&2; }
die() {
	say "clients: $*"
	exit 1
}

# Ends what is left.
clean_up() {
	local pid
	for pid in "${pids[@]}"; do
		kill -KILL "$pid" 2>/dev/null || true
	done
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# started NAME ARGUMENTS: a server of RocketMQ's. They end with their input, which
# is open for as long as this script runs.
started() {
	local name=$1 i
	shift
	interop/run.sh "$@" <&7 >"$work/$name.out" 2>"$work/$name.err" &
	pids+=($!)
	disown
	for ((i = 0; i < 600; i++)); do
		! grep -q '"event":"serving"' "$work/$name.out" || return 0
		kill -0 "${pids[-1]}" 2>/dev/null || break
		sleep 0.1
	done
	cat "$work/$name.err" >&2
	die "RocketMQ's $name does not serve"
}

rocketmq_up() {
	mkfifo "$work/never" && exec 7<>"$work/never"
	interop/run.sh build
	started namesrv namesrv --port "$port"
	started master broker --role SYNC_MASTER --store "$work/master" --listen $((port + 20)) --ha-port $((port + 21)) --in-sync-replicas 2 \
		--namesrv "127.0.0.1:$port" --flush ASYNC_FLUSH
	started slave broker --role SLAVE --store "$work/slave" --listen $((port + 40)) --ha-port $((port + 41)) --broker-id 1 \
		--namesrv "127.0.0.1:$port" --master "127.0.0.1:$((port + 21))" --flush ASYNC_FLUSH
}

bench() { # ARGUMENTS of haengine bench clients
	"$binary" bench clients --rounds "$rounds" --duration "${seconds}s" --dir "$work" --json "$@"
}

theirs=(--addr "127.0.0.1:$((port + 20))")

# warm_up sends until RocketMQ's slave follows, which takes it some seconds, and
# then for a while.
warm_up() {
	local i answer
	for ((i = 0; i < 30; i++)); do
		answer=$("$binary" bench clients "${theirs[@]}" --connections 1 --outstanding 1 --rounds 1 --duration 1s --warmup 0s --json 2>/dev/null) || { sleep 1; continue; }
		jq -e '.other_answers == null' <<<"$answer" >/dev/null || { sleep 1; continue; }
		"$binary" bench clients "${theirs[@]}" --rounds 1 --duration "${warmup}s" --warmup 0s --json >/dev/null
		return
	done
	die "RocketMQ does not store messages: ${answer:-no answer}"
}

figure() { # NAME ARGUMENTS
	local name=$1
	shift
	bench/memory.sh "$work"
	say "$name"
	bench "$@" --against "127.0.0.1:$((port + 20))" --against-pid "${pids[1]},${pids[2]}" | jq -c --arg figure "$name" '{figure: $figure} + .' | tee -a "$results" |
		jq -r '"  \(.messages_per_second | floor)/s p99 \(.p99_us) µs beside \(.against.messages_per_second | floor)/s p99 \(.against.p99_us) µs"' >&2
}

table() {
	jq -r -s --argjson rate "$goal_rate" --argjson p99 "$goal_p99" --argjson idle "$goal_idle" '
		def number: if . == null then "–" elif . >= 1e4 then "\(. / 1e3 | round) k" elif . >= 100 then "\(round)"
			elif . >= 10 then "\(. * 10 | round / 10)" else "\(. * 100 | round / 100)" end;
		def met($ok): if $ok == null then "" elif $ok then "met" else "missed" end;
		def row($name; $ours; $theirs; $ratio; $goal; $ok): "| \(.figure) | \($name) | \($ours | number) | \($theirs | number) | \($ratio | number) | \($goal) | \(met($ok)) |";
		"| figure | | haengine | RocketMQ | ratio | goal | |", "| --- | --- | --- | --- | --- | --- | --- |",
		(.[] | select(.idle == null) | .against as $a | .ratio_to_against as $r | (.figure == "busy") as $judged
			| (if .figure == "paced" then empty else row("messages/s"; .messages_per_second; $a.messages_per_second; $r.messages_per_second;
				if $judged then "≥ \($rate)" else "" end; if $judged then $r.messages_per_second >= $rate else null end) end),
			row("p50, µs"; .p50_us; $a.p50_us; $r.p50; ""; null),
			row("p99, µs"; .p99_us; $a.p99_us; $r.p99; if $judged then "≤ \($p99)" else "" end; if $judged then $r.p99 <= $p99 else null end),
			row("p99.9, µs"; .p999_us; $a.p999_us; $r.p999; ""; null),
			row("CPU s a million, both processes"; .broker_cpu_seconds_per_million; $a.broker_cpu_seconds_per_million; $r.broker_cpu_per_message; ""; null),
			row("the load'"'"'s share of CPU time"; .generator_cpu_share; $a.generator_cpu_share; null; ""; null),
			(if .other_answers or $a.other_answers then "| \(.figure) | other answers by code | \(.other_answers // {} | tojson) | \($a.other_answers // {} | tojson) | | | |" else empty end)),
		(.[] | select(.idle) | .idle as $i
			| row("MiB of \($i.connections) connections"; $i.broker_anonymous_growth_bytes / 1048576; null; null; "≤ \($idle / 1048576)"; $i.broker_anonymous_growth_bytes <= $idle),
			row("p99 beside them, µs"; $i.p99_us; null; $i.p99_us / $i.p99_us_before; ""; null))' "$results"
}

binary=${HAENGINE:-$work/haengine}
[[ -n ${HAENGINE:-} ]] || go build -trimpath -o "$binary" ./cmd/haengine

(($#)) || set -- busy single one paced idle
[[ "$*" == idle ]] || { rocketmq_up && warm_up; }
for name in "$@"; do
	case $name in
	busy) figure busy --connections 64 --outstanding 16 ;;
	single) figure single --connections 64 --outstanding 1 ;;
	one) figure one --connections 1 --outstanding 1 ;;
	paced) figure paced --connections 64 --outstanding 64 --rate "$rate" ;;
	idle) bench --rate "$rate" --idle 10000 | jq -c '{figure: "idle"} + .' | tee -a "$results" | jq -r '"  \(.idle)"' >&2 ;;
	*) die "no figure $name" ;;
	esac
done

table | tee "$out/table.md"
say "results in $out"
! grep -q '| missed |' "$out/table.md"
