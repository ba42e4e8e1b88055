package rules

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
)

func TestMayBlockMore(t *testing.T) {
	algorithm := func(a Algorithm) func(d *Document) { return func(d *Document) { d.Algorithm = a } }
	wide := func(a Algorithm) func(d *Document) {
		return func(d *Document) { d.Algorithm, d.Match.Path = a, "/v1/*" }
	}
	fixed := algorithm(AlgorithmFixed)
	narrow := func(d *Document) { d.Match.Path = "/v1/guest-tokens" }
	distinctSessions := func(d *Document) {
		d.Count.Distinct, d.Match.Path = &traffic.KeyField{Field: traffic.FieldSession}, "/v1/*"
	}
	tiers := func(list ...any) func(d *Document) {
		return func(d *Document) {
			d.Tiers = nil
			for i := 0; i < len(list); i += 2 {
				d.Tiers = append(d.Tiers, Tier{When: list[i].(string), Limit: list[i+1].(int)})
			}
		}
	}
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
		{"a condition", nil, func(d *Document) { d.Match.When = "true" }, ""},
		{"a condition of a first-seen window", algorithm(AlgorithmFirstSeen), func(d *Document) { d.Match.When = "true" }, "match POST"},
		{"no condition", func(d *Document) { d.Match.When = "true" }, func(d *Document) { d.Match.When = "" }, `match POST /v1/guest-tokens, when "true" → POST /v1/guest-tokens`},
		{"another condition", func(d *Document) { d.Match.When = "true" }, func(d *Document) { d.Match.When = "false" }, "match POST"},
		{"a tier with a higher limit", nil, tiers("a", 3), ""},
		{"a tier with the limit", nil, tiers("a", 2), ""},
		{"a tier with a lower limit", nil, tiers("a", 1), `tiers none → [{when: "a", limit: 1}]: may fire earlier`},
		{"a tier less, which was higher", tiers("a", 3), tiers(), `tiers [{when: "a", limit: 3}] → none: may fire earlier`},
		{"a tier less, which was lower", tiers("a", 1), tiers(), ""},
		{"a higher tier", tiers("a", 3), tiers("a", 4), ""},
		{"a lower tier", tiers("a", 3), tiers("a", 2), "tiers"},
		{"a second tier", tiers("a", 3), tiers("a", 3, "b", 2), ""},
		{"a second tier that is lower than the limit", tiers("a", 3), tiers("a", 3, "b", 1), "tiers"},
		{"a tier before another", tiers("a", 5), tiers("b", 4, "a", 5), "tiers"},
		{"a tier before another, as high", tiers("a", 5), tiers("b", 5, "a", 5), "tiers"},
		{"tiers in another order", tiers("a", 3, "b", 4), tiers("b", 4, "a", 3), "tiers"},
		{"another condition of a tier", tiers("a", 3), tiers("b", 3), "tiers"},
		{"a higher tier, extend never", func(d *Document) { d.Block.Extend = ExtendNever }, tiers("a", 3), "fewer events over the limit"},
		{"a tier above which values are counted approximately", func(d *Document) { distinctSessions(d); d.Limit, d.Tiers = 128, []Tier{{When: "a", Limit: 128}} }, tiers("a", 129), "limit 128 → 129: above 128 sliding"},
		{"a tier with a count where less may be more", func(d *Document) { distinctSessions(d) }, tiers("a", 3), ""},
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
		{"algorithm", nil, func(d *Document) { d.Algorithm = AlgorithmFixed }, "algorithm sliding → fixed: windows start anew"},
		{"algorithm written out", nil, func(d *Document) { d.Algorithm, d.Cooldown = AlgorithmSliding, time.Minute }, ""},
		{"count", nil, func(d *Document) { d.Count.Sum = "attrs.cost" }, "count events → {sum: attrs.cost}: windows start anew"},
		{"cooldown", nil, func(d *Document) { d.Cooldown = time.Hour }, "cooldown 1m → 1h"},
		{"cooldown, extend never", func(d *Document) { d.Block.Extend = ExtendNever }, func(d *Document) { d.Cooldown = time.Hour }, ""},
		{"higher limit of a fixed window", fixed, func(d *Document) { d.Limit = 3 }, ""},
		{"higher limit of a first-seen window", algorithm(AlgorithmFirstSeen), func(d *Document) { d.Limit = 3 }, ""},
		{"narrower match of a fixed window", wide(AlgorithmFixed), narrow, ""},
		{"narrower match of a first-seen window", wide(AlgorithmFirstSeen), narrow, "match POST /v1/* → POST /v1/guest-tokens with algorithm first-seen, count events"},
		{"narrower match of a sliding-counter", wide(AlgorithmSlidingCounter), narrow, "match POST /v1/* → POST /v1/guest-tokens with algorithm sliding-counter"},
		{"narrower match of a sliding-log", wide(AlgorithmSlidingLog), narrow, ""},
		{"narrower match above what sliding can exactly", func(d *Document) { d.Limit, d.Match.Path = 129, "/v1/*" }, narrow, ""},
		{"higher limit above what sliding can exactly", func(d *Document) { d.Limit = 128 }, func(d *Document) { d.Limit = 129 }, ""},
		{"higher limit above which values are counted approximately", func(d *Document) { distinctSessions(d); d.Limit = 128 }, func(d *Document) { d.Limit = 129 }, "limit 128 → 129: above 128 sliding counts values approximately"},
		{"higher limit of approximate windows", func(d *Document) { d.Limit = 129 }, func(d *Document) { d.Limit = 1000 }, ""},
		{"narrower match of distinct values", distinctSessions, narrow, "match POST /v1/* → POST /v1/guest-tokens with algorithm sliding, count {distinct: session}"},
		{"higher limit of distinct values", distinctSessions, func(d *Document) { d.Limit = 3 }, ""},
		{"higher limit of a bucket", algorithm(AlgorithmTokenBucket), func(d *Document) { d.Limit = 3 }, "limit 2, burst 2 → limit 3, burst 3 with token-bucket"},
		{"greater burst", algorithm(AlgorithmLeakyBucket), func(d *Document) { d.Burst = 9 }, "limit 2, burst 2 → limit 2, burst 9 with leaky-bucket"},
		{"burst written out", algorithm(AlgorithmLeakyBucket), func(d *Document) { d.Burst = 2 }, ""},
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
