package dashboards

// pipeline is for who operates weir: does every stage keep up, is everything counted, does a block come in time?
func pipeline() board {
	return board{
		uid: uidPipeline, title: "Pipeline health",
		description: "For operators. From top to bottom: is anything wrong now, what goes through, does every stage keep up, is everything counted, " +
			"would a restart find its memory, does a block come in time, what failed, and what it takes.",
		from: "now-3h", refresh: "30s",
		variables: []variable{namespaces()},
		rows: []row{
			{"Is anything wrong now?", []line{{4, pipelineNow()[:4]}, {4, pipelineNow()[4:]}}},
			{"What goes through?", []line{{8, pipelineFlow()}, {7, pipelineFinds()}}},
			{"Does every stage keep up?", []line{{8, pipelineLag()}, {7, pipelinePace()}}},
			{"Is everything counted?", []line{{8, pipelineCounted()}, {7, pipelineLost()}}},
			{"Is there memory, and would a restart find it again?", []line{{8, pipelineMemory()}, {7, pipelineSnapshots()}}},
			{"Does a block come, and in time?", []line{{8, pipelineLatency()}, {7, pipelineDecisions()}}},
			{"What fails, and is tried again?", []line{{8, pipelineFailures()}, {7, pipelineStopped()}}},
			{"Does Redis have every block?", []line{{8, pipelineRedisMemory()}, {7, pipelineReconcile()}}},
			{"Does history grow as expected?", []line{{8, pipelineHistory()}}},
			{"What do the processes take?", []line{{8, pipelineProcesses()}, {7, pipelineVersions()}}},
		},
	}
}

func pipelineNow() []panel {
	return []panel{
		stat("Events in", "Events that ROUTE reads from the requests topic, a second.", unitEventsPerSecond,
			prom(rate("", "weir_route_events_total"), "events")),
		stat("Oldest waiting", "Age of the oldest record that some stage has not handled yet. What waits is counted later, and blocks later.", unitSeconds,
			prom(aggregate("max", "", ofPartitions("weir_stage_lag_seconds")), "lag")).thresholds(step{5, colourWarn}, step{60, colourBad}),
		stat("Watermark delay", "How far event time, up to which windows are complete, lies behind the clock; the worst partition. It is at least the lateness that is allowed.",
			unitSeconds, prom(worst("", "weir_detect_watermark_delay_seconds", liveStream), "delay")).thresholds(step{60, colourWarn}, step{300, colourBad}),
		stat("Event to block, p99", "From the last event over a limit to its block in Redis: 99 of 100 blocks were faster.", unitSeconds,
			prom(quantile(0.99, "weir_event_to_block_seconds"), "p99")).thresholds(step{1, colourWarn}, step{5, colourBad}).ifEmpty("no block told"),
		stat("Stopped partitions", "Partitions that a stage does not read on, for whatever reason, and those of DETECT that are blind. weir partitions list says why, and what to do.", unitCount,
			prom(orZero(total(sum("", stopped()), sum("", of("weir_route_partition_refused")),
				sum("", of("weir_stage_stranded_partition")), sum("", of("weir_detect_blind", liveStream)))), "stopped")).thresholds(step{1, colourBad}),
		stat("Dead letters", "Records that no stage could read, over the time range. They lie in the dead-letter topic.", unitCount,
			prom(orZero(inRange("", "weir_dead_letters_total")), "dead letters")).thresholds(step{1, colourWarn}),
		processesGone("Processes gone", "weir_build_info"),
	}
}

func pipelineFlow() []panel {
	return []panel{
		timeseries("Records by stage", "Events that ROUTE reads, events that DETECT takes in (one for each partition that counts it), and records of hits and "+
			"decisions that the other stages have stored.", unitRecordsPerSecond,
			prom(rate("", "weir_route_events_total"), "route: events"),
			prom(rate("", "weir_route_records_total"), "route: records keyed"),
			prom(rate("", "weir_detect_events_total", liveStream), "detect: events"),
			prom(rate("stage", "weir_stage_records_total"), "{{stage}}: records")),
		timeseries("What becomes of events", "Events of the requests topic: routed to those who count them, watched by no rule, without what the rules that watch them count by or let pass by their allow lists, weir's own refusals, which feed nothing, or not to be read.",
			unitEventsPerSecond,
			prom(rate("", "weir_route_events_total")+" - "+rate("", "weir_route_unmatched_total")+" - "+rate("", "weir_route_keyless_total")+" - "+
				rate("", "weir_route_own_refusals_total")+" - "+orZero(rate("", "weir_dead_letters_total", `stage="route"`)), "routed"),
			prom(rate("", "weir_route_unmatched_total"), "no rule watches"),
			prom(rate("", "weir_route_keyless_total"), "nothing to count by"),
			prom(rate("", "weir_route_own_refusals_total"), "own refusals"),
			prom(orZero(rate("", "weir_dead_letters_total", `stage="route"`)), "dead letters")).stacked(),
	}
}

func pipelineFinds() []panel {
	return []panel{
		timeseries("Hits by phase", "Records about sources over a limit: an episode opens, updates while it goes on, and closes; two that turn out to be one are merged.",
			unitRecordsPerSecond, prom(rate("phase", "weir_detect_hits_total", `kind="hit"`), "{{phase}}")).stacked(),
		timeseries("Sources over limit", "Episodes that are open now, over all rules.", unitCount,
			prom(sum("", of("weir_detect_open_episodes", liveStream)), "open episodes")),
	}
}

func pipelineLag() []panel {
	return []panel{
		timeseries("Lag in time", "Age of the oldest record that a stage has not handled, by when Kafka took it; the worst partition. 0: none waits.", unitSeconds,
			prom(aggregate("max", "stage", ofPartitions("weir_stage_lag_seconds")), "{{stage}}")).thresholds(step{60, colourBad}),
		timeseries("Lag in records", "Records that wait for a stage, over all partitions.", unitCount,
			prom(sum("stage", ofPartitions("weir_stage_lag_records")), "{{stage}}")).logarithmic(),
		timeseries("Watermark delay over time", "Clock minus event time up to which a partition's windows are complete: the worst and the best partition. A source partition that sends "+
			"nothing is not waited for.", unitSeconds,
			prom(worst("", "weir_detect_watermark_delay_seconds", liveStream), "worst"),
			prom(aggregate("min", "", of("weir_detect_watermark_delay_seconds", liveStream)), "best")),
	}
}

func pipelinePace() []panel {
	return []panel{
		timeseries("How far sources lie apart", "In event time, the worst partition: the watermark waits for the source that is furthest behind.", unitSeconds,
			prom(worst("", "weir_detect_skew_seconds", liveStream), "apart")),
		timeseries("Read ahead by ROUTE", "Events in memory, unpacked, that are read and not yet routed.", unitBytes,
			prom(sum("", of("weir_route_intake_bytes")), "read ahead")),
		timeseries("Waits for order", "How often ROUTE waited for the partition whose turn it was by time, a second.", unitPerSecond,
			prom(rate("", "weir_route_order_waits_total"), "waits")),
	}
}

func pipelineCounted() []panel {
	return []panel{
		timeseries("Uncounted events by reason", "Events that a rule watches and that feed none of its windows: too late, or without a field that it counts by. Each makes counts lower than what was.",
			unitEventsPerSecond, prom(orNone(rate("reason", "weir_rule_uncounted_events_total"), "reason"), "{{reason}}")).stacked(),
		timeseries("Uncounted events by rule", "The ten rules that miss most events in the time range. The reason is on the rule's own page.", unitEventsPerSecond,
			prom(orNone(busiest("weir_rule_uncounted_events_total"), "rule"), "{{rule}}")).
			linkedToRule(),
		timeseries("Key fields missing", "Events without a field of the key of a rule that watches them, by field. The gateway's log format, or weir's identity map, leaves it out.", unitEventsPerSecond,
			prom(orNone(rate("rule, field", "weir_route_rule_key_missing_total"), "field"), "{{rule}} {{field}}")).
			linkedToRule(),
	}
}

func pipelineLost() []panel {
	return []panel{
		timeseries("Fence drops", "Event records that DETECT had counted before. Expected after a router's restart; all events for ten seconds make the partition blind.", unitEventsPerSecond,
			prom(rate("", "weir_detect_duplicates_total", liveStream), "dropped")),
		timeseries("Dead letters by stage and reason", "Records that could not be read, in five minutes.", unitCount,
			prom(orNone(sum("stage, reason", "increase("+of("weir_dead_letters_total")+"[5m])")+" > 0", "reason"), "{{stage}} {{reason}}")).asBars(),
		timeseries("Losses", "Records that Kafka deleted before a stage had read them, and losses that DETECT tells of: gaps and holes that an operator accepted, in five minutes. "+
			"They are gone: see weir partitions list.", unitCount,
			prom(orNone(sum("stage", "increase("+of("weir_stage_lost_records_total")+"[5m])"), "stage"), "{{stage}}: deleted"),
			prom(orZero(sum("", "increase("+of("weir_detect_losses_total", liveStream)+"[5m])")), "detect: told")).asBars(),
	}
}

func pipelineMemory() []panel {
	return []panel{
		timeseries("Keys by partition", "Windows that DETECT holds in memory.", unitCount, prom(sum("partition", of("weir_detect_keys", liveStream)), "{{partition}}")).stacked(),
		timeseries("Share of the budget", "Memory that a partition's windows take of its budget. At 100 % keys are forgotten.", unitShare,
			prom(sum("partition", of("weir_detect_bytes", liveStream))+" / "+sum("partition", of("weir_detect_budget_bytes", liveStream)), "{{partition}}")).
			within(0, 1).thresholds(step{0.8, colourWarn}, step{0.95, colourBad}),
		timeseries("Evictions by reason", "Keys that were forgotten to stay within the budget, by what they were. Forgetting one over its limit lets somebody off.", unitPerSecond,
			prom(orNone(rate("reason", "weir_detect_evicted_total", liveStream), "reason"), "{{reason}}")).stacked(),
	}
}

func pipelineSnapshots() []panel {
	return []panel{
		timeseries("Snapshot age", "Time since a partition's memory was last stored; a restart counts anew what came since.", unitSeconds,
			prom(aggregate("max", "partition", aggregate("min", "namespace, partition", of("weir_detect_snapshot_age_seconds", liveStream))), "{{partition}}")),
		timeseries("Time to store a snapshot", "Median and slowest hundredth.", unitSeconds,
			prom(quantile(0.5, "weir_detect_snapshot_seconds"), "p50"), prom(quantile(0.99, "weir_detect_snapshot_seconds"), "p99")),
		timeseries("Partitions taken by outcome", "What a process found that took a partition over, in five minutes: its own memory still warm, a snapshot, a torn one that was passed over, or none.", unitCount,
			prom(sum("outcome", "increase("+of("weir_detect_restores_total", liveStream)+"[5m])"), "{{outcome}}")).asBars(),
	}
}

func pipelineLatency() []panel {
	return []panel{
		timeseries("Event to block", "From the last event over a limit to its block in Redis.", unitSeconds,
			prom(quantile(0.5, "weir_event_to_block_seconds"), "p50"),
			prom(quantile(0.9, "weir_event_to_block_seconds"), "p90"),
			prom(quantile(0.99, "weir_event_to_block_seconds"), "p99")).thresholds(step{1, colourWarn}, step{5, colourBad}),
		heatmap("Event to block, all of them", "How many blocks took how long; the objective is five seconds.", unitSeconds,
			prom(perStep("le", of("weir_event_to_block_seconds_bucket")), "{{le}}")),
		stat("Error budget left", "Of the objective for event to block: 100 % is untouched, below 0 % more blocks were slow, or withheld for coming too late, than it allows. By weir's recording rules.", unitShare,
			prom(`namespace_slo:weir_slo_error_budget:remaining_ratio{`+inNamespace+`, slo="event_to_block"}`, "left")).
			thresholds(always(colourBad), step{0, colourWarn}, step{0.25, colourGood}).wide(4).ifEmpty("no rules loaded"),
	}
}

func pipelineDecisions() []panel {
	const made = "weir_enforce_decisions_total"
	return []panel{
		timeseries("Decisions", "What ENFORCE decided about sources over the limit of a rule that blocks.", unitPerSecond,
			prom(orNone(rate("action", made, `mode="block"`), "action"), "{{action}}")).stacked(),
		timeseries("Not blocked, by reason", "Sources over the limit of a rule that blocks whose block was withheld. full: Redis needs memory; unreachable: a master of Redis is away; unknown_version: PostgreSQL is; "+
			"max_lag: the evidence is older than the rule allows; expired: the block would be over already; crowded: the address has as many blocks as it may.", unitPerSecond,
			prom(orNone(risen("reason", made, `mode="block"`, `action="withheld"`), "reason"), "{{reason}}")).stacked(),
		timeseries("Attempts withheld, by reason", "Attempts to block that were withheld: an episode counts once more with each of its updates. While they go on, so does what stands in the way of the blocks.", unitPerSecond,
			prom(orNone(risen("reason", "weir_enforce_withheld_total"), "reason"), "{{reason}}")).stacked(),
	}
}
