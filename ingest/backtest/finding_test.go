package backtest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// A million sources over the limit are all in the sums; samples are kept of few, and the ones that are listed have theirs.
func TestSamplesAreBounded(t *testing.T) {
	const sources, worst = 1_000_000, 7
	memory := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := memory()
	f := newFinding(10)
	f.noHits = true
	hit := func(n int, count int64) {
		h := detectors.Hit{
			Kind: detectors.KindHit, Phase: detectors.PhaseClosed, Subject: traffic.Subject(fmt.Sprintf("user=%07d", n)), First: traffic.Time(n + 1),
			Last: traffic.Time(n + 2), Count: count,
		}
		for range 3 {
			h.Samples = append(h.Samples, strings.Repeat("x", 200)+string(h.Subject))
		}
		f.add(&h)
	}
	for n := range sources {
		count := int64(1)
		if n%(sources/worst) == 5 {
			count = 100
		}
		hit(n, count)
	}
	if took := memory() - before; took > 350<<20 {
		t.Errorf("%d MiB for %d sources; their samples alone would be 600", took>>20, sources)
	}
	all := newFinding(10)
	all.join(f)
	var r RuleResult
	all.into(&r, 10)
	if r.Sources != sources || r.Episodes != sources || r.TopCut != sources-10 || len(r.Top) != 10 {
		t.Errorf("%d sources, %d episodes, %d listed, %d not", r.Sources, r.Episodes, len(r.Top), r.TopCut)
	}
	for i, src := range r.Top {
		if len(src.Samples) != 3 || !strings.HasSuffix(src.Samples[0], string(src.Subject)) || (src.Over == 100) != (i < worst) {
			t.Errorf("%d: %s with %d events and samples %q", i, src.Subject, src.Over, src.Samples)
		}
	}
}

// A source that is the worst in the end has samples, though none were kept of its first episode.
func TestALateRiserHasSamples(t *testing.T) {
	t.Parallel()
	f := newFinding(1)
	f.noHits = true
	hit := func(subject string, first, count int) {
		f.add(&detectors.Hit{
			Kind: detectors.KindHit, Phase: detectors.PhaseClosed, Subject: traffic.Subject(subject), First: traffic.Time(first), Last: traffic.Time(first),
			Count: int64(count), Samples: []string{subject},
		})
	}
	hit("riser", 1, 1)
	for n := range 10_000 {
		hit(fmt.Sprint(n), n+2, 2)
	}
	if f.sources["riser"].Samples != nil || len(f.sampled) > 2*keptSamples {
		t.Fatal("samples of all sources are kept")
	}
	hit("riser", 20_000, 50)
	var r RuleResult
	if f.into(&r, 1); r.Top[0].Subject != "riser" || r.Top[0].First != 1 || r.Top[0].Over != 51 || len(r.Top[0].Samples) != 1 {
		t.Errorf("%+v", r.Top[0])
	}
}
