package boardtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// What holds of an installation at rest, as truths have it: while a busy machine is slow with ticks, it is not at rest.
const (
	mostDelay = 10 // seconds by which the watermark is behind the clock, at least idleMargin
	mostApart = 5  // seconds by which source partitions lie apart: their clocks of a second tick apart
	mostTicks = 16 // that wait for DETECT: the clocks of two source partitions, in eight
	mostStale = 10 // seconds for which a gate that sees Redis has not heard of it
	mostOld   = 3  // seconds since the last scrape of any process
)

// idleMargin is detect.idle_margin, in seconds: what the watermark of an installation at rest is behind the clocks that tick each second.
const idleMargin = 5

// closing is how long after its last event an episode of the demo closes at the latest: its window, its lateness, and what the watermark is
// behind; with a scrape and a tick. Its block is over before.
const closing = "18s"

// rest are questions about an installation, each with one answer, and the greatest that it has at rest.
func rest() map[string]float64 {
	const live = `namespace!="` + stageNamespace + `"`
	return map[string]float64{
		`sum(increase({__name__=~"weir_(detect_hits|enforce_decisions|route_events|stage_records|gate_decisions|dead_letters)_total", ` + live + `}[` + closing + `]))`: 0,
		`sum(weir_stage_lag_records{stage=~"route|record.*|enforce", ` + live + `})`:                                                                                    0,
		`sum(weir_stage_lag_records{stage="detect", ` + live + `}) or vector(0)`:                                                                                        mostTicks,
		`max(weir_stage_lag_seconds{` + live + `}) or vector(0)`:                                                                                                        0,
		`sum(weir_route_intake_bytes{` + live + `}) or vector(0)`:                                                                                                       0,
		`max(weir_detect_watermark_delay_seconds{stream="live", ` + live + `})`:                                                                                         mostDelay,
		`max(weir_detect_skew_seconds{` + live + `}) or vector(0)`:                                                                                                      mostApart,
		`max({__name__=~"weir_blocklist_(staleness|behind)_seconds", role!~"blind|stage.*", ` + live + `})`:                                                             mostStale,
		// Every process was scraped just now: what has failed is not there.
		`count(up) - sum(up)`:         0,
		`max(time() - timestamp(up))`: mostOld,
	}
}

// quiet waits until the stream stands still, its clocks come through and what the demo's rules hold is over, and gives the moment of a
// scrape at which all of that was so.
func (p *prometheus) quiet() time.Time {
	p.t.Helper()
	var last time.Time
	why := errors.New("weir dev has not been scraped")
	testbed.Eventually(p.t, 4*time.Minute, func() error {
		// Of two scrapes ago: by now, what the others said then is stored, too.
		scraped, err := p.instant(`weir_build_info{role="run"}[5s]`, time.Now().Add(-2*scrapeEvery))
		if err != nil {
			return err
		}
		if len(scraped) != 1 {
			return errors.New("weir dev has not been scraped for 5 s")
		}
		newest := scraped[0].Values[len(scraped[0].Values)-1].at
		if newest.Equal(last) {
			return why // nothing is known that was not then
		}
		last, why = newest, p.atRest(newest)
		return why
	})
	return last
}

// atRest says what of an installation is not at rest at the moment of a scrape.
func (p *prometheus) atRest(at time.Time) error {
	for question, most := range rest() {
		found, err := p.instant(question, at)
		if err != nil {
			return err
		}
		if len(found) != 1 || !(found[0].Value.value <= most) {
			return fmt.Errorf("not at rest: %v, want at most %v, by %s", found, most, question)
		}
	}
	return nil
}
