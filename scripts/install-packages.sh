#!/usr/bin/env bash
# Makes sure that redis-server and PostgreSQL are on this machine, unless WEIR_TEST_* names servers to use instead, and a
# C compiler, which Go's race detector needs.
# It never starts, stops or configures the services that the packages may bring: the tests run servers of their own.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=lib.sh
. ./lib.sh

wanted=()
if [[ -z ${WEIR_TEST_REDIS:-} || -z ${WEIR_TEST_REDIS_CLUSTER:-} ]]; then
	if ! have redis-server || ! have redis-cli; then wanted+=(redis-server); fi
fi
if [[ -z ${WEIR_TEST_POSTGRES:-} ]]; then
	postgres_bin >/dev/null || wanted+=(postgresql)
fi
compiler=$(go env CC)
have "${compiler%% *}" || wanted+=(gcc libc6-dev)
if ((${#wanted[@]} == 0)); then exit 0; fi

ways="install it by hand, or set WEIR_TEST_REDIS, WEIR_TEST_REDIS_CLUSTER and WEIR_TEST_POSTGRES to servers of yours (docs/development.md)"
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
