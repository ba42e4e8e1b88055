package alerts

import (
	"fmt"
	"testing"
)

// growing are the counters that must not grow at all, by alert. Each %d of the notice is by how much one has.
func growing() []grownCounter {
	return []grownCounter{
		{"WeirRecordsLost", `weir_stage_lost_records_total{%s,stage="record",partition="2"}`, notice{
			"namespace=weir,stage=record,partition=2", "Records were gone before record had read them",
			"%d records of partition 2 were gone before record (weir) had read them.",
		}},
		{"WeirRecordsDeadLettered", `weir_dead_letters_total{%s,stage="enforce",reason="malformed"}`, notice{
			"namespace=weir,stage=enforce,reason=malformed", "enforce could not use a record of weir's own",
			"%d records of the last 15 minutes went from enforce to the dead letters (malformed). weir wrote them itself, so something is damaged.",
		}},
		{"WeirInstanceIDShared", `weir_kafka_group_fenced_total{%s,group="weir.detect"}`, notice{
			"namespace=weir,group=weir.detect", "Two processes have one kafka.instance_id",
			"Kafka put %d members out of the consumer group weir.detect (weir) within 15 minutes, since another process came under their instance id. " +
				"Nothing is counted twice; those that were put out go on without a name.",
		}},
		{"WeirCountsLost", `weir_detect_losses_total{%s}`, notice{
			"namespace=weir", "Events are missing in the counts",
			"DETECT of weir went on behind %d losses within 15 minutes: gaps that somebody accepted, or records that Kafka deleted.",
		}},
		{"WeirSnapshotDamaged", `weir_detect_restores_total{%s,outcome="torn"}`, notice{
			"namespace=weir", "A snapshot was damaged and passed over",
			"DETECT of weir passed over %d damaged snapshots within 15 minutes and went on from older ones.",
		}},
	}
}

type grownCounter struct {
	alert, series string // the series with a verb for the labels of who exports it
	notice        notice
}

// of is the counter of an instance.
func (g grownCounter) of(instance, samples string) string {
	return fmt.Sprintf(g.series, `stream="live",namespace="weir",job="weir",instance="`+instance+`"`) + " " + samples
}

func (g grownCounter) says(n int) []notice {
	says := g.notice
	says.detail = fmt.Sprintf(says.detail, n)
	return []notice{says}
}

func (g grownCounter) drill(quiet, fires, over string, n int, series ...string) drill {
	return drill{alert: g.alert, series: append(series, unmoved(g)...), quiet: quiet, fires: fires, over: over, notices: g.says(n)}
}

func target(instance, up, started string) []string {
	of := `{job="weir",instance="` + instance + `"} `
	return []string{`up` + of + up, `process_start_time_seconds` + of + started}
}

// unmoved are processes that have counted long ago: one of which a scrape fails, one that is out of reach for an hour, and one that Prometheus
// is told of late.
func unmoved(g grownCounter) []string {
	series := append(target("flaky", "1x60 0 1x60", "-9000x60 stale -9000x60"), g.of("flaky", "40x60 stale 40x60"))
	series = append(append(series, target("cut-off", "1x40 0x59 1x30", "-9000x40 _x59 -9000x30")...), g.of("cut-off", "40x40 stale _x58 40x30"))
	return append(append(series, target("told-late", "_x70 1x60", "_x70 -9000x60")...), g.of("told-late", "_x70 40x60"))
}

// grownDrills let each of the counters grow in each of the ways in which it can.
func grownDrills() []drill {
	var all []drill
	for _, g := range growing() {
		all = append(all,
			// The first count makes the series, in a process that has run for long.
			g.drill("19m", "34m", "36m", 5, append(target("old", "1x130", "-9000x130"), g.of("old", "_x20 5x110"))...),
			// A new instance has counted before it was scraped: it started half a minute before the minute 60.
			g.drill("59m", "73m", "76m", 5, append(target("new", "_x60 1x70", "_x60 3570x70"), g.of("new", "_x60 5x70"))...),
			// The same instance counts less after its restart than before.
			g.drill("59m", "73m", "76m", 5, append(target("again", "1x58 0 1x70", "-9000x58 stale 3570x70"), g.of("again", "6x58 stale 5x70"))...),
			// The same instance counts no more than before.
			g.drill("59m", "73m", "76m", 5, append(target("again", "1x58 0 1x70", "-9000x58 stale 3570x70"), g.of("again", "5x58 stale 5x70"))...))
	}
	return all
}

// A process that starts anew counts from 0, whatever it had counted, and is no growth; nor is one whose scrape fails.
func TestNothingHasGrown(t *testing.T) {
	t.Parallel()
	for _, g := range growing() {
		t.Run(g.alert, func(t *testing.T) {
			t.Parallel()
			series := append(unmoved(g), append(target("again", "1x80 0 1x45", "-9000x80 stale 4830x45"), g.of("again", "6x80 stale 0x45"))...)
			series = append(series, append(target("new", "_x85 1x40", "_x85 5070x40"), g.of("new", "_x85 0x40"))...)
			var tests []alertTest
			for m := range 120 {
				tests = append(tests, alertTest{fmt.Sprintf("%dm", m), g.alert, nil}, alertTest{fmt.Sprintf("%dm30s", m), g.alert, nil})
			}
			testRules(t, "30s", series, tests)
		})
	}
}
