package alerts

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/internal/duration"
)

// spell is a time in which a share of an error budget's worth of events is bad, after a good one.
type spell struct {
	good, bad, after   time.Duration
	pace               float64 // how many times too fast the budget goes while it is bad
	quiet, fires, over time.Duration
	windows            []string // of the alerts that fire
	blocks, gates      []string // the share that each of them tells, as text
}

// burnDrills spend the error budgets: fast for an hour, for six, for a day, and so slowly that only three days show it. Where
// they are quiet, the same pace has not gone on for long enough.
func burnDrills() []drill {
	const h, m = time.Hour, time.Minute
	var all []drill
	for _, s := range []spell{
		{
			good: 20 * h, bad: 45 * m, after: h, pace: 25, windows: []string{"1h"},
			quiet: 20*h + 30*m, fires: 20*h + 42*m + 30*time.Second, over: 21 * h,
			blocks: []string{"16.5%"}, gates: []string{"1.65%"},
		},
		{
			good: 36 * h, bad: 6 * h, after: h, pace: 7, windows: []string{"6h"},
			quiet: 41 * h, fires: 41*h + 45*m, over: 42*h + 30*m,
			blocks: []string{"6.638%"}, gates: []string{"0.6638%"},
		},
		{
			good: 12 * h, bad: 20 * h, after: 7 * h, pace: 5, windows: []string{"1d", "3d"},
			quiet: 14 * h, fires: 31 * h, over: 38*h + 30*m,
			blocks: []string{"3.947%", "3.063%"}, gates: []string{"0.3947%", "0.3063%"},
		},
		{
			good: 12 * h, bad: 14 * h, after: 7 * h, pace: 2, windows: []string{"3d"},
			quiet: 23 * h, fires: 26 * h, over: 32*h + 30*m,
			blocks: []string{"1.076%"}, gates: []string{"0.1076%"},
		},
	} {
		all = append(all,
			s.drill("WeirEventToBlockBudgetBurn", s.lateBlocks(), lateSummary, s.blocks, lateDetail),
			s.drill("WeirEventToBlockBudgetBurn", s.withheldBlocks(), lateSummary, s.blocks, lateDetail),
			s.drill("WeirGateAvailabilityBudgetBurn", s.unjudged(), "requests pass unjudged", s.gates, "requests passed a gate unjudged; 0.1 % may."))
	}
	none := spell{ // no block is written for 20 minutes
		good: 36 * h, bad: 20 * m, after: h, pace: 100, windows: []string{"1h"},
		quiet: 36*h + 10*m, fires: 36*h + 20*m, over: 36*h + 40*m,
		blocks: []string{"30%"},
	}
	return append(all, none.drill("WeirEventToBlockBudgetBurn", none.withheldBlocks(), lateSummary, none.blocks, lateDetail))
}

// What the alert about blocks says.
const (
	lateSummary = "blocks come late or not at all"
	lateDetail  = "blocks came to Redis later than 5 seconds after the event, or not at all for coming too late; 1 % may."
)

// burnEvery leaves two samples in the shortest window, of five minutes.
const burnEvery = 150 * time.Second

// perSample is how many events there are between two samples.
const perSample = 100_000

func (s spell) drill(alert string, series []string, summary string, shares []string, detail string) drill {
	paces := map[string]string{"1h": "14.4", "6h": "6", "1d": "3", "3d": "1"}
	d := drill{
		alert: alert, every: duration.Format(burnEvery), series: series,
		quiet: duration.Format(s.quiet), fires: duration.Format(s.fires), over: duration.Format(s.over),
	}
	for i, window := range s.windows {
		slo := map[string]string{"WeirEventToBlockBudgetBurn": "event_to_block", "WeirGateAvailabilityBudgetBurn": "gate_availability"}[alert]
		d.notices = append(d.notices, notice{
			"namespace=weir,slo=" + slo + ",window=" + window,
			fmt.Sprintf("weir: %s, at %s times the pace that 30 days allow", summary, paces[window]),
			fmt.Sprintf("Within %s, %s of %s", window, shares[i], detail),
		})
	}
	return d
}

// samples are a counter that grows by one step while all is well, and by another while it is not.
func (s spell) samples(good, bad float64) string {
	g, b, a := int(s.good/burnEvery), int(s.bad/burnEvery), int(s.after/burnEvery)
	until := good * float64(g)
	then := until + bad*float64(b)
	return fmt.Sprintf("0+%gx%d %.0f+%gx%d %.0f+%gx%d", good, g, until+bad, bad, b-1, then+good, good, a-1)
}

func (s spell) lateBlocks() []string {
	late := s.pace * 0.01 * perSample
	return []string{
		`weir_event_to_block_seconds_count{namespace="weir",instance="a"} ` + s.samples(perSample, perSample),
		`weir_event_to_block_seconds_bucket{namespace="weir",instance="a",le="5"} ` + s.samples(perSample, perSample-late),
		`weir_event_to_block_seconds_bucket{namespace="weir",instance="a",le="1"} ` + s.samples(1, 1),
		// Four blocks, all late: a share of 100 %, and nothing to wake anybody for.
		`weir_event_to_block_seconds_count{namespace="small",instance="b"} ` + s.once(4),
		`weir_event_to_block_seconds_bucket{namespace="small",instance="b",le="5"} ` + s.once(0),
	}
}

// withheldBlocks are not written while it is bad, since they would come after max_lag; those that are written come in time.
func (s spell) withheldBlocks() []string {
	late := s.pace * 0.01 * perSample
	decided := func(mode, action, reason, values string) string {
		return fmt.Sprintf(`weir_enforce_decisions_total{namespace="weir",instance="a",rule="login",mode=%q,action=%q,reason=%q} %s`, mode, action, reason, values)
	}
	return []string{
		`weir_event_to_block_seconds_count{namespace="weir",instance="a"} ` + s.samples(perSample, perSample-late),
		`weir_event_to_block_seconds_bucket{namespace="weir",instance="a",le="5"} ` + s.samples(perSample, perSample-late),
		decided("block", "withheld", "max_lag", s.samples(0, late/2)),
		decided("block", "withheld", "expired", s.samples(0, late/2)),
		// What is withheld for another reason, and what a rule in shadow would have withheld.
		decided("block", "withheld", "never_block", s.samples(perSample, perSample)),
		decided("block", "written", "", s.samples(perSample, perSample-late)),
		decided("shadow", "would_withhold", "max_lag", s.samples(perSample, perSample)),
		// A process without rules.
		`weir_event_to_block_seconds_count{namespace="small",instance="b"} ` + s.once(4),
		`weir_event_to_block_seconds_bucket{namespace="small",instance="b",le="5"} ` + s.once(0),
	}
}

func (s spell) unjudged() []string {
	passed := s.pace * 0.001 * perSample
	return []string{
		`weir_gate_decisions_total{namespace="weir",instance="a",protocol="http",decision="pass",rule=""} ` + s.samples(perSample-passed, perSample-passed),
		`weir_gate_decisions_total{namespace="weir",instance="a",protocol="http",decision="refuse",rule="login"} ` + s.samples(passed, 0),
		`weir_gate_decisions_total{namespace="weir",instance="a",protocol="http",decision="fail_open",rule=""} ` + s.samples(0, passed),
		`weir_gate_decisions_total{namespace="small",instance="b",protocol="http",decision="fail_open",rule=""} ` + s.once(4),
	}
}

// once is a counter that grows when the bad time begins, and never else.
func (s spell) once(by int) string {
	return fmt.Sprintf("0x%d %dx%d", int(s.good/burnEvery), by, int((s.bad+s.after)/burnEvery))
}
