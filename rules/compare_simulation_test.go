package rules

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

// call is one request of the simulated world.
type call struct {
	at           int // seconds
	behind, lag  int // seconds behind its source's progress, and between its time and the decision
	cost         int
	method, path string
	host         string
	status       int
	id           traffic.Identity
	odd          bool // it has a value that the condition POST cannot be judged on
}

// held says for every moment and caller of the world whether d, blocking, would refuse it, by the definitions of window,
// episode and block, the slow way. calls are in the order of time.
func held(d *Document, calls []call, world []call) map[string]bool {
	type episode struct{ last int }
	refused, reach := map[string]bool{}, d.Reach()
	running := map[string]*episode{}
	counted := map[string][]call{}
	window := int(d.Window / time.Second)
	for _, c := range calls {
		key, missing := traffic.MakeSubject(&c.id, d.Key)
		if target := c.target(); !d.Match.Reaches(&target) || !namesStatus(d.Match.Statuses, c.status) || d.Match.When != "" && (d.Match.When != c.method || d.Match.When == "POST" && c.odd) || c.behind > int(d.Lateness/time.Second) || missing > 0 && d.Missing == MissingSkip ||
			d.Count.Distinct != nil && c.value(d) == "" {
			continue
		}
		subject := string(key)
		counted[subject] = append(counted[subject], c)
		if !over(d, counted[subject]) {
			continue
		}
		e := running[subject]
		opens := e == nil || c.at >= e.last+window
		running[subject] = &episode{last: c.at}
		if d.Block == nil || missing > 0 || d.Block.Extend == ExtendNever && !opens || c.lag > int(d.MaxLag/time.Second) {
			continue
		}
		victim, lacking := traffic.MakeSubject(&c.id, d.Block.Key)
		if lacking > 0 {
			continue
		}
		for _, w := range world {
			if s, missing := traffic.MakeSubject(&w.id, d.Block.Key); missing == 0 && s == victim && reach.Reaches(&Target{Method: w.method, Path: w.path, Host: w.host}) &&
				w.at > c.at && w.at <= c.at+int(d.Block.TTL/time.Second) {
				refused[w.String()] = true
			}
		}
	}
	return refused
}

func (c call) target() Target {
	return Target{Method: c.method, Path: c.path, Host: c.host, Status: c.status}
}

// value is what a count of distinct values looks at.
func (c call) value(d *Document) string {
	v, _ := c.id.Value(*d.Count.Distinct)
	return v
}

// amount is what c adds to a count that is none of distinct values.
func (c call) amount(d *Document) float64 {
	if d.Count.Sum != "" {
		return float64(c.cost)
	}
	return 1
}

// limited is d with the limit by which c is judged: that of the first tier that names its method, which is all that
// conditions say in this world; but where one cannot be judged, the greatest that c would have whatever it said.
func limited(d *Document, c call) *Document {
	own := *d
	for i, t := range d.Tiers {
		if t.When == "POST" && c.odd {
			said, silent := *d, *d
			said.Limit, silent.Tiers = t.Limit, d.Tiers[i+1:]
			own.Limit = max(said.Limit, limited(&silent, c).Limit)
			break
		}
		if t.When == c.method {
			own.Limit = t.Limit
			break
		}
	}
	return &own
}

// over reports whether the last of the calls of one key, in order, is over the limit.
func over(d *Document, calls []call) bool {
	d = limited(d, calls[len(calls)-1])
	window, now := int(d.Window/time.Second), calls[len(calls)-1].at
	switch d.Counting() {
	case AlgorithmFixed:
		return total(d, calls, func(at int) bool { return at/window == now/window }) > float64(d.Limit)
	case AlgorithmFirstSeen:
		start := calls[0].at
		for _, c := range calls {
			if c.at >= start+window {
				start = c.at
			}
		}
		return total(d, calls, func(at int) bool { return at >= start }) > float64(d.Limit)
	case AlgorithmSlidingCounter:
		share := 1 - float64(now%window)/float64(window)
		before := total(d, calls, func(at int) bool { return at/window == now/window-1 })
		return before*share+total(d, calls, func(at int) bool { return at/window == now/window }) > float64(d.Limit)
	case AlgorithmTokenBucket, AlgorithmLeakyBucket:
		return overflows(d, calls)
	}
	return total(d, calls, func(at int) bool { return at > now-window }) > float64(d.Limit)
}

// total is what the calls at these instants add up to.
func total(d *Document, calls []call, in func(at int) bool) (sum float64) {
	values := map[string]bool{}
	for _, c := range calls {
		switch {
		case !in(c.at):
		case d.Count.Distinct != nil:
			values[c.value(d)] = true
		default:
			sum += c.amount(d)
		}
	}
	return sum + float64(len(values))
}

// overflows pours all calls into a bucket in which those that find no room leave nothing.
func overflows(d *Document, calls []call) (last bool) {
	level, at, values := 0.0, calls[0].at, map[string]bool{}
	for _, c := range calls {
		level, at = max(level-float64(c.at-at)*float64(d.Limit)/d.Window.Seconds(), 0), c.at
		amount := 0.0
		switch {
		case d.Count.Distinct == nil:
			amount = c.amount(d)
		case !values[c.value(d)]:
			amount, values[c.value(d)] = 1, true
		}
		last = level+amount > float64(d.Capacity())+1e-9
		if !last {
			level += amount
		}
	}
	return last
}

func (c call) String() string { return fmt.Sprint(c.at, c.method, c.path, c.host, c.id) }

func drawCall(t *rapid.T) call {
	return call{
		at: rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20}).Draw(t, "at"), behind: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "behind"),
		lag: rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "lag"), cost: rapid.SampledFrom([]int{0, 1, 1, 2}).Draw(t, "cost"),
		method: rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method"), path: rapid.SampledFrom([]string{"/a", "/b"}).Draw(t, "path"),
		host: rapid.SampledFrom([]string{"h", "h", "x.h"}).Draw(t, "host"), status: rapid.SampledFrom([]int{200, 404}).Draw(t, "status"), odd: rapid.IntRange(0, 3).Draw(t, "odd") == 0,
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
						for _, host := range []string{"h", "x.h"} {
							all = append(all, call{at: at, method: method, path: path, host: host, id: traffic.Identity{Device: device, Session: session}})
						}
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
	switch rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 18, 19, 19, 19, 20, 20}).Draw(t, "mutation") {
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
	case 15:
		d.Match.Statuses = rapid.SampledFrom([][]string{nil, {"404"}, {"4xx"}, {"200", "404"}}).Draw(t, "statuses")
	case 16:
		d.Match.Except = rapid.SampledFrom([][]string{nil, {"/b"}, {"/b*"}, {"/c"}}).Draw(t, "except")
	case 17:
		d.Match.Hosts = rapid.SampledFrom([][]string{nil, {"h"}, {"*.h"}, {"*.h", "h"}}).Draw(t, "hosts")
	case 18:
		block.Match = rapid.SampledFrom([]*Match{nil, {}, {Path: "/a"}, {Paths: []string{"/a", "/b"}}, {Hosts: []string{"h"}}, {Except: []string{"/a"}}, {Methods: []string{"GET"}}}).Draw(t, "block's match")
	case 10:
		d.Key = rapid.SampledFrom([][]traffic.KeyField{{device}, {device, session}, {session, device}}).Draw(t, "key")
		block.Key = d.Key[:rapid.IntRange(1, len(d.Key)).Draw(t, "block key")]
	case 12, 13:
		d.Algorithm = rapid.SampledFrom(Algorithms()).Draw(t, "algorithm")
		d.Count = rapid.SampledFrom([]Count{{}, {Distinct: &session}, {Sum: "attrs.cost"}}).Draw(t, "count")
		if !Legal(d.Algorithm, d.Count.Kind()) {
			d.Count = Count{}
		}
		d.Burst = 0
	case 14:
		if d.Burst = 0; d.Counting().bucket() {
			d.Burst = rapid.IntRange(1, 3).Draw(t, "burst")
		}
	case 19:
		d.Tiers = nil
		for _, method := range rapid.SampledFrom([][]string{nil, {"GET"}, {"POST"}, {"GET", "POST"}, {"POST", "GET"}}).Draw(t, "tiers") {
			d.Tiers = append(d.Tiers, Tier{When: method, Limit: rapid.IntRange(0, 3).Draw(t, "tier")})
		}
	case 20:
		d.Match.When = rapid.SampledFrom([]string{"", "GET", "POST"}).Draw(t, "when")
	case 11:
		block.Key = d.Key[rapid.IntRange(0, len(d.Key)-1).Draw(t, "block key"):]
	}
	if d.Counting().bucket() {
		d.Tiers = nil
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
		if rapid.Bool().Draw(t, "another algorithm") {
			prev.Algorithm = rapid.SampledFrom(Algorithms()).Draw(t, "prev's algorithm")
		}
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
