# shellcheck shell=bash
# Sourced by the scripts beside it: messages, retries, the cache, free ports.

log() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*" >&2; }

die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# What is fetched or built once is kept here for all checkouts.
cache_dir() { printf '%s\n' "${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/weir"; }

# retry N COMMAND...: up to N times with growing pauses; for fetches from outside, which fail now and then.
retry() {
	local attempts=$1 attempt pause=2
	shift
	for ((attempt = 1; ; attempt++)); do
		if "$@"; then return 0; fi
		if ((attempt == attempts)); then
			log "gave up after $attempts attempts: $*"
			return 1
		fi
		log "attempt $attempt of $attempts failed, again in ${pause}s: $*"
		sleep "$pause"
		pause=$((pause * 2))
	done
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port: a port nobody listens on. It and the port 10000 above it (the bus of a Redis Cluster node) lie below 32768,
# where the system starts to hand out ports to clients, so that no passing connection can take them.
free_port() {
	local port
	while :; do
		port=$((12000 + RANDOM % 10000))
		if ! listening "$port" && ! listening $((port + 10000)); then
			printf '%s\n' "$port"
			return
		fi
	done
}

# wait_until SECONDS COMMAND...: polls; fails when the time is over.
wait_until() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		if ((SECONDS >= deadline)); then return 1; fi
		sleep 0.2
	done
}

# postgres_bin: the folder with PostgreSQL's programs, of several versions the newest.
postgres_bin() {
	local initdb folder found=""
	if initdb=$(command -v initdb); then
		# Debian links single programs elsewhere; the real folder has all of them.
		initdb=$(readlink -f "$initdb")
		if [[ -x $(dirname "$initdb")/postgres ]]; then
			dirname "$initdb"
			return 0
		fi
	fi
	for folder in /usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin; do
		if [[ -x $folder/initdb && -x $folder/postgres ]]; then found=$folder; fi
	done
	[[ -n $found ]] && printf '%s\n' "$found"
}
