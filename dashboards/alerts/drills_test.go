package alerts

// drills are all scenes. Where an alert has a hold or a threshold, what is quiet lies just below it.
func drills() []drill {
	var all []drill
	for _, some := range [][]drill{presenceDrills(), stageDrills(), partitionDrills(), detectDrills(), blockDrills(), gateDrills(), grownDrills(), snapshotDrills(), storeDrills(), ownerDrills(), burnDrills()} {
		all = append(all, some...)
	}
	return all
}

func stageDrills() []drill {
	return []drill{
		{
			alert: "WeirStageLagging",
			series: []string{
				`weir_stage_lag_seconds{stream="live",namespace="weir",stage="detect",partition="0"} 0x5 60x10 90x10 0x10`,
				`weir_stage_lag_seconds{stream="live",namespace="weir",stage="detect",partition="1"} 0x40`,
				`weir_stage_lag_seconds{stream="live",namespace="weir",stage="record",partition="0"} 120x40`,
				// Cut off from Kafka, while another has its partition.
				`weir_stage_lag_seconds{stream="live",namespace="weir",stage="detect",partition="1",instance="cut-off"} 0+60x40`,
			},
			quiet: "17m", fires: "19m", over: "28m",
			notices: []notice{{
				"namespace=weir,stage=detect", "Stage detect is 1m 30s behind",
				"The oldest record that detect of weir has not handled is 1m 30s old; blocks come that much late, or not at all where a rule's max_lag is shorter.",
			}},
		},
		{
			alert: "WeirHistoryLagging",
			series: []string{
				`weir_stage_lag_seconds{stream="live",namespace="weir",stage="record-blocks",partition="0"} 0x5 300x20 600x20 0x10`,
				`weir_stage_lag_seconds{stream="live",namespace="weir",stage="enforce",partition="0"} 900x60`,
			},
			quiet: "35m", fires: "37m", over: "48m",
			notices: []notice{{
				"namespace=weir,stage=record-blocks", "History is 10m 0s behind",
				"The oldest record that record-blocks of weir has not stored is 10m 0s old. Blocks are written all the same.",
			}},
		},
		{
			alert: "WeirMixedBuilds", every: "5m",
			series: []string{
				`weir_build_info{stream="live",namespace="weir",instance="a",version="1"} 1x130`,
				`weir_build_info{stream="live",namespace="weir",instance="b",version="1"} 1x10 _x120`,
				`weir_build_info{stream="live",namespace="weir",instance="b",version="2"} _x10 _ 1x90 _x30`,
			},
			quiet: "6h50m", fires: "7h", over: "8h40m",
			notices: []notice{{
				"namespace=weir", "2 builds of weir run side by side",
				"Processes of 2 builds have worked on weir for 6h. An upgrade was not finished.",
			}},
		},
		{
			alert: "WeirEventsStopped", every: "5m",
			series: []string{
				`weir_route_events_total{stream="live",namespace="weir"} 0+400x300 120400x20 120800+400x20`, `weir_stage_lag_seconds{stream="live",namespace="weir",stage="route",partition="0"} 0x350`,
				`weir_route_events_total{stream="replay",namespace="weir"} 0+900x350`, `weir_stage_lag_seconds{stream="replay",namespace="weir",stage="route",partition="0"} 900x350`,
				`weir_route_events_total{stream="live",namespace="small"} 0+300x300 90000x40`, // too few to tell
				`weir_route_events_total{stream="live",namespace="stuck"} 0+900x300 270000x40`, `weir_stage_lag_seconds{stream="live",namespace="stuck",stage="route",partition="1"} 0x300 900x40`,
				`weir_route_events_total{stream="live",namespace="young"} _x295 90000x40`,
			},
			quiet: "25h10m", fires: "25h30m", over: "27h",
			notices: []notice{{
				"namespace=weir", "No events come any more",
				"ROUTE of weir has read no event for 15 minutes. On other days there were many at this time. What does not come is not counted, and blocks nobody.",
			}},
		},
		{ // Shippers stop in the second week, and nobody sees to it for five days. Elsewhere there was one great night, and never again.
			alert: "WeirEventsStopped", every: "5m",
			series: []string{
				`weir_route_events_total{stream="live",namespace="weir"} 0+400x2592 1036800x1440 1036800+400x40`,
				`weir_stage_lag_seconds{stream="live",namespace="weir",stage="route",partition="0"} 0x4080`,
				`weir_route_events_total{stream="live",namespace="batch"} 0x1999 0+90000x4 360000x2100`,
			},
			quiet: "216h", fires: "335h", over: "338h",
			notices: []notice{{
				"namespace=weir", "No events come any more",
				"ROUTE of weir has read no event for 15 minutes. On other days there were many at this time. What does not come is not counted, and blocks nobody.",
			}},
		},
		{ // Those of an office stop on a Friday evening, of which nobody can know before Monday.
			alert: "WeirEventsStopped", every: "5m",
			series: []string{
				`weir_route_events_total{stream="live",namespace="office"} ` + office(12) + `432000x1403 432000+400x60`,
			},
			quiet: "324h", fires: "394h", over: "408h",
			notices: []notice{{
				"namespace=office", "No events come any more",
				"ROUTE of office has read no event for 15 minutes. On other days there were many at this time. What does not come is not counted, and blocks nobody.",
			}},
		},
		{
			alert: "WeirEventsDeadLettered",
			series: []string{
				`weir_route_events_total{stream="live",namespace="weir"} 0+1000x90`,
				`weir_route_events_total{stream="replay",namespace="weir"} 0+1000000x90`,
				`weir_dead_letters_total{stream="live",namespace="weir",stage="route",reason="not_json"} 0+10x30 300+50x30 1800x30`,
			},
			quiet: "40m", fires: "55m", over: "80m",
			notices: []notice{{
				"namespace=weir", "5% of events cannot be read",
				"ROUTE of weir sends 5% of the events to the dead letters. No rule counts them.",
			}},
		},
		{
			alert: "WeirRecordsDeadLettered",
			series: []string{
				`up{job="weir",instance="a"} 1x50`, `up{job="weir",instance="b"} _x18 1x30`, `up{job="weir",instance="c"} 1 0x6 1x44`,
				`weir_dead_letters_total{stream="live",job="weir",instance="a",namespace="weir",stage="enforce",reason="malformed"} _x20 2x40`,
				`weir_dead_letters_total{stream="live",job="weir",instance="b",namespace="weir",stage="enforce",reason="malformed"} _x18 9x30`,  // scraped for the first time
				`weir_dead_letters_total{stream="live",job="weir",instance="c",namespace="weir",stage="enforce",reason="malformed"} 7 _x7 7x44`, // out of reach for a while
				`weir_dead_letters_total{stream="live",job="weir",instance="a",namespace="weir",stage="ingest",reason="not_json"} _x20 500x40`,  // a file of somebody's
				`weir_dead_letters_total{stream="live",job="weir",instance="a",namespace="weir",stage="record",reason="refused"} 7x50`,
				`weir_dead_letters_total{stream="live",job="weir",instance="a",namespace="weir",stage="route",reason="not_json"} 0+1x50`,
			},
			quiet: "19m", fires: "21m", over: "36m",
			notices: []notice{{
				"namespace=weir,stage=enforce,reason=malformed", "enforce could not use a record of weir's own",
				"2 records of the last 15 minutes went from enforce to the dead letters (malformed). weir wrote them itself, so something is damaged.",
			}},
		},
	}
}

func partitionDrills() []drill {
	return []drill{
		{
			alert: "WeirPartitionUnowned",
			series: []string{
				`weir_stage_lag_records{stream="live",namespace="weir",stage="detect",partition="0",instance="a"} 0x60`,
				`weir_stage_lag_records{stream="live",namespace="weir",stage="detect",partition="1",instance="b"} 0x10 _x15 0x20`,
				`weir_stage_lag_records{stream="replay",namespace="weir",stage="detect",partition="1",instance="c"} 0x60`,
				`weir_stage_lag_records{stream="replay",namespace="weir",stage="detect",partition="7",instance="c"} 0x10 _x50`,
			},
			quiet: "19m", fires: "22m", over: "28m",
			notices: []notice{{
				"namespace=weir,stage=detect,partition=1", "Nobody works on partition 1 of detect",
				"Partition 1 of detect (weir) had an owner within the last week and has had none for 5 minutes. What comes for it waits in Kafka.",
			}},
		},
		{
			alert: "WeirPartitionHalted",
			series: []string{
				`weir_stage_partition_halted{stream="live",namespace="weir",stage="detect",partition="3"} 0x10 1x10 0x10`,
				`weir_stage_partition_halted{stream="live",namespace="weir",stage="record",partition="3"} 1x40`,
				`weir_stage_stranded_partition{stream="live",namespace="weir",stage="record",partition="3"} 1x40`,
				`weir_stage_partition_halted{stream="live",namespace="weir",stage="enforce",partition="3"} 1x40`,
				// Who is cut off from Kafka, and had the partition before, hides nothing.
				`weir_stage_partition_halted{stream="live",namespace="weir",stage="detect",partition="3",instance="cut-off"} 0x40`,
				`weir_stage_newer_format_partition{stream="live",namespace="weir",stage="enforce",partition="3"} 1x40`,
			},
			quiet: "11m", fires: "12m", over: "22m",
			notices: []notice{{
				"namespace=weir,stage=detect,partition=3", "Partition 3 of detect has stopped",
				"Partition 3 of detect (weir) has a gap or cannot be read on. Nothing is lost meanwhile, and nothing of it is counted.",
			}},
		},
		flagDrill("WeirPartitionRefused", `weir_route_partition_refused{stream="live",namespace="weir",partition="3"}`, notice{
			"namespace=weir,partition=3", "ROUTE does not trust the commit of partition 3",
			"The commit of partition 3 of requests (weir) is absent, was moved, or does not fit its log. ROUTE does not guess where to go on.",
		}),
		{
			alert: "WeirPartitionStranded",
			series: []string{`up{job="weir",instance="a"} 1x50`,
				`weir_stage_log_replaced_total{stream="live",job="weir",instance="a",namespace="weir",stage="record",partition="3"} _x20 1x30`},
			quiet: "19m", fires: "22m", over: "40m",
			notices: []notice{{
				"namespace=weir,stage=record,partition=3", "Partition 3 has lost what record had read of it",
				"The log of partition 3 lost its end or was made anew. record (weir) goes on with what it holds; " +
					"what was gone before it was read is lost.",
			}},
		},
		{
			alert:  "WeirRecordsLost",
			series: []string{`up{job="weir",instance="a"} 1x50`, `weir_stage_lost_records_total{stream="live",job="weir",instance="a",namespace="weir",stage="record",partition="2"} _x20 40x30`},
			quiet:  "19m", fires: "22m", over: "40m",
			notices: []notice{{
				"namespace=weir,stage=record,partition=2", "Records were gone before record had read them",
				"40 records of partition 2 were gone before record (weir) had read them.",
			}},
		},
		{
			alert:  "WeirUpgradeNeeded",
			series: []string{`weir_stage_newer_format_partition{stream="live",namespace="weir",stage="enforce",partition="1"} 0x10 1x10 0x10`},
			quiet:  "15m", fires: "17m", over: "23m",
			notices: []notice{{
				"namespace=weir,stage=enforce,partition=1", "enforce is too old for a record of partition 1",
				"A newer build wrote the record at which enforce (weir) stands in partition 1. It goes on when its process is upgraded.",
			}},
		},
	}
}

// flagDrill raises a gauge of 0 or 1 that is held for a minute.
func flagDrill(alert, series string, n notice) drill {
	return drill{alert: alert, series: []string{series + " 0x10 1x10 0x10"}, quiet: "11m", fires: "12m", over: "22m", notices: []notice{n}}
}

func detectDrills() []drill {
	return []drill{
		flagDrill("WeirPartitionBlind", `weir_detect_blind{namespace="weir",stream="live",partition="3"}`, notice{
			"namespace=weir,partition=3", "Partition 3 drops all that comes",
			"DETECT of weir takes every record of keyed partition 3 for a repetition. No rule counts there.",
		}),
		{
			alert:  "WeirCountsLost",
			series: []string{`weir_detect_losses_total{namespace="weir",stream="live"} 0x20 1x30`, `weir_detect_losses_total{namespace="weir",stream="replay"} 0+1x50`},
			quiet:  "20m", fires: "25m", over: "40m",
			notices: []notice{{
				"namespace=weir", "Events are missing in the counts",
				"DETECT of weir went on behind 1 losses within 15 minutes: gaps that somebody accepted, or records that Kafka deleted.",
			}},
		},
		{
			alert: "WeirWatermarkStuck",
			series: []string{
				`weir_detect_idle_margin_seconds{namespace="weir",stream="live",instance="a"} 60x40`, `weir_detect_idle_margin_seconds{namespace="weir",stream="live",instance="b"} 60x40`,
				// Idle, by a margin that is longer than another's delay.
				`weir_detect_idle_margin_seconds{namespace="patient",stream="live",instance="c"} 600x40`,
				`weir_detect_watermark_delay_seconds{namespace="patient",stream="live",instance="c",partition="0"} 601x40`,
				`weir_detect_idle_margin_seconds{namespace="weir",stream="replay",instance="d"} 86400x40`,
				`weir_detect_watermark_delay_seconds{namespace="weir",stream="live",partition="3"} 2x10 60+60x10 2x10`,
				`weir_detect_watermark_delay_seconds{namespace="weir",stream="replay",partition="3"} 90000x40`,
			},
			quiet: "19m", fires: "20m", over: "22m",
			notices: []notice{{
				"namespace=weir,partition=3", "Time stands still in keyed partition 3",
				"The watermark of keyed partition 3 (weir) is 10m 0s behind the clock. Episodes do not close, and windows keep what is over.",
			}},
		},
		{ // waited for after ten idle minutes: first for the five that it may, then for good
			alert: "WeirWatermarkStuck",
			series: []string{
				`weir_detect_idle_margin_seconds{namespace="weir",stream="live",instance="a"} 600x60`,
				`weir_detect_watermark_delay_seconds{namespace="weir",stream="live",instance="a",partition="3"} 600x10 660+60x4 900x5 960+60x20 600x10`,
			},
			quiet: "24m", fires: "35m", over: "45m",
			notices: []notice{{
				"namespace=weir,partition=3", "Time stands still in keyed partition 3",
				"The watermark of keyed partition 3 (weir) is 29m 0s behind the clock. Episodes do not close, and windows keep what is over.",
			}},
		},
		{
			alert: "WeirSnapshotDamaged",
			series: []string{
				`weir_detect_restores_total{namespace="weir",stream="live",outcome="torn"} 0x10 1x40`,
				`weir_detect_restores_total{namespace="weir",stream="live",outcome="restored"} 0+1x50`,
			},
			quiet: "10m", fires: "12m", over: "30m",
			notices: []notice{{
				"namespace=weir", "A snapshot was damaged and passed over",
				"DETECT of weir passed over 1 damaged snapshots within 15 minutes and went on from older ones.",
			}},
		},
		{
			alert: "WeirKeysEvicted",
			series: []string{
				`weir_detect_evicted_total{namespace="weir",stream="live",reason="single"} 0x3 900x6 1500+600x20 12900x20`,
				`weir_detect_evicted_total{namespace="weir",stream="live",reason="few"} 0x60`,
			},
			quiet: "8m", fires: "25m", over: "42m",
			notices: []notice{{
				"namespace=weir", "DETECT forgets keys to stay within its budget",
				"DETECT of weir evicts 10 keys a second. What is evicted counts from 0 again, so sources get more than their limit.",
			}},
		},
		{
			alert: "WeirBudgetNearlySpent",
			series: []string{
				`weir_detect_bytes{namespace="weir",stream="live",partition="3"} 90x20 95x30 50x10`,
				`weir_detect_budget_bytes{namespace="weir",stream="live",partition="3"} 100x60`,
			},
			quiet: "35m", fires: "37m", over: "52m",
			notices: []notice{{
				"namespace=weir,partition=3", "Keyed partition 3 has 95% of its budget in use",
				"The windows of keyed partition 3 (weir) take 95% of its budget. At the end of it keys are evicted.",
			}},
		},
	}
}
