#!/usr/bin/env bash
# test.sh setup|lint|embedded|raced|real|all|faults: the tests of this repository.
#
#   setup     installs and fetches what the rest needs
#   lint      golangci-lint, with the analyzers of go vet
#   embedded  all tests with embedded parts, those with goroutines of weir's under the race detector; nothing has to be running
#   raced     of these, those under the race detector; a skipped test fails it
#   real      without the race detector: what can use a server against a real Kafka, redis-server, Redis Cluster and PostgreSQL, which it starts
#             where WEIR_TEST_* does not name any, and what `raced` leaves; a skipped test fails it
#   all       setup, lint, raced, real: what `make test` does. Every step says how long it took, the last lines
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
	scripts/fetch-kubernetes-schemas.sh >/dev/null
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

# as_image COMMAND...: where no race detector is needed, everything is compiled as the image's program is (Dockerfile), whose build is
# tested, too: so that nothing is compiled twice.
as_image() {
	CGO_ENABLED=0 GOFLAGS="-trimpath${GOFLAGS:+ $GOFLAGS}" "$@"
}

# golangci-lint's govet is all of `go vet`'s analyzers, and sees the same files: to run both would be the same twice.
lint() {
	if have shellcheck; then shellcheck scripts/*.sh deploy/*/*.sh .ci/run; fi
	scripts/helm.sh            # which the tests of the chart ask for, later
	scripts/cyclonedx-gomod.sh # and those of the release
	as_image scripts/golangci-lint.sh run --allow-parallel-runners ./...
}

# What the tests run is built once: the reporter, and weir itself for the packages that run it as a user would.
programs() {
	if [[ ! -x $work/testreport ]]; then as_image go build -o "$work/testreport" ./scripts/testreport; fi
	if [[ ! -x $work/weir ]]; then as_image go build -buildvcs=false -o "$work/weir" ./cmd/weir; fi
	export WEIR_TEST_PROGRAM=$work/weir
}

# Most tests wait for a server most of the time, so more packages and tests run at once than there are processors. The
# program's own deadlines (a session, a lease, a header) hold in tests too: that bounds how many.
# The analyzers of `go vet` are lint's.
side_by_side=(-vet=off -p 3 -parallel 4)

# What starts no goroutine of weir's in its own process has nothing for the race detector to find, and runs ten times as fast without it:
# arithmetic (internal/arch sees to that for detectors) and the work of other programs, such as promtool.
plain=(./detectors ./internal/oracle ./internal/order ./internal/arch ./internal/deploy ./dashboards ./dashboards/alerts)

# What runs weir as a user would, in processes of their own, which are built without the race detector.
processes=(./internal/faults ./internal/acceptance ./internal/boardtest ./internal/adversary ./internal/doctest ./internal/kube ./internal/operations ./internal/secured)

# but PACKAGE...: all packages of the module but these.
but() {
	local all
	all=$(go list ./...)
	grep -vxF "$(go list "$@")" <<<"$all"
}

# longest_first: the packages of the list on standard input, each once, those that take longest in front: what waits for servers for
# minutes does so beside the others, not after them.
longest_first() {
	local all first=(cmd/weir internal/simulation internal/faults internal/acceptance blocklist/reconcile history/rulestore internal/loadgen dashboards
		internal/boardtest internal/operations internal/secured dashboards/alerts internal/demo ingest/backtest internal/adversary internal/deploy gate blocklist/replica)
	all=$(sort -u)
	for p in "${first[@]}"; do grep -x "github.com/weirhq/weir/$p" <<<"$all" || true; done
	grep -vxF "$(printf 'github.com/weirhq/weir/%s\n' "${first[@]}")" <<<"$all" || true
}

# racing: what has goroutines of weir's for the race detector to watch.
racing() { but "${plain[@]}" "${processes[@]}" | longest_first; }

# with_servers: the packages whose tests ask for Kafka or Redis, and may so get an embedded one. The others have said everything in the run before: a PostgreSQL,
# a Prometheus or a browser is the same in both. testreport fails where one is missing here.
with_servers() {
	local dir asked='Kafka|Redis|RedisCluster|EachRedis|Own\w+|Embedded\w+' by='kafkakit|exactness|blocktest'
	# Where somebody names a PostgreSQL, it is another one than those of the run before.
	if [[ -n ${WEIR_TEST_POSTGRES:-} ]]; then asked+='|Postgres' by+='|historytest'; fi
	go list -f '{{.Dir}} {{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | while read -r dir package imports; do
		if grep -qE "/($by)( |\$)" <<<"$imports" || grep -qE "testbed\.($asked)\(" "$dir"/*.go; then echo "$package"; fi
	done
}

# unraced: what runs without the race detector, against real servers. The simulation runs all of its seeds and mutations here only, on the
# processors that the others, who wait for their servers most of the time, leave.
unraced() {
	{
		go list "${plain[@]}" "${processes[@]}" ./internal/simulation
		with_servers
	} | longest_first
}

# with_race: the run under the race detector, whose tests get embedded parts. -trimpath: what another checkout has compiled counts here, too.
with_race() {
	local packages
	packages=$(racing)
	# shellcheck disable=SC2086 # one word a package
	go test -race -trimpath -timeout 20m "${side_by_side[@]}" -json $packages
}

# alone_with_embedded_parts CALL...: calls it where no server is named.
alone_with_embedded_parts() {
	unset WEIR_TEST_KAFKA WEIR_TEST_KAFKA_HOME WEIR_TEST_REDIS WEIR_TEST_REDIS_CLUSTER WEIR_TEST_POSTGRES WEIR_TEST_REQUIRE_REAL
	export WEIR_TEST_REPORT=$work/embedded
	"$@"
}

# raced: the part of `all` with embedded parts. What else there is runs against real servers afterwards, once.
raced() {
	programs
	alone_with_embedded_parts with_race |
		WEIR_TEST_REPORT="$work/embedded" "$work/testreport" -whole -title "with embedded parts, race detector on"
}

every_embedded_test() {
	local status=0
	with_race || status=$?
	as_image go test -timeout 20m "${side_by_side[@]}" -json "${processes[@]}" "${plain[@]}" || status=$?
	return "$status"
}

embedded() {
	programs
	alone_with_embedded_parts every_embedded_test |
		WEIR_TEST_REPORT="$work/embedded" "$work/testreport" -title "with embedded parts, race detector on"
}

real() {
	programs
	export WEIR_TEST_REPORT=$work/real WEIR_TEST_REQUIRE_REAL=1
	# -count=1: a result from the cache says nothing about servers that were started just now.
	local packages
	packages=$(unraced)
	# shellcheck disable=SC2086 # one word a package
	as_image scripts/with-servers.sh go test -count=1 -timeout 20m "${side_by_side[@]}" -json $packages |
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
raced) raced ;;
real) real ;;
faults)
	setup
	faults
	;;
all)
	export WEIR_TEST_WORK=$work
	step "set-up" setup
	beside "lint" lint "tests with embedded parts" raced
	log "== tests against real servers (the rest took ${SECONDS}s)"
	"$self" real
	;;
*) die "usage: $0 setup|lint|embedded|raced|real|all|faults, got \"${1:-}\"" ;;
esac
