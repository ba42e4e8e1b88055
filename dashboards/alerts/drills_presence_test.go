package alerts

// presenceDrills are of processes that go. For a week nobody takes what is gone for mended.
func presenceDrills() []drill {
	gate := `namespace="weir",job="weir",instance="gate-1"`
	return []drill{
		{
			alert: "WeirProcessDown",
			series: []string{
				`up{job="weir",instance="run-1"} 1x10 0x10 1x20`, `weir_build_info{stream="live",job="weir",instance="run-1",version="1"} 1x10 _x10 1x20`,
				`up{job="weir",instance="gate-1"} 1x10 0x30`, `weir_gate_observing{job="weir",instance="gate-1"} 0x10 _x30`,
				`up{job="other",instance="db"} 1x10 0x30`,
			},
			quiet: "15m", fires: "17m", over: "23m",
			notices: []notice{{
				"job=weir,instance=run-1", "Process run-1 of weir is down",
				"Prometheus has not reached run-1 (job weir) for 5 minutes. Others take over what it did, if there are any.",
			}},
		},
		{
			alert: "WeirStageAbsent",
			series: []string{
				`weir_stage_lag_records{stream="live",namespace="weir",stage="detect",partition="0",instance="a"} 0x10 _x20 0x10`,
				`weir_stage_lag_records{stream="live",namespace="weir",stage="route",partition="0",instance="a"} 0x40`,
				`weir_stage_lag_records{stream="replay",namespace="weir",stage="detect",partition="0",instance="b"} 0x40`,
				`weir_stage_lag_records{stream="replay",namespace="past",stage="detect",partition="0",instance="b"} 0x10 _x30`,
				// After its topic was made anew ROUTE refuses all that it has, which another alert says.
				`weir_stage_lag_records{stream="live",namespace="anew",stage="route",partition="0",instance="c"} 0x10 _x20 0x10`,
				`weir_route_partition_refused{stream="live",namespace="anew",partition="0",instance="c"} 0x10 1x20 0x10`,
			},
			quiet: "16m", fires: "20m", over: "32m",
			notices: []notice{{
				"namespace=weir,stage=detect", "No process runs the stage detect",
				"Stage detect of weir worked within the last week and no process runs it now. Its records wait in Kafka.",
			}},
		},
		{
			alert: "WeirGateDown",
			series: []string{
				`up{job="weir",instance="gate-1"} 1x10 0x10 1x20`, `weir_gate_observing{` + gate + `} 0x10 _x10 0x20`,
				`up{job="weir",instance="run-1"} 1x10 0x30`,
			},
			quiet: "11m", fires: "13m", over: "22m",
			notices: []notice{{
				"job=weir,instance=gate-1", "Gate gate-1 is down",
				"Prometheus has not reached the gate gate-1 (job weir) for a minute. Its gateway lets everybody pass, if it is configured as docs/gate.md has it.",
			}},
		},
		{
			alert: "WeirGateAbsent",
			series: []string{
				`weir_gate_observing{namespace="weir",job="weir",instance="gate-1"} 0x5 _x40`, `weir_gate_observing{namespace="weir",job="weir",instance="gate-2"} 0x10 _x20 0x10`,
				`weir_gate_observing{namespace="other",job="weir",instance="gate-3"} 0x5 _x40`, `weir_gate_observing{namespace="other",job="weir",instance="gate-4"} 0x45`,
			},
			quiet: "17m", fires: "20m", over: "32m",
			notices: []notice{{
				"namespace=weir", "No gate runs",
				"Gates of weir ran within the last week and Prometheus hears of none now. Nobody is refused, if gateways are configured as docs/gate.md has it.",
			}},
		},
		rememberedDrill("WeirProcessDown", []string{`up{job="weir",instance="run-1"} 1x4 0x40`, `weir_build_info{stream="live",job="weir",instance="run-1",version="1"} 1x4 _x40`}, notice{
			"job=weir,instance=run-1", "Process run-1 of weir is down",
			"Prometheus has not reached run-1 (job weir) for 5 minutes. Others take over what it did, if there are any.",
		}),
		rememberedDrill("WeirStageAbsent", []string{`weir_stage_lag_records{stream="live",namespace="weir",stage="detect",partition="0",instance="a"} 0x4 _x40`}, notice{
			"namespace=weir,stage=detect", "No process runs the stage detect",
			"Stage detect of weir worked within the last week and no process runs it now. Its records wait in Kafka.",
		}),
		rememberedDrill("WeirGateDown", []string{`up{job="weir",instance="gate-1"} 1x4 0x40`, `weir_gate_observing{` + gate + `} 0x4 _x40`}, notice{
			"job=weir,instance=gate-1", "Gate gate-1 is down",
			"Prometheus has not reached the gate gate-1 (job weir) for a minute. Its gateway lets everybody pass, if it is configured as docs/gate.md has it.",
		}),
		rememberedDrill("WeirGateAbsent", []string{`weir_gate_observing{` + gate + `} 0x4 _x40`}, notice{
			"namespace=weir", "No gate runs",
			"Gates of weir ran within the last week and Prometheus hears of none now. Nobody is refused, if gateways are configured as docs/gate.md has it.",
		}),
		rememberedDrill("WeirPartitionUnowned", []string{
			`weir_stage_lag_records{stream="live",namespace="weir",stage="route",partition="0",instance="a"} 0x44`,
			`weir_stage_lag_records{stream="live",namespace="weir",stage="route",partition="1",instance="b"} 0x4 _x40`,
			`weir_route_partition_refused{stream="live",namespace="weir",partition="1",instance="b"} 0x44`,
			`weir_stage_lag_records{stream="live",namespace="weir",stage="route",partition="2",instance="a"} 0x4 _x40`,
			`weir_route_partition_refused{stream="live",namespace="weir",partition="2",instance="a"} 0x4 1x40`,
		}, notice{
			"namespace=weir,stage=route,partition=1", "Nobody works on partition 1 of route",
			"Partition 1 of route (weir) had an owner within the last week and has had none for 5 minutes. What comes for it waits in Kafka.",
		}),
	}
}

// rememberedDrill is of what is there for a day, with a sample each six hours, and then never again.
func rememberedDrill(alert string, series []string, n notice) drill {
	return drill{alert: alert, every: "6h", series: series, quiet: "24h", fires: "7d", over: "9d", notices: []notice{n}}
}
