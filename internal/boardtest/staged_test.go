package boardtest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// stageNamespace is that of an installation that is only played: two processes to which everything happens that does not happen
// while all goes well, a replay, and two processes that are gone, one of them a gate. What its numbers mean is what docs/metrics.md
// says of each metric. Its name sorts behind the other's: a board of one namespace begins there.
const stageNamespace = "x-stage"

// stage serves the metrics of the played processes.
type stage struct {
	began time.Time
	on    atomic.Bool // the play has begun; before, there are only two who are gone by then
}

// startStage gives the addresses of the played processes, by role.
func startStage(t *testing.T) (*stage, map[string]string) {
	s := &stage{began: time.Now()}
	addresses := map[string]string{}
	const gone = "weir_build_info{version=\"1\"} 1\n"
	for i, page := range []struct{ before, during string }{
		{"", stageFirst}, {"", stageSecond}, {"", replayed(stageFirst)}, {gone, ""}, {gone + "weir_blocklist_ready 1\n", ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if s.on.Load() {
				s.serve(w, page.during)
			} else {
				s.serve(w, page.before)
			}
		}))
		t.Cleanup(server.Close)
		addresses[fmt.Sprintf("stage%d", i+1)] = strings.TrimPrefix(server.URL, "http://")
	}
	return s, addresses
}

// replayed is what a replay says that counts the same: a million of everything that it exports.
func replayed(page string) string {
	own := regexp.MustCompile(`^weir_(route|detect|stage|rule_uncounted|dead_letters|kafka|history_rows)_`)
	var said strings.Builder
	for line := range strings.Lines(page) {
		name := line[:max(0, strings.LastIndexByte(line, ' '))]
		switch {
		case !own.MatchString(name):
		case strings.HasSuffix(name, "}"):
			fmt.Fprintf(&said, "%s,stream=\"replay\"} 1000000\n", strings.TrimSuffix(name, "}"))
		default:
			fmt.Fprintf(&said, "%s{stream=\"replay\"} 1000000\n", name)
		}
	}
	return said.String()
}

// serve writes a page: each line is a series without namespace, and its value; +N a second: it grows since the start.
func (s *stage) serve(w io.Writer, page string) {
	for line := range strings.Lines(page) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if at < 0 {
			continue
		}
		name, n := strings.TrimSpace(line[:at]), strings.TrimSpace(line[at:])
		metric, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		if strings.HasPrefix(metric, "weir_") { // those of the Go client have none
			labels = strings.Trim(labels+`,namespace="`+stageNamespace+`"`, ",")
			if !strings.Contains(labels, "stream=") {
				labels += `,stream="live"`
			}
		}
		if each, grows := strings.CutPrefix(n, "+"); grows {
			var perSecond float64
			_, _ = fmt.Sscan(each, &perSecond)
			n = fmt.Sprint(1e6 + perSecond*time.Since(s.began).Seconds())
		}
		_, _ = fmt.Fprintf(w, "%s{%s} %s\n", metric, labels, n)
	}
}

// What the first process says. No two sums of these numbers are alike.
const stageFirst = `
weir_build_info{version="1"} 1
weir_route_order_waits_total 1
weir_route_intake_bytes 1000
weir_detect_duplicates_total 2
weir_stage_lost_records_total{stage="record",partition="0"} 3
weir_stage_lost_records_total{stage="record",partition="1"} 4
weir_stage_lost_records_total{stage="enforce",partition="0"} 500
weir_detect_losses_total 6
weir_detect_bytes{partition="0"} 30
weir_detect_budget_bytes{partition="0"} 120
weir_detect_evicted_total{reason="few"} 7
weir_detect_evicted_total{reason="offender"} 80
weir_detect_snapshot_seconds_bucket{le="0.1"} 10
weir_detect_snapshot_seconds_bucket{le="0.2"} 20
weir_detect_snapshot_seconds_bucket{le="+Inf"} 20
weir_detect_snapshot_age_seconds{partition="0"} 11
weir_detect_keys{partition="0"} 12
weir_detect_open_episodes{rule="a"} 3
weir_detect_open_episodes{rule="b"} 4
weir_detect_watermark_delay_seconds{partition="0"} 61
weir_detect_watermark_delay_seconds{partition="1"} 63
weir_detect_skew_seconds{partition="0"} 5
weir_detect_skew_seconds{partition="1"} 7
weir_stage_lag_seconds{stage="route",partition="0"} 5
weir_stage_lag_seconds{stage="route",partition="1"} 6
weir_stage_lag_records{stage="route",partition="0"} 50
weir_stage_lag_records{stage="route",partition="1"} 60
weir_enforce_decisions_total{rule="a",mode="block",action="withheld",reason="full"} 9
weir_enforce_decisions_total{rule="b",mode="block",action="withheld",reason="full"} 10
weir_enforce_decisions_total{rule="b",mode="block",action="withheld",reason="max_lag"} 300
weir_enforce_decisions_total{rule="b",mode="block",action="written"} 4000
weir_enforce_decisions_total{rule="b",mode="shadow",action="would_withhold",reason="full"} 50000
weir_enforce_decisions_total{rule="a",mode="block",action="withheld",reason="stale_generation"} 0
weir_enforce_withheld_total{reason="full"} 38
weir_enforce_withheld_total{reason="max_lag"} 310
weir_enforce_withheld_total{reason="stale_generation"} 0
weir_route_chunk_retries_total 11
weir_route_fetch_failures_total 12
weir_detect_errors_total{call="claim"} 13
weir_detect_errors_total{call="store"} 140
weir_stage_apply_failures_total{stage="record"} 15
weir_stage_apply_failures_total{stage="enforce"} 160
weir_kafka_fetch_errors_total{topic="a",reason="closed"} 17
weir_kafka_fetch_errors_total{topic="b",reason="closed"} 18
weir_kafka_append_errors_total{topic="a",reason="timeout"} 19
weir_kafka_commit_errors_total{group="a",reason="fenced"} 20
weir_kafka_append_seconds_bucket{topic="a",le="0.1"} 10
weir_kafka_append_seconds_bucket{topic="a",le="0.2"} 20
weir_kafka_append_seconds_bucket{topic="a",le="+Inf"} 20
weir_stage_apply_seconds_bucket{stage="record",le="0.1"} 10
weir_stage_apply_seconds_bucket{stage="record",le="0.2"} 20
weir_stage_apply_seconds_bucket{stage="record",le="+Inf"} 20
weir_stage_partition_halted{stage="record",partition="0"} 1
weir_stage_partition_halted{stage="record",partition="1"} 1
weir_route_partition_refused{partition="0"} 1
weir_stage_stranded_partition{stage="enforce",partition="0"} 1
weir_stage_stranded_partition{stage="enforce",partition="2"} 1
weir_stage_newer_format_partition{stage="enforce",partition="0"} 1
weir_detect_blind{partition="0"} 1
weir_detect_stalled_sources{partition="0"} 2
weir_detect_stalled_sources{partition="1"} 3
weir_kafka_silent_partitions{topic="a"} 2
weir_kafka_silent_partitions{topic="b"} 30
weir_reconcile_changes_total{outcome="restored"} 21
weir_reconcile_changes_total{outcome="released"} 220
weir_reconcile_unasserted 23
weir_reconcile_failures_total 24
weir_modes_failures_total 25
weir_enforce_modes_fallback_total 26
weir_redis_memory_bytes{node="a"} 64
weir_redis_memory_bytes{node="b"} 65
weir_redis_memory_max_bytes{node="a"} 256
weir_redis_memory_max_bytes{node="b"} 0
weir_history_size_bytes{table="hits"} +1000
weir_history_size_bytes{table="audit"} +500
weir_history_size_bytes{table="losses"} 700
go_goroutines 27
weir_blocklist_spared_total 28
weir_blocklist_failures_total 29
weir_gate_observe_file_failures_total 27
weir_blocklist_rejected_total{reason="unreadable"} 30
weir_blocklist_reloads_total{reason="gap"} 31
weir_blocklist_missing_slots 32
weir_blocklist_ready 1
weir_blocklist_staleness_seconds 33
weir_blocklist_behind_seconds 34
weir_gate_observing 1
weir_gate_check_seconds_bucket{le="0.1"} 10
weir_gate_check_seconds_bucket{le="0.2"} 20
weir_gate_check_seconds_bucket{le="+Inf"} 20
weir_event_to_block_seconds_bucket{le="0.1"} 10
weir_event_to_block_seconds_bucket{le="0.2"} 20
weir_event_to_block_seconds_bucket{le="+Inf"} 20
weir_route_events_total 10000
weir_route_records_total 3000
weir_detect_events_total 2500
weir_stage_records_total{stage="record"} 33
weir_stage_records_total{stage="enforce"} 55
weir_route_unmatched_total 100
weir_route_keyless_total 10
weir_route_own_refusals_total 1
weir_dead_letters_total{stage="route",reason="malformed"} 5
weir_dead_letters_total{stage="ingest",reason="malformed"} 7
weir_detect_hits_total{rule="a",kind="hit",phase="open"} 70
weir_detect_hits_total{rule="b",kind="hit",phase="open"} 80
weir_detect_hits_total{rule="b",kind="hit",phase="closed"} 60
weir_detect_hits_total{rule="a",kind="late"} 400
weir_detect_hits_total{rule="a",kind="near",phase="open"} 1300
weir_detect_hits_total{rule="b",kind="candidate",phase="open"} 17
weir_detect_hits_total{rule="b",kind="candidate",phase="merged"} 0
weir_detect_near_left_out_total{rule="a"} 19
weir_rule_info{rule="a",owner="o",mode="block",version="2"} 1
weir_rule_info{rule="b",owner="o",mode="shadow",version="1"} 1
weir_rule_changed_timestamp_seconds{rule="a"} 5
weir_rule_changed_timestamp_seconds{rule="b"} 3
weir_rule_uncounted_events_total{rule="a",reason="late",stage="detect"} 5
weir_rule_uncounted_events_total{rule="a",reason="missing_field",stage="route"} 6
weir_route_rule_key_missing_total{rule="a",field="ip"} 8
weir_route_rule_value_missing_total{rule="a",reason="absent"} 3
weir_route_allowed_events_total{rule="a",list="office"} 5
weir_route_rule_condition_errors_total{rule="a",reason="type"} 5
weir_route_rule_tier_errors_total{rule="a",reason="size"} 4
weir_route_rule_events_total{rule="a",outcome="matched"} 21
weir_detect_rule_events_total{rule="a",outcome="counted"} 23
weir_detect_rule_events_total{rule="a",outcome="over"} 2
weir_history_rows_recorded_total{table="hits"} 31
weir_blocks{rule="a",mode="block"} 2
weir_blocks{rule="b",mode="shadow"} 5
weir_blocklist_blocks{rule="a"} 4
weir_blocklist_blocks{rule="b"} 6
weir_detect_restores_total{outcome="fresh"} 3
weir_kafka_group_generations_total{group="g"} 1
weir_gate_no_address_total{reason="absent"} 1
weir_gate_missing_total{field="device",reason="repeated"} 3
weir_gate_malformed_total{reason="not_http"} 5
weir_gate_untold_total 7
weir_gate_decisions_total{protocol="http",decision="pass"} 50
weir_gate_decisions_total{protocol="http",decision="fail_open"} 5
weir_gate_decisions_total{protocol="http",decision="refuse",rule="a"} 10
`

// What the second one says.
const stageSecond = `
weir_build_info{version="1"} 1
weir_route_order_waits_total 100
weir_route_intake_bytes 500
weir_detect_duplicates_total 200
weir_stage_lost_records_total{stage="record",partition="2"} 50
weir_detect_losses_total 600
weir_detect_bytes{partition="1"} 60
weir_detect_budget_bytes{partition="1"} 120
weir_detect_evicted_total{reason="few"} 700
weir_detect_snapshot_seconds_bucket{le="0.1"} 20
weir_detect_snapshot_seconds_bucket{le="0.2"} 80
weir_detect_snapshot_seconds_bucket{le="+Inf"} 80
weir_detect_snapshot_age_seconds{partition="1"} 110
weir_detect_keys{partition="1"} 120
weir_detect_open_episodes{rule="a"} 100
weir_detect_watermark_delay_seconds{partition="2"} 62
weir_detect_skew_seconds{partition="2"} 6
weir_stage_lag_seconds{stage="enforce",partition="0"} 4
weir_stage_lag_records{stage="enforce",partition="0"} 4
weir_enforce_decisions_total{rule="a",mode="block",action="withheld",reason="full"} 900
weir_enforce_withheld_total{reason="full"} 3600
weir_route_chunk_retries_total 1100
weir_route_fetch_failures_total 1200
weir_detect_errors_total{call="claim"} 1300
weir_stage_apply_failures_total{stage="record"} 1500
weir_kafka_fetch_errors_total{topic="a",reason="closed"} 1700
weir_kafka_append_errors_total{topic="b",reason="timeout"} 1900
weir_kafka_commit_errors_total{group="b",reason="fenced"} 2000
weir_kafka_append_seconds_bucket{topic="a",le="0.1"} 20
weir_kafka_append_seconds_bucket{topic="a",le="0.2"} 80
weir_kafka_append_seconds_bucket{topic="a",le="+Inf"} 80
weir_stage_apply_seconds_bucket{stage="record",le="0.1"} 20
weir_stage_apply_seconds_bucket{stage="record",le="0.2"} 80
weir_stage_apply_seconds_bucket{stage="record",le="+Inf"} 80
weir_stage_partition_halted{stage="record",partition="2"} 1
weir_route_partition_refused{partition="1"} 1
weir_stage_stranded_partition{stage="enforce",partition="1"} 1
weir_stage_newer_format_partition{stage="enforce",partition="1"} 1
weir_detect_blind{partition="1"} 1
weir_detect_stalled_sources{partition="2"} 1
weir_kafka_silent_partitions{topic="a"} 20
weir_reconcile_changes_total{outcome="restored"} 2100
weir_reconcile_unasserted 1
weir_reconcile_failures_total 2400
weir_modes_failures_total 2500
weir_enforce_modes_fallback_total 2600
weir_redis_memory_bytes{node="a"} 63
weir_redis_memory_max_bytes{node="a"} 255
go_goroutines 270
weir_history_size_bytes{table="losses"} 600
weir_blocklist_spared_total 2800
weir_blocklist_failures_total 2900
weir_gate_observe_file_failures_total 2700
weir_blocklist_rejected_total{reason="unreadable"} 3000
weir_blocklist_reloads_total{reason="gap"} 3100
weir_blocklist_missing_slots 3200
weir_blocklist_ready 0
weir_blocklist_staleness_seconds 3
weir_blocklist_behind_seconds 4
weir_gate_observing 1
weir_gate_check_seconds_bucket{le="0.1"} 20
weir_gate_check_seconds_bucket{le="0.2"} 80
weir_gate_check_seconds_bucket{le="+Inf"} 80
weir_event_to_block_seconds_bucket{le="0.1"} 20
weir_event_to_block_seconds_bucket{le="0.2"} 80
weir_event_to_block_seconds_bucket{le="+Inf"} 80
weir_route_events_total 20000
weir_route_records_total 4000
weir_detect_events_total 4200
weir_stage_records_total{stage="record"} 44
weir_stage_records_total{stage="enforce"} 66
weir_route_unmatched_total 200
weir_route_keyless_total 20
weir_route_own_refusals_total 2
weir_dead_letters_total{stage="route",reason="malformed"} 6
weir_dead_letters_total{stage="ingest",reason="malformed"} 8
weir_detect_hits_total{rule="a",kind="hit",phase="open"} 90
weir_detect_hits_total{rule="b",kind="hit",phase="closed"} 50
weir_detect_hits_total{rule="a",kind="near",phase="open"} 2100
weir_detect_hits_total{rule="a",kind="candidate",phase="open"} 25
weir_detect_near_left_out_total{rule="a"} 37
weir_detect_watermark_delay_seconds{partition="9",stream="replay"} 1
weir_rule_info{rule="a",owner="o",mode="shadow",version="1"} 1
weir_rule_info{rule="b",owner="o",mode="shadow",version="1"} 1
weir_rule_changed_timestamp_seconds{rule="a"} 4
weir_rule_changed_timestamp_seconds{rule="b"} 3
weir_rule_uncounted_events_total{rule="a",reason="late",stage="detect"} 7
weir_route_rule_key_missing_total{rule="a",field="ip"} 9
weir_route_rule_value_missing_total{rule="a",reason="absent"} 4
weir_route_allowed_events_total{rule="a",list="office"} 9
weir_route_rule_condition_errors_total{rule="a",reason="type"} 7
weir_route_rule_tier_errors_total{rule="a",reason="size"} 9
weir_route_rule_events_total{rule="a",outcome="matched"} 22
weir_detect_rule_events_total{rule="a",outcome="counted"} 24
weir_detect_rule_events_total{rule="a",outcome="over"} 3
weir_history_rows_recorded_total{table="hits"} 32
weir_blocks{rule="a",mode="block"} 3
weir_blocks{rule="b",mode="shadow"} 6
weir_blocklist_blocks{rule="a"} 3
weir_detect_restores_total{outcome="fresh"} 4
weir_kafka_group_generations_total{group="g"} 2
weir_gate_no_address_total{reason="absent"} 2
weir_gate_missing_total{field="device",reason="repeated"} 4
weir_gate_malformed_total{reason="not_http"} 6
weir_gate_untold_total 8
weir_gate_decisions_total{protocol="http",decision="pass"} 60
weir_gate_decisions_total{protocol="http",decision="fail_open"} 6
weir_gate_decisions_total{protocol="http",decision="refuse",rule="a"} 20
weir_detect_snapshot_age_seconds{partition="0"} 9
weir_redis_memory_bytes{node="b"} 60
`
