package detectors_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// BenchmarkApproach is the folding of events with their samples, of 20,021 addresses with 15 events each in a minute, in records of the
// newest format. The limit says how far they come: of 60, none to the half of it; of 16, half of the events are of sources on their way; of
// 16 with room for few, most of what is kept is dropped again.
func BenchmarkApproach(b *testing.B) {
	const n, sources = 300_000, 20_021
	for _, c := range []struct {
		limit  int
		budget int64
	}{{60, detectors.DefaultBudget}, {16, detectors.DefaultBudget}, {16, 16 << 20}} {
		for _, a := range []rules.Algorithm{rules.AlgorithmSliding, rules.AlgorithmFixed} {
			b.Run(fmt.Sprintf("%s/limit=%d/MiB=%d", a, c.limit, c.budget>>20), func(b *testing.B) {
				v := rule(c.limit, time.Minute, 10*time.Second)
				v.ID, v.Algorithm, v.Block = "r", a, nil
				request := traffic.Request{
					ID: "req-00000001", Method: "POST", Host: "api.example.com", Path: "/v1/guest-tokens", Status: 201, Plan: "free", Gateway: "gw-3",
					UserAgent: "Mozilla/5.0 (Linux; Android 9; AFTT) AppleWebKit/537.36 (KHTML, like Gecko)",
				}
				records := make([]detectors.Record, n)
				for i := range records {
					at := eventOrigin + traffic.Time(i)*190
					who := i * 7919 % sources
					k := detectors.Keyed{
						Format: rules.EvidenceRecordFormat, Kind: detectors.KeyedEvent, Generation: 1, Offset: int64(i), Prev: int64(i) - 1, Time: at, Progress: at,
						Version: 1, Rules: []int{0}, Identity: identityOf(fmt.Sprintf("203.0.%d.%d", who>>8, who&255)),
					}
					k.Sample = traffic.AppendPackedSample(nil, &request, &k.Identity)
					records[i] = detectors.Record{Appended: at, Keyed: k}
				}
				least := time.Duration(0)
				for b.Loop() {
					p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Secret: detectors.Secret{1}, Budget: c.budget})
					p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, RecordFormat: rules.EvidenceRecordFormat, Rules: []rules.Version{v}}))
					before := spent(b)
					_, hits, err := p.FoldAll(records, nil)
					if used := spent(b) - before; least == 0 || used < least {
						least = used
					}
					over := 0
					for i := range hits {
						if hits[i].Kind == detectors.KindHit {
							over++
						}
					}
					if err != nil || over > 0 || p.Counts().Counted != n || p.Keys() != sources {
						b.Fatalf("%d counted of %d keys, %d hits: %v", p.Counts().Counted, p.Keys(), over, err)
					}
				}
				b.ReportMetric(float64(least.Nanoseconds())/n, "least-cpu-ns/event")
			})
		}
	}
}
