#!/usr/bin/env bash
# test.sh setup|lint|embedded|real|all|faults: the tests of this repository.
#
#   setup     installs and fetches what the rest needs
#   lint      go vet and golangci-lint
#   embedded  go test -race with embedded parts; nothing has to be running
#   real      go test of what can use a server against a real Kafka, redis-server, Redis Cluster and PostgreSQL, which it starts where
#             WEIR_TEST_* does not name any; a skipped test fails it
#   all       setup, lint, embedded, real: what `make test` does. Every step says how long it took, the last lines
#             are the result lines of the run against the real servers
#   faults    the long form of internal/faults: kills, freezes and restarts under load, with a table at the end
set -euo pipefail
cd "$(dirname "$0")/.."
self=scripts/test.sh
# shellcheck source=lib.sh
. scripts/lib.sh

# The steps of `all` share one folder, so that the last one can count what the others ran.
if [[ -n ${WEIR_TEST_WORK:-} ]]; then
	work=$WEIR_TEST_WORK
else
	work=$(mktemp -d "${TMPDIR:-/tmp}/weir-test.XXXXXX")
	trap 'rm -rf "$work"' EXIT
fi
trap 'exit 130' INT
trap 'exit 143' TERM

# step TITLE PART: each part runs as a process of its own, since bash ignores `set -e` in a function whose result is looked at.
step() {
	local start=$SECONDS
	log "== $1"
	if ! "$self" "$2"; then
		log "== $1: FAILED after $((SECONDS - start))s"
		exit 1
	fi
	log "== $1: $((SECONDS - start))s"
}

setup() {
	scripts/install-packages.sh
	if [[ -z ${WEIR_TEST_KAFKA:-} || -z ${WEIR_TEST_KAFKA_HOME:-} ]]; then scripts/fetch-kafka.sh >/dev/null; fi
	retry 4 go mod download
}

# beside TITLE PART OTHER-TITLE OTHER-PART: two steps at once; what the first one says is shown when both are through.
beside() {
	local start=$SECONDS first failed=0
	log "== $1, and $3"
	"$self" "$2" >"$work/$2.log" 2>&1 &
	first=$!
	# shellcheck disable=SC2064 # this process, not the one of then
	trap "kill $first 2>/dev/null || true; rm -rf '$work'" EXIT
	"$self" "$4" || failed=1
	log "== $3: $([[ $failed = 0 ]] || echo 'FAILED after ')$((SECONDS - start))s"
	if wait "$first"; then
		log "== $1: done"
	else
		failed=1
		log "== $1: FAILED"
	fi
	trap 'rm -rf "$work"' EXIT
	cat "$work/$2.log"
	if [[ $failed != 0 ]]; then exit 1; fi
}

lint() {
	if have shellcheck; then shellcheck scripts/*.sh deploy/*/*.sh .ci/run; fi
	go vet ./...
	scripts/golangci-lint.sh run --allow-parallel-runners ./...
}

# What the tests run is built once: the reporter, and weir itself for the packages that run it as a user would.
programs() {
	if [[ ! -x $work/testreport ]]; then go build -o "$work/testreport" ./scripts/testreport; fi
	if [[ ! -x $work/weir ]]; then go build -o "$work/weir" ./cmd/weir; fi
	export WEIR_TEST_PROGRAM=$work/weir
}

# Most tests wait for a server most of the time, so more packages and tests run at once than there are processors. The
# program's own deadlines (a session, a lease, a header) hold in tests too: that bounds how many.
# `go vet` is lint's.
side_by_side=(-vet=off -p 3 -parallel 4)

# What starts no goroutine (internal/arch sees to that for detectors) has nothing for the race detector to find, and runs ten
# times as fast without it.
sequential=(./detectors ./internal/oracle ./internal/order)

# but PACKAGE...: all packages of the module but these.
but() {
	local all
	all=$(go list ./...)
	grep -vxF "$(go list "$@")" <<<"$all"
}

# longest_first: the packages of the list on standard input, those that take longest in front: what waits for servers for minutes
# does so beside the others, not after them.
longest_first() {
	local all first=(internal/simulation cmd/weir internal/faults internal/acceptance blocklist/reconcile internal/demo internal/boardtest)
	all=$(cat)
	for p in "${first[@]}"; do grep -x "github.com/weirhq/weir/$p" <<<"$all" || true; done
	grep -vxF "$(printf 'github.com/weirhq/weir/%s\n' "${first[@]}")" <<<"$all"
}

# with_servers: the packages whose tests can make use of a server or a browser; the others have said everything in the run before. The
# simulation runs all of its mutations without the race detector only, on the processors that the others, who wait for their
# servers most of the time, leave.
with_servers() {
	{
		go list ./internal/simulation
		go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}} {{join .Imports " "}}' ./... |
			grep -E '/internal/(testbed|browser)( |$)' | cut -d' ' -f1
	} | longest_first
}

embedded_tests() {
	local racing status=0
	racing=$(but "${sequential[@]}" | longest_first)
	# shellcheck disable=SC2086 # one word a package
	env -u WEIR_TEST_KAFKA -u WEIR_TEST_KAFKA_HOME -u WEIR_TEST_REDIS -u WEIR_TEST_REDIS_CLUSTER -u WEIR_TEST_POSTGRES -u WEIR_TEST_REQUIRE_REAL \
		WEIR_TEST_REPORT="$work/embedded" go test -race -timeout 20m "${side_by_side[@]}" -json $racing || status=$?
	go test -vet=off -timeout 15m -json "${sequential[@]}" || status=$?
	return "$status"
}

embedded() {
	programs
	embedded_tests |
		WEIR_TEST_REPORT="$work/embedded" "$work/testreport" -title "with embedded parts, race detector on"
}

real() {
	programs
	export WEIR_TEST_REPORT=$work/real WEIR_TEST_REQUIRE_REAL=1
	# -count=1: a result from the cache says nothing about servers that were started just now.
	local packages
	packages=$(with_servers)
	# shellcheck disable=SC2086 # one word a package
	scripts/with-servers.sh go test -count=1 -timeout 20m "${side_by_side[@]}" -json $packages |
		"$work/testreport" -real -title "against real servers" -earlier "$work/embedded"
}

faults() {
	export WEIR_TEST_REQUIRE_REAL=1 WEIR_TEST_FAULTS=full
	scripts/with-servers.sh go test -count=1 -timeout 60m -v ./internal/faults
}

case ${1:-} in
setup) setup ;;
lint) lint ;;
embedded) embedded ;;
real) real ;;
faults)
	setup
	faults
	;;
all)
	export WEIR_TEST_WORK=$work
	step "set-up" setup
	beside "vet and lint" lint "tests with embedded parts" embedded
	log "== tests against real servers (the rest took ${SECONDS}s)"
	"$self" real
	;;
*) die "usage: $0 setup|lint|embedded|real|all|faults, got \"${1:-}\"" ;;
esac
