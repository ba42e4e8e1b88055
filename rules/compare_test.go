package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

func TestMayBlockMore(t *testing.T) {
	for _, c := range []struct {
		name           string
		before, change func(d *Document)
		want           string // start of the only reason; "" for none
	}{
		{"nothing", nil, func(*Document) {}, ""},
		{"owner", nil, func(d *Document) { d.Owner = "else" }, ""},
		{"higher limit", nil, func(d *Document) { d.Limit = 3 }, ""},
		{"lower limit", nil, func(d *Document) { d.Limit = 1 }, "limit 2 → 1"},
		{"narrower match", func(d *Document) { d.Match.Path = "/v1/*" }, func(d *Document) { d.Match.Path = "/v1/guest-tokens" }, ""},
		{"wider path", nil, func(d *Document) { d.Match.Path = "/v1/*" }, "match POST /v1/guest-tokens → POST /v1/*"},
		{"more methods", nil, func(d *Document) { d.Match.Methods = []string{"GET", "POST"} }, "match POST"},
		{"any method", nil, func(d *Document) { d.Match.Methods = nil }, "match POST"},
		{"longer ttl", nil, func(d *Document) { d.Block.TTL = time.Hour }, "block.ttl 15m → 1h"},
		{"shorter ttl", nil, func(d *Document) { d.Block.TTL = time.Minute }, ""},
		{"other block key", nil, func(d *Document) { d.Block.Key = d.Block.Key[:1] }, "block.key [{field: ip, v4: 32, v6: 64}, device] → [{field: ip, v4: 32, v6: 64}]"},
		{"keeps extending", func(d *Document) { d.Block.Extend = ExtendNever }, func(d *Document) { d.Block.Extend = ExtendOnHit }, "block.extend never → on-hit"},
		{"stops extending", nil, func(d *Document) { d.Block.Extend = ExtendNever }, ""},
		{"stops extending, higher limit", nil, func(d *Document) { d.Block.Extend, d.Limit = ExtendNever, 9 }, ""},
		{"longer max_lag", nil, func(d *Document) { d.MaxLag = time.Hour }, "max_lag 1m → 1h"},
		{"shorter max_lag", nil, func(d *Document) { d.MaxLag = time.Second }, ""},
		{"more lateness", nil, func(d *Document) { d.Lateness = time.Hour }, "lateness 1m → 1h"},
		{"less lateness", nil, func(d *Document) { d.Lateness = 0 }, "lateness 1m → 0s"},
		{"window", nil, func(d *Document) { d.Window = time.Minute }, "window 5m → 1m"},
		{"on_missing", nil, func(d *Document) { d.Missing = MissingGroup }, "on_missing skip → group"},
		{"order of key", nil, func(d *Document) { slices.Reverse(d.Key) }, "key [{field: ip, v4: 32, v6: 64}, device] → [device"},
		{"another rule", nil, func(d *Document) { d.ID = "x" }, "id guest-token-flood → x"},
		{"no block, lower limit", nil, func(d *Document) { d.Block, d.Limit = nil, 0 }, ""},
		{"block added", func(d *Document) { d.Block = nil }, func(d *Document) { d.Block = storyRule().Block }, "block is added"},
		{"higher limit, extend never", func(d *Document) { d.Block.Extend = ExtendNever }, func(d *Document) { d.Limit = 3 }, "fewer events over the limit"},
		{"narrower match, extend never", func(d *Document) { d.Block.Extend, d.Match.Path = ExtendNever, "*" }, func(d *Document) { d.Match.Path = "/a" }, "fewer events over the limit"},
	} {
		prev := storyRule()
		if c.before != nil {
			c.before(&prev)
		}
		next := prev
		next.Key = slices.Clone(prev.Key)
		if prev.Block != nil {
			b := *prev.Block
			next.Block = &b
		}
		c.change(&next)
		got := MayBlockMore(&prev, &next)
		if c.want == "" && len(got) != 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	d := storyRule()
	if got := MayBlockMore(nil, &d); len(got) != 1 {
		t.Errorf("a new rule: got %q, want one reason", got)
	}
	if got := MayBlockMore(&d, nil); len(got) != 0 {
		t.Errorf("a removed rule: got %q", got)
	}
	d.Block = nil
	if got := MayBlockMore(nil, &d); len(got) != 0 {
		t.Errorf("a new rule without block: got %q", got)
	}
}

// call is one request of the simulated world.
type call struct {
	at           int // seconds
	behind, lag  int // seconds behind its source's progress, and between its time and the decision
	method, path string
	id           traffic.Identity
}

// held says for every moment and caller of the world whether d, blocking, would refuse it, by the definitions of window,
// episode and block, the slow way. calls are in the order of time.
func held(d *Document, calls []call, world []call) map[string]bool {
	type episode struct{ last int }
	refused := map[string]bool{}
	running := map[string]*episode{}
	window, subjects := int(d.Window/time.Second), make([]string, len(calls))
	for i, c := range calls {
		subject, missing := traffic.MakeSubject(&c.id, d.Key)
		if !d.Match.Matches(c.method, c.path) || c.behind > int(d.Lateness/time.Second) || missing > 0 && d.Missing == MissingSkip {
			subjects[i] = "not counted"
			continue
		}
		subjects[i] = "of " + string(subject)
		count := 0
		for j := 0; j <= i; j++ {
			if subjects[j] == subjects[i] && calls[j].at > c.at-window {
				count++
			}
		}
		if count <= d.Limit {
			continue
		}
		e := running[subjects[i]]
		opens := e == nil || c.at >= e.last+window
		running[subjects[i]] = &episode{last: c.at}
		if d.Block == nil || missing > 0 || d.Block.Extend == ExtendNever && !opens || c.lag > int(d.MaxLag/time.Second) {
			continue
		}
		victim, _ := traffic.MakeSubject(&c.id, d.Block.Key)
		for _, w := range world {
			if s, missing := traffic.MakeSubject(&w.id, d.Block.Key); missing == 0 && s == victim && d.Match.Matches(w.method, w.path) &&
				w.at > c.at && w.at <= c.at+int(d.Block.TTL/time.Second) {
				refused[w.String()] = true
			}
		}
	}
	return refused
}

func (c call) String() string { return fmt.Sprint(c.at, c.method, c.path, c.id) }

func drawCall(t *rapid.T) call {
	return call{
		at: rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20}).Draw(t, "at"), behind: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "behind"),
		lag:    rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "lag"),
		method: rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method"), path: rapid.SampledFrom([]string{"/a", "/b"}).Draw(t, "path"),
		id: traffic.Identity{Device: rapid.SampledFrom([]string{"d", "d", "d", "e", ""}).Draw(t, "device"), Session: rapid.SampledFrom([]string{"s", "s", "s", "r", ""}).Draw(t, "session")},
	}
}

// world is every request that could be asked about.
func world() []call {
	var all []call
	for at := range 30 {
		for _, method := range []string{"GET", "POST"} {
			for _, path := range []string{"/a", "/b"} {
				for _, device := range []string{"", "d", "e"} {
					for _, session := range []string{"", "s", "r"} {
						all = append(all, call{at: at, method: method, path: path, id: traffic.Identity{Device: device, Session: session}})
					}
				}
			}
		}
	}
	return all
}

// mutated is d with one field drawn anew.
func mutated(t *rapid.T, d Document) Document {
	second := func(most int) time.Duration {
		return time.Duration(rapid.IntRange(1, most).Draw(t, "seconds")) * time.Second
	}
	device, session := traffic.KeyField{Field: traffic.FieldDevice}, traffic.KeyField{Field: traffic.FieldSession}
	block := *d.Block
	d.Block = &block
	switch rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).Draw(t, "mutation") {
	case 0, 1:
		d.Limit = rapid.IntRange(0, 3).Draw(t, "limit")
	case 2:
		d.Window = second(8)
	case 3:
		d.Lateness = second(2)
	case 4:
		d.MaxLag = second(3)
	case 5:
		block.TTL = second(8)
	case 6:
		block.Extend = rapid.SampledFrom([]Extend{ExtendNever, ExtendOnHit}).Draw(t, "extend")
	case 7:
		d.Missing = rapid.SampledFrom([]OnMissing{MissingSkip, MissingGroup}).Draw(t, "missing")
	case 8:
		d.Match.Methods = rapid.SampledFrom([][]string{nil, {"GET"}, {"POST"}, {"GET", "POST"}}).Draw(t, "methods")
	case 9:
		d.Match.Path = rapid.SampledFrom([]string{"", "/a", "/b", "/{x}", "/a*"}).Draw(t, "path")
	case 10:
		d.Key = rapid.SampledFrom([][]traffic.KeyField{{device}, {device, session}, {session, device}}).Draw(t, "key")
		block.Key = d.Key[:rapid.IntRange(1, len(d.Key)).Draw(t, "block key")]
	case 11:
		block.Key = d.Key[rapid.IntRange(0, len(d.Key)-1).Draw(t, "block key"):]
	}
	return d
}

// TestMayBlockMoreAgainstSimulation lets rules run against a small world: where no reason is given, the next document
// must refuse nothing that the previous one lets pass.
func TestMayBlockMoreAgainstSimulation(t *testing.T) {
	all := world()
	var cleared, refusals int
	check := func(t *rapid.T) {
		prev := Document{ID: "r", Key: []traffic.KeyField{{Field: traffic.FieldDevice}}, Missing: MissingSkip, Limit: 1, Window: 4 * time.Second,
			Lateness: time.Second, MaxLag: 2 * time.Second,
			Block: &Block{Key: []traffic.KeyField{{Field: traffic.FieldDevice}}, TTL: 3 * time.Second, Extend: ExtendOnHit}}
		for range rapid.SampledFrom([]int{0, 2, 4, 8}).Draw(t, "distance of prev") {
			prev = mutated(t, prev)
		}
		next := prev
		for range rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "changes") {
			next = mutated(t, next)
		}
		reasons := MayBlockMore(&prev, &next)
		if len(reasons) > 0 || prev.Equal(&next) {
			return
		}
		cleared++
		calls := rapid.SliceOfN(rapid.Custom(drawCall), 8, 25).Draw(t, "calls")
		slices.SortStableFunc(calls, func(a, b call) int { return a.at - b.at })
		before := held(&prev, calls, all)
		for w := range held(&next, calls, all) {
			refusals++
			if !before[w] {
				t.Fatalf("no reason is given for\n%q\nbut only next refuses %s", Diff(&prev, &next), w)
			}
		}
	}
	for range 60 { // most worlds cannot tell two rules apart
		rapid.Check(t, check)
	}
	if cleared == 0 || refusals == 0 {
		t.Errorf("%d changes without reason, %d refusals: the test said nothing", cleared, refusals)
	}
}

// TestMayBlockMoreExtendNever is why a higher limit has a reason under extend never: the source goes over 1 all the
// time in one episode, which blocks once, and over 2 in two, which block twice.
func TestMayBlockMoreExtendNever(t *testing.T) {
	key := []traffic.KeyField{{Field: traffic.FieldDevice}}
	prev := Document{ID: "r", Key: key, Missing: MissingSkip, Limit: 1, Window: 4 * time.Second, Lateness: time.Second, MaxLag: time.Second,
		Block: &Block{Key: key, TTL: 3 * time.Second, Extend: ExtendNever}}
	next := prev
	next.Limit = 2
	var calls []call
	for _, at := range []int{0, 1, 2, 5, 8, 11, 13, 14} {
		calls = append(calls, call{at: at, id: traffic.Identity{Device: "d"}})
	}
	moment := []call{{at: 16, id: traffic.Identity{Device: "d"}}}
	if len(held(&prev, calls, moment)) != 0 || len(held(&next, calls, moment)) != 1 {
		t.Errorf("the example does not show it: prev holds %v, next %v", held(&prev, calls, moment), held(&next, calls, moment))
	}
	if len(MayBlockMore(&prev, &next)) == 0 {
		t.Error("no reason is given")
	}
}
