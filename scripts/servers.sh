# shellcheck shell=bash
# Sourced by with-servers.sh and run-deps.sh: how each real server is started and stopped.
# Each start_ function sets answer to the address as WEIR_TEST_ variables have it and description to a line about the
# server, or fails. Servers listen on port_NAME where that is set, else on a free port. With keep=1 what they hold stays
# in run_dir and is there again at the next start; else they begin empty and care less about a power cut.

: "${scripts:?folder of the scripts}" "${run_dir:?folder for the servers}"
: "${keep:=}"
pids=()

port_of() {
	local name=port_$1
	printf '%s\n' "${!name:-$(free_port)}"
}

# ensure KIND START: uses the server in WEIR_TEST_KIND, or starts one. Between the choice of a port and its use another
# process may take it, hence the second and third try.
ensure() {
	local name=WEIR_TEST_$1 attempt
	if [[ -n ${!name:-} ]]; then
		used+=("$1: yours ($name is set)")
		return
	fi
	for attempt in 1 2 3; do
		answer=""
		if "$2"; then
			export "$name=$answer"
			used+=("$1: $description")
			return
		fi
		log "starting $1 failed (attempt $attempt of 3)"
	done
	die "$1 could not be started, its log is shown below. $name can name a server of yours instead."
}

# launch NAME COMMAND...: runs a server in the background, in a process group of its own so that Ctrl-C in the terminal
# does not reach it before the tests have ended; $launched is its pid, $run_dir/NAME/log its output.
launch() {
	local name=$1
	shift
	mkdir -p "$run_dir/$name"
	set -m
	"$@" >>"$run_dir/$name/log" 2>&1 </dev/null &
	launched=$!
	set +m
	pids+=("$launched")
	printf '%s\n' "$launched" >>"$run_dir/pids"
}

# ready SECONDS COMMAND...: waits for the server launched last; fails at once when it has exited.
ready() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		if ! kill -0 "$launched" 2>/dev/null || ((SECONDS >= deadline)); then return 1; fi
		sleep 0.1
	done
}

# costs: what the servers have cost the processors so far, in seconds, with the processes that they started and waited for.
costs() {
	local pid name ticks
	ticks=$(getconf CLK_TCK)
	for pid in "${pids[@]}"; do
		if [[ -r /proc/$pid/stat ]]; then
			name=$(tr '\0' ' ' <"/proc/$pid/cmdline" | sed -E 's|^([^ ]*/)?([^ /]+) .*|\2|')
			sed 's/.*) //' "/proc/$pid/stat" | awk -v name="$name" -v ticks="$ticks" '{ print name, ($12 + $13 + $14 + $15) / ticks }'
		fi
	done | awk '{ sum[$1] += $2 } END { for (name in sum) printf "%s %.0fs, ", name, sum[name] }' | sed 's/, $//'
}

stop_servers() {
	local pid watchdog
	if ((${#pids[@]} == 0)); then return; fi
	# PostgreSQL takes INT as its quick shutdown (TERM would wait for its clients); Redis and the JVM take it as well.
	for pid in "${pids[@]}"; do kill -INT "$pid" 2>/dev/null || true; done
	set -m
	(
		sleep 15
		for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
	) &
	watchdog=$!
	set +m
	for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
	kill -KILL -- "-$watchdog" 2>/dev/null || true
	wait "$watchdog" 2>/dev/null || true
	pids=()
}

# show_logs PATTERN: of each server, the last lines that match.
show_logs() {
	local file lines
	for file in "$run_dir"/*/log; do
		lines=$(grep -E "$1" "$file" 2>/dev/null | tail -n 20) || true
		if [[ -n $lines ]]; then printf -- '--- from %s\n%s\n' "$file" "$lines" >&2; fi
	done
}

start_kafka() {
	local libs dir=$run_dir/kafka port controller id
	have java || die "Java is missing: Apache Kafka needs version 17 or newer. Install it, or set WEIR_TEST_KAFKA=host:port to use a broker of yours."
	libs=$("$scripts/fetch-kafka.sh") || exit 1
	port=$(port_of kafka) controller=$(free_port)
	mkdir -p "$dir"
	if [[ -z $keep ]]; then rm -rf "$dir/data"; fi
	# Background work whose defaults are made for days (retention, deletion, delays at start) is made for tests here. An
	# index of a segment is 10 MiB of hole by default, which some kernels zero whole when it is first touched: two for each
	# partition of each topic that a test makes.
	cat >"$dir/server.properties" <<-PROPERTIES
		process.roles=broker,controller
		node.id=1
		controller.quorum.voters=1@127.0.0.1:$controller
		listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
		advertised.listeners=PLAINTEXT://127.0.0.1:$port
		controller.listener.names=CONTROLLER
		log.dirs=$dir/data
		auto.create.topics.enable=false
		offsets.topic.replication.factor=1
		offsets.topic.num.partitions=8
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		transaction.state.log.num.partitions=8
		share.coordinator.state.topic.replication.factor=1
		share.coordinator.state.topic.min.isr=1
		group.initial.rebalance.delay.ms=0
		log.initial.task.delay.ms=500
		log.retention.check.interval.ms=1000
		log.segment.delete.delay.ms=1000
		log.index.size.max.bytes=1048576
	PROPERTIES
	if [[ ! -e $dir/data/meta.properties ]]; then
		id=$(java -cp "$libs/*" kafka.tools.StorageTool random-uuid 2>>"$dir/log") || return 1
		java -cp "$libs/*" kafka.tools.StorageTool format -t "$id" -c "$dir/server.properties" >>"$dir/log" 2>&1 || return 1
	fi
	# The quick compiler alone, and one thread that collects garbage: a broker that lives for minutes would spend more on being compiled well
	# than it wins.
	launch kafka java -Xmx768m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$libs/*" -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
		-Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.log.kafka.server=info \
		kafka.Kafka "$dir/server.properties"
	ready 60 grep -q "Kafka Server started" "$dir/log" || return 1
	answer=127.0.0.1:$port
	description="$(basename "$(dirname "$libs")"), Apache Kafka in KRaft mode at $answer"
}

redis_node() { # NAME PORT [OPTION...]
	local name=$1 port=$2 appendonly=no
	shift 2
	if [[ -n $keep ]]; then appendonly=yes; fi
	mkdir -p "$run_dir/$name"
	launch "$name" redis-server --bind 127.0.0.1 --port "$port" --dir "$run_dir/$name" --save "" --appendonly "$appendonly" "$@"
	ready 20 redis-cli -p "$port" ping
}

start_redis() {
	local port
	have redis-server || die "redis-server is missing: scripts/install-packages.sh installs it, or set WEIR_TEST_REDIS to a server of yours."
	port=$(port_of redis)
	redis_node redis "$port" || return 1
	answer=redis://127.0.0.1:$port/0
	description="$(redis-server --version | cut -d' ' -f1-3) at 127.0.0.1:$port"
}

start_redis_cluster() {
	local nodes=() ports=() port i
	have redis-cli || die "redis-cli is missing: scripts/install-packages.sh installs it, or set WEIR_TEST_REDIS_CLUSTER to nodes of yours."
	for i in 1 2 3 4 5 6; do
		port=$(free_port)
		rm -f "$run_dir/cluster-$i/nodes.conf"
		# A replica's first copy would wait 5 s for others; a failover on a busy machine should need 5 s of silence.
		redis_node "cluster-$i" "$port" --cluster-enabled yes --cluster-config-file nodes.conf \
			--cluster-node-timeout 5000 --repl-diskless-sync-delay 0 || return 1
		nodes+=("127.0.0.1:$port") ports+=("$port")
	done
	redis-cli --cluster create "${nodes[@]}" --cluster-replicas 1 --cluster-yes >>"$run_dir/cluster-1/log" 2>&1 || return 1
	for port in "${ports[@]}"; do
		wait_until 30 cluster_joined "$port" || return 1
	done
	answer=$(
		IFS=,
		printf '%s' "${nodes[*]}"
	)
	description="3 masters and 3 replicas at $answer"
}

# cluster_joined PORT: the node sees a whole cluster, and is a master or a replica in sync with one.
cluster_joined() {
	redis-cli -p "$1" cluster info | grep -q 'cluster_state:ok' &&
		redis-cli -p "$1" cluster info | grep -q 'cluster_known_nodes:6' &&
		redis-cli -p "$1" info replication | grep -Eq 'role:master|master_link_status:up'
}

# start_postgres makes a database cluster with the superuser weir, whose password is postgres_password or a random one.
start_postgres() {
	local bin dir=$run_dir/postgres port password as=() cheap=() owner fsync=off
	bin=$(postgres_bin) || die "PostgreSQL is missing: scripts/install-packages.sh installs it, or set WEIR_TEST_POSTGRES to a server of yours."
	mkdir -p "$dir"
	if [[ -n $keep ]]; then fsync=on; else rm -rf "$dir/data"; fi
	password=${postgres_password:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}
	if [[ $(id -u) == 0 ]]; then # it refuses to run as root
		owner=nobody
		if id postgres >/dev/null 2>&1; then owner=postgres; fi
		as=(setpriv "--reuid=$owner" "--regid=$(id -g "$owner")" --clear-groups --)
	fi
	if [[ ! -e $dir/data/PG_VERSION ]]; then
		rm -rf "$dir/data"
		mkdir "$dir/data"
		(
			umask 077
			printf '%s' "$password" >"$dir/password"
		)
		if [[ -n ${owner:-} ]]; then chown "$owner" "$dir/data" "$dir/password" "$dir"; fi
		(cd "$dir" && "${as[@]}" "$bin/initdb" -D "$dir/data" -U weir -A password --pwfile "$dir/password" -E UTF8 --locale=C --no-sync) \
			>>"$dir/log" 2>&1 || return 1
	fi
	if [[ -z $keep ]]; then # nothing of it has to outlive a power cut, and no query is worth compiling
		cheap=(-c jit=off -c full_page_writes=off -c synchronous_commit=off -c wal_level=minimal -c max_wal_senders=0 -c max_wal_size=4GB -c checkpoint_timeout=1h)
	fi
	port=$(port_of postgres)
	launch postgres "${as[@]}" "$bin/postgres" -D "$dir/data" -p "$port" -k "$dir" -c listen_addresses=127.0.0.1 \
		-c "fsync=$fsync" -c max_connections=300 -c shared_buffers=128MB "${cheap[@]}"
	ready 30 "$bin/pg_isready" -q -h 127.0.0.1 -p "$port" || return 1
	answer=postgres://weir:$password@127.0.0.1:$port/postgres
	description="$("$bin/postgres" --version) at 127.0.0.1:$port"
}
