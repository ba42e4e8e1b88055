package ramp

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
)

// kind is a kind of traffic: what comes in a minute, counted from the beginning of the canary, and who is among the
// sources over the limit.
type kind struct {
	what     string
	perHour  int
	attack   func(minute int) float64 // part of the requests that is of sources over the limit
	heavy    float64                  // part of these that one source makes
	good     int                      // of a hundred sources over the limit, those that are known to be good
	goodSeen int                      // the same while the rule was in shadow
	released bool                     // somebody releases a block, from the fortieth minute on
	blind    bool                     // refused requests do not come back to the log
	back     bool                     // it has to fall back
	why      string                   // what that begins with
}

func steady(share float64) func(int) float64 { return func(int) float64 { return share } }

// until is a share before a minute, and another from there on.
func until(minute int, before, after float64) func(int) float64 {
	return func(m int) float64 {
		if m < minute {
			return before
		}
		return after
	}
}

// doubling doubles every quarter of an hour from the beginning on.
func doubling(share, most float64) func(int) float64 {
	return func(m int) float64 { return min(most, share*float64(int(1)<<max(0, m/15))) }
}

func kinds() []kind {
	const brisk = 7200
	return []kind{
		{what: "a steady attack", perHour: brisk, attack: steady(0.05)},
		{what: "a steady attack of which one source makes most", perHour: brisk, attack: steady(0.05), heavy: 0.8},
		{what: "a steady attack that its owner has overridden a gate for", perHour: brisk, attack: steady(0.4)},
		{what: "a growing attack", perHour: brisk, attack: doubling(0.05, 0.7), back: true, why: "share of traffic"},
		{what: "an attack that ends", perHour: brisk, attack: until(20, 0.05, 0)},
		{what: "none", perHour: brisk, attack: steady(0)},
		{what: "all sources over the limit at once, when it begins", perHour: brisk, attack: func(m int) float64 {
			if m == 0 {
				return 0.9
			}
			return 0.05
		}},
		{what: "an office in it", perHour: brisk, attack: steady(0.05), good: 40, back: true,
			why: "known-good sources"},
		{what: "an office that was in it before", perHour: brisk, attack: steady(0.05), good: 40, goodSeen: 40},
		{what: "a release", perHour: brisk, attack: steady(0.05), released: true, back: true, why: "releases"},
		{what: "ten requests an hour", perHour: 10, attack: steady(0.5)},
		{what: "a growing attack whose refusals do not come back", perHour: brisk, attack: doubling(0.05, 0.7),
			blind: true},
	}
}

// played is a canary under a kind of traffic. What it has done is told a minute at a time.
type played struct {
	canary
	kind   *kind
	random *rand.Rand
	sides  []promotion.Share
	held   map[int]bool

	minute       int
	some, all    int64
	good, undone int64
}

const sourcesOver = 100

// draw is one minute's requests: all of them, and how many each source over the limit made.
func (p *played) draw(minute int) (all int64, over map[int]int64) {
	over = map[int]int64{}
	share := p.kind.attack(minute)
	for range p.requests() {
		all++
		switch {
		case p.random.Float64() >= share:
		case p.random.Float64() < p.kind.heavy:
			over[0]++
		default:
			over[p.random.IntN(sourcesOver)]++
		}
	}
	return all, over
}

// requests is how many come in a minute: each second draws for itself.
func (p *played) requests() (n int) {
	perSecond := float64(p.kind.perHour) / 3600
	for range 60 {
		for rest := perSecond; rest > 0; rest-- {
			if p.random.Float64() < min(rest, 1)/2 {
				n += 2
			}
		}
	}
	return n
}

// predicted is what an hour in shadow leads one to expect.
func (p *played) predicted() promotion.Prediction {
	var seen promotion.Part
	for minute := -60; minute < 0; minute++ {
		all, over := p.draw(minute)
		seen.All += all
		for _, n := range over {
			seen.Some += n
		}
	}
	e := promotion.Evidence{Traffic: &seen, Coverage: &promotion.Part{Some: sourcesOver, All: sourcesOver},
		Good: &promotion.Part{Some: int64(p.kind.goodSeen), All: sourcesOver}}
	return promotion.DefaultGates().Predict(&e)
}

// pass plays one minute.
func (p *played) pass() {
	all, over := p.draw(p.minute)
	for source, n := range over {
		if p.sides[source] >= p.rule.Canary.Share {
			continue
		}
		if !p.held[source] {
			p.held[source] = true
			if source < p.kind.good {
				p.good++
			}
		}
		if p.minute > 0 {
			p.some += n
		}
	}
	if p.minute > 0 { // the first is not judged
		p.all += all
	}
	if p.kind.released && p.minute >= 40 && len(p.held) > 0 {
		p.undone = 1
	}
	p.minute++
	p.seen = promotion.Observed{Blocks: count(int64(len(p.held))), Good: count(p.good), Released: count(p.undone)}
	if !p.kind.blind {
		p.seen.Traffic = &promotion.Part{Some: p.some, All: p.all}
	}
}

// A canary falls back under the kinds of traffic that are worse than what was seen in shadow, and under no other,
// however the dice fall.
func TestCanariesUnderKindsOfTraffic(t *testing.T) {
	const seeds = 200
	for i := range kinds() {
		k := kinds()[i]
		t.Run(k.what, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(seeds) {
				synctest.Test(t, func(t *testing.T) {
					if told := k.play(t, seed); (told != "block") != k.back || k.back && !strings.HasPrefix(told,
						"shadow: "+k.why) {
						t.Fatalf("seed %d: it ended in %q", seed, told)
					}
				})
			}
		})
	}
}

// play gives where a canary ends: block, or shadow with its reason.
func (k *kind) play(t *testing.T, seed uint64) string {
	t.Helper()
	p := &played{kind: k, random: rand.New(rand.NewPCG(seed, 26)),
		held: map[int]bool{}} //nolint:gosec // the same in every run
	for source := range sourcesOver {
		p.sides = append(p.sides, promotion.Side(fmt.Appendf(nil, "%d", seed), "flood", fmt.Sprintf("ip=192.0.2.%d",
			source)))
	}
	steps := promotion.DefaultCanary()
	p.rule = rulestore.Rule{Mode: rules.ModeCanary, Changed: time.Now(), Canary: &rulestore.Canary{
		Share: steps.Steps[0], Step: 1, Steps: steps.Steps, Since: time.Now(), Hold: steps.Hold,
		Predicted: p.predicted(),
	}}
	c, err := New(Options{Canaries: p, Figures: p, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	for p.rule.Mode == rules.ModeCanary && p.minute < 24*60 {
		p.pass()
		time.Sleep(time.Minute)
		if err := c.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if step := p.rule.Canary.Step; p.rule.Mode == rules.ModeCanary {
			p.rule.Canary.Share = p.rule.Canary.Steps[step-1]
		}
	}
	if len(p.told) == 0 {
		return "nothing"
	}
	return p.told[len(p.told)-1]
}
