package detectors

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A fold under a snapshot waits for what its own key needs, not for hundreds of neighbours with long logs, and not for what
// the sweep passes by: however the sub-tables are cut for it, the snapshot is the state as it was.
func TestFoldWaitsForNoHeavyNeighbours(t *testing.T) {
	const keys, entries, most = 1500, 270, 64 << 10
	v := rules.Version{Number: 1, Lineage: 1, Document: rules.Document{
		ID: "long", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, Limit: 1000,
		Algorithm: rules.AlgorithmSlidingLog, Window: time.Hour,
	}}
	offset := int64(0)
	send := func(p *Partition, key int) {
		k := Keyed{Kind: KeyedEvent, Generation: 1, Offset: offset, Prev: offset - 1, Time: begin, Progress: begin, Version: 1, Rules: []int{0}}
		k.Identity.IP = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(key))))
		if _, err := p.Fold(begin, &k, nil); err != nil {
			t.Fatal(err)
		}
		offset++
	}
	fill := func() *Partition {
		p := NewPartition(Config{Sources: 1, Generation: 1})
		p.Learn(NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{v}}))
		offset = 0
		for i := range keys * entries {
			send(p, i%keys)
		}
		return p
	}
	whole := fill().Snapshot(nil)
	for name, keyOf := range map[string]func(i int) int{
		"every key":       func(i int) int { return i % (keys + 50) }, // the last ones are new
		"always the same": func(int) int { return 7 },
	} {
		p := fill()
		if n := len(p.keys.ordered[0].cells.dir); n > 2 || len(whole) < 10*most {
			t.Fatalf("%d sub-tables, %d bytes: a fold has nothing to wait for", n, len(whole))
		}
		e := p.BeginSnapshot()
		for i := range 2 * keys {
			before := e.Size()
			send(p, keyOf(i))
			if wrote := e.Size() - before; wrote > most {
				t.Fatalf("%s: a fold waited for %d bytes, allowed: %d", name, wrote, most)
			}
		}
		for !e.Next(64 << 10) {
			continue
		}
		if !slices.Equal(e.Take(nil), whole) {
			t.Fatalf("%s: a snapshot that was taken while keys changed is not of the state at its start", name)
		}
	}
}
