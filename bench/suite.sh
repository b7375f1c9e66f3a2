#!/usr/bin/env bash
# Measures all that docs/benchmarks.md says of haengine beside the machine's own
# limits, and writes the page's tables and the charts of docs/img anew.
#
#   bench/suite.sh [PART...]     default: all, within 20 minutes
#
# Benchmarks take turns with their limits, and the values of a sweep with each
# other. Run it on a machine that does nothing else. Parts that are not asked for
# keep their tables.
#
#   OUT=DIR         results.jsonl and the log (default: a new temporary directory)
#   SCRATCH=DIR     where the stores go: a real disk, 20 GB (default: the temporary directory)
#   SCALE=1         measured time is so many times as long; 0.1 only shows that all works
#   HAENGINE=FILE   the binary (default: built from this tree)
#   WARM=1          0: leave memory as it is (bench/memory.sh says why it is filled)
#   WRITE=1         0: measure only, leave page and charts alone
#
# Needs Go and jq.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly scale=${SCALE:-1}
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
work=$(mktemp -d "${SCRATCH:-${TMPDIR:-/tmp}}/suite-XXXXXX")
readonly out work
readonly results=$out/results.jsonl
: >"$results"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

say() { printf '%s\n' "$*" >&2; }

# seconds N: a duration of N seconds, scaled.
seconds() { awk -v n="$1" -v s="$scale" 'BEGIN { printf "%.0fms", n * s * 1000 }'; }

# keep PART COMMAND: keeps what comes on standard input, an object a line.
keep() { jq -c --arg part "$1" --arg command "$2" '{part: $part, command: $command, result: .}' >>"$results"; }

# bench PART SECONDS ARGUMENTS of haengine bench. SECONDS is 0 for those that
# have no time of their own.
bench() {
	local part=$1 time=$2 began=$SECONDS
	shift 2
	local args=("$@")
	[[ $time == 0 ]] || args+=(--duration "$(seconds "$time")")
	sync -f "$work"
	bench/memory.sh "$work"
	"$binary" bench "${args[@]}" --dir "$work" --json | jq -c --arg skip "${skip:-}" 'select($skip == "" or (.name | startswith($skip) | not))' | keep "$part" "haengine bench ${args[*]}"
	say "$part: $((SECONDS - began)) s"
}

# Ways to receive a copy stand beside the catch-up.
part_limits() { skip='sendfile' bench limits 16 limit --rounds 3 --bytes 128MiB; }
part_puts() {
	bench sync-any 8 sync --rounds 5
	bench sync-one-core 8 sync --rounds 5 --placement one-core
	if (($(nproc) > 1)); then
		bench sync-two-cores 8 sync --rounds 5 --placement two-cores
		bench sync-spin 8 sync --rounds 5 --placement two-cores --spin 50us
	fi
	bench async 5 async --rounds 5 --bytes 2GiB
}
part_catchup() { bench catchup 0 catchup --rounds 3 --bytes 1GiB; }
part_load() { bench load 4.5 sweep load --rounds 3 --bytes 3GiB; }
part_size() {
	bench size 3 sweep size --rounds 3 --bytes 2GiB
	bench size-one 3 sweep size --producers 1 --values 128,1KiB,16KiB --rounds 3
	bench size-async 2 sweep size --async --producers 1 --rounds 3 --bytes 4GiB
}
part_producers() { bench producers 3 sweep producers --rounds 3 --bytes 2GiB; }
part_outstanding() { bench outstanding 3 sweep outstanding --rounds 3 --bytes 2GiB; }
part_replicas() {
	bench replicas 3 sweep replicas --values 1,2,3,4,8,16,32,64 --producers 8 --rounds 3
	bench replicas-rate 3 sweep replicas --values 1,4,16,32 --rate 1000 --rounds 3
}
part_lag() { bench lag 6 sweep lag --rounds 3 --bytes 3GiB; }
part_busy() { bench busy 9 busy --rounds 3 --bytes 1GiB; }
part_stuck() { bench stuck 10 stuck --rounds 5 --bytes 2GiB; }
part_flush() { bench flush 10 flush --rounds 5; }
part_start() { bench start 0 start --values 64MiB,256MiB,1GiB,2GiB --rounds 3; }
part_outage() { bench outage 0 outage --rounds 5; }
part_idle() { bench idle 15 idle --rounds 5; }
part_waiters() {
	local began=$SECONDS command="go test -run '^\$' -bench RingEnd -count 5 -benchtime $(seconds 0.5) ./transfer"
	go test -run '^$' -bench RingEnd -count 5 -benchtime "$(seconds 0.5)" ./transfer |
		sed -nE 's|^BenchmarkRingEnd/([a-z]+)/outstanding=([0-9]+).* ([0-9.]+) ns/wait.*|{"outcome":"\1","outstanding":\2,"ns_per_wait":\3}|p' |
		keep waiters "$command"
	say "waiters: $((SECONDS - began)) s"
}

machine() {
	local model
	model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
	jq -n --arg date "$(date -u +%F)" --arg commit "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" --arg model "${model:-unknown}" --arg kernel "$(uname -r)" \
		--arg filesystem "$(df --output=fstype "$work" | tail -n 1)" --arg go "$(go env GOVERSION)" --arg congestion "$(cat /proc/sys/net/ipv4/tcp_congestion_control)" \
		--argjson cores "$(nproc)" --argjson memory "$(awk '/^MemTotal/ { print $2 * 1024 }' /proc/meminfo)" \
		'{date: $date, commit: $commit, cpuModel: $model, kernel: $kernel, filesystem: $filesystem, go: $go, congestion: $congestion, cores: $cores, memoryBytes: $memory}' |
		keep machine ''
}

binary=${HAENGINE:-$work/haengine}
[[ -n ${HAENGINE:-} ]] || go build -trimpath -o "$binary" ./cmd/haengine
machine

readonly parts=(limits puts catchup load size producers outstanding replicas lag busy stuck flush start outage idle waiters)
(($#)) || set -- "${parts[@]}"
for part in "$@"; do
	[[ " ${parts[*]} " == *" $part "* ]] || { say "suite: no part $part; parts: ${parts[*]}"; exit 2; }
done
for part in "$@"; do "part_$part"; done

[[ ${WRITE:-1} == 0 ]] || go run ./bench/report -results "$results"
say "$SECONDS s; results in $results"
