package route

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// routeCollector shows a router's statistics as metrics. They are read from the one tally when asked for, so that what
// a summary prints and what a dashboard shows cannot differ.
type routeCollector struct {
	tally    *tally
	versions *versionShelf
	clock    func() traffic.Time

	counts     []routeCount
	identities *prometheus.Desc
	rules      *prometheus.Desc
	missing    *prometheus.Desc
	valueless  *prometheus.Desc
	conditions *prometheus.Desc
	tiers      *prometheus.Desc
	uncounted  *prometheus.Desc
	allowed    *prometheus.Desc
	good       *prometheus.Desc
	offset     *prometheus.Desc
	refused    *prometheus.Desc
	held       *prometheus.Desc
	waited     *prometheus.Desc
	version    *prometheus.Desc
	prefetched *prometheus.Desc
}

var _ prometheus.Collector = (*routeCollector)(nil)

// routeCount is a counter without labels.
type routeCount struct {
	desc *prometheus.Desc
	read func(*Stats) int64
}

func newRouteCollector(t *tally, versions *versionShelf, clock func() traffic.Time) *routeCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("weir_route_"+name, help, labels, nil)
	}
	left := ingest.UncountedOpts(ingest.StageRoute)
	c := &routeCollector{
		tally: t, versions: versions, clock: clock,
		identities: desc("identity_missing_total", "Events that lack an identity field.", "field", "reason"),
		rules:      desc("rule_events_total", "Events that a rule watches.", "rule", "outcome"),
		missing:    desc("rule_key_missing_total", "Events that lack a field of the key of a rule that watches them.", "rule", "field"),
		valueless:  desc("rule_value_missing_total", "Events with the key of a rule that watches them which lack what it counts, by what is wrong with that.", "rule", "reason"),
		conditions: desc("rule_condition_errors_total", "Events that a rule does not watch since its match.when could not be judged.", "rule", "reason"),
		tiers:      desc("rule_tier_errors_total", "Events that a rule judges by the greatest limit that they may have, since the condition of a tier could not be judged.", "rule", "reason"),
		uncounted:  prometheus.NewDesc(left.Name, left.Help, []string{"rule", "reason"}, left.ConstLabels),
		allowed:    desc("allowed_events_total", "Events that a rule watches and does not count, since an allow list that it names lets their source pass.", "rule", "list"),
		good:       desc("known_good_events_total", "Events that weir itself has not refused, by what known_good says of them: good, not_good or not_judged.", "judged"),
		offset:     desc("offset", "Offset of a requests partition up to which all is acknowledged.", "partition"),
		refused:    desc("partition_refused", "1 while a requests partition is not routed; see weir partitions list.", "partition"),
		held: desc("open_transaction_seconds", "Age of the open transaction that holds a requests partition up, "+
			"since it was first met; 0 where none has for 30 s.", "partition"),
		waited: desc("transaction_wait_ratio",
			"Share of the last five minutes in which a requests partition was not read on, "+
				"since one open transaction after the other stood there.", "partition"),
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
		{"keyless_total", "Events that rules watch and none counts: they lack its key or what it counts, or an allow list lets them pass.", func(s *Stats) int64 { return s.Keyless }},
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
		{"unsummed_events_total", "Events that are missing in the sums by minute, since the store was away too long.", func(s *Stats) int64 { return s.MinutesLeftOut }},
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
		c.identities, c.rules, c.missing, c.valueless, c.conditions, c.tiers, c.uncounted, c.allowed,
		c.good, c.offset, c.refused, c.held, c.waited, c.version, c.prefetched,
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
	for good, n := range s.KnownGood {
		counter(c.good, n, detectors.Good(good).String())
	}
	for f, reasons := range s.MissingIdentities {
		for reason := traffic.Present + 1; reason < traffic.NumMissingReasons; reason++ {
			if reason.Concerns(traffic.Field(f)) {
				counter(c.identities, reasons[reason], traffic.Field(f).String(), reason.String())
			}
		}
	}
	if newest := c.versions.newest(); newest != nil {
		for i := range newest.rules {
			if newest.rules[i].pending {
				continue
			}
			r := s.Rules[newest.rules[i].id]
			c.collectRule(&newest.rules[i], &r, counter)
			for _, at := range newest.rules[i].allow {
				list := newest.allow[at].id
				counter(c.allowed, s.Allowed[RuleList{newest.rules[i].id, list}], newest.rules[i].id, list)
			}
		}
	}
	c.collectSources(ch, &s)
}

// collectRule sends the values of a rule of the newest version: its series begin at 0 when it comes, and are gone with it.
func (c *routeCollector) collectRule(rule *routedRule, r *RuleStats, counter func(d *prometheus.Desc, v int64, labels ...string)) {
	counter(c.rules, r.Matched, rule.id, "matched")
	counter(c.rules, r.Behind, rule.id, "behind")
	counter(c.rules, r.BehindComplete, rule.id, "behind_complete")
	counter(c.rules, r.Skipped, rule.id, "skipped")
	counter(c.rules, r.Grouped, rule.id, "grouped")
	fields := map[string]bool{}
	for _, k := range rule.key {
		fields[k.String()] = true
	}
	lacking := r.Lacking()
	for f := range lacking {
		fields[f] = true
	}
	for f := range fields {
		counter(c.missing, lacking[f], rule.id, f)
	}
	for why, n := range r.Uncounted {
		if n > 0 || rule.amount.lacks(uncounted(why)) {
			counter(c.valueless, n, rule.id, uncounted(why).String())
		}
	}
	for fault := condition.Fine + 1; fault < condition.NumFaults; fault++ {
		if n := r.Faults[fault]; n > 0 || rule.when != nil {
			counter(c.conditions, n, rule.id, fault.String())
		}
		if n := r.TierFaults[fault]; n > 0 || rule.tiers != nil {
			counter(c.tiers, n, rule.id, fault.String())
		}
	}
	left := r.LeftOut()
	for _, reason := range []detectors.Uncounted{detectors.UncountedMissingField, detectors.UncountedMissingValue} {
		counter(c.uncounted, left[reason], rule.id, reason.String())
	}
}

func (c *routeCollector) collectSources(ch chan<- prometheus.Metric, s *Stats) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.version, float64(s.NewestVersion))
	gauge(c.prefetched, float64(s.PrefetchedBytes))
	for p, src := range s.Sources {
		partition := strconv.Itoa(p)
		age := 0.0
		if src.Held != 0 {
			age = max(0, c.clock().Sub(src.Held).Seconds())
		}
		gauge(c.held, age, partition)
		gauge(c.waited, min(1, src.Waited.Seconds()/ingest.WaitsWithin.Seconds()), partition)
		if src.Refused {
			gauge(c.refused, 1, partition)
			continue
		}
		gauge(c.refused, 0, partition)
		gauge(c.offset, float64(src.Offset), partition)
	}
}
