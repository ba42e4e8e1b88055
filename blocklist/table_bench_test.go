package blocklist

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const benchBlocks = 1_000_000

// benchIdentity is request number i's. Requests beyond benchBlocks are nobody's that is blocked.
func benchIdentity(i int) traffic.Identity {
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], 0x0b00_0000+uint32(i)) //nolint:gosec // a few million
	return traffic.Identity{IP: netip.AddrFrom4(ip), Device: fmt.Sprint("device-", i), User: fmt.Sprint("user-", i)}
}

var benchKeys = [][]traffic.KeyField{
	{{Field: traffic.FieldIP, V4: 32, V6: 64}},
	{{Field: traffic.FieldDevice}},
	{{Field: traffic.FieldIP, V4: 32, V6: 64}, {Field: traffic.FieldDevice}},
	{{Field: traffic.FieldUser}},
}

func benchTable(b *testing.B, now traffic.Time) *table {
	b.Helper()
	t := newTable()
	t.setModes(rules.ModeState{Rule: "r1", Mode: rules.ModeBlock, Generation: 1, Match: rules.Match{Methods: []string{"POST"}, Path: "/v1/{x}"}})
	for i := range benchBlocks {
		id := benchIdentity(i)
		subject, _ := traffic.MakeSubject(&id, benchKeys[i%len(benchKeys)])
		w, err := parseWho(subject)
		if err != nil {
			b.Fatal(err)
		}
		t.put(subject, &w, &Block{Rule: "r1", Generation: 1, Hit: "0123456789abcdef0123456789abcdef", Since: 1, Until: now.Add(time.Hour)})
	}
	return t
}

// BenchmarkFind checks requests against 1M blocks of four shapes, and that each gets the right answer. "bare" is what the
// same look-ups cost in a Go map of the subjects' hashes, four for each request.
func BenchmarkFind(b *testing.B) {
	now := traffic.Time(1_800_000_000_000_000)
	t := benchTable(b, now)
	ids := make([]traffic.Identity, 1<<16)
	for _, share := range []struct {
		name    string
		blocked int // of 100 requests
	}{{"clear", 0}, {"one_in_20_blocked", 5}, {"all_blocked", 100}} {
		want := 0
		for i := range ids {
			n := benchBlocks + i
			if i%100 < share.blocked {
				n = i * 15 % benchBlocks
				want++
			}
			ids[i] = benchIdentity(n)
		}
		b.Run(share.name, func(b *testing.B) {
			b.ReportAllocs()
			got, rounds := 0, 0
			for b.Loop() {
				_, ok := t.find(&ids[rounds%len(ids)], "POST", "/v1/tokens", now)
				if ok {
					got++
				}
				rounds++
			}
			if rounds >= len(ids) {
				if whole := rounds / len(ids); got < want*whole || got > want*(whole+1) {
					b.Fatalf("%d of %d requests were held, want %d of each %d", got, rounds, want, len(ids))
				}
			}
		})
	}
	b.Run("bare", func(b *testing.B) { benchBare(b, t, ids) })
}

func benchBare(b *testing.B, t *table, ids []traffic.Identity) {
	bare := make(map[uint64]*entry, benchBlocks)
	for i := range t.shards {
		for hash, e := range t.shards[i].entries {
			bare[hash] = e
		}
	}
	shapes := *t.shapes.Load()
	hashes := make([][4]uint64, len(ids))
	for i := range ids {
		for s := range shapes {
			hashes[i][s], _ = t.hasher.identity(&ids[i], &shapes[s])
		}
	}
	found, rounds := 0, 0
	for b.Loop() {
		for _, hash := range hashes[rounds%len(hashes)] {
			if bare[hash] != nil {
				found++
			}
		}
		rounds++
	}
	if rounds >= len(ids) && found == 0 {
		b.Fatal("nothing was found")
	}
}
