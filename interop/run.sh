#!/bin/sh
# Runs the real RocketMQ store as a master or a slave: run.sh master|slave OPTIONS
# See README.md. Builds itself first; the process that stays is the JVM's.
#
#   INTEROP_BUILD=DIR   where jars and classes go (default: build, beside this script)
#   INTEROP_HEAP        default "-Xms2g -Xmx2g"
#   INTEROP_JVM         further options of the JVM
#   INTEROP_LOG=FILE    RocketMQ's own log (default: none)
set -e
here=$(cd "$(dirname "$0")" && pwd)
build=${INTEROP_BUILD:-$here/build}
if [ ! -f "$build/stamp" ] || [ -n "$(find "$here/pom.xml" "$here/src" -newer "$build/stamp" -type f)" ]; then
	mkdir -p "$build/classes"
	mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$build/lib" >&2
	javac -encoding UTF-8 -cp "$build/lib/*" -d "$build/classes" "$here"/src/main/java/interop/*.java >&2
	cp "$here"/src/main/resources/* "$build/classes/"
	touch "$build/stamp"
fi
[ "${1:-}" != build ] || exit 0
export LC_ALL=C.UTF-8
# The options of several words are meant to be split. The packages are opened
# for RocketMQ, which unmaps its files by reflection.
# shellcheck disable=SC2086
exec java ${INTEROP_HEAP:--Xms2g -Xmx2g} -XX:+UseG1GC \
	--add-opens java.base/java.nio=ALL-UNNAMED --add-opens java.base/sun.nio.ch=ALL-UNNAMED \
	--add-opens java.base/java.lang=ALL-UNNAMED --add-exports java.base/jdk.internal.ref=ALL-UNNAMED \
	-Dinterop.log="${INTEROP_LOG:-/dev/null}" -Drmq.logback.configurationFile=rmq.logback.xml \
	${INTEROP_JVM:-} -cp "$build/classes:$build/lib/*" interop.Main "$@"
