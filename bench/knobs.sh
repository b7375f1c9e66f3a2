#!/usr/bin/env bash
# Measures what each tuning setting does on this machine, against its default.
#
#   bench/knobs.sh [SETTING...]      default: all
#   bench/knobs.sh --list            what is measured, and by which load
#
# For each setting two nodes of haengine, master and slave over loopback, run
# the same load by turns with the default (A) and with another value (B): A B,
# B A, A B. The result is B ÷ A of each pair of turns: the median, and in
# brackets the least and the largest. A range that includes 1 shows nothing.
# More turns make it narrower; what else runs on the machine makes it wider.
#
# Prints a table in Markdown; a JSON line for each turn goes to OUT.
#
#   ROUNDS=3          pairs of turns
#   DURATION=1        seconds of a turn
#   CATCHUP=256MiB    log that a new slave copies
#   BUDGET=840        seconds after which no further setting is begun
#   WARM=1            0: leave memory as it is
#   OUT=DIR           turns.jsonl and table.md (default: a new temporary directory)
#   SCRATCH=DIR       where the stores go: a real disk, 4 GB (default: a new temporary directory)
#   HAENGINE=FILE     the binary (default: built from this tree)
#
# Needs Go and jq. Takes a quarter of an hour at most, on a machine that has
# nothing else to do.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly rounds=${ROUNDS:-3} seconds=${DURATION:-1} catchup_bytes=${CATCHUP:-256MiB} budget=${BUDGET:-840}

say() { printf '%s\n' "$*" >&2; }
die() {
	say "knobs: $*"
	exit 1
}

# An algorithm to compare the kernel's with.
other_congestion() {
	local now name
	now=$(</proc/sys/net/ipv4/tcp_congestion_control)
	for name in cubic reno bbr; do
		if [[ $name != "$now" ]] && grep -qw "$name" /proc/sys/net/ipv4/tcp_available_congestion_control; then
			echo "$name"
			return
		fi
	done
	echo "$now"
}

# All processors that this may use, one loop on each: 0-1.
own_cpus() { awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status; }

# The table of what is measured: setting, load, B, and what A and B share. A
# setting in capitals is an environment variable. Loads: sync-1 and sync-64
# producers, each put confirmed by the slave; pipelined: 1,000 under way; async:
# one producer, no wait; catchup: a new slave; idle, silent, hello: see there.
knobs() {
	cat <<-LIST
		reactors            sync-64    1
		pin-cpus            sync-1     $(own_cpus)
		pin-cpus            sync-64    $(own_cpus)
		spin                sync-1     50us
		spin                sync-64    50us
		GOMAXPROCS          sync-1     1
		GOMAXPROCS          sync-64    1
		sndbuf              catchup    256KiB
		rcvbuf              catchup    256KiB
		tcp-congestion      catchup    $(other_congestion)
		frame-bytes         catchup    64KiB
		sendfile-min-bytes  catchup    4MiB
		sendfile-min-bytes  sync-1     1
		ring-size           pipelined  256
		transfer-rate       catchup    64MiB
		catchup-rate        catchup    64MiB
		preallocate         async      false
		populate            async      0
		populate            async      64MiB
		populate            sync-64    0
		mlock               async      true
		flush-interval      async      50ms
		flush-pages         async      65536
		flush-thorough      async      1s          flush-pages=1048576
		flush               sync-64    SYNC_FLUSH
		heartbeat           idle       100ms
		housekeeping        silent     7s
		hello-wait          hello      100ms
	LIST
}

if [[ ${1:-} == --list ]]; then
	knobs
	exit
fi
command -v jq >/dev/null || die "jq is missing"
for name in "$@"; do
	knobs | awk -v name="$name" '$1 == name { found = 1 } END { exit !found }' || die "no setting $name; see bench/knobs.sh --list"
done

work=${SCRATCH:-}
if [[ -n $work ]]; then mkdir -p "$work" && work=$(mktemp -d "$work/knobs-XXXXXX"); else work=$(mktemp -d); fi
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
turns=$(realpath "$out")/turns.jsonl
readonly work out turns
: >"$turns"
master='' slave=''

clean_up() {
	local pid
	for pid in $slave $master; do
		kill -KILL "$pid" 2>/dev/null || true
	done
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# settle writes out what the turn before left, and fills free memory.
settle() {
	sync -f "$work"
	bench/memory.sh "$work"
}

# bench LOAD SETTING...: one turn, as a JSON object.
bench() {
	local load=$1 env=() args=() s
	shift
	for s in "$@"; do
		if [[ $s == [A-Z]* ]]; then env+=("$s"); else args+=(--set "$s"); fi
	done
	case $load in
	sync-1) set -- sync --producers 1 ;;
	sync-64) set -- sync --producers 64 ;;
	pipelined) set -- sync --producers 1 --outstanding 1000 ;;
	async) set -- async --producers 1 ;;
	catchup) set -- catchup --bytes "$catchup_bytes" ;;
	esac
	[[ $load != catchup ]] || args+=(--duration 1s)
	[[ $load == catchup ]] || args+=(--duration "${seconds}s" --bytes 2GiB)
	[[ $load == sync-1 ]] || settle
	env "${env[@]}" "$binary" bench "$@" "${args[@]}" --rounds 1 --limit=false --dir "$work" --json
}

# node STORE OPTIONS: starts a node in the background; its number is in $!.
node() {
	local store=$1
	shift
	"$binary" serve --store "$work/$store" --client-listen '' --segment-bytes 4MiB --log-format json "$@" 2>"$work/$store.log" &
}

# told FILE FIELD: a field of the line that says that a node serves.
told() {
	local i found
	for ((i = 0; i < 200; i++)); do
		found=$(jq -rR --arg field "$2" 'fromjson? | select(.msg == "serving") | .[$field]' "$1" 2>/dev/null | head -n 1) || true
		[[ -z $found ]] || { printf '%s\n' "$found"; return; }
		sleep 0.05
	done
	cat "$1" >&2
	die "a node does not serve"
}

# replicas ADMIN N SECONDS: waits until the master has N.
replicas() {
	local i
	for ((i = 0; i < $3 * 50; i++)); do
		[[ $("$binary" status --admin "$1" --json | jq '.replicas | length') != "$2" ]] || return 0
		sleep 0.02
	done
	die "not $2 replicas within $3 s"
}

# pair LOAD SETTING...: two nodes of their own, for what bench cannot load.
#   idle    CPU of both, in ms a second, while nothing happens
#   silent  seconds until a slave that stands still is given up
#   hello   seconds until a slave has joined a master that speaks RocketMQ's protocol only
pair() {
	local load=$1 args=() master_args=() s at admin begun value before
	shift
	for s in "$@"; do args+=("--$s"); done
	[[ $load != hello ]] || master_args=(--wire plain)
	rm -rf "$work/pair-master" "$work/pair-slave"
	node pair-master --role ASYNC_MASTER --ha-listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 "${master_args[@]}" "${args[@]}"
	master=$!
	at=$(told "$work/pair-master.log" ha_listen)
	admin=$(told "$work/pair-master.log" admin_listen)
	begun=$EPOCHREALTIME
	node pair-slave --role SLAVE --master "$at" --admin-listen '' "${args[@]}"
	slave=$!
	replicas "$admin" 1 30
	case $load in
	hello) value=$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }') ;;
	idle)
		sleep 1
		before=$(cpu_ms)
		sleep 6
		value=$(awk -v a="$before" -v b="$(cpu_ms)" 'BEGIN { print (b - a) / 6 }')
		;;
	silent)
		kill -STOP "$slave"
		begun=$EPOCHREALTIME
		replicas "$admin" 0 60
		value=$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')
		;;
	esac
	kill -KILL "$slave" "$master"
	wait "$slave" "$master" 2>/dev/null || true
	slave='' master=''
	jq -n --arg name "$load" --argjson value "$value" '{name: $name, value: $value}'
}

# cpu_ms: what both nodes have used, of the clock that counts in ns.
cpu_ms() {
	cat "/proc/$master/task/"*/schedstat "/proc/$slave/task/"*/schedstat | awk '{ ns += $1 } END { print ns / 1e6 }'
}

# turn SETTING LOAD VALUE SIDE ROUND SETTING...
turn() {
	local setting=$1 load=$2 value=$3 side=$4 round=$5 result
	shift 5
	case $load in
	idle | silent | hello) result=$(pair "$load" "$@") || die "$setting $side failed" ;;
	*) result=$(bench "$load" "$@") || die "$setting $side failed" ;;
	esac
	jq -c --arg setting "$setting" --arg load "$load" --arg b "$value" --arg side "$side" --argjson round "$round" \
		'{setting: $setting, load: $load, b: $b, side: $side, round: $round} + .' <<<"$result" >>"$turns"
}

table() {
	jq -r -s '
		def ratios($f): group_by(.round) | map(select(length == 2)
			| (map(select(.side == "A"))[0] | $f as $f | .[$f]) as $a | (map(select(.side == "B"))[0][$f]) as $b
			| select($a != null and $b != null and $a > 0) | $b / $a) | sort;
		def number: if . >= 100 then "\(round)" elif . >= 10 then "\(. * 10 | round / 10)" else "\(. * 100 | round / 100)" end;
		def cell: if length == 0 then "" else "\(.[length / 2 | floor] | number) (\(.[0] | number) to \(.[-1] | number))" end;
		def rate: if (.[0].messages_per_second // null) == null then "" elif .[0].load == "catchup" then ratios("bytes_per_second") | cell
			else ratios("messages_per_second") | cell end;
		def other: {idle: "CPU of an idle pair", silent: "time until a silent slave is given up", hello: "time until a slave of a RocketMQ master joins"};
		"| setting | B | load | rate, B ÷ A | p50 | p99.9 | CPU a byte | other |", "| --- | --- | --- | --- | --- | --- | --- | --- |",
		(. as $all | reduce .[] as $t ([]; if any(.[]; . == [$t.setting, $t.load, $t.b]) then . else . + [[$t.setting, $t.load, $t.b]] end)
			| .[] as [$s, $l, $b] | [$all[] | select(.setting == $s and .load == $l and .b == $b)]
			| "| `\(if $s | test("^[A-Z]") then $s else "--" + $s end)` | `\($b)` | \($l) | \(rate) | \(ratios("p50_us") | cell) | \(ratios("p999_us") | cell) | "
				+ "\(ratios("cpu_seconds_per_gb") | cell) | \(if $l | in(other) then other[$l] + ": " + (ratios("value") | cell) else "" end) |")' "$turns"
}

binary=${HAENGINE:-$work/haengine}
[[ -n ${HAENGINE:-} ]] || go build -trimpath -o "$binary" ./cmd/haengine
awk -v cpus="$(nproc)" '$1 > 0.3 * cpus { exit 1 }' /proc/loadavg || say "the load of this machine is $(cut -d ' ' -f 1 /proc/loadavg): what follows says little"

begun=$SECONDS left=()
while read -r setting load value shared; do
	if (($#)); then
		chosen=no
		for name in "$@"; do [[ $name != "$setting" ]] || chosen=yes; done
		[[ $chosen == yes ]] || continue
	fi
	if ((SECONDS - begun > budget)); then
		left+=("$setting ($load)")
		continue
	fi
	say "$setting=$value, $load"
	pairs=$rounds
	[[ $load != silent ]] || pairs=1 # it takes as long as it takes
	for ((round = 1; round <= pairs; round++)); do
		sides=(A B)
		((round % 2)) || sides=(B A)
		for side in "${sides[@]}"; do
			given=()
			[[ -z $shared ]] || given+=("$shared")
			[[ $side == A ]] || given+=("$setting=$value")
			turn "$setting" "$load" "$value" "$side" "$round" "${given[@]}"
		done
	done
done < <(knobs)

table | tee "$out/table.md"
say "$((SECONDS - begun)) s; turns and table in $out"
((${#left[@]} == 0)) || die "no time was left for: ${left[*]}"
