package metrics

import (
	"maps"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// openLabels have values that come and go with what they name: each value has the series of all closed labels.
func openLabels() []string {
	return []string{"rule", "list", "partition", "topic", "group", "node", "table", "version", "go", "owner", "server"}
}

// perStage are metrics of which a process has the stages that it runs.
func perStage() []string {
	return []string{
		"weir_stage_apply_failures_total", "weir_stage_apply_seconds", "weir_stage_records_total",
		"weir_stage_lag_records", "weir_stage_lag_seconds", "weir_stage_lost_records_total", "weir_stage_newer_format_partition",
		"weir_stage_partition_halted", "weir_stage_stranded_partition", "weir_stage_log_replaced_total",
		"weir_stage_store_older_total",
	}
}

// laterSeries are metrics without a series before their rules, partitions or servers are there; why each rule's are whole is
// shown where rules are: in ingest/route, ingest/detect, blocklist/enforce and gate.
func laterSeries() []string {
	return []string{
		"weir_api_requests_total", // each operation with each status would be some thousand series
		"weir_blocks", "weir_clock_offset_seconds", "weir_detect_hits_total", "weir_detect_rule_events_total",
		"weir_enforce_decisions_total", "weir_route_rule_condition_errors_total",
		"weir_route_rule_events_total", "weir_route_rule_key_missing_total", "weir_route_rule_value_missing_total", "weir_route_rule_tier_errors_total", "weir_rule_info", "weir_rule_uncounted_events_total",
	}
}

// closedLabels are the values of the labels whose values are known beforehand, by metric: of each, the values of its closed labels in the
// alphabetical order of the labels' names, joined by a space.
func closedLabels() map[string][]string {
	kafka := []string{"cancelled", "connection", "timeout", "leader away", "not allowed", "refused"}
	return map[string][]string{
		"weir_blocklist_deltas_total":         {"block", "release", "mode", "stream", "reload"},
		"weir_blocklist_modes_refused_total":  {"unsigned", "forged", "older"},
		"weir_blocklist_rejected_total":       {"unreadable", "never_block"},
		"weir_blocklist_reloads_total":        {"gap", "backward", "missing", "asked", "due"},
		"weir_blocks_readings_total":          {"complete", "cut", "failed"},
		"weir_console_block_readings_total":   {"whole", "cut", "failed"},
		"weir_console_reads_total":            {"ok PostgreSQL", "failed PostgreSQL", "ok Redis", "failed Redis"},
		"weir_console_refused_total":          {"host", "full", "own"},
		"weir_console_turns_total":            {"at-once", "waited", "own-busy", "all-busy", "left"},
		"weir_http_refused_connections_total": {"address", "all"},
		"weir_dead_letters_total":             deadLetters(),
		"weir_history_left_out_total":         {"rows_per_minute", "samples_per_minute"},
		"weir_route_known_good_events_total":  {"good", "not_good", "not_judged"},
		"weir_demo_events_total":              {"sent", "failed", "dropped"},
		"weir_detect_errors_total": {
			"fetch", "append", "commits", "commit", "report", "acceptances", "fenced", "snapshot", "ownership", "take", "load", "routing",
		},
		"weir_detect_evicted_total":  {"few", "near", "offender", "returned", "single"},
		"weir_detect_restores_total": {"warm", "restored", "torn", "fresh"},
		"weir_enforce_ignored_total": {"kind", "phase", "grouped", "no_subject", "mode", "closed", "expired", "unchanged", "repeated"},
		"weir_enforce_records_total": {"hit", "near", "candidate", "late", "uncounted", "statistics", "running",
			"refused", "loss", "release", "other"},
		"weir_canary_fall_backs_total": {"exceeded", "not_measurable"},
		"weir_signin_outcomes_total":   {"failed", "no-role", "ok"},
		"weir_signin_refused_total": {"csrf", "elsewhere", "forbidden", "host", "invite", "plain-http", "rate",
			"session", "sign-in", "store", "token"},
		"weir_enforce_withheld_total": {
			"canary", "crowded", "expired", "full", "max_lag", "never_block", "no_block_spec", "old_version", "released", "stale_generation", "unknown_version", "unreachable",
			"unreadable_key",
		},
		"weir_gate_decisions_total": {
			"pass auth_request", "pass call", "pass forward_auth", "pass http", "fail_open auth_request", "fail_open call", "fail_open forward_auth", "fail_open http",
		},
		"weir_counters_requests_total":      {"200", "400", "404", "414", "421", "429", "503"},
		"weir_gate_malformed_total":         {"not_http", "too_large"},
		"weir_gate_missing_total":           {"api_key repeated", "device repeated", "session repeated", "user repeated"},
		"weir_gate_reports_total":           {"written", "failed"},
		"weir_gate_no_address_total":        {"absent", "forwarded_short", "ip_unparsable", "ip_unspecified", "no_source", "repeated"},
		"weir_kafka_append_errors_total":    append(slices.Clone(kafka), "no replicas", "too large"),
		"weir_kafka_commit_errors_total":    append(slices.Clone(kafka), "generation over", "coordinator"),
		"weir_kafka_fetch_errors_total":     append(slices.Clone(kafka), "out of range", "corrupt"),
		"weir_kafka_skipped_records_total":  {"control", "aborted"},
		"weir_reconcile_changes_total":      {"written", "extended", "released"},
		"weir_reconcile_runs_total":         {"flush", "failover", "return", "sweep"},
		"weir_route_identity_missing_total": missingIdentities(),
	}
}

func deadLetters() []string {
	all := []string{"malformed enforce", "malformed record", "refused record", "no_time ingest", "future ingest", "ahead ingest", "truncated ingest", "unreadable ingest"}
	for _, stage := range []string{"route", "ingest"} {
		for _, reason := range []string{"empty", "oversized", "malformed", "wrong_type", "bad_value", "bad_version"} {
			all = append(all, reason+" "+stage)
		}
	}
	return all
}

func missingIdentities() []string {
	all := []string{"ip absent", "ip no_source", "ip forwarded_short", "ip ip_unparsable", "ip ip_unspecified", "ip repeated"}
	for _, field := range []string{"device", "user", "session", "api_key"} {
		for _, reason := range []string{"absent", "no_source", "repeated", "claimed"} {
			all = append(all, field+" "+reason)
		}
	}
	return all
}

// apart splits the labels of a series: those whose values are open, as a key, and the values of the closed ones.
func apart(name string, m *dto.Metric) (open, closed string) {
	var of, values []string
	for _, l := range m.GetLabel() { // in the order of their names
		switch {
		case slices.Contains(openLabels(), l.GetName()), l.GetName() == "stage" && slices.Contains(perStage(), name):
			of = append(of, l.GetName()+"="+l.GetValue())
		default:
			values = append(values, l.GetValue())
		}
	}
	return strings.Join(of, ","), strings.Join(values, " ")
}

// A counter that begins with its first event grows unseen: a rate, and an alert on one, take what is there first as where it began. So each
// process has, from its start on, every series whose labels are known by then.
func TestSeriesBeginAtTheStart(t *testing.T) {
	want, shown := closedLabels(), map[string]bool{}
	for _, p := range processes(t) {
		families, err := p.Gather()
		if err != nil {
			t.Fatal(err)
		}
		has := map[string]map[string][]string{} // by metric and open labels
		for _, f := range families {
			has[f.GetName()] = map[string][]string{}
			for _, m := range f.GetMetric() {
				open, closed := apart(f.GetName(), m)
				has[f.GetName()][open] = append(has[f.GetName()][open], closed)
			}
		}
		for _, m := range p.metrics(t) {
			if !strings.HasPrefix(m.name, "weir_") {
				continue
			}
			closed := slices.ContainsFunc(m.labels, func(l string) bool {
				return !slices.Contains(openLabels(), l) && (l != "stage" || !slices.Contains(perStage(), m.name))
			})
			if !closed || slices.Contains(laterSeries(), m.name) {
				continue
			}
			values, listed := want[m.name]
			if !listed {
				t.Errorf("%s has labels %v: list their values in closedLabels, or the labels in openLabels", m.name, m.labels)
				continue
			}
			slices.Sort(values)
			for open, got := range has[m.name] {
				shown[m.name] = true
				slices.Sort(got)
				if !slices.Equal(got, values) {
					t.Errorf("%s %s begins with %s{%s} of\n\t%q, want\n\t%q", p.name, p.part, m.name, open, got, values)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !shown[name] {
			t.Errorf("no process begins with a series of %s", name)
		}
	}
}
