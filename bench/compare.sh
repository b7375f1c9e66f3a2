#!/usr/bin/env bash
# Measures haengine beside the real RocketMQ, taking turns on this machine.
#
#   bench/compare.sh [FIGURE...]     figures: sync-1 sync-64 pipelined async catchup (default: all)
#
# Each side is two processes, a master with the load in it and a slave, on the
# loopback interface with their stores on the same filesystem: same segment
# size, same wire protocol, asynchronous flush. Both are new in each turn;
# RocketMQ's is warmed up first. Before each turn dirty pages are written out.
# Before each turn free memory is filled, too (bench/memory.sh says why).
#
# Prints one JSON line for each figure and metric, then a table. Exit 1 if a
# median of haengine's is worse than RocketMQ's.
#
#   ROUNDS=3          turns of each side
#   DURATION=5        seconds of a turn
#   WARMUP=8          seconds of load before each of RocketMQ's turns
#   WARM=1            0: leave memory as it is
#   OUT=DIR           results.jsonl, table.md and turns.jsonl (default: a new temporary directory)
#   SCRATCH=DIR       where the stores go: a real disk, 12 GB (default: a new temporary directory)
#   HA_PORT=21112     of RocketMQ's master
#   HAENGINE=FILE     the binary (default: built from this tree)
#   INTEROP_…         see interop/run.sh
#
# Needs Go, Java 17, Maven, jq.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly rounds=${ROUNDS:-3} seconds=${DURATION:-5} warmup=${WARMUP:-8} port=${HA_PORT:-21112}
readonly size=1024 segment=$((256 << 20)) catchup_bytes=$((1 << 30))
work=${SCRATCH:-}
if [[ -n $work ]]; then mkdir -p "$work" && work=$(mktemp -d "$work/compare-XXXXXX"); else work=$(mktemp -d); fi
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
turns=$(realpath "$out")/turns.jsonl
readonly work out turns
: >"$turns"
master='' slave=''

say() { printf '%s\n' "$*" >&2; }
die() {
	say "compare: $*"
	exit 1
}

# Ends what is left.
clean_up() {
	local pid
	for pid in $slave $master; do
		kill -KILL "$pid" 2>/dev/null || true
	done
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# line_of FILE EVENT N SECONDS: the Nth line of the file that tells of the event.
line_of() {
	local i found
	for ((i = 0; i < $4 * 10; i++)); do
		found=$(grep -- "\"event\":\"$2\"" "$1" 2>/dev/null | sed -n "$3p") || true
		[[ -z $found ]] || { printf '%s\n' "$found"; return; }
		sleep 0.1
	done
	cat "$1".err >&2
	die "RocketMQ said nothing of $2 within $4 s"
}

master_up() { # OPTIONS
	rm -f "$work/master.in" && mkfifo "$work/master.in"
	interop/run.sh master --store "$work/master" --ha-port "$port" "$@" <"$work/master.in" >"$work/master.out" 2>"$work/master.out.err" &
	master=$!
	exec 8>"$work/master.in"
	line_of "$work/master.out" serving 1 60 >/dev/null
}

slave_up() { # OPTIONS
	rm -f "$work/slave.in" && mkfifo "$work/slave.in"
	interop/run.sh slave --store "$work/slave" --master "127.0.0.1:$port" "$@" <"$work/slave.in" >"$work/slave.out" 2>"$work/slave.out.err" &
	slave=$!
	exec 9>"$work/slave.in"
	line_of "$work/slave.out" connected 1 60 >/dev/null
}

slave_down() {
	exec 9>&-
	wait "$slave" || die "RocketMQ's slave failed"
	slave=''
}

master_down() {
	exec 8>&-
	wait "$master" || die "RocketMQ's master failed"
	master=''
	rm -rf "$work/master" "$work/slave"
}

ask() { # SECONDS COMMAND EVENT: the master's answer
	local before
	before=$(grep -c -- "\"event\":\"$3\"" "$work/master.out") || true
	printf '%s\n' "$2" >&8
	line_of "$work/master.out" "$3" $((before + 1)) "$1"
}

in_sync() {
	ask 90 'wait 60' wait | jq -e .in_sync >/dev/null || die "RocketMQ's slave does not follow"
}

cpu_seconds() { # PID...: used so far, both user and system
	local pid stat
	for pid in "$@"; do
		stat=$(<"/proc/$pid/stat")
		set -- ${stat##*) }
		echo $((${12} + ${13}))
	done | jq -s 'add / 100'
}

settle() {
	sync -f "$work"
	bench/memory.sh "$work"
}

# turn FIGURE SIDE: keeps a turn's result, a JSON object on standard input.
turn() {
	jq -c --arg figure "$1" --arg side "$2" '{figure: $figure, side: $side} + .' | tee -a "$turns" |
		jq -r '"  \(.side): \(.messages_per_second // 0 | floor)/s  \(.bytes_per_second / 1e6 | floor) MB/s  p50 \(.p50_us) p99 \(.p99_us) p99.9 \(.p999_us) µs"' >&2
}

ours() { # FIGURE ARGUMENTS of haengine bench
	local figure=$1
	shift
	settle
	"$binary" bench "$@" --rounds 1 --dir "$work" --json | turn "$figure" haengine
}

theirs() { # FIGURE ROLE LOAD
	local answer before after
	master_up --role "$2" --segment-bytes "$segment"
	slave_up --segment-bytes "$segment"
	in_sync
	ask $((warmup + 60)) "phase size=$size,seconds=$warmup,$3" phase >/dev/null
	in_sync
	settle
	before=$(cpu_seconds "$master" "$slave")
	answer=$(ask $((seconds + 60)) "phase size=$size,seconds=$seconds,$3" phase)
	after=$(cpu_seconds "$master" "$slave")
	jq -e '.status | keys == ["PUT_OK"]' <<<"$answer" >/dev/null || say "  not all puts of RocketMQ succeeded: $(jq -c .status <<<"$answer")"
	jq --argjson cpu "$(jq -n "$after - $before")" '. + {cpu_seconds_per_gb: ($cpu / (.messages * .size_bytes / 1e9))}' <<<"$answer" |
		turn "$1" rocketmq
	in_sync
	slave_down
	master_down
}

# puts FIGURE ROLE LOAD ARGUMENTS: the same load on both sides. LOAD is for
# RocketMQ, the arguments are for haengine bench.
puts() {
	local figure=$1 role=$2 load=$3 round
	shift 3
	say "$figure"
	for ((round = 1; round <= rounds; round++)); do
		ours "$figure" "$@" --size "$size" --duration "${seconds}s" --bytes 4GiB
		theirs "$figure" "$role" "$load"
	done
}

# An empty slave of RocketMQ copies its master's last segment only: its log is
# one segment. Its rate is counted from the first byte that arrives, which is
# some 5 s after the connect.
catchup() {
	local round max whole=$((catchup_bytes + (64 << 20)))
	say catchup
	for ((round = 1; round <= rounds; round++)); do
		ours catchup catchup --size "$size" --bytes "$catchup_bytes"
		master_up --role ASYNC_MASTER --segment-bytes $whole
		max=$(ask 300 "phase size=$size,threads=2,until=$catchup_bytes" phase | jq .max_offset)
		settle
		slave_up --segment-bytes $whole --until "$max"
		line_of "$work/slave.out" 'caught up' 1 120 |
			jq '. + {bytes_per_second: (.bytes / .from_first_byte_ms * 1e3), seconds_from_connect: (.from_connect_ms / 1e3)}' | turn catchup rocketmq
		slave_down
		master_down
	done
}

summary() {
	jq -c -s --argjson size "$size" '
		def median: map(select(. != null)) | sort | length as $n
			| if $n == 0 then null elif $n % 2 == 1 then .[($n - 1) / 2] else (.[$n / 2 - 1] + .[$n / 2]) / 2 end;
		def metrics: [
			{name: "messages_per_second", better: "higher", limit: (.limit.bytes_per_second? // null | if . then . / $size else null end)},
			{name: "bytes_per_second", better: "higher", limit: .limit.bytes_per_second?},
			{name: "p50_us", better: "lower", limit: .limit.p50_us?},
			{name: "p99_us", better: "lower", limit: null}, {name: "p999_us", better: "lower", limit: null},
			{name: "cpu_seconds_per_gb", better: "lower", limit: null}];
		def shown($figure; $metric): if $figure == "catchup" then $metric == "bytes_per_second" else $metric != "bytes_per_second" end;
		. as $all | reduce .[].figure as $f ([]; if index($f) then . else . + [$f] end) | .[] as $figure
		| [$all[] | select(.figure == $figure and .side == "haengine")] as $ours
		| [$all[] | select(.figure == $figure and .side == "rocketmq")] as $theirs
		| $ours[0] | metrics[] as $m | select(shown($figure; $m.name))
		| [$ours[] | metrics[] | select(.name == $m.name) | .limit] as $limits
		| {figure: $figure, metric: $m.name, better: $m.better, rounds: ($ours | length),
			haengine: ([$ours[][$m.name]] | median), limit: ($limits | median), rocketmq: ([$theirs[][$m.name]] | median),
			haengine_rounds: [$ours[][$m.name]], limit_rounds: ($limits | map(select(. != null))), rocketmq_rounds: [$theirs[][$m.name]]}
		| .haengine_to_limit = (if .limit then .haengine / .limit else null end)
		| .haengine_to_rocketmq = .haengine / .rocketmq
		| .worse = (if .better == "lower" then .haengine > .rocketmq else .haengine < .rocketmq end)' "$turns"
}

table() {
	jq -r -s '
		def number: if . == null then "–" elif . >= 1e8 then "\(. / 1e6 | round) M" elif . >= 1e4 then "\(. / 1e3 | round) k"
			elif . >= 100 then "\(round)" elif . >= 10 then "\(. * 10 | round / 10)" else "\(. * 100 | round / 100)" end;
		def unit: {messages_per_second: "messages/s", bytes_per_second: "bytes/s", p50_us: "p50, µs", p99_us: "p99, µs", p999_us: "p99.9, µs",
			cpu_seconds_per_gb: "CPU s/GB, both processes"}[.];
		"| figure | | haengine | limit | RocketMQ | haengine ÷ limit | haengine ÷ RocketMQ | |",
		"| --- | --- | --- | --- | --- | --- | --- | --- |",
		(.[] | "| \(.figure) | \(.metric | unit) | \(.haengine | number) | \(.limit | number) | \(.rocketmq | number) | \(.haengine_to_limit | number) | "
			+ "\(.haengine_to_rocketmq | number) | \(if .worse then "worse" else "better" end) |")' "$1"
}

binary=${HAENGINE:-$work/haengine}
[[ -n ${HAENGINE:-} ]] || go build -trimpath -o "$binary" ./cmd/haengine
interop/run.sh build

(($#)) || set -- sync-1 sync-64 pipelined async catchup
for figure in "$@"; do
	case $figure in
	sync-1) puts sync-1 SYNC_MASTER threads=1 sync --producers 1 ;;
	sync-64) puts sync-64 SYNC_MASTER threads=64 sync --producers 64 ;;
	pipelined) puts pipelined SYNC_MASTER threads=1,outstanding=1000 sync --producers 1 --outstanding 1000 ;;
	async) puts async ASYNC_MASTER threads=1 async --producers 1 ;;
	catchup) catchup ;;
	*) die "no figure $figure" ;;
	esac
done

summary | tee "$out/results.jsonl"
table "$out/results.jsonl" | tee "$out/table.md"
say "results in $out"
! jq -se 'any(.[]; .worse)' "$out/results.jsonl" >/dev/null
