package alerts

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/internal/duration"
)

// Recorded series of what there was, so that alerts can look back for long at little cost: who is gone exports nothing.
const (
	stagesSeen     = "namespace_stage:weir_stage_lag_records:group"
	partitionsSeen = "namespace_stage_partition:weir_stage_lag_records:group"
	processesSeen  = "namespace_job_instance:weir_build_info:group"
	gatesSeen      = "namespace_job_instance:weir_gate_observing:group"
)

// presenceEvery is how often presence is recorded: often enough for a process that ran for minutes.
const presenceEvery = time.Minute

// partitionsEvery is how often it is recorded of partitions, of which there are hundreds: a week of them is read at once.
const partitionsEvery = 10 * time.Minute

func groupRecord(record, by, selector string) Rule {
	return Rule{Record: record, Expr: fmt.Sprintf("group by (%s) (%s)", by, selector)}
}

func presenceRecords() []Rule {
	return []Rule{
		groupRecord(stagesSeen, "namespace, stage", fmt.Sprintf("weir_stage_lag_records{%s}", live)),
		groupRecord(processesSeen, "namespace, job, instance", fmt.Sprintf("weir_build_info{%s}", live)),
		groupRecord(gatesSeen, "namespace, job, instance", "weir_gate_observing"),
	}
}

// partitionRecords see also who had a partition for minutes only.
func partitionRecords() []Rule {
	return []Rule{groupRecord(partitionsSeen, "namespace, stage, partition",
		fmt.Sprintf("present_over_time(weir_stage_lag_records{%s}[%s])", live, duration.Format(partitionsEvery)))}
}

// refused are the partitions that ROUTE has and does not route, of which another alert tells.
func refused() string {
	return fmt.Sprintf(`label_replace(weir_route_partition_refused{%s} == 1, "stage", "route", "", "")`, live)
}

// seen is what was recorded since it was last worth remembering. An alert that forgets sooner is over while nothing is mended.
func seen(record string) string {
	return fmt.Sprintf("present_over_time(%s[%s])", record, duration.Format(remembered))
}

// downAlerts tell of processes that Prometheus knows and does not reach, and of those that it was told to forget while nobody took
// their place.
func downAlerts() []alert {
	return []alert{
		{
			name: "WeirProcessDown", severity: Ticket, hold: 5 * time.Minute,
			// A target that was a process of weir, whatever the job is called; a replay ends by itself. Gates have an alert of their own.
			expr:    fmt.Sprintf("up == 0\nand on (job, instance) %s\nunless on (job, instance) %s", seen(processesSeen), seen(gatesSeen)),
			summary: "Process {{ $labels.instance }} of weir is down",
			detail:  "Prometheus has not reached {{ $labels.instance }} (job {{ $labels.job }}) for 5 minutes. Others take over what it did, if there are any.",
		},
		{
			name: "WeirStageAbsent", severity: Page, hold: 3 * time.Minute,
			expr: fmt.Sprintf("group by (namespace, stage) (%s)\nunless on (namespace, stage) weir_stage_lag_records{%s}\nunless on (namespace, stage) %s",
				seen(stagesSeen), live, refused()),
			summary: "No process runs the stage {{ $labels.stage }}",
			detail:  "Stage {{ $labels.stage }} of {{ $labels.namespace }} worked within the last week and no process runs it now. Its records wait in Kafka.",
		},
	}
}
