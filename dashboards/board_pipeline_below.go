package dashboards

// The lower half of Pipeline health: what on-call people look at once they know that something is wrong.

func pipelineFailures() []panel {
	return []panel{
		timeseries("Failures by stage", "Calls and batches that failed. Each is tried again, so a few cost time, and a steady line stops a stage.", unitPerSecond,
			prom(orZero(rate("", "weir_route_chunk_retries_total")), "route: chunks given again"),
			prom(orZero(rate("", "weir_route_fetch_failures_total")), "route: fetches"),
			prom(orNone(rate("call", "weir_detect_errors_total", liveStream)+" > 0", "call"), "detect: {{call}}"),
			prom(orNone(rate("stage", "weir_stage_apply_failures_total"), "stage"), "{{stage}}: batches")),
		timeseries("Kafka errors", "Fetches, appends and commits that Kafka refused or did not answer, by reason.", unitPerSecond,
			prom(orNone(rate("reason", "weir_kafka_fetch_errors_total")+" > 0", "reason"), "fetch: {{reason}}"),
			prom(orNone(rate("reason", "weir_kafka_append_errors_total")+" > 0", "reason"), "append: {{reason}}"),
			prom(orNone(rate("reason", "weir_kafka_commit_errors_total")+" > 0", "reason"), "commit: {{reason}}")),
		timeseries("Time to take a batch", "Of Kafka by topic, and of the stores of RECORD and ENFORCE: 99 of 100 were faster.", unitSeconds,
			prom("histogram_quantile(0.99, "+rate("le, topic", "weir_kafka_append_seconds_bucket")+")", "Kafka: {{topic}}"),
			prom("histogram_quantile(0.99, "+rate("le, stage", "weir_stage_apply_seconds_bucket")+")", "{{stage}}")),
	}
}

func pipelineStopped() []panel {
	const explain = " weir partitions list says why, and what to do."
	return []panel{
		timeseries("Stopped partitions by stage", "Partitions that a stage does not read on: halted by what it found, not routed since the commit is not believed, a commit beyond "+
			"the end of the log, or a record of a newer build."+explain, unitCount,
			prom(sum("stage", stopped()), "{{stage}}: halted"),
			prom(orZero(sum("", of("weir_route_partition_refused"))), "route: refused"),
			prom(orNone(sum("stage", of("weir_stage_stranded_partition")), "stage"), "{{stage}}: stranded"),
			prom(orNone(sum("stage", of("weir_stage_newer_format_partition")), "stage"), "{{stage}}: newer format")).thresholds(step{1, colourBad}),
		timeseries("Blind partitions", "Partitions of DETECT whose fence has dropped every event for ten seconds: nothing is counted there."+explain, unitCount,
			prom(sum("", of("weir_detect_blind", liveStream)), "blind")).thresholds(step{1, colourBad}),
		timeseries("Partitions that bring nothing", "Source partitions that the watermark does not wait for any more, since they sent nothing, and partitions that Kafka does not answer for.", unitCount,
			prom(worst("", "weir_detect_stalled_sources", liveStream), "stalled sources"),
			prom(orNone(sum("topic", of("weir_kafka_silent_partitions")), "topic"), "{{topic}}: silent")),
		timeseries("Consumer groups", "Generations that processes took part in, in five minutes. Each start, stop and loss of a process makes some; a steady rate means that processes come and go.", unitCount,
			prom(sum("group", "increase("+of("weir_kafka_group_generations_total")+"[5m])"), "{{group}}")).asBars(),
	}
}

func pipelineRedisMemory() []panel {
	return []panel{
		timeseries("Memory of Redis", "Share of its maxmemory that each node takes. At 100 % no block is written. A node without maxmemory stays at 0 %.", unitShare,
			prom(worst("node", "weir_redis_memory_bytes")+" / ("+worst("node", "weir_redis_memory_max_bytes")+" > 0) or 0 * "+worst("node", "weir_redis_memory_bytes"), "{{node}}")).
			within(0, 1).thresholds(step{0.75, colourWarn}, step{0.9, colourBad}),
		timeseries("Memory of Redis in bytes", "What each node takes.", unitBytes, prom(worst("node", "weir_redis_memory_bytes"), "{{node}}")),
	}
}

func pipelineReconcile() []panel {
	return []panel{
		timeseries("Put back by the reconciler", "Blocks and tombstones of history that Redis had lost, in five minutes. After a flush or a failover these are many; otherwise none.", unitCount,
			prom(orNone(sum("outcome", "increase("+of("weir_reconcile_changes_total")+"[5m])"), "outcome"), "{{outcome}}")).asBars(),
		timeseries("Not asserted", "Blocks and tombstones that the last round could not put back, as their master did not answer or was full; of several processes, the greatest number.", unitCount,
			prom(worst("", "weir_reconcile_unasserted"), "unasserted")).thresholds(step{1, colourBad}),
		timeseries("Not published", "Rounds that failed, in five minutes: blocks are not compared with history, or gates are not told of a changed mode by this way; and batches "+
			"under the last known modes, since the rule store did not answer.", unitCount,
			prom(sum("", "increase("+of("weir_reconcile_failures_total")+"[5m])"), "reconciler"),
			prom(sum("", "increase("+of("weir_modes_failures_total")+"[5m])"), "modes"),
			prom(sum("", "increase("+of("weir_enforce_modes_fallback_total")+"[5m])"), "last known modes")).asBars(),
	}
}

// historySize is the size of each table, of which every process that records tells: one that joins or leaves is no growth.
func historySize() string { return worst("namespace, table", "weir_history_size_bytes") }

func pipelineHistory() []panel {
	return []panel{
		timeseries("Size by table", "Bytes in PostgreSQL, indexes included.", unitBytes, prom(sum("table", historySize()), "{{table}}")).stacked(),
		timeseries("Rows recorded", "Rows of hits and decisions that RECORD has stored.", unitRowsPerSecond,
			prom(rate("table", "weir_history_rows_recorded_total"), "{{table}}")),
		stat("Grows in a day", "By the growth over the time range shown.", unitBytes,
			prom("sum (deriv(("+historySize()+")[$__range:$__interval])) * 86400", "a day")).wide(5),
	}
}

func pipelineProcesses() []panel {
	return []panel{
		timeseries("CPU", "Cores that a process takes.", unitCount, prom(ofProcess("rate(process_cpu_seconds_total[$__rate_interval])"), "{{instance}}")),
		timeseries("Memory", "Resident memory of a process.", unitBytes, prom(ofProcess("process_resident_memory_bytes"), "{{instance}}")),
		timeseries("Goroutines", "Their number rises and falls with connections and partitions; only up means that something waits for ever.", unitCount,
			prom(ofProcess("go_goroutines"), "{{instance}}")),
	}
}

func pipelineVersions() []panel {
	return []panel{
		table("Processes", "Every process of weir that Prometheus asks, the build that it runs, and since when; stream says replay of those that run one.", unitTime,
			prom("process_start_time_seconds * 1000 * on (job, instance) group_left (version, namespace, stream) "+of("weir_build_info"), "started")).
			with(column{name: "started", unit: unitTime}),
	}
}
