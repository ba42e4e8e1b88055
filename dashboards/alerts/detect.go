package alerts

import (
	"fmt"
	"time"
)

// detectAlerts tell where counts go wrong.
func detectAlerts() []alert {
	return []alert{
		{
			name: "WeirPartitionBlind", severity: Page, hold: time.Minute,
			expr:    fmt.Sprintf("max by (namespace, partition) (weir_detect_blind{%s}) == 1", live),
			summary: "Partition {{ $labels.partition }} drops all that comes",
			detail:  "DETECT of {{ $labels.namespace }} takes every record of keyed partition {{ $labels.partition }} for a repetition. No rule counts there.",
		},
		{
			name: "WeirCountsLost", severity: Ticket,
			expr:    grown("namespace", fmt.Sprintf("weir_detect_losses_total{%s}", live)),
			summary: "Events are missing in the counts",
			detail:  "DETECT of {{ $labels.namespace }} went on behind {{ $value | humanize }} losses within 15 minutes: gaps that somebody accepted, or records that Kafka deleted.",
		},
		{
			name: "WeirWatermarkStuck", severity: Page, hold: 2 * time.Minute,
			// All processes have the same margin: it is part of what a stream finds.
			expr: fmt.Sprintf("max by (namespace, partition) (weir_detect_watermark_delay_seconds{%s})\n"+
				"> on (namespace) group_left () (max by (namespace) (weir_detect_idle_margin_seconds{%s}) + %s)", live, live, seconds(watermarkMost)),
			summary: "Time stands still in keyed partition {{ $labels.partition }}",
			detail:  "The watermark of keyed partition {{ $labels.partition }} ({{ $labels.namespace }}) is {{ $value | humanizeDuration }} behind the clock. Episodes do not close, and windows keep what is over.",
		},
		{
			name: "WeirSnapshotTooOld", severity: Ticket, hold: 5 * time.Minute,
			// Where the topic keeps its records for ever, there is no retention.
			expr: fmt.Sprintf("%s\n> on (namespace) group_left () (\n  clamp_max(%s / %d, %s)\n  or group by (namespace) (weir_detect_snapshot_age_seconds{%s}) * %s\n)",
				snapshotAge(), keyedRetention(), snapshotParts, seconds(snapshotMost), live, seconds(snapshotMost)),
			summary: "The newest snapshot of keyed partition {{ $labels.partition }} is {{ $value | humanizeDuration }} old",
			detail:  "Who takes over keyed partition {{ $labels.partition }} ({{ $labels.namespace }}) has to count {{ $value | humanizeDuration }} anew, and counts too little once Kafka has deleted some of that.",
		},
		{
			name: "WeirSnapshotNearlyOutlived", severity: Page, hold: 5 * time.Minute,
			expr:    fmt.Sprintf("%s\n> on (namespace) group_left () (%s / %d)", snapshotAge(), keyedRetention(), snapshotHalf),
			summary: "Kafka will soon delete what the newest snapshot of keyed partition {{ $labels.partition }} needs",
			detail:  "The newest snapshot of keyed partition {{ $labels.partition }} ({{ $labels.namespace }}) is {{ $value | humanizeDuration }} old, more than half of the time for which Kafka keeps what came since.",
		},
		{
			name: "WeirSnapshotDamaged", severity: Ticket,
			expr:    grown("namespace", fmt.Sprintf(`weir_detect_restores_total{%s,outcome="torn"}`, live)),
			summary: "A snapshot was damaged and passed over",
			detail:  "DETECT of {{ $labels.namespace }} passed over {{ $value | humanize }} damaged snapshots within 15 minutes and went on from older ones.",
		},
		{
			name: "WeirKeysEvicted", severity: Ticket, hold: 10 * time.Minute,
			expr:    fmt.Sprintf("sum by (namespace) (rate(weir_detect_evicted_total{%s}[5m])) > 0", live),
			summary: "DETECT forgets keys to stay within its budget",
			detail:  "DETECT of {{ $labels.namespace }} evicts {{ $value | humanize }} keys a second. What is evicted counts from 0 again, so sources get more than their limit.",
		},
		{
			name: "WeirBudgetNearlySpent", severity: Ticket, hold: 15 * time.Minute,
			expr: fmt.Sprintf("max by (namespace, partition) (weir_detect_bytes{%s} / weir_detect_budget_bytes{%s}) > %s", live, live,
				number(budgetMost)),
			summary: "Keyed partition {{ $labels.partition }} has {{ $value | humanizePercentage }} of its budget in use",
			detail:  "The windows of keyed partition {{ $labels.partition }} ({{ $labels.namespace }}) take {{ $value | humanizePercentage }} of its budget. At the end of it keys are evicted.",
		},
	}
}

// snapshotAge is the age of the newest snapshot of each keyed partition. A process that Kafka cannot reach shows it beside the owner, and
// knows of none that is newer.
func snapshotAge() string {
	return fmt.Sprintf("min by (namespace, partition) (weir_detect_snapshot_age_seconds{%s})", live)
}

// keyedRetention is for how long Kafka keeps what was counted. A process reads it at its start, so for a while they may disagree.
func keyedRetention() string {
	return fmt.Sprintf("min by (namespace) (weir_detect_keyed_retention_seconds{%s})", live)
}
