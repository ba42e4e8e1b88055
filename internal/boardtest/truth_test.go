package boardtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// truth is what a panel says, reckoned without Prometheus and without the board. Each panel of Prometheus has one: what an installation
// has done over a span; and where too little of it is 0 only because all goes well, what it would say of numbers put on a stage.
type truth struct {
	want    func(f *facts, rule string) panelTruth // nil: the stage has all
	started bool                                   // counted since before the start, instead of over the load
}

// panelTruth are the values that a panel shows, by the legends of its queries.
type panelTruth map[string][]value

func atRest(want func(f *facts, rule string) panelTruth) truth { return truth{want: want} }

func sinceStart(want func(f *facts, rule string) panelTruth) truth {
	return truth{want: want, started: true}
}

// onStage is for what does not happen while all goes well.
func onStage() truth { return truth{} }

const (
	uidRule     = "weir-rule"
	uidPipeline = "weir-pipeline"
	uidGate     = "weir-gate"
)

// truths are those of all boards, by uid and title.
func panelTruths() map[string]map[string]truth {
	return map[string]map[string]truth{uidRule: truthsOfRule(), uidPipeline: truthsOfPipeline(), uidGate: truthsOfGates()}
}

// mostUnseen: of so many similar queries one may be as right. Some mean the same where each partition has one owner.
const mostUnseen = 40

// scene is a span of an installation, with the choices at the top of a board, and what a panel says then.
type scene struct {
	about  string
	span   span
	chosen *chosen
	want   panelTruth
}

// wantTruths compares every Prometheus panel with what is true of it, and with what a panel would show that asks something similar.
// Over-limit review has wantEqualCounts.
func (g *grafana) wantTruths(t *testing.T, boards []*board, f *facts) {
	t.Helper()
	right, panels, tried := 0, 0, 0
	var unseen []string
	live, staged := panelTruths(), stagedTruths(f, f.played)
	for _, b := range boards {
		if b.UID == uidOverLimit {
			continue
		}
		for _, p := range b.panelsOf(typePrometheus) {
			place := b.UID + " / " + p.Title
			known, ok := live[b.UID][p.Title]
			played := staged[place]
			delete(live[b.UID], p.Title)
			delete(staged, place)
			if !ok || known.want == nil && played == nil {
				t.Errorf("%s: nothing here knows what it should say", place)
				continue
			}
			panels++
			scenes := g.scenes(t, b, f, known, played)
			n, wrong := g.compareAll(&p, scenes)
			right += n
			for _, err := range wrong {
				t.Errorf("%s: %v", place, err)
			}
			if len(wrong) == 0 {
				n, missed := g.wantDifference(t, place, &p, scenes)
				tried, unseen = tried+n, append(unseen, missed...)
			}
		}
	}
	for uid, left := range live {
		for title := range left {
			t.Errorf("%s has no panel %s any more", uid, title)
		}
	}
	for place := range staged {
		t.Errorf("there is no panel %s any more", place)
	}
	t.Logf("%d panels say what is true, %d numbers of them above 0; of %d similar queries %d do", panels, right, tried, len(unseen))
	if len(unseen) > tried/mostUnseen {
		t.Errorf("too many queries could be exchanged for similar ones:\n%s", strings.Join(unseen, "\n"))
	}
}

// scenes are those in which a panel is looked at.
func (g *grafana) scenes(t *testing.T, b *board, f *facts, known truth, played panelTruth) (all []scene) {
	t.Helper()
	add := func(about string, s span, namespace string, rule choice, want panelTruth) {
		c, err := g.choose(t.Context(), b, s)
		if err != nil {
			t.Fatal(err)
		}
		c.values["namespace"] = choice{values: []string{namespace}, listed: true}
		if rule.values != nil || rule.all != "" {
			c.values["rule"] = rule
		}
		all = append(all, scene{about, s, c, want})
	}
	if played != nil {
		add("on the stage", f.s, stageNamespace, choice{all: ".+", listed: true}, played)
	}
	s := f.s
	if known.started {
		s.from = f.in.began
	}
	switch {
	case known.want == nil:
	case b.UID == uidRule:
		for i := range f.rules {
			rule := f.rules[i].ID
			add(rule, s, f.in.schema, choice{values: []string{rule}}, known.want(f, rule))
		}
	default:
		add("", s, f.in.schema, choice{}, known.want(f, ""))
	}
	return all
}

// compareAll holds what a panel says in each scene against what is true.
func (g *grafana) compareAll(p *panel, scenes []scene) (right int, wrong []error) {
	if err := wantRanges(p); err != nil {
		wrong = append(wrong, err)
	}
	for _, s := range scenes {
		n, err := g.compareOne(p, &s)
		if right += n; err != nil {
			wrong = append(wrong, fmt.Errorf("%s %w", s.about, err))
		}
	}
	return right, wrong
}

func (g *grafana) compareOne(p *panel, s *scene) (right int, err error) {
	said, err := g.show(s.chosen, p, s.span)
	if err != nil {
		return 0, err
	}
	left := slices.Sorted(maps.Keys(s.want))
	var wrong []error
	for _, q := range said {
		at := slices.Index(left, q.legend)
		if at < 0 {
			wrong = append(wrong, fmt.Errorf("%q: nothing here knows what it should say", q.legend))
			continue
		}
		left = slices.Delete(left, at, at+1)
		n, differing := compare(q.series, s.want[q.legend])
		right += n
		for _, d := range differing {
			wrong = append(wrong, fmt.Errorf("%q %s\n\t%s", q.legend, d, q.promql))
		}
	}
	for _, legend := range left {
		wrong = append(wrong, fmt.Errorf("%q is not asked any more", legend))
	}
	return right, errors.Join(wrong...)
}
