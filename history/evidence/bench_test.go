package evidence_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/historytest"
)

// BenchmarkGather is the dossier of one rule of twenty over 7 days, where history holds 30 days of them: WEIR_HISTORY_ROWS hits, 210,000 where
// nothing is said, a tenth of them decided upon, with minutes of 8 keyed partitions. One rule has a twentieth of the hits; the other three tenths,
// and a source of its own for nearly each.
func BenchmarkGather(b *testing.B) {
	hits := int64(210_000)
	if n, err := strconv.ParseInt(os.Getenv("WEIR_HISTORY_ROWS"), 10, 64); err == nil {
		hits = n
	}
	bed, m := historytest.NewMonth(b, hits)
	s := evidence.New(bed.DB, bed.Rules)
	for rule, share := range map[string]int64{historytest.MonthQuiet: 5, historytest.MonthBusy: 30} {
		b.Run(rule, func(b *testing.B) {
			q := evidence.Question{Rule: rule, Since: m.End.Add(-8 * 24 * time.Hour), Until: m.End.Add(-24 * time.Hour)}
			for b.Loop() {
				d, err := s.Gather(b.Context(), q)
				if err != nil {
					b.Fatal(err)
				}
				over, _ := d.Held.Over.Known()
				episodes, _ := d.Held.Episodes.Known()
				wanted := m.Hits / historytest.MonthDays * 7 * share / 100
				if wanted > 200_000 { // all of them are more sources than are looked at
					wanted = 200_000
				}
				if episodes < wanted*9/10 || episodes > wanted*11/10 || d.Observed.Minutes != 7*24*60 || d.Overlap.Sources.Part == 0 || len(d.Top[0].Samples) == 0 {
					b.Fatalf("%d sources with %d episodes, want %d, observed %d, overlap %+v", over, episodes, wanted, d.Observed.Minutes, d.Overlap)
				}
				b.ReportMetric(float64(episodes), "episodes")
				b.ReportMetric(float64(over), "sources")
			}
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms")
		})
	}
}

// A dossier reads the rule's rows of its days, and of no others.
func TestGatherReadsItsDays(t *testing.T) {
	t.Parallel()
	bed, m := historytest.NewMonth(t, 30_000)
	since := m.End.Add(-7 * 24 * time.Hour)
	bed.ReadsDays(t, "a dossier", since, func(store *historytest.Bed) error {
		d, err := evidence.New(store.DB, store.Rules).Gather(t.Context(), evidence.Question{Rule: historytest.MonthQuiet, Since: since, Until: m.End})
		if err != nil {
			return err
		}
		if n, _ := d.Held.Over.Known(); n < 300 || len(d.Top) != evidence.TopSources || len(d.Top[0].Samples) == 0 {
			t.Errorf("%d sources, %d of them shown: %+v", n, len(d.Top), d.Top)
		}
		return nil
	})
}
