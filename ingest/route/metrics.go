package route

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// routeCollector shows a router's statistics as metrics. They are read from the one tally when asked for, so that what
// a summary prints and what a dashboard shows cannot differ.
type routeCollector struct {
	tally *tally

	counts     []routeCount
	dead       *prometheus.Desc
	identities *prometheus.Desc
	rules      *prometheus.Desc
	missing    *prometheus.Desc
	uncounted  *prometheus.Desc
	lag        *prometheus.Desc
	offset     *prometheus.Desc
	refused    *prometheus.Desc
	halted     *prometheus.Desc
	version    *prometheus.Desc
	prefetched *prometheus.Desc
}

var _ prometheus.Collector = (*routeCollector)(nil)

// routeCount is a counter without labels.
type routeCount struct {
	desc *prometheus.Desc
	read func(*Stats) int64
}

func newRouteCollector(t *tally) *routeCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("weir_route_"+name, help, labels, nil)
	}
	c := &routeCollector{
		tally:      t,
		dead:       desc("dead_letters_total", "Events that went to the dead-letter topic.", "reason"),
		identities: desc("identity_missing_total", "Events that lack an identity field.", "field", "reason"),
		rules:      desc("rule_events_total", "Events that a rule watches.", "rule", "outcome"),
		missing:    desc("rule_key_missing_total", "Events that lack a field of the key of a rule that watches them.", "rule", "field"),
		uncounted:  desc("rule_uncounted_total", "Events that a rule watches and that feed none of its windows, since they lack a field of its key, or what it counts.", "rule", "reason"),
		lag:        desc("lag_events", "Offsets between the end of a requests partition and what is routed of it.", "partition"),
		offset:     desc("offset", "Offset of a requests partition up to which all is acknowledged.", "partition"),
		refused:    desc("partition_refused", "1 while a requests partition is not routed; see weir partitions list.", "partition"),
		halted:     desc("partition_halted", "1 while a requests partition cannot be read on; see weir partitions list.", "partition"),
		version:    desc("routing_version", "Newest routing version that was loaded."),
		prefetched: desc("intake_bytes", "Bytes that events take in memory, unpacked, which are read and not yet routed."),
	}
	for _, n := range []struct {
		name, help string
		read       func(*Stats) int64
	}{
		{"events_total", "Events read, bad ones included.", func(s *Stats) int64 { return s.Events }},
		{"records_total", "Keyed records written.", func(s *Stats) int64 { return s.Records }},
		{"end_marks_total", "End marks of a replay.", func(s *Stats) int64 { return s.EndMarks }},
		{"own_refusals_total", "Requests that weir itself had refused.", func(s *Stats) int64 { return s.OwnRefusals }},
		{"unmatched_total", "Events that no rule watches.", func(s *Stats) int64 { return s.Unmatched }},
		{"keyless_total", "Events that lack, for every rule that watches them, its key or what it counts.", func(s *Stats) int64 { return s.Keyless }},
		{"future_corrected_total", "Event times in the future, corrected.", func(s *Stats) int64 { return s.FutureCorrected }},
		{"timeless_total", "Events without a time.", func(s *Stats) int64 { return s.Timeless }},
		{"unknown_fields_total", "Event members that the format does not define.", func(s *Stats) int64 { return s.UnknownFields }},
		{"chunks_total", "Acknowledged chunks.", func(s *Stats) int64 { return s.Chunks }},
		{"chunk_retries_total", "Chunks given again.", func(s *Stats) int64 { return s.ChunkRetries }},
		{"announcements_total", "Commits that the group took.", func(s *Stats) int64 { return s.Announcements }},
		{"unanswered_commits_total", "Commits without an answer.", func(s *Stats) int64 { return s.UnansweredCommits }},
		{"refused_commits_total", "Commits that the group refused.", func(s *Stats) int64 { return s.RefusedCommits }},
		{"tick_rounds_total", "Acknowledged rounds of ticks.", func(s *Stats) int64 { return s.TickRounds }},
		{"tick_failures_total", "Rounds of ticks that were not acknowledged.", func(s *Stats) int64 { return s.FailedTickRounds }},
		{"fetch_failures_total", "Fetches, or parts of one, that failed.", func(s *Stats) int64 { return s.FetchFailures }},
		{"look_failures_total", "Failed looks at commits, bounds or routing versions.", func(s *Stats) int64 { return s.LookFailures }},
		{"report_failures_total", "Failed reports of partition states, and of what was left out.", func(s *Stats) int64 { return s.ReportFailures }},
		{"order_waits_total", "Times that events waited for older ones of a partition that was not read as far yet.", func(s *Stats) int64 { return s.OrderWaits }},
		{"accepted_gaps_total", "Gaps that an operator accepted.", func(s *Stats) int64 { return s.AcceptedGaps }},
	} {
		c.counts = append(c.counts, routeCount{desc(n.name, n.help), n.read})
	}
	return c
}

// Describe sends the descriptions of all metrics.
func (c *routeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, n := range c.counts {
		ch <- n.desc
	}
	for _, d := range []*prometheus.Desc{
		c.dead, c.identities, c.rules, c.missing, c.uncounted, c.lag, c.offset, c.refused, c.halted, c.version, c.prefetched,
	} {
		ch <- d
	}
}

// Collect sends the present values.
func (c *routeCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.tally.snapshot()
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, n := range c.counts {
		counter(n.desc, n.read(&s))
	}
	for reason, n := range s.DeadLetters {
		counter(c.dead, n, reason)
	}
	for f, reasons := range s.MissingIdentities {
		for reason, n := range reasons {
			if n > 0 {
				counter(c.identities, n, traffic.Field(f).String(), traffic.MissingReason(reason).String())
			}
		}
	}
	for id, r := range s.Rules {
		counter(c.rules, r.Matched, id, "matched")
		counter(c.rules, r.Behind, id, "behind")
		counter(c.rules, r.BehindComplete, id, "behind_complete")
		counter(c.rules, r.Skipped, id, "skipped")
		counter(c.rules, r.Grouped, id, "grouped")
		for f, n := range r.Missing {
			if n > 0 {
				counter(c.missing, n, id, traffic.Field(f).String())
			}
		}
		if r.Skipped > 0 {
			counter(c.uncounted, r.Skipped, id, detectors.UncountedMissingField.String())
		}
		for why, n := range r.Uncounted {
			if n > 0 {
				counter(c.uncounted, n, id, uncounted(why).String())
			}
		}
	}
	c.collectSources(ch, &s)
}

func (c *routeCollector) collectSources(ch chan<- prometheus.Metric, s *Stats) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.version, float64(s.NewestVersion))
	gauge(c.prefetched, float64(s.PrefetchedBytes))
	for p, src := range s.Sources {
		partition := strconv.Itoa(p)
		if src.Refused {
			gauge(c.refused, 1, partition)
			continue
		}
		gauge(c.refused, 0, partition)
		gauge(c.halted, oneIf(src.Halted), partition)
		gauge(c.offset, float64(src.Offset), partition)
		gauge(c.lag, float64(max(src.HighWatermark-src.Offset, 0)), partition)
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
