#!/usr/bin/env bash
# run-deps.sh [--fresh] [--data DIR]: a real Apache Kafka, redis-server and PostgreSQL on loopback for use by hand, until
# Ctrl-C. They listen where docker-compose.yml has them too, on 9092, 6379 and 5432, or on a free port where one of these is
# taken; the line that is printed at the end tells weir where they are. What they hold is kept in DIR (default: weir/deps
# in the user's cache directory, for root /var/lib/weir/deps) and is there again next time; --fresh erases it first.
set -euo pipefail
scripts=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=lib.sh
. "$scripts/lib.sh"

# PostgreSQL of root runs as another user, to whom root's own cache is closed.
if [[ $(id -u) == 0 ]]; then run_dir=/var/lib/weir/deps; else run_dir=$(cache_dir)/deps; fi
fresh=""
while (($# > 0)); do
	case $1 in
	--fresh) fresh=1 ;;
	--data)
		run_dir=${2:?--data needs a directory}
		shift
		;;
	*) die "got \"$1\"; allowed: --fresh, --data DIR" ;;
	esac
	shift
done

# shellcheck disable=SC2034 # read by servers.sh
keep=1 postgres_password=weir port_kafka=9092 port_redis=6379 port_postgres=5432
mkdir -p "$run_dir"
run_dir=$(cd "$run_dir" && pwd)
# The lock is the servers' too: where this script was killed and they were not, nobody starts others on their files.
exec 9>>"$run_dir/lock"
! have flock || flock -n 9 || die "servers with the data in $run_dir are running already (pids: $(paste -sd' ' "$run_dir/pids" 2>/dev/null || echo unknown)); stop them, or name another directory: --data DIR"
if [[ -n $fresh ]]; then
	log "erasing what earlier runs left in $run_dir"
	rm -rf "${run_dir:?}"/{kafka,redis,postgres}
fi
rm -f "$run_dir"/*/log # a start is known by its server's log
: >"$run_dir/pids"
# shellcheck source=servers.sh
. "$scripts/servers.sh"

finish() {
	local status=$?
	trap - EXIT
	trap '' INT TERM HUP # a second Ctrl-C must not leave servers behind
	log "stopping the servers"
	stop_servers
	if ((status == 0 || status == 130 || status == 143)); then
		log "stopped; what they hold stays in $run_dir, make run-deps starts them with it again"
	fi
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# begin NAME TITLE: starts one server and says so; a port that is taken is said, and another one used.
begin() {
	local port=port_$1
	if listening "${!port}"; then
		log "port ${!port} is taken: $2 gets another one"
		printf -v "$port" '%s' "$(free_port)"
	fi
	log "starting $2"
	if ! "start_$1"; then
		tail -n 20 "$run_dir/$1/log" >&2 || true
		die "$2 did not start; its log is $run_dir/$1/log"
	fi
	log "$description"
}

"$scripts/install-packages.sh" servers
"$scripts/fetch-kafka.sh" >/dev/null
begin kafka "Apache Kafka" && kafka=$answer
begin redis redis-server && redis=$answer
begin postgres PostgreSQL && postgres=${answer%/postgres}/weir
bin=$(postgres_bin)
PGPASSWORD=weir "$bin/psql" -qAt "$answer" -c "SELECT 1 FROM pg_database WHERE datname = 'weir'" | grep -q 1 ||
	PGPASSWORD=weir "$bin/psql" -q "$answer" -c "CREATE DATABASE weir"

log "ready. Paste this into another shell; Ctrl-C here stops the servers."
printf '\nexport WEIR_KAFKA_BROKERS=%s WEIR_REDIS_URL=%s WEIR_POSTGRES_URL=%s\n\n' "$kafka" "$redis" "$postgres"
while :; do
	for i in "${!pids[@]}"; do
		kill -0 "${pids[i]}" 2>/dev/null || die "a server has ended by itself; its log is one of $run_dir/*/log"
	done
	sleep 1 &
	wait $! || true # a wait lets the trap run at once, a sleep would not
done
