#!/usr/bin/env bash
# with-servers.sh [COMMAND...]: runs COMMAND with a real Apache Kafka, redis-server, Redis Cluster and PostgreSQL on
# loopback, which WEIR_TEST_KAFKA, _REDIS, _REDIS_CLUSTER and _POSTGRES name, and stops them when it ends. A variable
# that is set already names a server to use as it is. Without a command: prints the variables and waits for Ctrl-C.
#
# Everything lives in one temporary folder, in memory where there is plenty, and on ports chosen at start. What is stopped is stopped by recorded pid.
# When the command fails, the servers' logs stay in that folder and what they complain about is shown.
set -euo pipefail
scripts=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=lib.sh
. "$scripts/lib.sh"

# servers_folder: where the servers' folder is made. In memory where there is plenty: some hundred databases and topics come and go, and to make
# and delete their files on a disk costs a tenth of the whole run.
servers_folder() {
	local memory room
	memory=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo 2>/dev/null) || true
	room=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1) || true
	if ((${memory:-0} > 12000000 && ${room:-0} > 8000000)) && [[ -w /dev/shm ]]; then
		echo /dev/shm
	else
		echo "${TMPDIR:-/tmp}"
	fi
}

run_dir=$(mktemp -d "$(servers_folder)/weir-servers.XXXXXX")
chmod 755 "$run_dir" # PostgreSQL may run as another user and has to reach its folder below
# shellcheck source=servers.sh
. "$scripts/servers.sh"
child=""

finish() {
	local status=$?
	trap - EXIT
	trap '' INT TERM HUP # a second Ctrl-C must not leave servers behind
	if [[ -n $child ]] && kill -0 "$child" 2>/dev/null; then
		kill -TERM -- "-$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	if ((${#pids[@]} > 0)); then log "processor time of the servers: $(costs)"; fi
	stop_servers
	if ((status == 0 || status == 130 || status == 143)); then
		rm -rf "$run_dir"
	else
		# When it was the command that failed, what the servers complained about may say why.
		if [[ -n $child ]]; then show_logs 'ERROR|FATAL|PANIC'; else show_logs .; fi
		log "logs of the servers: $run_dir/*/log"
		find "$run_dir" -mindepth 2 -maxdepth 2 ! -name log -exec rm -rf {} +
	fi
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

started=$SECONDS
used=()
if [[ -z ${WEIR_TEST_KAFKA_HOME:-} ]] && have java; then
	WEIR_TEST_KAFKA_HOME=$("$scripts/fetch-kafka.sh")
	export WEIR_TEST_KAFKA_HOME
fi
ensure KAFKA start_kafka
ensure REDIS start_redis
ensure REDIS_CLUSTER start_redis_cluster
ensure POSTGRES start_postgres
log "servers are up after $((SECONDS - started))s"
printf '  %s\n' "${used[@]}" >&2

if (($# == 0)); then
	echo
	for kind in KAFKA KAFKA_HOME REDIS REDIS_CLUSTER POSTGRES; do
		name=WEIR_TEST_$kind
		printf "export %s='%s'\n" "$name" "${!name:-}"
	done
	echo
	log "paste these into another shell; Ctrl-C here stops the servers"
	set -- tail -f /dev/null
fi
# In a process group of its own, in the background: bash handles signals only between foreground commands, and a
# cancelled job must not leave servers behind.
set -m
"$@" &
child=$!
set +m
wait "$child"
