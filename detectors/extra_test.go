package detectors_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// extraBench has one routing version with rules that count by more than identities.
func extraBench(t testing.TB, change ...func(*rules.Version)) (*bench, *rules.Routing) {
	b := newBench(t, 1)
	r := &rules.Routing{Stream: "live", Number: 1, RecordFormat: rules.LanguageRecordFormat}
	for i, c := range change {
		v := rule(2, 10*time.Second, time.Minute)
		v.ID, v.Block = fmt.Sprintf("r%d", i), nil
		v.Match.Path = "/users/{id}"
		c(&v)
		r.Rules = append(r.Rules, v)
	}
	b.p.Learn(detectors.NewPlan(r))
	return b, r
}

func field(t testing.TB, text string) traffic.KeyField {
	t.Helper()
	k, ok := traffic.ParseKeyField(text)
	if !ok {
		t.Fatal(text)
	}
	for one := range k.Alternatives() {
		if one.Field == traffic.FieldIP {
			k.V4, k.V6 = 32, 64
		}
	}
	return k
}

// sent folds an event with values beside its identity under all rules, and gives the hits.
func (b *bench) sent(r *rules.Routing, at traffic.Time, id traffic.Identity, extra map[string]string) []detectors.Hit {
	b.t.Helper()
	k := b.event(0, at, "192.0.2.1", 1)
	k.Identity, k.Rules = id, nil
	for i := range r.Rules {
		k.Rules = append(k.Rules, i)
	}
	for i, f := range r.Extras().Fields {
		if text := extra[f.Field.String()]; text != "" {
			k.Extra = append(k.Extra, detectors.ExtraValue{Index: i, Text: text})
		}
	}
	read := detectors.Keyed{}
	if err := detectors.DecodeKeyed(detectors.AppendKeyed(nil, &k), &read); err != nil {
		b.t.Fatal(err)
	}
	before := len(b.hits)
	b.must(read)
	return b.hits[before:]
}

func keyed(t testing.TB, fields ...string) func(*rules.Version) {
	return func(v *rules.Version) {
		v.Key = nil
		for _, f := range fields {
			v.Key = append(v.Key, field(t, f))
		}
	}
}

// Values of different fields never meet in a window, whatever they are, nor does a fallback's alternative meet another one.
func TestExtraKeysKeepApart(t *testing.T) {
	b, r := extraBench(t, keyed(t, "attrs.a", "attrs.b"), keyed(t, "user|attrs.a"), keyed(t, "attrs.b", "attrs.a"))
	for i := range 2 {
		at := origin + traffic.Time(i)*second
		for _, e := range []struct {
			user, a, b string
		}{{"x", "1", "2"}, {"", "x", "2"}, {"", "2", "1"}, {"", "12", "3"}, {"", "1", "23"}} {
			if hits := b.sent(r, at, traffic.Identity{User: e.user}, map[string]string{"attrs.a": e.a, "attrs.b": e.b}); len(hits) > 0 {
				t.Fatalf("hits %+v", hits)
			}
		}
	}
	hits := b.sent(r, origin+3*second, traffic.Identity{User: "x"}, map[string]string{"attrs.a": "1", "attrs.b": "2"})
	var got []string
	for _, h := range hits {
		got = append(got, h.Rule+" "+string(h.Subject))
	}
	if want := []string{"r0 attrs.a=1&attrs.b=2", "r1 user=x", "r2 attrs.a=1&attrs.b=2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Combinations are counted, each once; an event that lacks a part is left out.
func TestTuplesAreCounted(t *testing.T) {
	b, r := extraBench(t, func(v *rules.Version) {
		v.Count.Tuple = []traffic.KeyField{field(t, "path"), field(t, "method")}
	})
	id := func() traffic.Identity { return b.event(0, origin, "192.0.2.1", 1).Identity }()
	b.next[0], b.prev[0] = 0, detectors.NoOffset
	for i, e := range []struct {
		path, method string
		over         bool
	}{{"/a", "GET", false}, {"/a", "GET", false}, {"/aG", "ET", false}, {"/b", "", false}, {"/b", "", false}, {"", "GET", false}, {"/a", "GET", false}, {"/b", "GET", true}} {
		if hits := b.sent(r, origin+traffic.Time(i)*second/4, id, map[string]string{"path": e.path, "method": e.method}); (len(hits) > 0) != e.over {
			t.Errorf("event %d: hits %+v", i, hits)
		}
	}
	if n := b.p.Counts().MissingValue; n != 3 {
		t.Errorf("%d events lacked a part, want 3", n)
	}
}

// Beyond MaxTuples there is no block where the rule's key is more than a block can hold: none that is wider than the owner wrote.
func TestNoWiderBlockThanAnIdentity(t *testing.T) {
	b, r := extraBench(t, func(v *rules.Version) {
		keyed(t, "ip", "host")(v)
		v.Block = narrower(rule(2, 10*time.Second, time.Minute)).Block
	})
	blocks := map[traffic.Subject]int{}
	for i := range detectors.MaxTuples + 20 {
		id := traffic.Identity{IP: b.event(0, origin, "192.0.2.1", 1).Identity.IP, Device: fmt.Sprintf("d%d", i)}
		b.next[0], b.prev[0] = b.next[0]-1, b.next[0]-2
		for _, h := range b.sent(r, origin+traffic.Time(i)*second/10, id, map[string]string{"host": "a.example"}) {
			if h.Phase == detectors.PhaseOpen {
				blocks[h.BlockSubject]++
			}
		}
	}
	if len(blocks) != detectors.MaxTuples+1 || blocks[""] != 1 {
		t.Errorf("%d block subjects, %d hits that block nobody", len(blocks), blocks[""])
	}
	for s := range blocks {
		if values, err := s.Values(); err != nil || len(values) != 2 && s != "" {
			t.Errorf("a block of %q", s)
		}
	}
}

// A snapshot holds such windows like all others: what follows it makes the same hits.
func TestExtraKeysOutliveASnapshot(t *testing.T) {
	b, r := extraBench(t, func(v *rules.Version) {
		keyed(t, "{id}", "attrs.t|ip")(v)
		v.Window = time.Minute
	}, func(v *rules.Version) {
		distinct := field(t, "path")
		v.Count.Distinct, v.Window = &distinct, time.Minute
	})
	play := func(from, to int) []detectors.Hit {
		var out []detectors.Hit
		for i := from; i < to; i++ {
			id := traffic.Identity{IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 2)})}
			extra := map[string]string{"{id}": fmt.Sprint(i % 3), "path": fmt.Sprint("/", i%5)}
			if i%4 > 0 {
				extra["attrs.t"] = "acme"
			}
			out = append(out, b.sent(r, origin+traffic.Time(i)*second/2, id, extra)...)
		}
		return out
	}
	play(0, 30)
	restored, err := detectors.Restore(b.cfg, b.p.Snapshot(nil))
	if err != nil {
		t.Fatal(err)
	}
	next, prev, now := slices.Clone(b.next), slices.Clone(b.prev), b.now
	want := slices.Clone(play(30, 60))
	restored.Learn(detectors.NewPlan(r))
	b.p, b.next, b.prev, b.now = restored, next, prev, now
	if got := play(30, 60); len(got) == 0 || !slices.Equal(encode(t, got), encode(t, want)) {
		t.Errorf("got %d hits, want %d", len(got), len(want))
	}
}
