package boardtest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// stageNamespace is that of an installation that is only played.
const stageNamespace = "stage"

// played is what two processes say to which everything happens that does not happen while all goes well: a series,
// and its value in the first and in the second; - says that it has none. What the numbers mean is what
// docs/metrics.md says of each metric, and no two sums of them are alike.
const played = `
weir_build_info{version="1"} 1 1
weir_route_events_total 10000 20000
weir_detect_hits_total{rule="a",kind="hit",phase="open"} 70 90
weir_detect_hits_total{rule="b",kind="hit",phase="open"} 80 -
weir_detect_hits_total{rule="b",kind="hit",phase="closed"} 60 50
weir_detect_hits_total{rule="a",kind="near",phase="open"} 1300 2100
weir_detect_hits_total{rule="b",kind="candidate",phase="open"} 17 25
weir_detect_hits_total{rule="a",kind="late"} 400 -
weir_enforce_batch_seconds_count 1 1
weir_enforce_decisions_total{rule="a",mode="block",action="withheld",reason="full"} 9 900
weir_enforce_decisions_total{rule="b",mode="block",action="withheld",reason="full"} 10 -
weir_enforce_decisions_total{rule="b",mode="block",action="withheld",reason="max_lag"} 300 -
weir_enforce_decisions_total{rule="a",mode="block",action="withheld",reason="stale_generation"} 0 -
weir_enforce_decisions_total{rule="b",mode="block",action="written"} 4000 -
weir_enforce_decisions_total{rule="b",mode="shadow",action="would_withhold",reason="full"} 50000 -
weir_enforce_withheld_total{reason="full"} 38 3600
weir_dead_letters_total{stage="route",reason="malformed"} 5 6
weir_dead_letters_total{stage="ingest",reason="malformed"} 7 8
weir_stage_lag_seconds{stage="route",partition="0"} 5 -
weir_stage_lag_seconds{stage="route",partition="1"} 6 9
weir_stage_lag_seconds{stage="enforce",partition="0"} - 4
weir_stage_lag_records{stage="route",partition="0"} 50 -
weir_detect_watermark_delay_seconds{partition="0"} 61 -
weir_detect_watermark_delay_seconds{partition="1"} 63 -
weir_detect_watermark_delay_seconds{partition="2"} - 62
weir_detect_skew_seconds{partition="0"} 5 7
weir_stage_partition_halted{stage="record",partition="0"} 1 -
weir_stage_partition_halted{stage="record",partition="1"} 1 1
weir_stage_partition_halted{stage="record",partition="2"} - 1
weir_route_partition_refused{partition="0"} 1 -
weir_route_partition_refused{partition="1"} - 1
weir_stage_stranded_partition{stage="enforce",partition="0"} 1 -
weir_stage_stranded_partition{stage="enforce",partition="2"} 1 1
weir_detect_blind{partition="0"} 1 -
weir_detect_blind{partition="1"} - 1
weir_detect_keys{partition="0"} 12 -
weir_detect_evicted_total{reason="few"} 7 700
weir_detect_evicted_total{reason="offender"} 80 -
weir_stage_lost_records_total{stage="record",partition="0"} 3 50
weir_stage_lost_records_total{stage="record",partition="1"} 4 -
weir_stage_lost_records_total{stage="enforce",partition="0"} 500 -
weir_detect_losses_total 6 600
weir_event_to_block_seconds_bucket{le="0.1"} 10 20
weir_event_to_block_seconds_bucket{le="0.2"} 20 80
weir_event_to_block_seconds_bucket{le="+Inf"} 20 80
weir_rule_info{rule="a",owner="o",mode="block",version="2"} 1 -
weir_rule_info{rule="a",owner="o",mode="shadow",version="1"} - 1
weir_rule_info{rule="b",owner="o",mode="shadow",version="1"} 1 1
weir_rule_changed_timestamp_seconds{rule="a"} 5 4
weir_rule_changed_timestamp_seconds{rule="b"} 3 3
weir_detect_open_episodes{rule="a"} 3 100
weir_detect_open_episodes{rule="b"} 4 -
weir_blocks{rule="a",mode="block"} 2 3
weir_blocks{rule="b",mode="shadow"} 5 6
weir_blocklist_blocks{rule="a"} 4 3
weir_rule_uncounted_events_total{rule="a",reason="late",stage="detect"} 5 7
weir_rule_uncounted_events_total{rule="a",reason="missing_field",stage="route"} 6 -
weir_gate_decisions_total{protocol="http",decision="pass"} 50 60
weir_gate_decisions_total{protocol="http",decision="fail_open"} 5 6
weir_gate_decisions_total{protocol="http",decision="refuse",rule="a"} 10 20
weir_gate_observing 1 1
weir_blocklist_ready 1 0
weir_blocklist_staleness_seconds 33 3
weir_blocklist_behind_seconds 34 4
`

// Of what does not happen while all goes well, the panels by which people decide say what two processes tell, and
// neither what a replay does nor those that are gone, one of them a gate.
func TestPanelsThatDecideOnAStage(t *testing.T) {
	var begun atomic.Bool
	targets := map[string]string{}
	for role, page := range map[string]func() string{
		"first": func() string { return page(0, "live") }, "second": func() string { return page(1, "live") },
		"replay": func() string { return page(0, "replay") },
		"gone":   func() string { return until(&begun, "weir_build_info{version=\"1\"} 1") },
		"ended":  func() string { return until(&begun, "weir_build_info{version=\"1\"} 1\nweir_blocklist_ready 1") },
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, page())
		}))
		t.Cleanup(server.Close)
		targets[role] = strings.TrimPrefix(server.URL, "http://")
	}
	g := &grafana{prometheus: startPrometheus(t, targets)}
	begun.Store(true)
	left := decidingPanels(t, committedBoards(t), func(p *deciding) bool { return p.staged != nil })
	testbed.Eventually(t, time.Minute, func() error {
		s := span{from: time.Now().Add(-time.Minute), to: time.Now(), scrape: scrapeEvery}
		var wrong []error
		for place, p := range left {
			if err := g.compare(p, stageNamespace, "", s, p.truth.staged, ""); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", place, err))
			}
		}
		return errors.Join(wrong...)
	})
}

// until is what a process says until it is gone.
func until(gone *atomic.Bool, series string) string {
	if gone.Load() {
		return ""
	}
	var said strings.Builder
	for line := range strings.Lines(series) {
		name, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		said.WriteString(labelled(name, "live") + " " + n + "\n")
	}
	return said.String()
}

// replayed finds the metrics that a replay exports.
var replayed = regexp.MustCompile(`^weir_(route|detect|stage|rule_uncounted|dead_letters|kafka|history_rows)_`)

// page is what one of the two says of a stream; a replay counts a million of everything that it exports.
func page(process int, stream string) string {
	var said strings.Builder
	for line := range strings.Lines(strings.TrimSpace(played)) {
		fields := strings.Fields(line)
		n := fields[1+process]
		if stream == "replay" {
			n = "1000000"
			if !replayed.MatchString(line) {
				continue
			}
		}
		if n != "-" {
			fmt.Fprintf(&said, "%s %s\n", labelled(fields[0], stream), n)
		}
	}
	return said.String()
}

func labelled(series, stream string) string {
	metric, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	labels = strings.Trim(fmt.Sprintf("%s,namespace=%q,stream=%q", labels, stageNamespace, stream), ",")
	return fmt.Sprintf("%s{%s}", metric, labels)
}
