package replica

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
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
	t.setModes(rules.ModeState{Rule: "r1", Mode: rules.ModeBlock, Generation: 1, Match: rules.Held{Methods: []string{"POST"}, Path: "/v1/{x}"}})
	for i := range benchBlocks {
		id := benchIdentity(i)
		subject, _ := traffic.MakeSubject(&id, benchKeys[i%len(benchKeys)])
		w, err := blocklist.ParseSubject(subject)
		if err != nil {
			b.Fatal(err)
		}
		t.put(subject, &w, &blocklist.Block{Rule: "r1", Generation: 1, Hit: "0123456789abcdef0123456789abcdef", Since: 1, Until: now.Add(time.Hour)})
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
				_, ok := t.find(&ids[rounds%len(ids)], &rules.Target{Method: "POST", Path: "/v1/tokens"}, now)
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

// sessionKeys are four keys, three of them with a session.
var sessionKeys = [][]traffic.KeyField{
	{{Field: traffic.FieldSession}},
	{{Field: traffic.FieldIP, V4: 32, V6: 64}, {Field: traffic.FieldSession}},
	{{Field: traffic.FieldUser}, {Field: traffic.FieldSession}},
	{{Field: traffic.FieldUser}},
}

// sessionIdentity is request number i's, with a session of 224 bytes.
func sessionIdentity(i int) traffic.Identity {
	id := benchIdentity(i)
	id.Session = fmt.Sprintf("%0224d", i)
	return id
}

// sessionTable blocks the identities below n, each by one of sessionKeys.
func sessionTable(tb testing.TB, n int, until traffic.Time) *table {
	tb.Helper()
	t := newTable()
	t.setModes(rules.ModeState{Rule: "r1", Mode: rules.ModeBlock, Generation: 1})
	for i := range n {
		id := sessionIdentity(i)
		subject, _ := traffic.MakeSubject(&id, sessionKeys[i%len(sessionKeys)])
		w, err := blocklist.ParseSubject(subject.Stored())
		if err != nil {
			tb.Fatal(err)
		}
		t.put(subject.Stored(), &w, &blocklist.Block{Rule: "r1", Generation: 1, Hit: "0123456789abcdef0123456789abcdef", Since: 1, Until: until})
	}
	return t
}

// A look-up allocates nothing, with short values and with long ones, whoever is blocked.
func TestFindAllocatesNothing(t *testing.T) {
	const now, n = traffic.Time(1_800_000_000_000_000), 100
	table := sessionTable(t, n, now.Add(time.Hour))
	for i, want := range map[int]bool{0: true, 1: true, 2: true, 3: true, n: false} {
		id := sessionIdentity(i)
		held := false
		allocations := testing.AllocsPerRun(100, func() { _, held = table.find(&id, &rules.Target{Method: "POST", Path: "/"}, now) })
		if held != want || allocations != 0 {
			t.Errorf("request %d: held: %v, want %v; %v allocations", i, held, want, allocations)
		}
	}
}

// BenchmarkFindSession checks requests whose session stands as a digest in the subjects of three of four shapes.
func BenchmarkFindSession(b *testing.B) {
	const now, blocked = traffic.Time(1_800_000_000_000_000), 1 << 14
	t := sessionTable(b, blocked, now.Add(time.Hour))
	for name, first := range map[string]int{"clear": blocked, "all_blocked": 0} {
		ids := make([]traffic.Identity, blocked)
		for i := range ids {
			ids[i] = sessionIdentity(first + i)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			rounds := 0
			for b.Loop() {
				if _, ok := t.find(&ids[rounds%len(ids)], &rules.Target{Method: "POST", Path: "/v1/tokens"}, now); ok != (first == 0) {
					b.Fatalf("request %d: held: %v", first+rounds%len(ids), ok)
				}
				rounds++
			}
		})
	}
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
		var values sums
		for s := range shapes {
			hashes[i][s], _ = t.hasher.identity(&ids[i], &shapes[s], &values)
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
