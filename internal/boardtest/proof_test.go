package boardtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// uidOverLimit is the board for which there is no excuse.
const uidOverLimit = "weir-overlimit"

// Under demo load every query of every board and rule finds something, and afterwards Prometheus' counts are those of history.
func TestBoardsAndRulesOnALoadedInstallation(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	boards, rules := committedBoards(t), committedRules(t)
	in := startInstallation(t)
	sizes := (&facts{g: &grafana{prometheus: &prometheus{t: t}}, in: in}).sizesOfTables() // before the first of them is told of again
	in.decide()
	played, targets := startStage(t)
	maps.Copy(targets, in.metrics)
	g := &grafana{prometheus: startPrometheus(t, targets)}
	f := &facts{g: g, in: in, played: targets, sizes: sizes}
	in.said(`the demo's traffic is over`)
	begun := g.prometheus.quiet()
	in.measure(func(p *process) *measure { return &p.begin })
	g.postgres = in.connect(reader)
	sent := in.load()
	asked, unanswered := g.askAll(boards, rules, in.began.Add(-10*time.Minute))
	sent.end()
	played.on.Store(true)
	judge(t, asked, unanswered)
	wantPages(t, in.metrics)
	s := span{from: begun, to: g.prometheus.quiet(), scrape: scrapeEvery}
	in.measure(func(p *process) *measure { return &p.end })
	g.postgres = in.connect(reader) // the other one may have stopped at an error
	g.wantEqualCounts(boards, s)
	f.s, f.load = s, sent
	f.gather(t)
	g.wantTruths(t, boards, f)
}

// How long a query may find nothing: what it looks for may come with the next block. On a busy machine that takes longer; the load goes on
// meanwhile.
const (
	patience     = 25 * time.Second // of those that may find nothing
	mostPatience = 3 * time.Minute
)

// askAll asks everything, what finds nothing again, and gives the number of queries and what is wrong with some, by place.
func (g *grafana) askAll(boards []*board, rules []rule, from time.Time) (asked int, unanswered map[string]error) {
	type asking struct {
		place string
		ask   func(ctx context.Context, s span) error
	}
	var left []asking
	for _, b := range boards {
		for _, q := range b.questions() {
			left = append(left, asking{q.place, func(ctx context.Context, s span) error { return g.ask(ctx, &q, s) }})
		}
	}
	for _, r := range rules {
		left = append(left, asking{r.place(), func(_ context.Context, s span) error {
			if _, err := g.prometheus.instant(r.Expr, s.to); err != nil {
				return fmt.Errorf("%w\n%s", err, r.Expr)
			}
			return g.askPrometheus(unbounded(r.Expr), false, s)
		}})
	}
	asked = len(left)
	for i, a := range left {
		if slices.ContainsFunc(left[:i], func(b asking) bool { return a.place == b.place }) {
			g.prometheus.t.Errorf("two queries stand at %s", a.place)
		}
	}
	ctx, cancel := context.WithTimeout(g.prometheus.t.Context(), mostPatience)
	defer cancel()
	tick := time.NewTicker(scrapeEvery)
	defer tick.Stop()
	begun, excused := time.Now(), expectedEmpty()
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
		mayBeEmpty := !slices.ContainsFunc(left, func(a asking) bool { return excused[a.place] == "" })
		if len(left) == 0 || mayBeEmpty && time.Since(begun) > patience {
			return asked, unanswered
		}
		select {
		case <-ctx.Done():
			return asked, unanswered
		case <-tick.C:
		}
	}
}

// comparison finds a comparison of PromQL, with the bool that makes it an answer rather than a filter.
var comparison = regexp.MustCompile(`\s(==|!=|>=|<=|>|<)(\s+bool\b)?`)

// unbounded is a rule's expression with nothing that holds an answer back on an installation that is well and a minute old: comparisons
// answer 0 or 1, what must be away may be there, what must be absent is counted, and the past is the present. What is left shows
// that all it looks at is there, with labels that fit together; that it fires, and when, is for promtool's tests of the rules.
func unbounded(promql string) string {
	promql = comparison.ReplaceAllString(promql, " $1 bool")
	promql = regexp.MustCompile(`\bunless\b`).ReplaceAllString(promql, "and")
	promql = regexp.MustCompile(`\s+offset\s+[0-9a-z]+`).ReplaceAllString(promql, "")
	return regexp.MustCompile(`\babsent\(`).ReplaceAllString(promql, "count(")
}

// judge holds what found nothing against what may.
func judge(t *testing.T, asked int, unanswered map[string]error) {
	t.Helper()
	excused := expectedEmpty()
	empty := 0
	for _, place := range slices.Sorted(maps.Keys(unanswered)) {
		err := unanswered[place]
		if !errors.Is(err, errNothing) {
			t.Errorf("%s: %v", place, err)
			continue
		}
		if excused[place] == "" || strings.HasPrefix(place, uidOverLimit) {
			t.Errorf("%s %v", place, err)
			continue
		}
		empty++
	}
	t.Logf("%d queries, of which %d find nothing", asked, empty)
	if most := asked / 20; len(excused) > most {
		t.Errorf("%d of %d queries are excused, allowed: %d", len(excused), asked, most)
	}
	for place, reason := range excused {
		if unanswered[place] == nil {
			t.Errorf("%s finds something, or is not asked any more: it needs no excuse (%s)", place, reason)
		}
	}
}

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
		"weir-pipeline / Memory of Redis / A":                     memory,
		"weir-pipeline / Memory of Redis in bytes / A":            memory,
	}
}
