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

// BenchmarkFold is the cost of one event in one window, everything of DETECT but Kafka and the record's decoding.
func BenchmarkFold(b *testing.B) {
	for _, tc := range []struct {
		name string
		keys int
	}{{"10k keys", 10_000}, {"1M keys", 1_000_000}} {
		b.Run(tc.name, func(b *testing.B) {
			const n = 2_000_000
			records := stream(n, tc.keys)
			v := rule(10, 5*time.Minute, time.Minute)
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += n {
				p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Secret: detectors.Secret{1}})
				p.Learn(&rules.Routing{Number: 1, Rules: []rules.Version{v}})
				some := min(n, b.N-done)
				var err error
				for i := range records[:some] {
					if _, err = p.Fold(origin+traffic.Time(i), &records[i], nil); err != nil {
						b.Fatal(err)
					}
				}
				if c := p.Counts(); c.Counted != int64(some) || some >= 2*tc.keys && p.Keys() != tc.keys {
					b.Fatalf("%d of %d events counted, %d windows of %d keys", c.Counted, some, p.Keys(), tc.keys)
				}
			}
		})
	}
}

// BenchmarkSnapshot is the cost of encoding and restoring 100,000 windows of two events.
func BenchmarkSnapshot(b *testing.B) {
	const keys = 100_000
	cfg := detectors.Config{Sources: 1, Generation: 1, Secret: detectors.Secret{1}}
	p := detectors.NewPartition(cfg)
	p.Learn(&rules.Routing{Number: 1, Rules: []rules.Version{rule(10, 5*time.Minute, time.Minute)}})
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
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			if q, err := detectors.Restore(cfg, raw); err != nil || q.Keys() != keys {
				b.Fatal(err)
			}
		}
	})
}
