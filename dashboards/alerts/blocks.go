package alerts

import (
	"fmt"
	"time"
)

// blockAlerts tell where what was detected does not become a block, or a release no release.
func blockAlerts() []alert {
	return []alert{
		{
			name: "WeirDecisionsWithheld", severity: Page, hold: persists,
			// Attempts, since an episode that goes on is withheld with each update, and told of once.
			expr:    `sum by (namespace, reason) (rate(weir_enforce_withheld_total{reason=~"full|unreachable|unknown_version"}[5m])) > 0`,
			summary: "Blocks are withheld: {{ $labels.reason }}",
			detail:  "ENFORCE of {{ $labels.namespace }} withholds {{ $value | humanize }} attempts to block a second for a reason that is not the source's: {{ $labels.reason }}.",
		},
		{
			name: "WeirModesUnpublished", severity: Page, hold: persists,
			expr:    "sum by (namespace) (increase(weir_modes_failures_total[5m])) > 0",
			summary: "Promotions and demotions do not reach Redis",
			detail:  "The modes of {{ $labels.namespace }} could not be compared with Redis {{ $value | humanize }} times within 5 minutes. A rule that was demoted may go on blocking.",
		},
		{
			name: "WeirCanaryFellBack", severity: Ticket,
			expr:    "sum by (namespace, reason) (increase(weir_canary_fall_backs_total[30m])) > 0",
			summary: "A canary fell back to shadow: {{ $labels.reason }}",
			detail:  "{{ $value | humanize }} canaries of {{ $labels.namespace }} were put back into shadow within half an hour: {{ $labels.reason }}. The audit trail says which, and what was seen.",
		},
		{
			name: "WeirReconcileFailing", severity: Ticket, hold: 10 * time.Minute,
			expr:    fmt.Sprintf("sum by (namespace) (increase(weir_reconcile_failures_total[5m])) >= %s", number(reconcileFailures)),
			summary: "Blocks are not compared with history",
			detail:  "{{ $value | humanize }} rounds of the reconciler of {{ $labels.namespace }} failed within 5 minutes, for 10 minutes now. What Redis loses meanwhile stays lost.",
		},
		{
			name: "WeirBlocksUnasserted", severity: Ticket, hold: 10 * time.Minute,
			expr:    "max by (namespace) (weir_reconcile_unasserted) > 0",
			summary: "{{ $value }} blocks or releases cannot be put back into Redis",
			detail:  "A master of {{ $labels.namespace }}'s Redis does not answer or is full, so {{ $value }} blocks and releases that history has are missing there.",
		},
	}
}

// gateAlerts tell of gates that let pass whom they should refuse.
func gateAlerts() []alert {
	return []alert{
		{
			name: "WeirGateDown", severity: Page, hold: time.Minute,
			expr:    fmt.Sprintf("up == 0\nand on (job, instance) %s", seen(gatesSeen)),
			summary: "Gate {{ $labels.instance }} is down",
			detail:  "Prometheus has not reached the gate {{ $labels.instance }} (job {{ $labels.job }}) for a minute. Its gateway lets everybody pass, if it is configured as docs/gate.md has it.",
		},
		{
			name: "WeirGateAbsent", severity: Page, hold: 3 * time.Minute,
			expr:    fmt.Sprintf("group by (namespace) (%s)\nunless on (namespace) weir_gate_observing", seen(gatesSeen)),
			summary: "No gate runs",
			detail:  "Gates of {{ $labels.namespace }} ran within the last week and Prometheus hears of none now. Nobody is refused, if gateways are configured as docs/gate.md has it.",
		},
		{
			name: "WeirGateNotReady", severity: Page, hold: 2 * time.Minute,
			expr:    "weir_blocklist_ready == 0",
			summary: "Gate {{ $labels.instance }} has no blocklist",
			detail: "The gate {{ $labels.instance }} ({{ $labels.namespace }}) has not loaded the blocklist for 2 minutes, " +
				"or is at a Redis that has none of its namespace, and lets everybody pass.",
		},
		{
			name: "WeirGateFailOpen", severity: Page, hold: persists,
			expr:    `sum by (namespace, instance) (rate(weir_gate_decisions_total{decision="fail_open"}[5m])) > 0`,
			summary: "Gate {{ $labels.instance }} lets requests pass unjudged",
			detail:  "The gate {{ $labels.instance }} ({{ $labels.namespace }}) lets {{ $value | humanize }} requests a second pass without a look at the blocklist.",
		},
		{
			name: "WeirReplicaStale", severity: Page, hold: time.Minute,
			expr:    fmt.Sprintf("weir_blocklist_behind_seconds > %s\nand on (job, instance) weir_blocklist_ready == 1", seconds(staleMost)),
			summary: "Gate {{ $labels.instance }} knows nothing newer than {{ $value | humanizeDuration }}",
			detail:  "The copy of the blocklist at {{ $labels.instance }} ({{ $labels.namespace }}) is {{ $value | humanizeDuration }} old. Blocks it knows hold; new ones, releases and demotions do not reach it.",
		},
		{
			name: "WeirBlocklistIncomplete", severity: Page, hold: 5 * time.Minute,
			expr:    "weir_blocklist_missing_slots > 0\nand on (job, instance) weir_blocklist_ready == 1",
			summary: "Gate {{ $labels.instance }} lacks a part of the blocklist",
			detail:  "The gate {{ $labels.instance }} ({{ $labels.namespace }}) could not read {{ $value }} of the 16,384 slots of Redis. Who is blocked there passes.",
		},
		{
			name: "WeirGateRulesHeldBack", severity: Page, hold: 5 * time.Minute,
			expr:    "weir_blocklist_rules_held_back > 0",
			summary: "Gate {{ $labels.instance }} holds {{ $value }} rules as in shadow",
			detail: "The gate {{ $labels.instance }} ({{ $labels.namespace }}) refuses nobody by {{ $value }} rules: " +
				"the rule store has not signed what Redis has of their modes.",
		},
		{
			name: "WeirGateObserving", severity: Ticket, hold: observingMost,
			expr:    "weir_gate_observing == 1",
			summary: "Gate {{ $labels.instance }} refuses nobody",
			detail:  "The gate {{ $labels.instance }} ({{ $labels.namespace }}) has observed for an hour: it says who would be refused, and refuses nobody.",
		},
		{
			name: "WeirGateObserveFileUnreadable", severity: Ticket, hold: persists,
			expr:    "sum by (namespace, instance) (increase(weir_gate_observe_file_failures_total[5m])) > 0",
			summary: "The way out of gate {{ $labels.instance }} does not work",
			detail:  "The gate {{ $labels.instance }} ({{ $labels.namespace }}) may not look at gate.observe_file, {{ $value | humanize }} times within 5 minutes. To put the file there would change nothing.",
		},
	}
}

// storeAlerts tell of Redis and PostgreSQL before they are full, and of processes whose time is not theirs.
func storeAlerts() []alert {
	return []alert{
		{
			name: "WeirClockApart", severity: Page, hold: 2 * time.Minute,
			expr: fmt.Sprintf("max by (namespace, job, instance, store) (abs(weir_clock_offset_seconds{%s})) >= %s",
				live, seconds(clockMost)),
			summary: "The clock of {{ $labels.instance }} is {{ $value | humanizeDuration }} from that of " +
				"{{ $labels.store }}",
			detail: "The clocks of {{ $labels.instance }} ({{ $labels.namespace }}, job {{ $labels.job }}) and of " +
				"{{ $labels.store }} differ by {{ $value | humanizeDuration }} at the least. Blocks begin and end " +
				"at wrong moments, or none is made.",
		},
		{
			name: "WeirRedisMemoryHigh", severity: Ticket, hold: 5 * time.Minute,
			expr:    fmt.Sprintf("max by (namespace, node) (weir_redis_memory_bytes / (weir_redis_memory_max_bytes > 0)) > %s", number(redisMost)),
			summary: "Redis {{ $labels.node }} has {{ $value | humanizePercentage }} of its memory in use",
			detail:  "Redis {{ $labels.node }} ({{ $labels.namespace }}) uses {{ $value | humanizePercentage }} of maxmemory. When it is full, new blocks are withheld.",
		},
		{
			name: "WeirHistoryGrowing", severity: Ticket, hold: time.Hour,
			// What is not known for a day has no pace of a day: of its first hour, no week can be told.
			expr: fmt.Sprintf("predict_linear(%s[1d], %s) > %s * %s\nand %s > %s\nand present_over_time(%s[1h] offset 1d)",
				historyBytes, seconds(historyAhead), number(historyGrowth), historyBytes, historyBytes, number(historyLeast), historyBytes),
			summary: "History will have doubled within a week",
			detail:  "At the last day's pace the tables of {{ $labels.namespace }} take {{ $value | humanize1024 }}B in a week, twice what they take now.",
		},
	}
}
