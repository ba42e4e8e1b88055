#!/usr/bin/env bash
# install-packages.sh [servers]: makes sure that what the tests start by themselves is on this machine: redis-server,
# PostgreSQL, nginx, Caddy, Prometheus and curl; Node, Python and a JDK, whose servers are asked what they serve; a C compiler,
# which Go's race detector needs; systemd-analyze, which judges the units; and Chromium, which the console's tests look through. With "servers": only what weir
# itself needs, redis-server, PostgreSQL, Java and Maven.
# It never starts, stops or configures the services that the packages may bring: the tests run servers of their own.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=lib.sh
. ./lib.sh

wanted=()

servers() {
	if ! have redis-server || ! have redis-cli; then wanted+=(redis-server); fi
	postgres_bin >/dev/null || wanted+=(postgresql)
}

kafka() {
	have java || wanted+=(default-jre-headless)
	have mvn || compgen -G "$(cache_dir)/kafka-*/libs" >/dev/null || wanted+=(maven)
}

programs() {
	local program compiler
	for program in nginx caddy prometheus curl python3; do
		have "$program" || wanted+=("$program")
	done
	if have prometheus && ! have promtool; then wanted+=(prometheus); fi # one package has both
	have systemd-analyze || wanted+=(systemd) # it reads the units, and nothing is started by it
	have ip || wanted+=(iproute2) # a newcomer's machine is made with it
	have node || wanted+=(nodejs)
	have javac || wanted+=(default-jdk-headless) # java runs a source file only where the compiler is
	if ! have "${WEIR_TEST_CHROMIUM:-chromium}" && ! have chromium-browser && ! have google-chrome-stable && ! have google-chrome; then
		wanted+=(chromium)
	fi
	compiler=$(go env CC)
	have "${compiler%% *}" || wanted+=(gcc libc6-dev)
}

PATH=$PATH:/usr/sbin # Debian's nginx, for users other than root
servers
if [[ ${1:-} == servers ]]; then kafka; else programs; fi
if ((${#wanted[@]} == 0)); then exit 0; fi

ways="install it by hand; WEIR_TEST_CHROMIUM may name a browser of yours (docs/development.md)"
have apt-get || die "missing on this machine: ${wanted[*]}, and there is no apt-get: $ways"
if [[ $(id -u) != 0 ]]; then
	die "missing on this machine: ${wanted[*]}. Run: sudo apt-get install -y ${wanted[*]}; or $ways"
fi
log "installing ${wanted[*]}"
export DEBIAN_FRONTEND=noninteractive
quietly() {
	local out
	out=$("$@" 2>&1 </dev/null) || {
		printf '%s\n' "$out" | tail -n 20 >&2
		return 1
	}
}
retry 4 quietly apt-get update || die "apt-get update failed: $ways"
retry 4 quietly apt-get install -y --no-install-recommends "${wanted[@]}" || die "apt-get install failed: $ways"
