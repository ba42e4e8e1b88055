package backtest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// keptHits is how many final episodes of a rule one keyed partition keeps whole. All are in the sums.
const keptHits = 50_000

// keptSamples is of how many sources for each that can be listed one keyed partition keeps samples: of those with the most
// events over the limit so far. A source that comes to be listed has been among them long before, or is so from its next episode on.
const keptSamples = 64

// finding is what one rule has found in one keyed partition, or in all.
type finding struct {
	noHits  bool // but in the sums
	top     int  // sources that can be listed
	hits    []detectors.Hit
	cut     int64
	sources map[traffic.Subject]*Source
	sampled []*Source // of sources, those with samples
	last    lastEpisode
	beside  map[detectors.Kind]*finding // what nothing comes of: near the limit, or over the candidate's
}

// lastEpisode tells the hits of one episode from the next one: they come one after the other.
type lastEpisode struct {
	subject traffic.Subject
	first   traffic.Time
}

func newFinding(top int) *finding { return &finding{top: top, sources: map[traffic.Subject]*Source{}} }

// take takes a closed hit of any kind in.
func (f *finding) take(h *detectors.Hit) {
	if h.Kind != detectors.KindHit {
		f = f.besideOf(h.Kind)
	}
	f.add(h)
}

// besideOf is what was found of another kind. Its episodes are summed up only.
func (f *finding) besideOf(kind detectors.Kind) *finding {
	g := f.beside[kind]
	if g == nil {
		g = newFinding(f.top)
		g.noHits = true
		if f.beside == nil {
			f.beside = map[detectors.Kind]*finding{}
		}
		f.beside[kind] = g
	}
	return g
}

// besideInto writes down what stands beside the rule's limit.
func (f *finding) besideInto(r *RuleResult, leftOut int64) {
	of := func(kind detectors.Kind) *BesideResult {
		out := &BesideResult{}
		if g := f.beside[kind]; g != nil {
			var all RuleResult
			g.into(&all, 0)
			out.Sources, out.Episodes, out.Over = all.Sources, all.Episodes, all.Over
		}
		return out
	}
	if r.Version.Near > 0 {
		r.Near = of(detectors.KindNear)
		r.Near.LeftOut = leftOut
	}
	if r.Version.Candidate != nil {
		r.Candidate = of(detectors.KindCandidate)
	}
}

// add takes a closed hit in.
func (f *finding) add(h *detectors.Hit) {
	switch {
	case f.noHits:
	case len(f.hits) < keptHits:
		f.hits = append(f.hits, *h)
	default:
		f.cut++
	}
	src := f.sources[h.Subject]
	if src == nil {
		src = &Source{Subject: h.Subject, First: h.First, Last: h.Last}
		f.sources[h.Subject] = src
	}
	if h.First < src.First || src.Samples == nil {
		src.First = min(src.First, h.First)
		if src.Samples == nil && h.Samples != nil {
			f.sampled = append(f.sampled, src)
		}
		if h.Samples != nil {
			src.Samples = h.Samples
		}
	}
	src.Last, src.Peak = max(src.Last, h.Last), max(src.Peak, h.Peak)
	if now := (lastEpisode{h.Subject, h.First}); now != f.last { // a wide block has several hits of one episode
		f.last = now
		src.Episodes++
		src.Over += h.Count
	}
	if len(f.sampled) > 2*keptSamples*f.top {
		f.prune()
	}
}

// prune keeps the samples of the sources that come first so far, and forgets all others. It looks at those with samples alone:
// there may be a million sources, and it is done for every few hundred of them.
func (f *finding) prune() {
	slices.SortFunc(f.sampled, worse)
	keep := min(len(f.sampled), keptSamples*f.top)
	for _, src := range f.sampled[keep:] {
		src.Samples = nil
	}
	f.sampled = f.sampled[:keep]
}

// worse orders sources as they are listed.
func worse(a, b *Source) int {
	return cmp.Or(cmp.Compare(b.Over, a.Over), cmp.Compare(a.First, b.First), strings.Compare(string(a.Subject), string(b.Subject)))
}

// join takes in what another partition has found.
func (f *finding) join(g *finding) {
	f.hits = append(f.hits, g.hits...)
	f.cut += g.cut
	for kind, theirs := range g.beside {
		f.besideOf(kind).join(theirs)
	}
	if len(f.sources) == 0 {
		f.sources = g.sources // not a second map of a million
		return
	}
	for subject, theirs := range g.sources {
		ours := f.sources[subject]
		if ours == nil {
			f.sources[subject] = theirs
			continue
		}
		if theirs.First < ours.First {
			ours.First = theirs.First
			if theirs.Samples != nil {
				ours.Samples = theirs.Samples
			}
		}
		ours.Episodes += theirs.Episodes
		ours.Over += theirs.Over
		ours.Peak, ours.Last = max(ours.Peak, theirs.Peak), max(ours.Last, theirs.Last)
	}
}

// into writes the finding down.
func (f *finding) into(r *RuleResult, top int) {
	slices.SortFunc(f.hits, func(a, b detectors.Hit) int {
		return cmp.Or(cmp.Compare(a.First, b.First), strings.Compare(string(a.Subject), string(b.Subject)), strings.Compare(a.ID, b.ID))
	})
	r.Hits, r.HitsCut = slices.Values(f.hits), f.cut
	all := make([]*Source, 0, len(f.sources))
	for _, src := range f.sources {
		if r.Sources == 0 || src.First < r.First {
			r.First = src.First
		}
		r.Last = max(r.Last, src.Last)
		if r.Sources == 0 {
			r.Last = src.Last
		}
		r.Sources++
		r.Episodes += src.Episodes
		r.Over += src.Over
		all = append(all, src)
	}
	slices.SortFunc(all, worse)
	for _, src := range all[:min(top, len(all))] {
		r.Top = append(r.Top, *src)
	}
	r.TopCut = int64(len(all) - len(r.Top))
}
