package blocklist

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

var claimed = Crowds{PerAddress: 3, Claimed: []traffic.Field{traffic.FieldDevice, traffic.FieldUser}}

// However raises, extensions and releases come, and from wherever: never more blocks than the bound, never one that is not
// counted, and every release acts.
func TestCrowdsHoldWhateverComes(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		client, namespace, run := server.Client(t), testbed.Namespace(t), 0
		rapid.Check(t, func(rt *rapid.T) {
			run++
			var stores [2]*Store
			var writers [2]*Writer
			for i := range stores {
				store, err := NewStore(client, namespace)
				if err != nil {
					rt.Fatal(err)
				}
				store.Bound(claimed)
				stores[i], writers[i] = store, NewWriter(store)
			}
			base := traffic.At(time.Now())
			address := traffic.Subject(fmt.Sprintf("ip=10.1.%d.%d%%2F32", run/256, run%256))
			devices := 6
			key := func(n int) Name { return Name{address + traffic.Subject(fmt.Sprintf("&device=d%d", n)), someRule} }
			rt.Repeat(map[string]func(*rapid.T){
				"raise": func(rt *rapid.T) {
					var raises []Raise
					for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(1, devices), 1, devices, rapid.ID).Draw(rt, "devices") {
						b := drawBlock(rt, base)
						b.Generation = 1
						raises = append(raises, Raise{Name: key(n), Block: b, ExtendOnly: rapid.Bool().Draw(rt, "extend")})
					}
					if _, err := writers[rapid.IntRange(0, 1).Draw(rt, "store")].Raise(t.Context(), raises); err != nil {
						rt.Fatal(err)
					}
				},
				"release": func(rt *rapid.T) {
					h := key(rapid.IntRange(1, devices).Draw(rt, "device"))
					if _, err := writers[0].Release(t.Context(), []Release{{Name: h, Tombstone: drawTombstone(rt, base), Generation: 1}}); err != nil {
						rt.Fatal(err)
					}
				},
				"": func(rt *rapid.T) {
					stand := map[string]int64{}
					for n := 1; n <= devices; n++ {
						b, _, err := stores[0].Get(t.Context(), key(n).Subject, someRule)
						if err != nil {
							rt.Fatal(err)
						}
						if b != nil {
							c, _ := writers[0].crowd(0, key(n), 1)
							stand[c.name] = expiryMS(b.Until)
						}
					}
					counted, err := client.ZRangeWithScores(t.Context(), stores[0].keys.Crowd(address, someRule, 1), 0, -1).Result()
					if err != nil {
						rt.Fatal(err)
					}
					if len(stand) > claimed.PerAddress {
						rt.Fatalf("%d blocks of one address", len(stand))
					}
					for _, z := range counted {
						if until, ok := stand[fmt.Sprint(z.Member)]; ok && int64(z.Score) < until {
							rt.Fatalf("%v is counted until %.0f and stands until %d", z.Member, z.Score, until)
						}
						delete(stand, fmt.Sprint(z.Member))
					}
					if len(stand) > 0 {
						rt.Fatalf("not counted: %v", stand)
					}
				},
			})
		})
	})
}
