package detectors_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// BenchmarkBeside is what near and a candidate cost: one record of one rule, without them, with one and with both, and beside two
// further rules with the same key. Keys are 100,000, all of them held.
func BenchmarkBeside(b *testing.B) {
	plain := rule(100, time.Minute, time.Minute)
	near, both := plain, plain
	near.Near = 80
	both.Near, both.Candidate = 80, &rules.Candidate{Limit: 50}
	second, third := plain, plain
	second.ID, second.Limit, third.ID, third.Limit = "c", 80, "d", 50
	for _, x := range []struct {
		name  string
		rules []rules.Version
	}{{"plain", []rules.Version{plain}}, {"near", []rules.Version{near}}, {"near+candidate", []rules.Version{both}}, {"three-rules", []rules.Version{plain, second, third}}} {
		b.Run(x.name, func(b *testing.B) {
			p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Budget: detectors.DefaultBudget})
			p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, RecordFormat: detectors.RecordFormat, Rules: x.rules}))
			all := make([]int, len(x.rules))
			for i := range all {
				all[i] = i
			}
			records := make([]detectors.Record, 64)
			n, prev := uint64(0), detectors.NoOffset
			for b.Loop() {
				r := &records[n%64]
				key := uint32(n * 0x9e3779b97f4a7c15 >> 32 % 100_000)
				at := origin + traffic.Time(n)*3
				r.Appended = at
				r.Keyed = detectors.Keyed{
					Kind: detectors.KeyedEvent, Generation: 1, Offset: int64(n), Prev: prev, Time: at, Progress: at, Version: 1, Rules: all,
					Identity: traffic.Identity{IP: netip.AddrFrom4([4]byte{10, byte(key >> 16), byte(key >> 8), byte(key)})},
				}
				prev = int64(n)
				if n++; n%64 == 0 {
					if _, _, err := p.FoldAll(records, nil); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
