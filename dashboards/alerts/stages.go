package alerts

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
)

// stageAlerts tell of stages that are behind, and of what they cannot use.
func stageAlerts() []alert {
	return []alert{
		{
			name: "WeirStageLagging", severity: Page, hold: 2 * time.Minute,
			expr:    fmt.Sprintf(`%s > %s`, lag(`stage=~"route|detect|enforce"`), seconds(lagMost)),
			summary: "Stage {{ $labels.stage }} is {{ $value | humanizeDuration }} behind",
			detail: "The oldest record that {{ $labels.stage }} of {{ $labels.namespace }} has not handled is {{ $value | humanizeDuration }} old; blocks come that much late, " +
				"or not at all where a rule's max_lag is shorter.",
		},
		{
			name: "WeirHistoryLagging", severity: Ticket, hold: 10 * time.Minute,
			expr:    fmt.Sprintf(`%s > %s`, lag(`stage=~"record|record-.+"`), seconds(historyLagMost)),
			summary: "History is {{ $value | humanizeDuration }} behind",
			detail:  "The oldest record that {{ $labels.stage }} of {{ $labels.namespace }} has not stored is {{ $value | humanizeDuration }} old. Blocks are written all the same.",
		},
		{
			name: "WeirMixedBuilds", severity: Ticket, hold: mixedBuildsMost,
			expr:    fmt.Sprintf("count by (namespace) (group by (namespace, version) (weir_build_info{%s})) > 1", live),
			summary: "{{ $value }} builds of weir run side by side",
			detail: fmt.Sprintf("Processes of {{ $value }} builds have worked on {{ $labels.namespace }} for %s. An upgrade was not finished.",
				duration.Format(mixedBuildsMost)),
		},
		{
			name: "WeirInstanceIDShared", severity: Ticket,
			expr:    grown("namespace, group", fmt.Sprintf("weir_kafka_group_fenced_total{%s}", live)),
			summary: "Two processes have one kafka.instance_id",
			detail: "Kafka put {{ $value | humanize }} members out of the consumer group {{ $labels.group }} ({{ $labels.namespace }}) within 15 minutes, since another process came under their instance id. " +
				"Nothing is counted twice; those that were put out go on without a name.",
		},
		{
			name: "WeirEventsStopped", severity: Page, hold: 5 * time.Minute,
			// Idle or cut off looks the same from here; so it is compared with the days before. Yesterday alone would end the alert after a day, and
			// call on each Saturday where people work from Monday to Friday. Where ROUTE stands still, another alert says so.
			expr: fmt.Sprintf("%s == 0\nand on (namespace) (\n%s\n)\nunless on (namespace) %s offset 7d < %s\nunless on (namespace) %s > %s",
				eventsRead, busyDays(), eventsRead, number(eventsLeast), lag(`stage="route"`), seconds(lagMost)),
			summary: "No events come any more",
			detail:  "ROUTE of {{ $labels.namespace }} has read no event for 15 minutes. On other days there were many at this time. What does not come is not counted, and blocks nobody.",
		},
		{
			name: "WeirEventsDeadLettered", severity: Ticket, hold: 10 * time.Minute,
			expr: fmt.Sprintf("sum by (namespace) (rate(weir_dead_letters_total{%s,stage=\"route\"}[5m]))\n"+
				"/ on (namespace) sum by (namespace) (rate(weir_route_events_total{%s}[5m])) > %s", live, live, number(deadLettersMost)),
			summary: "{{ $value | humanizePercentage }} of events cannot be read",
			detail:  "ROUTE of {{ $labels.namespace }} sends {{ $value | humanizePercentage }} of the events to the dead letters. No rule counts them.",
		},
		{
			name: "WeirRecordsDeadLettered", severity: Ticket,
			// What ROUTE and weir ingest cannot read was written by others.
			expr:    grown("namespace, stage, reason", fmt.Sprintf(`weir_dead_letters_total{%s,stage!~"route|ingest"}`, live)),
			summary: "{{ $labels.stage }} could not use a record of weir's own",
			detail:  "{{ $value | humanize }} records of the last 15 minutes went from {{ $labels.stage }} to the dead letters ({{ $labels.reason }}). weir wrote them itself, so something is damaged.",
		},
	}
}

// busyDays are the installations that read many events at this time of a day within the last week.
func busyDays() string {
	var days []string
	for n := range 6 { // of the seventh, what came once on one day would be missed a week later
		days = append(days, fmt.Sprintf("%s offset %dd >= %s", eventsRead, n+1, number(eventsLeast)))
	}
	return "  " + strings.Join(days, "\n  or on (namespace) ")
}

// lag is the greatest lag of the partitions of some stages, by stage. Who was cut off from Kafka shows a partition beside its new owner:
// each says how far it is behind at most, so the least is true.
func lag(stages string) string {
	return fmt.Sprintf("max by (namespace, stage) (min by (namespace, stage, partition) (weir_stage_lag_seconds{%s,%s}))", live, stages)
}

// partitionAlerts tell of partitions that nobody reads, or that cannot be read on.
func partitionAlerts() []alert {
	return []alert{
		{
			name: "WeirPartitionUnowned", severity: Page, hold: 5 * time.Minute,
			expr: fmt.Sprintf("group by (namespace, stage, partition) (%s)\n"+
				"unless on (namespace, stage, partition) weir_stage_lag_records{%s}\n"+
				"unless on (namespace, stage, partition) %s\n"+
				"and on (namespace, stage) weir_stage_lag_records{%s}", seen(partitionsSeen), live, refused(), live),
			summary: "Nobody works on partition {{ $labels.partition }} of {{ $labels.stage }}",
			detail:  "Partition {{ $labels.partition }} of {{ $labels.stage }} ({{ $labels.namespace }}) had an owner within the last week and has had none for 5 minutes. What comes for it waits in Kafka.",
		},
		{
			name: "WeirPartitionHalted", severity: Page, hold: time.Minute,
			// Two ways to stop have alerts of their own. A process that is cut off from Kafka says of no partition that it has stopped.
			expr: fmt.Sprintf("max by (namespace, stage, partition) (weir_stage_partition_halted{%s}) == 1\n"+
				"unless on (namespace, stage, partition) (weir_stage_stranded_partition{%s} == 1 or weir_stage_newer_format_partition{%s} == 1)", live, live, live),
			summary: "Partition {{ $labels.partition }} of {{ $labels.stage }} has stopped",
			detail:  "Partition {{ $labels.partition }} of {{ $labels.stage }} ({{ $labels.namespace }}) has a gap or cannot be read on. Nothing is lost meanwhile, and nothing of it is counted.",
		},
		{
			name: "WeirPartitionRefused", severity: Page, hold: time.Minute,
			expr:    fmt.Sprintf("max by (namespace, partition) (weir_route_partition_refused{%s}) == 1", live),
			summary: "ROUTE does not trust the commit of partition {{ $labels.partition }}",
			detail:  "The commit of partition {{ $labels.partition }} of requests ({{ $labels.namespace }}) is absent, was moved, or does not fit its log. ROUTE does not guess where to go on.",
		},
		{
			name: "WeirPartitionStranded", severity: Page,
			expr:    grown("namespace, stage, partition", fmt.Sprintf("weir_stage_log_replaced_total{%s}", live)),
			summary: "Partition {{ $labels.partition }} has lost what {{ $labels.stage }} had read of it",
			detail: "The log of partition {{ $labels.partition }} lost its end or was made anew. {{ $labels.stage " +
				"}} ({{ $labels.namespace }}) goes on with what it holds; " +
				"what was gone before it was read is lost.",
		},
		{
			name: "WeirRecordsLost", severity: Page,
			expr:    grown("namespace, stage, partition", fmt.Sprintf("weir_stage_lost_records_total{%s}", live)),
			summary: "Records were gone before {{ $labels.stage }} had read them",
			detail: "{{ $value | humanize }} records of partition {{ $labels.partition }} were gone before {{ " +
				"$labels.stage }} ({{ $labels.namespace }}) had read them.",
		},
		{
			name: "WeirUpgradeNeeded", severity: Page, hold: 5 * time.Minute,
			expr:    fmt.Sprintf("max by (namespace, stage, partition) (weir_stage_newer_format_partition{%s}) == 1", live),
			summary: "{{ $labels.stage }} is too old for a record of partition {{ $labels.partition }}",
			detail:  "A newer build wrote the record at which {{ $labels.stage }} ({{ $labels.namespace }}) stands in partition {{ $labels.partition }}. It goes on when its process is upgraded.",
		},
	}
}
