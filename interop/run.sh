#!/bin/sh
# Runs the real RocketMQ: run.sh build|master|slave|dump|recover|client|broker|namesrv|group|clients OPTIONS
# See README.md. Builds itself first; the process that stays is the JVM's.
#
#   INTEROP_ROCKETMQ=VERSION   of RocketMQ, 4.9.x or 5.x (default: 5.5.0)
#   INTEROP_BROKER=1           with broker, name server, mqadmin and the clients' scenarios
#   INTEROP_BUILD=DIR          where jars and classes go, a directory for each version (default: build, beside this script)
#   INTEROP_HEAP               default "-Xms2g -Xmx2g"
#   INTEROP_JVM                further options of the JVM
#   INTEROP_LOG=FILE           RocketMQ's own log (default: none)
set -e
here=$(cd "$(dirname "$0")" && pwd)
version=${INTEROP_ROCKETMQ:-5.5.0}
broker=${INTEROP_BROKER:+-broker}
builds=${INTEROP_BUILD:-$here/build}
build=$builds/$version$broker

built() {
	[ -f "$build/stamp" ] && [ -z "$(find "$here/pom.xml" "$here/src" -newer "$build/stamp" -type f)" ]
}

compile() {
	rm -rf "$build/stamp" "$build/new"
	sources=$here/src/${version%%.*} profiles=${broker:+broker}
	[ "${version%%.*}" != 4 ] || profiles=log4${broker:+,broker}
	if [ ! -f "$build/lib/stamp" ] || [ "$here/pom.xml" -nt "$build/lib/stamp" ]; then
		rm -rf "$build/lib"
		mvn -q -B -f "$here/pom.xml" "-Drocketmq.version=$version" ${profiles:+"-P$profiles"} \
			dependency:copy-dependencies -DoutputDirectory="$build/lib" >&2
		touch "$build/lib/stamp"
	fi
	mkdir -p "$build/new"
	set -- "$here"/src/main/java/interop/*.java "$sources"/java/interop/*.java
	[ -z "$broker" ] || set -- "$@" "$here"/src/broker/java/interop/*.java "$here"/src/clients/java/interop/*.java
	javac -nowarn -encoding UTF-8 -cp "$build/lib/*" -d "$build/new" "$@" >&2
	cp "$sources"/resources/* "$build/new/"
	rm -rf "$build/classes"
	mv "$build/new" "$build/classes"
	touch "$build/stamp"
}

# One build at a time, since all of them write into Maven's repository.
if ! built; then
	mkdir -p "$builds"
	(
		flock 9
		built || compile
	) 9>"$builds/lock"
fi
[ "${1:-}" != build ] || exit 0
export LC_ALL=C.UTF-8
# The options of several words are meant to be split. The packages are opened
# for RocketMQ, which unmaps its files by reflection; some of its logs always
# go to the home directory.
# shellcheck disable=SC2086
exec java ${INTEROP_HEAP:--Xms2g -Xmx2g} -XX:+UseG1GC \
	--add-opens java.base/java.nio=ALL-UNNAMED --add-opens java.base/sun.nio.ch=ALL-UNNAMED \
	--add-opens java.base/java.lang=ALL-UNNAMED --add-exports java.base/jdk.internal.ref=ALL-UNNAMED \
	-Duser.home="$build/home" -Dinterop.log="${INTEROP_LOG:-/dev/null}" -Drmq.logback.configurationFile=rmq.logback.xml \
	-Drocketmq.client.logUseSlf4j=true \
	${INTEROP_JVM:-} -cp "$build/classes:$build/lib/*" interop.Main "$@"
