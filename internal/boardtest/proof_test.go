package boardtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// Under demo load every query of every board and rule finds something, and the panels by which people decide say
// what is true.
func TestBoardsAndRulesOnALoadedInstallation(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	boards, rules := committedBoards(t), committedRules(t)
	in := startInstallation(t)
	in.decide()
	g := &grafana{prometheus: startPrometheus(t, in.metrics), postgres: in.connect(reader)}
	testbed.Eventually(t, time.Minute, func() error { // what is shipped before the rule is routed, it does not watch
		found, err := g.prometheus.instant(`weir_route_rule_events_total{rule="`+shippedRule+`"}`, time.Now())
		if err == nil && len(found) == 0 {
			err = errors.New("events are not routed by the rules yet")
		}
		return err
	})
	sent := in.load()
	unanswered := g.askAll(boards, rules, in.began.Add(-10*time.Minute))
	sent.end()
	judge(t, len(boards), unanswered)
	wantPages(t, in.metrics)
	g.postgres = in.connect(reader) // the other one may have stopped at an error
	f := &facts{in: in, load: sent, postgres: in.connect("")}
	left := decidingPanels(t, boards, func(p *deciding) bool { return p.live != nil })
	testbed.Eventually(t, time.Minute, func() error {
		if err := f.gather(); err != nil {
			return err
		}
		s := span{from: in.began, to: time.Now(), scrape: scrapeEvery}
		wrong := []error{}
		for place, p := range left {
			if err := g.compare(p, in.schema, p.truth.rule, s, p.truth.live(f), p.truth.less); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", place, err))
				continue
			}
			delete(left, place) // it has said what is true, once the stream stood still
		}
		return errors.Join(wrong...)
	})
}

// mostPatience is for how long a query may find nothing: what it looks for may come with the next block. On a busy
// machine that takes longer; the load goes on meanwhile.
const mostPatience = 3 * time.Minute

// asking is a query of a board, or of a rule, with its place.
type asking struct {
	place string
	ask   func(ctx context.Context, s span) error
}

// askAll asks everything, what finds nothing again, and returns what is wrong with some, by place.
func (g *grafana) askAll(boards []*board, rules []rule, from time.Time) (unanswered map[string]error) {
	t := g.prometheus.t
	t.Helper()
	left := g.askings(boards, rules)
	for i, a := range left {
		if slices.ContainsFunc(left[:i], func(b asking) bool { return a.place == b.place }) {
			t.Errorf("two queries stand at %s", a.place)
		}
	}
	t.Logf("%d queries", len(left))
	ctx, cancel := context.WithTimeout(t.Context(), mostPatience)
	defer cancel()
	tick := time.NewTicker(scrapeEvery)
	defer tick.Stop()
	excused := expectedEmpty()
	unanswered = map[string]error{}
	for {
		left = slices.DeleteFunc(left, func(a asking) bool {
			now := span{from: from, to: time.Now(), scrape: scrapeEvery}
			err := a.ask(context.WithoutCancel(ctx), now)
			if unanswered[a.place] = err; err == nil {
				delete(unanswered, a.place)
			}
			return !errors.Is(err, errNothing) // what is wrong stays wrong
		})
		if !slices.ContainsFunc(left, func(a asking) bool { return excused[a.place] == "" }) {
			return unanswered
		}
		select {
		case <-ctx.Done():
			return unanswered
		case <-tick.C:
		}
	}
}

func (g *grafana) askings(boards []*board, rules []rule) (all []asking) {
	for _, b := range boards {
		for _, q := range b.questions() {
			all = append(all, asking{q.place, func(ctx context.Context, s span) error { return g.ask(ctx, &q, s) }})
		}
	}
	for _, r := range rules {
		all = append(all, asking{r.place(), func(_ context.Context, s span) error {
			if _, err := g.prometheus.instant(r.Expr, s.to); err != nil {
				return fmt.Errorf("%w\n%s", err, r.Expr)
			}
			return g.askPrometheus(unbounded(r.Expr), false, s)
		}})
	}
	return all
}

// comparison finds a comparison of PromQL, with the bool that makes it an answer rather than a filter.
var comparison = regexp.MustCompile(`\s(==|!=|>=|<=|>|<)(\s+bool\b)?`)

// unbounded is a rule's expression with nothing that holds an answer back on an installation that is well and a
// minute old: comparisons answer 0 or 1, what must be away may be there, what must be absent is counted, and the
// past is the present. What is left shows that all it looks at is there, with labels that fit together; that it
// fires, and when, is for promtool's tests of the rules.
func unbounded(promql string) string {
	promql = comparison.ReplaceAllString(promql, " $1 bool")
	promql = regexp.MustCompile(`\bunless\b`).ReplaceAllString(promql, "and")
	promql = regexp.MustCompile(`\s+offset\s+[0-9a-z]+`).ReplaceAllString(promql, "")
	return regexp.MustCompile(`\babsent\(`).ReplaceAllString(promql, "count(")
}

// judge holds what found nothing against what may. Dashboard, panel and query are the place of what is wrong.
func judge(t *testing.T, boards int, unanswered map[string]error) {
	t.Helper()
	excused := expectedEmpty()
	for _, place := range slices.Sorted(maps.Keys(unanswered)) {
		if err := unanswered[place]; !errors.Is(err, errNothing) || excused[place] == "" {
			t.Errorf("%s: %v", place, err)
		}
	}
	for place, reason := range excused {
		if unanswered[place] == nil && reason != inAMinute {
			t.Errorf("%s finds something, or is not asked any more: it needs no excuse (%s)", place, reason)
		}
	}
	if len(excused) > 2*boards {
		t.Errorf("%d queries are excused", len(excused))
	}
}

// inAMinute is why a query may find something, and need not: history has what was not counted in a minute when that
// is over, and dashboards' own tests have such minutes.
const inAMinute = "the minute is not over"

// expectedEmpty are the queries that find nothing within a minute of a demo that goes well, with the reason.
func expectedEmpty() map[string]string {
	const (
		past   = "looks at what was recorded of the week before; promtool's tests of the rules have one"
		memory = "weir dev's Redis does not tell what it takes"
	)
	return map[string]string{
		"alert / WeirBlockRateHigh / severity=owner":              past,
		"alert / WeirBlockRateLow / severity=owner":               past,
		"alert / WeirRedisMemoryHigh / severity=ticket":           memory,
		"alert / WeirGateObserveFileUnreadable / severity=ticket": "only gates with gate.observe_file count it",
		"weir-rule / Not counted, from history / A":               inAMinute,
		"weir-pipeline / Memory of Redis / A":                     memory,
		"weir-pipeline / Memory of Redis in bytes / A":            memory,
	}
}
