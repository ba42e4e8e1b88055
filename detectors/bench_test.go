package detectors_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// stream makes n event records in order over keys addresses, in a scattered order, a millisecond apart.
func stream(n, keys int) []detectors.Keyed {
	out := make([]detectors.Keyed, n)
	for i := range out {
		var ip [4]byte
		binary.BigEndian.PutUint32(ip[:], 0x0b000000+uint32(uint64(i)*2654435761%uint64(keys)))
		at := origin + traffic.Time(i)*1000
		out[i] = detectors.Keyed{
			Kind: detectors.KeyedEvent, Generation: 1, Offset: int64(i), Prev: int64(i) - 1, Time: at, Progress: at,
			Version: 1, Rules: []int{0}, Identity: traffic.Identity{IP: netip.AddrFrom4(ip)},
		}
	}
	return out
}

// BenchmarkFold is the cost of one event in one window, everything of DETECT but Kafka and the record's decoding: records
// one by one, and in batches as they come from Kafka.
func BenchmarkFold(b *testing.B) {
	for _, tc := range []struct {
		name string
		keys int
		all  bool
	}{{"10k keys", 10_000, false}, {"1M keys", 1_000_000, false}, {"10k keys, batches", 10_000, true}, {"1M keys, batches", 1_000_000, true}} {
		b.Run(tc.name, func(b *testing.B) {
			const n = 2_000_000
			keyed := stream(n, tc.keys)
			records := make([]detectors.Record, n)
			for i := range records {
				records[i] = detectors.Record{Appended: origin + traffic.Time(i), Keyed: keyed[i]}
			}
			v := rule(10, time.Hour, time.Minute)
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += n {
				p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Secret: detectors.Secret{1}})
				p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{v}}))
				some := min(n, b.N-done)
				foldSome(b, p, records[:some], tc.all)
				if c := p.Counts(); c.Counted != int64(some) || some >= 2*tc.keys && p.Keys() != tc.keys {
					b.Fatalf("%d of %d events counted, %d windows of %d keys", c.Counted, some, p.Keys(), tc.keys)
				}
			}
		})
	}
}

func foldSome(b *testing.B, p *detectors.Partition, records []detectors.Record, all bool) {
	if all {
		if _, _, err := p.FoldAll(records, nil); err != nil {
			b.Fatal(err)
		}
		return
	}
	for i := range records {
		if _, err := p.Fold(records[i].Appended, &records[i].Keyed, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSnapshot is the cost of encoding and restoring a million windows of two events, and the longest that any slice
// and any fold beside it took.
func BenchmarkSnapshot(b *testing.B) {
	const keys = 1_000_000
	cfg := detectors.Config{Sources: 1, Generation: 1, Secret: detectors.Secret{1}}
	p := detectors.NewPartition(cfg)
	p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{rule(10, 5*time.Hour, time.Minute)}}))
	records := stream(2*keys, keys)
	for i := range records {
		if _, err := p.Fold(origin, &records[i], nil); err != nil {
			b.Fatal(err)
		}
	}
	var raw []byte
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			raw = p.Snapshot(raw[:0])
		}
		b.SetBytes(int64(len(raw)))
	})
	b.Run("slices", func(b *testing.B) {
		longest, spare := time.Duration(0), []byte(nil)
		for b.Loop() {
			start := time.Now()
			e := p.BeginSnapshot()
			for done := false; !done; start = time.Now() {
				if done = e.Next(64 << 10); e.Written() > 4<<20 {
					spare = e.Take(spare)
				}
				longest = max(longest, time.Since(start))
			}
			if e.Size() != len(raw)-4 && e.Size() < len(raw)-64 {
				b.Fatalf("%d bytes, whole %d", e.Size(), len(raw))
			}
		}
		b.ReportMetric(float64(longest.Microseconds()), "longest-us")
	})
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			if q, err := detectors.Restore(cfg, raw); err != nil || q.Keys() != keys {
				b.Fatal(err)
			}
		}
	})
}
