package alerts

import (
	"fmt"
	"strings"
	"testing"
)

// allQuiet asks for each alert at each time, and wants none.
func allQuiet(times ...string) []alertTest {
	var all []alertTest
	asked := map[string]bool{}
	for _, g := range Groups(RunbookURL) {
		for _, r := range g.Rules {
			if r.Alert == "" || asked[r.Alert] {
				continue
			}
			asked[r.Alert] = true
			for _, at := range times {
				all = append(all, alertTest{at, r.Alert, nil})
			}
		}
	}
	return all
}

// An installation has small troubles all the time: restarts, a rebalance, a silent gateway, a failover, a bad event. Nobody is
// called for them.
func TestOrdinaryHoursAreQuiet(t *testing.T) {
	t.Parallel()
	world := []string{
		// run-1 is away for two minutes, as is a gate later; partition 0 is run-2's after a minute, and run-1's again.
		`up{job="weir",instance="run-1"} 1x59 0x1 1x120`,
		`up{job="weir",instance="run-2"} 1x180`,
		`up{job="weir",instance="gate-1"} 1x119 0 1x60`,
		`up{job="other",instance="db"} 0x180`,
		`weir_build_info{stream="live",job="weir",instance="run-1",namespace="weir",version="1"} 1x59 _x2 _x119`,
		`weir_build_info{stream="live",job="weir",instance="run-1",namespace="weir",version="2"} _x62 1x119`,
		`weir_build_info{stream="live",job="weir",instance="run-2",namespace="weir",version="1"} 1x180`,
		// A replay of last year comes and goes.
		`up{job="weir",instance="replay-1"} _x20 1x30 0x130`,
		`weir_build_info{stream="replay",job="weir",instance="replay-1",namespace="weir",version="0"} _x20 1x30 _x130`,
		`weir_stage_lag_records{stream="replay",job="weir",instance="replay-1",namespace="weir",stage="detect",partition="7"} _x20 900000x30 _x130`,
		`weir_stage_lag_seconds{stream="replay",job="weir",instance="replay-1",namespace="weir",stage="detect",partition="7"} _x20 600x30 _x130`,
		`weir_stage_lag_seconds{stream="replay",job="weir",instance="replay-1",namespace="weir",stage="record",partition="0"} _x20 600x30 _x130`,
		`weir_detect_watermark_delay_seconds{stream="replay",job="weir",instance="replay-1",namespace="weir",partition="7"} _x20 31536000x30 _x130`,
		`weir_detect_idle_margin_seconds{stream="replay",job="weir",instance="replay-1",namespace="weir"} _x20 60x30 _x130`,
		`weir_detect_idle_margin_seconds{stream="live",job="weir",instance="run-2",namespace="weir"} 60x180`,
		// Counts on through the restart of its process.
		`weir_dead_letters_total{stream="live",job="weir",instance="run-1",namespace="weir",stage="record",reason="refused"} 3x59 _x2 0x120`,
		`weir_detect_restores_total{job="weir",instance="run-2",namespace="weir",stream="live",outcome="restored"} 2x61 3x120`,
		`weir_detect_restores_total{job="weir",instance="run-2",namespace="weir",stream="live",outcome="torn"} 0x180`,
		`weir_detect_losses_total{job="weir",instance="run-2",namespace="weir",stream="live"} 0x180`,
		`weir_route_events_total{stream="live",namespace="weir"} 0+60000x180`,
		`weir_dead_letters_total{stream="live",job="weir",instance="run-2",namespace="weir",stage="route",reason="not_json"} 0+120x180`,
		// ROUTE waits five minutes for a gateway that is silent; the watermark with it.
		`weir_detect_watermark_delay_seconds{namespace="weir",stream="live",partition="0"} 2x30 62+60x4 2x150`,
		`weir_detect_snapshot_age_seconds{namespace="weir",stream="live",partition="0"} 0+60x27 0+60x27 0+60x130`,
		`weir_detect_blind{namespace="weir",stream="live",partition="0"} 0x100 1 0x80`,
		`weir_detect_evicted_total{namespace="weir",stream="live",reason="single"} 0x70 50x110`,
		`weir_detect_bytes{namespace="weir",stream="live",partition="0"} 70x60 92x5 70x120`,
		`weir_detect_budget_bytes{namespace="weir",stream="live",partition="0"} 100x180`,
		`weir_route_partition_refused{stream="live",namespace="weir",partition="0"} 0x180`,
		`weir_stage_stranded_partition{stream="live",namespace="weir",stage="record",partition="0"} 0x180`,
		`weir_stage_log_replaced_total{stream="live",job="weir",instance="run-1",namespace="weir",stage="record",partition="0"} 0x180`,
		`weir_stage_newer_format_partition{stream="live",namespace="weir",stage="record",partition="0"} 0x90 1x3 0x90`,
		`weir_stage_lost_records_total{stream="live",job="weir",instance="run-1",namespace="weir",stage="record",partition="0"} 0x180`,
		// A failover of Redis.
		`weir_enforce_withheld_total{namespace="weir",reason="unreachable"} 0x80 40x100`,
		`weir_enforce_decisions_total{namespace="weir",rule="login",mode="block",action="withheld",reason="never_block"} 0+2x180`,
		`weir_enforce_decisions_total{namespace="weir",rule="login",mode="block",action="written",reason=""} 0+3x180`,
		`weir_modes_failures_total{namespace="weir"} 0x80 4x100`,
		`weir_reconcile_failures_total{namespace="weir"} 0x80 12x100`,
		`weir_reconcile_unasserted{namespace="weir"} 0x80 30x1 0x100`,
		`weir_redis_memory_bytes{namespace="weir",node="redis:6379"} 60x180`,
		`weir_redis_memory_max_bytes{namespace="weir",node="redis:6379"} 100x180`,
		`weir_event_to_block_seconds_count{namespace="weir"} 0+200x180`,
		`weir_event_to_block_seconds_bucket{namespace="weir",le="5"} 0+199x80 15920+100x1 16219+199x98`,
		// The gate answers before it has loaded, for a second.
		`weir_gate_decisions_total{namespace="weir",job="weir",instance="gate-1",protocol="http",decision="pass",rule=""} 0+30000x118 _ 0+30000x60`,
		`weir_gate_decisions_total{namespace="weir",job="weir",instance="gate-1",protocol="http",decision="refuse",rule="login"} 0+300x118 _ 0+300x60`,
		`weir_gate_decisions_total{namespace="weir",job="weir",instance="gate-1",protocol="http",decision="fail_open",rule=""} 0x118 _ 0 200x60`,
		`weir_gate_observing{namespace="weir",job="weir",instance="gate-1"} 0x20 1x50 0x47 _ 0x60`,
		`weir_blocklist_ready{namespace="weir",job="weir",instance="gate-1"} 1x118 _ 0x1 1x60`,
		`weir_blocklist_behind_seconds{namespace="weir",job="weir",instance="gate-1"} 1x79 31 1x37 _ 1x60`,
		`weir_blocklist_missing_slots{namespace="weir",job="weir",instance="gate-1"} 0x79 5461x2 0x36 _ 0x60`,
		`weir_history_size_bytes{namespace="weir",table="hits"} 21474836480+100000x180`,
		// Rules: one that blocks and one in shadow, of which a client now and then lacks the key.
		theRule("block", "1x180"),
		`weir_rule_info{namespace="weir",rule="burst",owner="web",mode="shadow",version="1"} 1x180`,
		`weir_detect_episodes_total{namespace="weir",stream="live",rule="login"} 0+3x180`,
		`weir_detect_episodes_total{namespace="weir",stream="live",rule="burst"} 0x180`,
		`weir_route_rule_events_total{stream="live",namespace="weir",rule="login",outcome="matched"} 0+500x180`,
		`weir_rule_uncounted_events_total{stream="live",namespace="weir",stage="route",rule="login",reason="missing_field"} 0+50x180`,
		`weir_rule_uncounted_events_total{stream="live",namespace="weir",stage="detect",rule="login",reason="late"} 0+10x180`,
	}
	for _, stage := range []string{"route", "detect", "record", "record-blocks", "enforce"} {
		of := `stream="live",namespace="weir",stage="` + stage + `",partition="`
		world = append(world,
			`weir_stage_lag_records{`+of+`0",job="weir",instance="run-1"} 0x59 _x6 0x115`,
			`weir_stage_lag_records{`+of+`0",job="weir",instance="run-2"} _x61 5000x2 0x1`,
			`weir_stage_lag_records{`+of+`1",job="weir",instance="run-2"} 0x180`,
			`weir_stage_lag_seconds{`+of+`0",job="weir",instance="run-1"} 0x59 _x6 0x115`,
			`weir_stage_lag_seconds{`+of+`0",job="weir",instance="run-2"} _x61 80 42 0x2`,
			`weir_stage_lag_seconds{`+of+`1",job="weir",instance="run-2"} 1x180`,
			`weir_stage_partition_halted{`+of+`0",job="weir",instance="run-2"} 0x180`)
	}
	world = append(world, rollout()...)
	times := strings.Fields("10m 25m 34m 36m 41m 44m 47m 56m 57m 70m 102m 104m 106m 109m 116m 117m 60m 61m 63m 65m 68m 72m 75m 80m 82m 84m 86m 90m 93m 101m 118m 120m 122m 125m 150m 180m")
	testRules(t, "", world, allQuiet(times...))
}

// rollout is of a process and a gate that have counted this and that, of which a scrape fails after forty minutes, and which others take the
// place of, under names of their own, an hour later.
func rollout() []string {
	const first, second = `stream="live",namespace="weir",job="weir",instance="run-3"`, `stream="live",namespace="weir",job="weir",instance="run-4"`
	gone, comes := "x40 stale %sx59 _x80", "_x101 %sx79"
	series := []string{
		`up{job="weir",instance="run-3"} 1x40 0 1x59 _x80`, `up{job="weir",instance="run-4"} _x101 1x79`,
		`process_start_time_seconds{job="weir",instance="run-3"} -90000x40 stale -90000x59 _x80`, `process_start_time_seconds{job="weir",instance="run-4"} _x101 6030x79`,
		`up{job="weir",instance="gate-3"} 1x40 0 1x59 _x80`, `up{job="weir",instance="gate-4"} _x101 1x79`,
		`process_start_time_seconds{job="weir",instance="gate-4"} _x101 6030x79`,
		`weir_blocklist_ready{namespace="weir",job="weir",instance="gate-4"} _x101 0 1x78`,
		`weir_gate_decisions_total{namespace="weir",job="weir",instance="gate-4",protocol="http",decision="fail_open",rule=""} _x101 100x79`,
	}
	add := func(name, labels, before, after string) {
		series = append(series, name+`{`+first+labels+`} `+before+fmt.Sprintf(gone, before), name+`{`+second+labels+`} `+fmt.Sprintf(comes, after))
	}
	add("weir_build_info", `,version="1"`, "1", "1")
	add("weir_detect_losses_total", "", "40", "0")
	add("weir_detect_restores_total", `,outcome="torn"`, "3", "0")
	add("weir_detect_restores_total", `,outcome="restored"`, "9", "1")
	add("weir_stage_lost_records_total", `,stage="record",partition="2"`, "4000", "0")
	add("weir_dead_letters_total", `,stage="enforce",reason="malformed"`, "7", "0")
	add("weir_enforce_withheld_total", `,reason="full"`, "800", "0")
	add("weir_modes_failures_total", "", "60", "1")
	add("weir_reconcile_failures_total", "", "60", "1")
	add("weir_detect_evicted_total", `,reason="single"`, "5000", "0")
	add("weir_detect_keyed_retention_seconds", "", "86400", "86400")
	add("weir_detect_snapshot_age_seconds", `,partition="2"`, "600", "0")
	for _, stage := range []string{"route", "detect", "record", "record-blocks", "enforce"} {
		add("weir_stage_lag_records", `,stage="`+stage+`",partition="2"`, "0", "0")
		add("weir_stage_lag_seconds", `,stage="`+stage+`",partition="2"`, "0", "0")
	}
	return append(series, `weir_gate_observing{namespace="weir",job="weir",instance="gate-3"} 0x40 stale 0x59 _x80`,
		`weir_gate_observing{namespace="weir",job="weir",instance="gate-4"} _x101 0x79`,
		`weir_blocklist_ready{namespace="weir",job="weir",instance="gate-3"} 1x40 stale 1x59 _x80`)
}

// A week has nights and days, in which four times as much comes; and a rule that was promoted on the way.
func TestOrdinaryWeeksAreQuiet(t *testing.T) {
	t.Parallel()
	days := func(night, day int) string { return wave(night, day, 15) }
	world := []string{
		theRule("block", "1x1440"),
		`weir_rule_info{namespace="weir",rule="burst",owner="web",mode="shadow",version="1"} 1x1200`,
		`weir_rule_info{namespace="weir",rule="burst",owner="web",mode="block",version="2"} _x1201 1x240`,
		`weir_enforce_decisions_total{namespace="weir",rule="login",mode="block",action="written",reason=""} ` + days(10, 40),
		`weir_enforce_decisions_total{namespace="weir",rule="burst",mode="block",action="written",reason=""} 0x1200 40+40x240`,
		`weir_detect_episodes_total{namespace="weir",stream="live",rule="login"} ` + days(10, 40),
		`weir_detect_episodes_total{namespace="weir",stream="live",rule="burst"} ` + days(10, 40),
		`weir_route_rule_events_total{stream="live",namespace="weir",rule="login",outcome="matched"} ` + days(1000, 4000),
		`weir_route_rule_events_total{stream="live",namespace="weir",rule="burst",outcome="matched"} ` + days(1000, 4000),
		`weir_route_events_total{stream="live",namespace="weir"} ` + days(20000, 80000),
		`weir_detect_events_total{stream="live",namespace="weir"} ` + days(20000, 80000),
	}
	var tests []alertTest
	for _, at := range strings.Fields("196h 200h 208h 220h 301h 302h 310h 320h 324h 335h 350h") {
		for _, name := range []string{"WeirShadowRuleFires", "WeirBlockRateHigh", "WeirBlockRateLow", "WeirRuleMatchesNothing"} {
			tests = append(tests, alertTest{at, name, nil})
		}
	}
	testRules(t, "15m", world, tests)
}

// On a Saturday nobody works, so nobody asks an office's API. Of its first weekend weir cannot know that, of the others it does.
func TestFreeDaysAreQuiet(t *testing.T) {
	t.Parallel()
	world := []string{
		`weir_route_events_total{stream="live",namespace="office"} ` + office(16),
		// One great night, and never again.
		`weir_route_events_total{stream="live",namespace="batch"} 0x1999 0+90000x4 360000x2600`,
	}
	var tests []alertTest
	for _, at := range strings.Fields("195h 219h 260h 290h 297h 300h 306h 320h 321h 325h 330h 335h 339h 344h 356h 370h") {
		tests = append(tests, alertTest{at, "WeirEventsStopped", nil})
	}
	testRules(t, "5m", world, tests)
}

// office is how a counter grows, with a sample in five minutes, of which there is much between nine and six o'clock from Monday to Friday,
// and nothing else. The first day is a Monday.
func office(days int) string {
	var text strings.Builder
	at := 0
	for n := range days {
		step := 0
		if n%7 < 5 {
			step = 400
		}
		fmt.Fprintf(&text, "%dx107 %d+%dx107 %dx71 ", at, at, step, at+108*step)
		at += 108 * step
	}
	return text.String()
}

// wave is how a counter grows that begins at 0, with a sample each quarter of an hour: by night and by day, for half a day each.
func wave(night, day, days int) string {
	var text strings.Builder
	at := 0
	for range days {
		for _, step := range []int{night, day} {
			fmt.Fprintf(&text, "%d+%dx47 ", at, step)
			at += 48 * step
		}
	}
	return strings.TrimSpace(text.String())
}
