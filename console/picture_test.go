package console

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/console/standing"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const tv = traffic.Subject("device=tv-7")

// now of these tests.
const noon traffic.Time = 1_800_000_000_000_000

func ruleOf(mode rules.Mode, ttl time.Duration, extend rules.Extend) rulestore.Rule {
	r := sceneRule("flood", "us", "POST", "/token", 3, time.Minute, ttl, mode, traffic.FieldDevice)
	if ttl > 0 {
		r.Newest.Version.Block.Extend = extend
	}
	return r
}

func over(id string, first, last traffic.Time) history.RecordedHit {
	return history.RecordedHit{Stream: history.Live, Hit: detectors.Hit{
		Kind: detectors.KindHit, ID: id, Rule: "flood", RuleVersion: 1, Subject: tv, BlockSubject: tv, Limit: 3, Count: 9, First: first, Last: last,
	}}
}

func block(until traffic.Time, inForce bool) blocklist.Listed {
	return blocklist.Listed{Subject: tv, Rule: "flood", InForce: inForce, Block: &blocklist.Block{Rule: "flood", Hit: "a", Since: noon - 1, Until: until}}
}

func release(of string, at traffic.Time) blocklist.Listed {
	return blocklist.Listed{Subject: tv, Rule: "flood", Tombstone: &blocklist.Tombstone{
		Rule: "flood", Hit: of, Released: at, Until: noon.Add(time.Hour),
	}}
}

func TestOutcome(t *testing.T) {
	const ttl = 10 * time.Minute
	began, ended := noon.Add(-12*time.Minute), noon.Add(-5*time.Minute)
	grouped := over("a", began, ended)
	grouped.Grouped = true
	nobody := over("a", began, ended)
	nobody.BlockSubject = ""
	gone := over("a", began, ended)
	gone.Rule = "removed"
	tests := []struct {
		name   string
		rule   rulestore.Rule
		hit    history.RecordedHit
		listed []blocklist.Listed
		want   string
		until  traffic.Time
	}{
		{"shadow, every hit extends", ruleOf(rules.ModeShadow, ttl, rules.ExtendOnHit), over("a", began, ended), nil, standing.Would, ended.Add(ttl)},
		{"shadow, only the first counts, over", ruleOf(rules.ModeShadow, ttl, rules.ExtendNever), over("a", began, ended), nil, standing.Passed, 0},
		{"shadow, only the first counts", ruleOf(rules.ModeShadow, ttl, rules.ExtendNever), over("a", ended, ended), nil, standing.Would, ended.Add(ttl)},
		{"shadow, no block named", ruleOf(rules.ModeShadow, 0, ""), over("a", began, ended), nil, standing.Passed, 0},
		{"off", ruleOf(rules.ModeOff, ttl, rules.ExtendOnHit), over("a", began, ended), nil, standing.Passed, 0},
		{"grouped", ruleOf(rules.ModeShadow, ttl, rules.ExtendOnHit), grouped, nil, standing.Passed, 0},
		{"nobody to block", ruleOf(rules.ModeShadow, ttl, rules.ExtendOnHit), nobody, nil, standing.Passed, 0},
		{"rule removed", ruleOf(rules.ModeShadow, ttl, rules.ExtendOnHit), gone, nil, standing.Passed, 0},
		{"blocking, held", ruleOf(rules.ModeBlock, ttl, rules.ExtendOnHit), over("a", began, ended), []blocklist.Listed{block(noon+5, true)}, standing.Held, noon + 5},
		{"blocking, withheld", ruleOf(rules.ModeBlock, ttl, rules.ExtendOnHit), over("a", began, ended), nil, standing.Passed, 0},
		{"blocking, expired but still listed", ruleOf(rules.ModeBlock, ttl, rules.ExtendOnHit), over("a", began, ended), []blocklist.Listed{block(noon, true)}, standing.Passed, 0},
		{"demoted: the block holds nobody", ruleOf(rules.ModeShadow, ttl, rules.ExtendOnHit), over("a", began, ended), []blocklist.Listed{block(noon+5, false)}, standing.Would, ended.Add(ttl)},
		{"released", ruleOf(rules.ModeBlock, ttl, rules.ExtendOnHit), over("a", began, ended), []blocklist.Listed{release("a", began-1)}, standing.Released, 0},
		{"released before it began anew", ruleOf(rules.ModeBlock, ttl, rules.ExtendOnHit), over("b", began, ended), []blocklist.Listed{release("a", began-1)}, standing.Passed, 0},
	}
	for _, tt := range tests {
		p := newPicture(&readings{rules: []rulestore.Rule{tt.rule}, listed: blocklist.Listing{Items: tt.listed}}, noon, "weir")
		got := p.Outcome(&tt.hit.Hit)
		if got.Kind != tt.want || (got.Until == nil) != (tt.until == 0) || got.Until != nil && *got.Until != tt.until {
			t.Errorf("%s: got %+v, want %s until %s", tt.name, got, tt.want, tt.until)
		}
	}
}

func TestRuleFigures(t *testing.T) {
	s := &readings{rules: []rulestore.Rule{ruleOf(rules.ModeShadow, 10*time.Minute, rules.ExtendOnHit)}, hits: map[string][]history.RecordedHit{}}
	for n := range 7 { // of four sources, the newest first; the last two are too old to be held
		h := over(fmt.Sprint(n), noon.Add(-time.Duration(n+3)*2*time.Minute), noon.Add(-time.Duration(n)*2*time.Minute))
		h.Subject = traffic.Subject(fmt.Sprintf("device=tv-%d", n%4))
		h.BlockSubject = h.Subject
		s.hits["flood"] = append(s.hits["flood"], h)
	}
	v := newPicture(s, noon, "weir").rulesView().Rules[0]
	if v.Sources != 4 || v.Episodes != 7 || v.Events != 63 || v.WouldHold != 4 || v.Holds != 0 || v.More {
		t.Errorf("sources %d, episodes %d, events %d, would hold %d, holds %d, more %t", v.Sources, v.Episodes, v.Events, v.WouldHold, v.Holds, v.More)
	}
	if len(v.Top) != topSources || v.Top[0].Source.Subject != "device=tv-0" || v.Top[0].Count != 18 || v.Top[0].Hit != "0" {
		t.Errorf("top: %+v", v.Top)
	}
	s.hits["flood"] = s.hits["flood"][5:] // 10 and 12 minutes ago
	if v = newPicture(s, noon, "weir").rulesView().Rules[0]; v.WouldHold != 0 || v.Sources != 2 {
		t.Errorf("when the time is over: would hold %d of %d", v.WouldHold, v.Sources)
	}
}

// Lists are bounded, and say so.
func TestListsAreBounded(t *testing.T) {
	s := &readings{hits: map[string][]history.RecordedHit{}}
	for rule := range 20 {
		r := ruleOf(rules.ModeBlock, time.Minute, rules.ExtendOnHit)
		r.Newest.Version.ID = fmt.Sprintf("rule-%d", rule)
		s.rules = append(s.rules, r)
		for n := range hitsPerRule {
			h := over(fmt.Sprintf("%d-%d", rule, n), noon-traffic.Time(n), noon)
			h.Rule = r.Newest.Version.ID
			s.hits[h.Rule] = append(s.hits[h.Rule], h)
			one := block(noon+1, true)
			one.Rule, one.Subject = h.Rule, traffic.Subject(fmt.Sprintf("device=%d", n))
			s.listed.Items = append(s.listed.Items, one)
		}
	}
	p := newPicture(s, noon, "weir")
	if v := p.hitsView(); len(v.Hits) != hitsShown || !v.More {
		t.Errorf("%d hits, more %t", len(v.Hits), v.More)
	}
	if v := p.blocksView(); len(v.Blocks) != blocksShown || v.Total != 20*hitsPerRule || v.InForce != v.Total {
		t.Errorf("%d blocks of %d, %d in force", len(v.Blocks), v.Total, v.InForce)
	}
	if v := p.rulesView().Rules[0]; !v.More || v.Holds != hitsPerRule {
		t.Errorf("more %t, holds %d", v.More, v.Holds)
	}
}

func TestMeter(t *testing.T) {
	var m meter
	at := noon
	step := func(seconds int, events int64) {
		at = at.Add(time.Duration(seconds) * time.Second)
		m.add(&Pulse{Events: events, Stages: []StageLag{{"route", events % 7}, {"detect", 1}}}, at)
	}
	step(0, 1_000_000)
	if v := m.view(&Pulse{Events: 1_000_000}, at); v.Events.Rate != 0 || len(v.Events.Series) != 0 || v.Events.Total != 1_000_000 {
		t.Errorf("one reading makes no rate: %+v", v.Events)
	}
	step(1, 1_000_100)
	step(2, 1_000_400)
	if r := m.rate(ofEvents); r < 133.3 || r > 133.4 {
		t.Errorf("400 events in 3 s: %v per second", r)
	}
	step(1, 50) // the process began anew
	if v := m.curve(ofEvents); v.Series[2] != 0 || v.Total != 50 || v.Minute != 400 {
		t.Errorf("after a restart: %+v", v)
	}
	step(-3600, 60) // the clock was set back
	step(1, 70)
	if v := m.curve(ofEvents); v.Series[len(v.Series)-1] != 20 {
		t.Errorf("after the clock was set back: %v", v.Series)
	}
	for n := range 3 * seriesLength {
		step(1, int64(70+n))
	}
	if n := len(m.samples); n != seriesLength {
		t.Errorf("%d samples are kept", n)
	}
}

// A pending version is shown with what it changes, and the command that promotes it names it.
func TestPendingVersionIsShown(t *testing.T) {
	r := ruleOf(rules.ModeBlock, time.Minute, rules.ExtendOnHit)
	p := newPicture(&readings{}, traffic.At(time.Now()), "weir")
	if v := p.rule(&r); v.Pending != nil || v.Command != `weir rules demote flood --reason "…"` {
		t.Errorf("%+v", v)
	}
	r.Pending = pendingEdit(&r)
	r.Pending.Reason = "\u202eedis"
	v := p.rule(&r).Pending
	full := traffic.At(r.Pending.Created.Add(2 * time.Hour)).String()
	if v == nil || v.Version != 4 || v.Since != traffic.At(r.Pending.Created).String() || v.Warming != full || v.By != "mara" || v.Reason != shown.Text(r.Pending.Reason) ||
		!slices.Contains(v.Diff, "limit 3 → 1") || v.Command != `weir rules promote flood --version 4 --reason "…"` {
		t.Errorf("%+v, want it warming until %s", v, full)
	}
	// In shadow both can be promoted, each by its number. What is off counts nothing, and warms nothing.
	r.Mode = rules.ModeShadow
	if v := p.rule(&r); v.Command != `weir rules promote flood --version 3 --reason "…"` || v.Pending.Command != `weir rules promote flood --version 4 --reason "…"` {
		t.Errorf("%+v", v)
	}
	r.Pending.Created = time.Now().Add(-3 * time.Hour)
	if v := p.rule(&r).Pending; v.Warming != "" {
		t.Errorf("%+v", v)
	}
}
