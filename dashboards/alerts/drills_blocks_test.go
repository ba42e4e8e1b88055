package alerts

import (
	"strings"
	"testing"
)

// The first hours of an installation say nothing about its weeks.
func TestAYoungHistoryIsNoTrend(t *testing.T) {
	t.Parallel()
	var tests []alertTest
	for _, at := range strings.Fields("1h 2h 3h 4h 6h 8h 11h 12h 13h 14h 18h 24h 25h 26h 30h") {
		tests = append(tests, alertTest{at, "WeirHistoryGrowing", nil})
	}
	testRules(t, "5m", []string{`weir_history_size_bytes{namespace="young",table="hits"} 10737418240+178956971x24 15032385544x600`}, tests)
}

func blockDrills() []drill {
	return []drill{
		{
			alert: "WeirDecisionsWithheld",
			series: []string{
				// 60 sources come at once while Redis is full for a moment; later for as long as they go on, and each minute they ask anew.
				`weir_enforce_withheld_total{namespace="weir",reason="full"} 0x3 60x12 120+60x20 1320x20`,
				`weir_enforce_decisions_total{namespace="weir",rule="login",mode="block",action="withheld",reason="full"} 0x3 60x12 120x40`,
				`weir_enforce_withheld_total{namespace="weir",reason="never_block"} 0+60x60`,
			},
			quiet: "10m", fires: "34m", over: "43m",
			notices: []notice{{
				"namespace=weir,reason=full", "Blocks are withheld: full",
				"ENFORCE of weir withholds 1 attempts to block a second for a reason that is not the source's: full.",
			}},
		},
		{
			alert:  "WeirModesUnpublished",
			series: []string{`weir_modes_failures_total{namespace="weir"} 0x3 1x12 11+10x10 111x20`},
			quiet:  "8m", fires: "24m", over: "33m",
			notices: []notice{{
				"namespace=weir", "Promotions and demotions do not reach Redis",
				"The modes of weir could not be compared with Redis 50 times within 5 minutes. A rule that was demoted may go on blocking.",
			}},
		},
		{
			alert:  "WeirCanaryFellBack",
			series: []string{`weir_canary_fall_backs_total{namespace="weir",reason="exceeded"} 0x10 1x60`, `weir_canary_fall_backs_total{namespace="weir",reason="not_measurable"} 0x70`},
			quiet:  "10m", fires: "13m", over: "45m",
			notices: []notice{{
				"namespace=weir,reason=exceeded", "A canary fell back to shadow: exceeded",
				"1 canaries of weir were put back into shadow within half an hour: exceeded. The audit trail says which, and what was seen.",
			}},
		},
		{
			alert:  "WeirReconcileFailing",
			series: []string{`weir_reconcile_failures_total{namespace="weir"} 0x5 20x14 22+2x20 62x20`},
			quiet:  "9m", fires: "36m", over: "48m",
			notices: []notice{{
				"namespace=weir", "Blocks are not compared with history",
				"10 rounds of the reconciler of weir failed within 5 minutes, for 10 minutes now. What Redis loses meanwhile stays lost.",
			}},
		},
		{
			alert:  "WeirBlocksUnasserted",
			series: []string{`weir_reconcile_unasserted{namespace="weir"} 0x10 12x20 0x10`},
			quiet:  "20m", fires: "22m", over: "33m",
			notices: []notice{{
				"namespace=weir", "12 blocks or releases cannot be put back into Redis",
				"A master of weir's Redis does not answer or is full, so 12 blocks and releases that history has are missing there.",
			}},
		},
	}
}

func storeDrills() []drill {
	return []drill{
		{
			alert: "WeirClockApart",
			series: []string{
				`weir_clock_offset_seconds{namespace="weir",stream="live",job="weir",instance="run-1",` +
					`store="redis"} 0x10 -70x10 0x10`,
				`weir_clock_offset_seconds{namespace="weir",stream="live",job="weir",instance="run-1",` +
					`store="postgres"} 4.9x30`,
			},
			quiet: "12m", fires: "14m", over: "22m",
			notices: []notice{{
				"namespace=weir,job=weir,instance=run-1,store=redis", "The clock of run-1 is 1m 10s from that of redis",
				"The clocks of run-1 (weir, job weir) and of redis differ by 1m 10s at the least. Blocks begin and " +
					"end at wrong moments, or none is made.",
			}},
		},
		{
			alert: "WeirRedisMemoryHigh",
			series: []string{
				`weir_redis_memory_bytes{namespace="weir",node="redis:6379"} 85x10 90x10 50x10`,
				`weir_redis_memory_max_bytes{namespace="weir",node="redis:6379"} 100x40`,
				`weir_redis_memory_bytes{namespace="weir",node="other:6379"} 1000x40`,
				`weir_redis_memory_max_bytes{namespace="weir",node="other:6379"} 0x40`, // no limit
			},
			quiet: "15m", fires: "17m", over: "23m",
			notices: []notice{{
				"namespace=weir,node=redis:6379", "Redis redis:6379 has 90% of its memory in use",
				"Redis redis:6379 (weir) uses 90% of maxmemory. When it is full, new blocks are withheld.",
			}},
		},
		{
			alert: "WeirHistoryGrowing", every: "5m",
			series: []string{ // 20 GiB that grow by 1 GiB a day, then by 12; two processes tell of the same table. Elsewhere processes come and go, and
				// one takes its first snapshots.
				`weir_history_size_bytes{namespace="busy",table="hits",instance="d"} 21474836480x590`,
				`weir_history_size_bytes{namespace="busy",table="checkpoint_pieces",instance="d"} 1073741824x200 1073741824+1073741824x140 151397597184x250`,
				`weir_history_size_bytes{namespace="busy",table="checkpoints",instance="d"} 1048576x200 1073741824+1073741824x140 151397597184x250`,
				`weir_history_size_bytes{namespace="weir",table="hits",instance="a"} 21474836480+3728270x288 22548578304+44739243x288 35433480192x300`,
				`weir_history_size_bytes{namespace="weir",table="hits",instance="b"} 21474836480+3728270x288 22548578304+44739243x288 35433480192x300`,
				`weir_history_size_bytes{namespace="steady",table="hits",instance="a"} 21474836480x700 _x176`,
				`weir_history_size_bytes{namespace="steady",table="hits",instance="b"} _x200 21474836480x676`,
				`weir_history_size_bytes{namespace="steady",table="hits",instance="c"} _x400 21474836480x476`,
			},
			quiet: "24h", fires: "44h", over: "72h",
			notices: []notice{{
				"namespace=weir", "History will have doubled within a week",
				"At the last day's pace the tables of weir take 108.7GiB in a week, twice what they take now.",
			}},
		},
	}
}

func gateDrills() []drill {
	gate := `namespace="weir",job="weir",instance="gate-1"`
	ready := `weir_blocklist_ready{` + gate + `} 1x90`
	return []drill{
		{
			alert:  "WeirGateNotReady",
			series: []string{`weir_blocklist_ready{` + gate + `} 1x10 0x10 1x10`},
			quiet:  "12m", fires: "14m", over: "22m",
			notices: []notice{{
				"namespace=weir,job=weir,instance=gate-1", "Gate gate-1 has no blocklist",
				"The gate gate-1 (weir) has not loaded the blocklist for 2 minutes, or is at a Redis that has none of its namespace, and lets everybody pass.",
			}},
		},
		{
			alert: "WeirGateFailOpen",
			series: []string{
				`weir_gate_decisions_total{` + gate + `,protocol="forward_auth",decision="fail_open",rule=""} 0x3 50x6 350+300x10 3350x20`,
				`weir_gate_decisions_total{` + gate + `,protocol="forward_auth",decision="pass",rule=""} 0+3000x40`,
			},
			quiet: "5m", fires: "18m", over: "28m",
			notices: []notice{{
				"namespace=weir,instance=gate-1", "Gate gate-1 lets requests pass unjudged",
				"The gate gate-1 (weir) lets 5 requests a second pass without a look at the blocklist.",
			}},
		},
		{
			alert: "WeirReplicaStale",
			series: []string{
				ready, `weir_blocklist_behind_seconds{` + gate + `} 1x10 30x10 60x10 1x10`,
				`weir_blocklist_ready{namespace="weir",job="weir",instance="gate-2"} 0x90`, // has another alert
				`weir_blocklist_behind_seconds{namespace="weir",job="weir",instance="gate-2"} 600x90`,
			},
			quiet: "22m", fires: "24m", over: "34m",
			notices: []notice{{
				"namespace=weir,job=weir,instance=gate-1", "Gate gate-1 knows nothing newer than 1m 0s",
				"The copy of the blocklist at gate-1 (weir) is 1m 0s old. Blocks it knows hold; new ones, releases and demotions do not reach it.",
			}},
		},
		{
			alert:  "WeirBlocklistIncomplete",
			series: []string{ready, `weir_blocklist_missing_slots{` + gate + `} 0x10 5461x10 0x10`},
			quiet:  "15m", fires: "17m", over: "22m",
			notices: []notice{{
				"namespace=weir,job=weir,instance=gate-1", "Gate gate-1 lacks a part of the blocklist",
				"The gate gate-1 (weir) could not read 5461 of the 16,384 slots of Redis. Who is blocked there passes.",
			}},
		},
		{
			alert:  "WeirGateRulesHeldBack",
			series: []string{ready, `weir_blocklist_rules_held_back{` + gate + `} 0x10 2x10 0x10`},
			quiet:  "15m", fires: "17m", over: "22m",
			notices: []notice{{
				"namespace=weir,job=weir,instance=gate-1", "Gate gate-1 holds 2 rules as in shadow",
				"The gate gate-1 (weir) refuses nobody by 2 rules: the rule store has not signed what Redis has of " +
					"their modes.",
			}},
		},
		{
			alert:  "WeirGateObserving",
			series: []string{`weir_gate_observing{` + gate + `} 0x10 1x70 0x10`},
			quiet:  "70m", fires: "72m", over: "83m",
			notices: []notice{{
				"namespace=weir,job=weir,instance=gate-1", "Gate gate-1 refuses nobody",
				"The gate gate-1 (weir) has observed for an hour: it says who would be refused, and refuses nobody.",
			}},
		},
		{
			// One look that fails is nothing: a volume that was mounted anew. A look is made each second.
			alert:  "WeirGateObserveFileUnreadable",
			series: []string{`weir_gate_observe_file_failures_total{` + gate + `} 0x10 1x19 1+60x20 1201x30`},
			quiet:  "30m", fires: "40m", over: "57m",
			notices: []notice{{
				"namespace=weir,instance=gate-1", "The way out of gate gate-1 does not work",
				"The gate gate-1 (weir) may not look at gate.observe_file, 300 times within 5 minutes. To put the file there would change nothing.",
			}},
		},
	}
}
