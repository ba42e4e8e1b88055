#!/usr/bin/env bash
# test.sh setup|lint|landing|night|embedded|quick|servers|packages|faults|mutants|all: the tests of this repository.
#
#   setup     installs and fetches what the rest needs
#   lint      golangci-lint, with the analyzers of go vet
#   landing   every test that a landing has, once, against a real Kafka, redis-server, Redis Cluster and PostgreSQL, which it starts where
#             WEIR_TEST_* does not name any; what has goroutines of weir's under the race detector. A skipped test fails it
#   all       setup, then lint beside landing: what `make test` does. Every step says how long it took
#   night     the long forms of everything, and the race detector over everything: what `make test-night` does
#   embedded  all tests with embedded parts, without the race detector; nothing has to be running
#   quick     lint of what changed since main, the tests of these packages, and the short tests of those that import them
#   servers   the landing, which writes the list of the tests that use servers anew
#   packages  how a landing runs each package: raced, or plain
#   faults    the long form of internal/faults: kills, freezes and restarts under load, with a table at the end
#   mutants   breaks what the documents promise, one promise after the other, and wants the test that holds it to fail
set -euo pipefail
cd "$(dirname "$0")/.."
self=scripts/test.sh
# shellcheck source=lib.sh
. scripts/lib.sh

# The steps of one run share one folder: what the tests run is built once.
if [[ -n ${WEIR_TEST_WORK:-} ]]; then
	work=$WEIR_TEST_WORK
else
	work=$(mktemp -d "${TMPDIR:-/tmp}/weir-test.XXXXXX")
	trap 'rm -rf "$work"' EXIT
fi
export WEIR_TEST_WORK=$work WEIR_TEST_KEPT=$work/kept
mkdir -p "$WEIR_TEST_KEPT"
trap 'exit 130' INT
trap 'exit 143' TERM

# step TITLE PART: each part runs as a process of its own, since bash ignores `set -e` in a function whose result is looked at.
step() {
	local start=$SECONDS
	log "== $1"
	if ! "$self" "$2"; then
		log "== $1: FAILED after $((SECONDS - start))s"
		return 1
	fi
	log "== $1: $((SECONDS - start))s"
}

setup() {
	scripts/install-packages.sh
	if [[ -z ${WEIR_TEST_KAFKA:-} || -z ${WEIR_TEST_KAFKA_HOME:-} ]]; then scripts/fetch-kafka.sh >/dev/null; fi
	scripts/fetch-kubernetes-schemas.sh >/dev/null
	retry 4 go mod download
	scripts/helm.sh            # which the tests of the chart ask for
	scripts/cyclonedx-gomod.sh # and those of the release
}

# beside TITLE PART OTHER-TITLE OTHER-PART: two steps at once, of which the first one has what the other leaves of the processors. What it
# says is shown when both are through, and the result lines of the other come last.
beside() {
	local first failed=0
	nice -n 5 "$self" "$2" >"$work/$2.log" 2>&1 &
	first=$!
	# shellcheck disable=SC2064 # this process, not the one of then
	trap "kill $first 2>/dev/null || true; rm -rf '$work'" EXIT
	step "$3" "$4" || failed=1
	if wait "$first"; then
		log "== $1: $(<"$work/$2.time")s, beside"
	else
		failed=1
		log "== $1: FAILED"
	fi
	trap 'rm -rf "$work"' EXIT
	cat "$work/$2.log"
	cat "$work/lines" 2>/dev/null || true
	return "$failed"
}

# Where no race detector is needed, everything is compiled as the image's program is (Dockerfile), whose build is tested, too: so that nothing
# is compiled twice.
as_image=(env CGO_ENABLED=0 "GOFLAGS=-trimpath${GOFLAGS:+ $GOFLAGS}")
# -trimpath: what another checkout has compiled counts here, too. Nobody looks at these programs with a debugger: to write down for it what
# they are made of, which the linker throws away, costs a quarter of compiling them. Traces of panics and of races have their lines without.
with_race=(env CGO_ENABLED=1 "GOFLAGS=-trimpath -gcflags=all=-dwarf=false${GOFLAGS:+ $GOFLAGS}")

# golangci-lint's govet is all of `go vet`'s analyzers, and sees the same files: to run both would be the same twice.
lint() {
	if have shellcheck; then shellcheck scripts/*.sh deploy/*/*.sh .ci/run; fi
	"${as_image[@]}" scripts/golangci-lint.sh run --allow-parallel-runners ./...
	printf '%s\n' "$SECONDS" >"$work/lint.time"
}

# What the tests run is built once: the reporter, and weir itself for the packages that run it as a user would. From here on garbage is
# collected less often, in the linker as in the tests: both make small heaps anew again and again, and spent a fifth of their time on it.
programs() {
	export GOGC=${GOGC:-400}
	"${as_image[@]}" go build -o "$work/testreport" ./scripts/testreport
	if [[ ! -x $work/weir ]]; then "${as_image[@]}" go build -buildvcs=false -o "$work/weir" ./cmd/weir; fi
	export WEIR_TEST_PROGRAM=$work/weir
}

# tested TITLE FLAGS... -- COMMAND... [-- COMMAND...]: runs go test's commands side by side, and judges what they say.
tested() {
	local title=$1
	shift
	"$work/testreport" -title "$title" ${WEIR_TEST_LINES:+-lines "$WEIR_TEST_LINES"} -kept "$WEIR_TEST_KEPT" -commit "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$@"
}

# -count=1: a result from the cache says nothing about servers that were started just now. The analyzers of `go vet` are lint's.
go_test=(go test -json -count=1 -vet=off -timeout 20m -exec "$PWD/scripts/keep-binary.sh")
# The race detector makes heaps so large that garbage is collected as usual, in the tests alone: not while they are compiled.
go_test_raced=("${go_test[@]}" -race -exec "env GOGC=100 $PWD/scripts/keep-binary.sh")

# What runs weir as a user would. The tests of cmd/weir and of its server run the same code in their own process,
# from end to end: what is beneath it runs under the race detector by itself, and to compile and run all of it so
# once more is for the night.
processes=(./cmd/weir ./cmd/weir/internal/server ./internal/faults ./internal/acceptance ./internal/boardtest
	./internal/adversary ./internal/doctest ./internal/kube ./internal/operations ./internal/secured)

# What draws thousands of worlds finds more by drawing more of them than by drawing a tenth of them under the race detector: that is for the
# night, too.
drawn=(./internal/simulation ./internal/demo ./ingest/backtest)

# raced: the packages that a landing runs under the race detector: those with goroutines of weir's, or with state that several may share, and
# those that are tested in bubbles of virtual time. What starts none has nothing for it to find, and runs ten times as fast without it.
raced() {
	{
		grep -rlE --include='*.go' --exclude='*_test.go' '^\s*go [a-z]|\.Go\(|"sync(/atomic)?"' .
		grep -rlE --include='*_test.go' '^\s*"testing/synctest"' .
	} | sed -E 's|^\.|github.com/weirhq/weir|; s|/[^/]*$||' | sort -u | grep -xF "$(go list ./...)" |
		grep -vxF "$(go list "${processes[@]}" "${drawn[@]}")" | longest_first
}

# unraced: all others.
unraced() {
	local all
	all=$(go list ./...)
	grep -vxF "$(raced)" <<<"$all" | longest_first
}

# longest_first: the packages of the list on standard input, each once, those that take longest in front: what waits for servers for
# minutes does so beside the others, not after them. What runs many processes under load (acceptance, faults) does so in turn.
longest_first() {
	local all first=(cmd/weir internal/acceptance internal/boardtest dashboards/alerts history internal/simulation blocklist/reconcile internal/demo
		internal/faults dashboards history/explore history/rulestore console/pages cmd/weir/internal/server internal/evidenceoracle internal/loadgen
		detectors internal/doctest ingest/backtest gate blocklist/replica internal/adversary internal/deploy blocklist/enforce blocklist console/api
		ingest/route internal/local ingest/kafka)
	all=$(sort -u)
	for p in "${first[@]}"; do grep -x "github.com/weirhq/weir/$p" <<<"$all" || true; done
	grep -vxF "$(printf 'github.com/weirhq/weir/%s\n' "${first[@]}")" <<<"$all" || true
}

# judged is how a run against real servers is judged: the ledger of flakes counts, and so does the list of the tests that use servers.
judged=(-real -ledger .ci/flakes.txt -servers internal/testbed/servers.txt)

# landing: both halves at once, since most tests wait for a server most of the time. -p and -parallel are bounded by the program's own
# deadlines (a session, a lease, a header), which hold in tests, too.
landing() {
	programs
	export WEIR_TEST_REPORT=$work/report WEIR_TEST_REQUIRE_REAL=1
	local race other
	race=$(raced) other=$(unraced)
	# shellcheck disable=SC2086 # one word a package
	on_servers "against real servers" "${judged[@]}" "$@" \
		-- "${as_image[@]}" "${go_test[@]}" -p 2 -parallel 4 $other \
		-- "${with_race[@]}" "${go_test_raced[@]}" -p 2 -parallel 4 $race
}

on_servers() {
	export -f tested
	export work
	scripts/with-servers.sh bash -c 'tested "$@"' bash "$@"
}

# night: the race detector over everything, in the long form; what draws worlds, many of them; then every package with embedded parts, in
# processes that stand still again and again, beside the long faults: both wait most of the time.
night() {
	local failed=0
	step "all under the race detector, long forms" night-raced || failed=1
	step "thousands of worlds" night-drawn || failed=1
	step "promises broken on purpose" mutants || failed=1
	beside "with embedded parts, standing still" stopping "faults" faults || failed=1
	return "$failed"
}

# What draws worlds draws a landing's number of them under the race detector, which makes each ten times as long.
night_raced() {
	programs
	export WEIR_TEST_REPORT=$work/report-night WEIR_TEST_REQUIRE_REAL=1
	local all worlds
	all=$(go list ./... | grep -vxF "$(go list "${drawn[@]}")" | longest_first)
	worlds=$(go list "${drawn[@]}")
	# shellcheck disable=SC2086 # one word a package
	on_servers "long forms against real servers" -real -night -ledger .ci/flakes.txt \
		-- "${with_race[@]}" WEIR_TEST_NIGHT=1 "${go_test_raced[@]}" -timeout 60m -p 2 -parallel 4 $all \
		-- "${with_race[@]}" "${go_test_raced[@]}" -timeout 60m -p 1 -parallel 4 $worlds
}

night_drawn() {
	programs
	export WEIR_TEST_REPORT=$work/report-drawn WEIR_TEST_REQUIRE_REAL=1 WEIR_TEST_NIGHT=1
	# shellcheck disable=SC2046 # one word a package
	on_servers "thousands of worlds" -ledger .ci/flakes.txt \
		-- "${as_image[@]}" "${go_test[@]}" -timeout 60m -p 1 -parallel 4 $(go list "${drawn[@]}" ./internal/order)
}

# stopping has the tests in which weir plays a part in real time left out: who stands still misses his cue, and the outcome says so. What
# fails is run once more alone, standing still again: flakes are judged as those of all runs are.
stopping() {
	programs
	unset WEIR_TEST_KAFKA WEIR_TEST_KAFKA_HOME WEIR_TEST_REDIS WEIR_TEST_REDIS_CLUSTER WEIR_TEST_POSTGRES WEIR_TEST_REQUIRE_REAL
	export CGO_ENABLED=0 GOFLAGS="-trimpath${GOFLAGS:+ $GOFLAGS}" WEIR_TEST_REPORT=$work/report-stopping
	tested "with embedded parts, standing still" -ledger .ci/flakes.txt -again "go run ./scripts/stopping -json -seed 2" \
		-- go run ./scripts/stopping -json -seed 1 -p 3 -skip "$real_time" ./...
	printf '%s\n' "$SECONDS" >"$work/stopping.time"
}
real_time='^(TestDevJudgesTheDemo|TestRealTime)$'

embedded() {
	programs
	unset WEIR_TEST_KAFKA WEIR_TEST_KAFKA_HOME WEIR_TEST_REDIS WEIR_TEST_REDIS_CLUSTER WEIR_TEST_POSTGRES WEIR_TEST_REQUIRE_REAL
	export WEIR_TEST_REPORT=$work/report-embedded
	local all
	all=$(go list ./... | longest_first)
	# shellcheck disable=SC2086 # one word a package
	tested "with embedded parts" -ledger .ci/flakes.txt -- "${as_image[@]}" "${go_test[@]}" -p 3 -parallel 4 $all
}

# changed: the folders with files that differ from those of main, or from the last commit where this is main.
changed() {
	local base=HEAD
	if git rev-parse -q --verify main >/dev/null; then base=$(git merge-base main HEAD); fi
	{
		git diff --name-only "$base"
		git ls-files --others --exclude-standard
	} | xargs -r -n 1 dirname | sort -u
}

# packages_of: of the folders on standard input, those that are packages, by import path. What lies in testdata is its package's.
packages_of() {
	sed 's|/testdata\(/.*\)\?$||' | sort -u | while read -r folder; do
		if compgen -G "$folder/*.go" >/dev/null; then go list "./$folder"; fi
	done
}

# importers PACKAGES: the packages that import one of them directly, also for their tests.
importers() {
	local wanted=$1
	go list -f '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
		while read -r package imports; do
			if grep -qxF "$wanted" <<<"$package"; then continue; fi
			if tr ' ' '\n' <<<"$imports" | grep -qxF "$wanted"; then echo "$package"; fi
		done
}

quick() {
	local packages users failed=0
	packages=$(changed | packages_of)
	if [[ -z $packages ]]; then
		log "no package differs from main: nothing to test"
		return
	fi
	users=$(importers "$packages")
	log "changed: $(wc -l <<<"$packages") packages, imported by $(grep -c . <<<"$users" || true) others"
	unset WEIR_TEST_KAFKA WEIR_TEST_KAFKA_HOME WEIR_TEST_REDIS WEIR_TEST_REDIS_CLUSTER WEIR_TEST_POSTGRES WEIR_TEST_REQUIRE_REAL
	export WEIR_TEST_REPORT=$work/report-quick
	programs
	# shellcheck disable=SC2046,SC2086 # one word a package
	"${as_image[@]}" scripts/golangci-lint.sh run --allow-parallel-runners $(sed 's|^github.com/weirhq/weir|.|' <<<"$packages") || failed=1
	# What runs weir from end to end takes minutes, and is for the landing: here it has to compile.
	local ends
	ends=$(grep -xF "$(go list "${processes[@]}")" <<<"$users" || true)
	users=$(grep -vxF "$(go list "${processes[@]}")" <<<"$users" || true)
	# shellcheck disable=SC2086 # one word a package
	if [[ -n $ends ]]; then "${as_image[@]}" go vet $ends || failed=1; fi
	local commands=(-- "${as_image[@]}" "${go_test[@]}" -p 2 -parallel 4 $packages)
	if [[ -n $users ]]; then commands+=(-- "${as_image[@]}" "${go_test[@]}" -short -p 2 -parallel 4 $users); fi
	tested "what changed" -servers internal/testbed/servers.txt "${commands[@]}" || failed=1
	return "$failed"
}

# mutants needs no servers but PostgreSQL, which the tests start.
mutants() {
	unset WEIR_TEST_KAFKA WEIR_TEST_KAFKA_HOME WEIR_TEST_REDIS WEIR_TEST_REDIS_CLUSTER WEIR_TEST_POSTGRES \
		WEIR_TEST_REQUIRE_REAL WEIR_TEST_REPORT
	"${as_image[@]}" go run ./scripts/mutants "$@"
}

faults() {
	export WEIR_TEST_REQUIRE_REAL=1 WEIR_TEST_FAULTS=full WEIR_TEST_NIGHT=1
	scripts/with-servers.sh go test -count=1 -timeout 90m -v ./internal/faults
}

case ${1:-} in
setup) setup ;;
lint) lint ;;
landing) landing ;;
night)
	step "set-up" setup
	night
	;;
night-raced) night_raced ;;
night-drawn) night_drawn ;;
stopping) stopping ;;
embedded) embedded ;;
quick) quick ;;
servers) landing -update ;;
packages)
	raced | sed 's/^/raced /'
	unraced | sed 's/^/plain /'
	;;
faults) faults ;;
mutants)
	shift
	mutants "$@"
	;;
all)
	step "set-up" setup
	export WEIR_TEST_LINES=$work/lines
	beside "lint" lint "tests against real servers" landing
	;;
*) die "usage: $0 setup|lint|landing|night|embedded|quick|servers|packages|faults|mutants|all, got \"${1:-}\"" ;;
esac
