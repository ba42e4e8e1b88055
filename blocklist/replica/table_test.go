package replica

import (
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// tableModel is the table as a list that is searched from end to end, comparing the texts of subjects.
type tableModel struct {
	blocks     map[blocklist.Name]blocklist.Block
	tombstones map[blocklist.Name]blocklist.Tombstone
	modes      map[string]rules.ModeState
}

func (m *tableModel) put(h blocklist.Name, b blocklist.Block) {
	if t, ok := m.tombstones[h]; ok && (b.Since <= t.Released || b.Hit == t.Hit) {
		return
	}
	old, ok := m.blocks[h]
	if !ok || b.Generation > old.Generation || b.Generation == old.Generation && b.Until > old.Until {
		m.blocks[h] = b
	}
}

func (m *tableModel) release(h blocklist.Name, t blocklist.Tombstone) {
	if old, ok := m.tombstones[h]; ok && old.Released > t.Released {
		return
	}
	m.tombstones[h] = t
	if b, ok := m.blocks[h]; ok && (b.Since <= t.Released || b.Hit == t.Hit) {
		delete(m.blocks, h)
	}
}

func (m *tableModel) find(id *traffic.Identity, keys [][]traffic.KeyField, method string, now traffic.Time) traffic.Time {
	var until traffic.Time
	for h, b := range m.blocks {
		mode := m.modes[h.Rule]
		if mode.Mode != rules.ModeBlock || b.Generation < mode.Generation || b.Until <= now {
			continue
		}
		if len(mode.Match.Methods) > 0 && mode.Match.Methods[0] != method {
			continue
		}
		for _, key := range keys {
			if s, missing := traffic.MakeSubject(id, key); missing == 0 && s.Stored() == h.Subject {
				until = max(until, b.Until)
			}
		}
	}
	return until
}

// counts are the blocks of each rule that has any, or that blocks.
func (m *tableModel) counts() map[string]int {
	all := map[string]int{}
	for h := range m.blocks {
		all[h.Rule]++
	}
	for rule, mode := range m.modes {
		if mode.Mode == rules.ModeBlock {
			all[rule] += 0
		}
	}
	return all
}

var oddKeys = [][]traffic.KeyField{
	{{Field: traffic.FieldIP, V4: 32, V6: 64}},
	{{Field: traffic.FieldIP, V4: 24, V6: 48}},
	{{Field: traffic.FieldDevice}},
	{{Field: traffic.FieldIP, V4: 32, V6: 128}, {Field: traffic.FieldDevice}},
	{{Field: traffic.FieldUser}, {Field: traffic.FieldSession}},
	{{Field: traffic.FieldAPIKey}},
}

func drawIdentity(t *rapid.T) traffic.Identity {
	text := func(name string) string {
		return rapid.SampledFrom([]string{"", "a", "b", "a&device=b", "ä", "\x00\xff%", strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("\xff", 272)}).Draw(t, name)
	}
	id := traffic.Identity{Device: text("device"), User: text("user"), APIKey: text("api key"), Session: text("session")}
	ip := rapid.SampledFrom([]string{"", "192.0.2.1", "192.0.2.77", "192.0.3.1", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::"}).Draw(t, "ip")
	if ip != "" {
		id.IP = netip.MustParseAddr(ip)
	}
	return id
}

func TestTableAgreesWithTheList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		base := traffic.Time(1_800_000_000_000_000)
		now := base
		table := newTable()
		model := &tableModel{blocks: map[blocklist.Name]blocklist.Block{}, tombstones: map[blocklist.Name]blocklist.Tombstone{}, modes: map[string]rules.ModeState{}}
		ruleIDs := []string{"r1", "r2"}
		drawKey := func(rt *rapid.T) (blocklist.Name, blocklist.ParsedSubject, bool) {
			id := drawIdentity(rt)
			key := rapid.SampledFrom(oddKeys).Draw(rt, "key")
			s, missing := traffic.MakeSubject(&id, key)
			if missing > 0 {
				return blocklist.Name{}, blocklist.ParsedSubject{}, false
			}
			w, err := blocklist.ParseSubject(s)
			if err != nil {
				rt.Fatalf("subject %q: %v", s, err)
			}
			return blocklist.Name{Subject: s.Stored(), Rule: rapid.SampledFrom(ruleIDs).Draw(rt, "rule")}, w, true
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				h, w, ok := drawKey(rt)
				if !ok {
					return
				}
				b := tableBlock(rt, base)
				b.Rule, b.Until = h.Rule, base.Add(time.Duration(rapid.IntRange(1, 30).Draw(rt, "lasts"))*time.Second)
				table.put(h.Subject, &w, &b)
				model.put(h, b)
			},
			"release": func(rt *rapid.T) {
				h, w, ok := drawKey(rt)
				if !ok {
					return
				}
				tomb := tableTombstone(rt, base)
				tomb.Rule = h.Rule
				table.release(h.Subject, &w, tomb)
				model.release(h, tomb)
			},
			"mode": func(rt *rapid.T) {
				m := rules.ModeState{
					Rule: rapid.SampledFrom(ruleIDs).Draw(rt, "rule"), Generation: int64(rapid.IntRange(1, 3).Draw(rt, "generation")),
					Mode: rapid.SampledFrom([]rules.Mode{rules.ModeBlock, rules.ModeBlock, rules.ModeShadow}).Draw(rt, "mode"),
				}
				if rapid.Bool().Draw(rt, "post only") {
					m.Match.Methods = []string{"POST"}
				}
				table.setModes(m)
				if model.modes[m.Rule].Generation <= m.Generation {
					model.modes[m.Rule] = m
				}
			},
			"time": func(rt *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(rt, "passes")) * time.Second)
				for i := range tableShards {
					table.sweep(i, now)
				}
				maps.DeleteFunc(model.blocks, func(_ blocklist.Name, b blocklist.Block) bool { return b.Until <= now })
			},
			"": func(rt *rapid.T) {
				id := drawIdentity(rt)
				method := rapid.SampledFrom([]string{"GET", "POST"}).Draw(rt, "method")
				got, ok := table.find(&id, &rules.Target{Method: method, Path: "/"}, now)
				want := model.find(&id, oddKeys, method, now)
				if got.Until != want || ok != (want > 0) {
					rt.Fatalf("find %+v: got %+v %v, want a block until %s", id, got, ok, want)
				}
				if got, want := table.counts(), model.counts(); !maps.Equal(got, want) {
					rt.Fatalf("blocks by rule: %v, want %v", got, want)
				}
				shapes := map[blocklist.Shape]bool{}
				for h, b := range model.blocks {
					if w, _ := blocklist.ParseSubject(h.Subject); b.Until > now {
						shapes[w.Shape()] = true
					}
				}
				for s := range shapes {
					if table.inUse[s] == 0 {
						rt.Fatalf("shape %s is in use, the table has %v", s, table.inUse)
					}
				}
			},
		})
	})
}

// A filter may say yes too often, but never no for what is there, and the table forgets what has expired.
func TestTableGrowsAndShrinks(t *testing.T) {
	table := newTable()
	table.setModes(rules.ModeState{Rule: "r1", Mode: rules.ModeBlock, Generation: 1})
	const n = 50_000
	now := traffic.Time(1_800_000_000_000_000)
	for i := range n {
		putNumber(t, table, i, now.Add(time.Duration(1+i%10)*time.Second))
	}
	for i := range n {
		if _, ok := table.find(&traffic.Identity{Device: fmt.Sprint("d", i)}, &rules.Target{Method: "GET", Path: "/"}, now); !ok {
			t.Fatalf("block %d is not found", i)
		}
	}
	wrong := 0
	filter := table.filter.Load()
	for i := range n {
		id := traffic.Identity{Device: fmt.Sprint("other", i)}
		if _, ok := table.find(&id, &rules.Target{Method: "GET", Path: "/"}, now); ok {
			t.Fatalf("a device that nobody blocked is held")
		}
		if hash, _ := table.hasher.identity(&id, &blocklist.Shape{Fields: 1 << traffic.FieldDevice}, &sums{}); filter.has(hash) {
			wrong++
		}
	}
	if wrong > n/50 {
		t.Errorf("the filter let %d of %d pass in vain, want 2 %% at most", wrong, n)
	}
	later := now.Add(5 * time.Second)
	for i := range tableShards {
		table.sweep(i, later)
	}
	if got := table.blocks.Load(); got != n/2 {
		t.Errorf("after half of them expired: %d blocks, want %d", got, n/2)
	}
	for i := range tableShards {
		table.sweep(i, now.Add(time.Minute))
	}
	entries := 0
	for i := range table.shards {
		entries += len(table.shards[i].entries)
	}
	if entries != 0 || len(table.inUse) != 0 || len(*table.shapes.Load()) != 0 {
		t.Errorf("after all expired: %d entries, shapes %v", entries, table.inUse)
	}
}

func putNumber(t testing.TB, table *table, i int, until traffic.Time) {
	subject := traffic.Subject(fmt.Sprint("device=d", i))
	w, err := blocklist.ParseSubject(subject)
	if err != nil {
		t.Fatal(err)
	}
	b := blocklist.Block{Rule: "r1", Generation: 1, Hit: fmt.Sprintf("%032x", i), Since: 1, Until: until}
	table.put(subject, &w, &b)
}

func TestReadersAndWriterMeet(t *testing.T) {
	table := newTable()
	table.setModes(rules.ModeState{Rule: "r1", Mode: rules.ModeBlock, Generation: 1})
	now := traffic.Time(1_800_000_000_000_000)
	putNumber(t, table, 0, now.Add(time.Hour))
	stop, done := make(chan struct{}), make(chan int)
	for range 2 {
		go func() {
			missed := 0
			for {
				select {
				case <-stop:
					done <- missed
					return
				default:
					if _, ok := table.find(&traffic.Identity{Device: "d0"}, &rules.Target{Method: "GET", Path: "/"}, now); !ok {
						missed++
					}
					runtime.Gosched()
				}
			}
		}()
	}
	for i := 1; i < 20_000; i++ {
		putNumber(t, table, i, now.Add(time.Duration(i%3)*time.Second))
		table.sweep(i%tableShards, now.Add(time.Second))
	}
	close(stop)
	if missed := <-done + <-done; missed != 0 {
		t.Errorf("a standing block was missed %d times while others came and went", missed)
	}
}

func tableBlock(t *rapid.T, base traffic.Time) blocklist.Block {
	since := base.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "since")) * time.Second)
	return blocklist.NewBlock(blocktest.FloodRule, int64(rapid.IntRange(1, 3).Draw(t, "generation")), fmt.Sprintf("%032x", rapid.IntRange(1, 3).Draw(t, "hit")),
		since, base.Add(time.Hour+time.Duration(rapid.IntRange(0, 5).Draw(t, "until"))*time.Second))
}

func tableTombstone(t *rapid.T, base traffic.Time) blocklist.Tombstone {
	at := base.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "released")) * time.Second)
	tomb := blocklist.NewTombstone(blocktest.FloodRule, "ops", at, at.Add(2*time.Hour))
	if rapid.Bool().Draw(t, "with hit") {
		tomb.Hit = fmt.Sprintf("%032x", rapid.IntRange(1, 3).Draw(t, "released hit"))
	}
	return tomb
}

// A mode that weir never gave is no later than another one: the rule store's takes its place, as in Redis. Of those
// that it gave the latest stays.
func TestModesThatWeirNeverGaveAreReplaced(t *testing.T) {
	table := newTable()
	for _, step := range []struct {
		generation, want int64
	}{{7, 7}, {6, 7}, {rules.MostGiven + 1, rules.MostGiven + 1}, {7, 7}, {1<<63 - 1, 1<<63 - 1}, {1 << 60, 1 << 60},
		{8, 8}, {7, 8}} {
		table.setModes(rules.ModeState{Rule: "r1", Mode: rules.ModeBlock, Generation: step.generation})
		if got := (*table.modes.Load())["r1"].Generation; got != step.want {
			t.Errorf("after generation %d came it is %d, want %d", step.generation, got, step.want)
		}
	}
}
