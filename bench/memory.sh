#!/usr/bin/env bash
# Fills free memory with the pages of a file, before a benchmark.
#
#   bench/memory.sh DIR
#
# The host of a virtual machine may lend it memory page by page, as each is first
# touched, and take back what lies free: new pages of a log then cost several
# times as much as they would on a machine whose memory is full of files' pages, as it
# is on a broker that has run for a while. Reading a sparse file gives all free
# memory but LEAVE to the page cache, from which the kernel takes it for whoever needs
# it. DIR/memory is that file, on a disk (not tmpfs); with it the pages go, so remove it
# when all is measured.
#
#   LEAVE=192    MiB that stay free
#   WARM=1       0: leave memory as it is
set -euo pipefail

[[ ${WARM:-1} != 0 ]] || exit 0
readonly dir=${1:?usage: bench/memory.sh DIR} megabytes=${LEAVE:-192}
[[ $megabytes =~ ^[0-9]+$ ]] || { echo "memory: LEAVE is $megabytes, want MiB" >&2; exit 2; }
readonly file=$dir/memory leave=$((megabytes << 10))

kib() { awk -v name="$1:" '$1 == name { print $2 }' /proc/meminfo; }

readonly step=64 # MiB
total=$(($(kib MemTotal) >> 10))
truncate -s "${total}M" "$file"
for ((at = 0; at < total; at += step)); do
	(($(kib MemFree) > leave + (step << 10))) || break
	dd if="$file" of=/dev/null bs=1M skip="$at" count="$step" status=none
done
