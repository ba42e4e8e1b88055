package route

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// blockRouting has a rule for each way in which a block's scope may differ from what is counted.
func blockRouting(t testing.TB, knownGood string) *rules.Routing {
	t.Helper()
	const text = `
{id: a-plain, owner: o, match: {path: /login}, key: [ip], limit: 1, window: 1m, block: {ttl: 10m}}
---
{id: b-status, owner: o, match: {path: /login, status: 401}, key: [ip], limit: 1, window: 1m, block: {ttl: 10m}}
---
{id: c-when, owner: o, match: {path: "/login/*", when: event.plan == "free"}, key: [device, ip], limit: 1, window: 1m, block: {ttl: 10m, key: [ip]}}
---
{id: d-other, owner: o, match: {path: /login}, key: [user, ip], limit: 1, window: 1m, block: {ttl: 10m, match: {path: /pay}}}
---
{id: e-wider, owner: o, match: {path: /login}, key: [ip], limit: 1, window: 1m, block: {ttl: 10m, match: {path: "*"}}}
---
{id: f-sum, owner: o, match: {path: "/pay"}, key: [ip], count: {sum: attrs.cost}, limit: 1, window: 1m, block: {ttl: 10m}}
---
{id: g-none, owner: o, match: {path: "*"}, key: [ip], limit: 1, window: 1m}
---
{id: h-group, owner: o, match: {path: "*", status: 4xx}, key: [device, ip], on_missing: group, limit: 1, window: 1m, block: {ttl: 10m}}
---
{id: i-tenant, owner: o, match: {path: "*", when: event.plan == "free", status: 401}, key: [attrs.tenant, ip], limit: 1, window: 1m, block: {ttl: 10m, key: [ip]}}
---
{id: j-both, owner: o, match: {status: 401, path: /pay}, key: [ip], limit: 1, window: 1m, allow: [office], block: {ttl: 10m}}
`
	r := watchRouting()
	conditions, err := condition.New()
	if err != nil {
		t.Fatal(err)
	}
	docs, err := rules.ParseFiles([]rules.File{{Name: "r", Src: []byte(text)}}, rules.Environment{Identity: r.Identity, Conditions: conditions})
	if err != nil {
		t.Fatal(err)
	}
	r.Rules, r.KnownGood = nil, knownGood
	for _, d := range docs {
		v, _ := rules.NextVersion(nil, d)
		r.Rules = append(r.Rules, v)
	}
	r.WithAllow([]rules.AllowList{{ID: "office", Owner: "o", Entries: []rules.AllowEntry{{Kind: rules.AllowCIDR, Value: "192.0.2.1/32", Reason: "ours"}}}})
	return r
}

// blockEvent is one event drawn by chance.
type blockEvent struct {
	path, method, ip, device, user, plan, tenant, cost, verdict string
	status                                                      int
	at                                                          traffic.Time
}

func (e *blockEvent) message(offset int64) traffic.Message {
	value := fmt.Sprintf(`{"v":1,"time":%q,"path":%q,"ip":%q,"device":%q,"user":%q,"plan":%q,"status":%d,%s"attrs":{"x":1%s%s}}`,
		e.at, e.path, e.ip, e.device, e.user, e.plan, e.status, e.verdict, e.tenant, e.cost)
	return traffic.Message{Offset: offset, Appended: e.at, Value: []byte(value)}
}

func drawBlockEvent(r *rand.Rand) *blockEvent {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	return &blockEvent{
		path: one("/login", "/login/x", "/pay", "/pay?x=1", "//login", "/other"), ip: one("192.0.2.1", "192.0.2.2", "2001:db8::7", ""),
		device: one("tv", "phone", ""), user: one("ann", "bob", ""), plan: one("free", "paid", ""), tenant: one("", `,"tenant":"t1"`), cost: one("", `,"cost":3`),
		verdict: one("", "", "", `"verdict":{"rule":"r","block":"b"},`), status: []int{200, 401, 404}[r.IntN(3)], at: noon + traffic.Time(r.IntN(72))*traffic.Time(time.Hour/time.Microsecond),
	}
}

// has is whether the event has a field, by the events' own meaning.
func (e *blockEvent) has(field string) bool {
	return map[string]string{"ip": e.ip, "device": e.device, "user": e.user, "attrs.tenant": e.tenant}[field] != ""
}

// What a record says of blocks is what each rule's own scope says, asked one by one. Known sources are told of to every partition by whose
// dimension a block is spread, at least once a day.
func TestRecordsTellWhatBlocksReach(t *testing.T) {
	routing, opt := blockRouting(t, `event.plan == "paid"`), routedOptions(true)
	v := compiled(t, opt, routing)
	chance := rand.New(rand.NewPCG(1, 2))
	const n = 4000
	events, messages := make([]*blockEvent, n), make([]traffic.Message, n)
	for i := range events {
		events[i] = drawBlockEvent(chance)
		messages[i] = events[i].message(int64(i))
	}
	slices.SortStableFunc(events, func(a, b *blockEvent) int { return int(a.at - b.at) })
	for i := range events {
		messages[i] = events[i].message(int64(i))
	}
	builder, src := newBuilder(opt, &hintMemory{}), sourceAt(0, v, 0, n)
	src.at.Prev = sentBefore(0, opt.KeyedPartitions)
	got := make([]map[int]detectors.Keyed, n) // by event and partition
	for src.at.Offset < n {
		c := builder.build([]*source{src}, filled(map[int]int64{0: n}, messages[src.at.Offset:]...))
		for _, b := range c.batches {
			for _, value := range b.Values {
				var k detectors.Keyed
				if err := detectors.DecodeKeyed(value, &k); err != nil {
					t.Fatal(err)
				}
				if got[k.Offset] == nil {
					got[k.Offset] = map[int]detectors.Keyed{}
				}
				got[k.Offset][b.Partition] = k
			}
		}
		for _, key := range c.hints {
			builder.reader.hints.memory.add(key)
		}
		src.at = c.next[0]
	}
	seen := map[string]int{}
	prev := map[int]int64{}
	for q := range opt.KeyedPartitions {
		prev[q] = detectors.NoOffset
	}
	told := map[string]bool{}
	for i, e := range events {
		checkReached(t, routing, e, got[i], seen)
		for q, k := range got[i] {
			switch {
			case k.Hint():
				seen["hints"]++
				if k.Prev != detectors.NoOffset {
					t.Fatalf("event %d: a hint names %d as sent before", i, k.Prev)
				}
			case k.Prev != prev[q]:
				t.Fatalf("event %d on %d: prev %d, want %d", i, q, k.Prev, prev[q])
			default:
				prev[q] = int64(i)
			}
		}
		if e.verdict == "" && e.plan == "paid" {
			checkTold(t, opt, e, got[i], told)
		}
	}
	for _, what := range []string{"reached", "beyond", "reached alone", "hints", "good", "not good", "not judged"} {
		if seen[what] < 20 {
			t.Errorf("%d of %s: too few to prove anything", seen[what], what)
		}
	}
	if seen["hints"] > 500 {
		t.Errorf("%d hints of %d events: what is remembered is told again", seen["hints"], n)
	}
}

// checkReached compares an event's records with what each rule's document says.
func checkReached(t *testing.T, routing *rules.Routing, e *blockEvent, records map[int]detectors.Keyed, seen map[string]int) {
	t.Helper()
	counts, reached, beyond := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, k := range records {
		want := map[string]detectors.Good{"paid": detectors.KnownGood, "free": detectors.NotGood, "": detectors.NotJudged}[e.plan]
		seen[[]string{"not judged", "not good", "good"}[k.Good]]++
		if k.Good != want {
			t.Fatalf("%+v: good %d, want %d", e, k.Good, want)
		}
		for set, of := range map[*map[int]bool][]int{&counts: k.Rules, &reached: k.Reached, &beyond: k.Beyond} {
			for _, r := range of {
				(*set)[r] = true
			}
		}
		if len(k.Rules) == 0 && len(k.Reached) > 0 {
			seen["reached alone"]++
		}
	}
	target := &rules.Target{Method: e.method, Path: e.path, Status: e.status}
	for i := range routing.Rules {
		d := &routing.Rules[i].Document
		scope := d.Reach()
		takes := d.Block != nil && scope.Reaches(target)
		whole := func(key []traffic.KeyField) bool {
			return !slices.ContainsFunc(key, func(k traffic.KeyField) bool { return !e.has(k.String()) })
		}
		held := takes && e.verdict == "" && e.has(d.Key[0].String()) && (whole(d.Block.Key) || whole(d.Key))
		if want := held && !counts[i]; reached[i] != want {
			t.Fatalf("%+v: rule %s reached %v, want %v; counted %v", e, d.ID, reached[i], want, counts[i])
		}
		if want := counts[i] && d.Block != nil && !takes; beyond[i] != want {
			t.Fatalf("%+v: rule %s beyond %v, want %v", e, d.ID, beyond[i], want)
		}
	}
	seen["reached"] += len(reached)
	seen["beyond"] += len(beyond)
}

// checkTold holds that the partition of each value by which blocks are spread was told of a good source on this day.
func checkTold(t *testing.T, opt *Options, e *blockEvent, records map[int]detectors.Keyed, told map[string]bool) {
	t.Helper()
	for _, place := range [][]string{{"ip"}, {"device", "ip"}, {"user", "ip"}} {
		if slices.ContainsFunc(place, func(f string) bool { return !e.has(f) }) {
			continue
		}
		field := map[string]traffic.Field{"ip": traffic.FieldIP, "device": traffic.FieldDevice, "user": traffic.FieldUser}[place[0]]
		key := traffic.KeyField{Field: field}
		if field == traffic.FieldIP {
			key.V4, key.V6 = 32, 64
		}
		id := traffic.Identity{Device: e.device, User: e.user}
		id.IP, _ = netip.ParseAddr(e.ip)
		s, _ := traffic.MakeSubject(&id, []traffic.KeyField{key})
		q, err := TargetOf(opt.Secret, opt.KeyedPartitions, "x", []traffic.KeyField{key}, s)
		if err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprint(e.at / day)
		for _, f := range place {
			what += " " + f + "=" + map[string]string{"ip": e.ip, "device": e.device, "user": e.user}[f]
		}
		if k, ok := records[q]; ok && k.Good == detectors.KnownGood {
			told[what] = true
		}
		if !told[what] {
			t.Fatalf("%+v: partition %d of %v was not told of it", e, q, place)
		}
	}
}

// goodEvents are events of some sources, all known to be good, of which no rule counts the odd ones.
func goodEvents(n int) (messages []traffic.Message) {
	for o := range n {
		e := blockEvent{path: []string{"/login", "/other"}[o%2], ip: fmt.Sprintf("192.0.2.%d", o%7+1), plan: "paid", status: 200, at: noon}
		messages = append(messages, e.message(int64(o)))
	}
	return messages
}

// A hint is remembered once its chunk is acknowledged, and not before: what was built may be given up.
func TestHintsAreRememberedOnceAcknowledged(t *testing.T) {
	opt, memory := routedOptions(true), &hintMemory{}
	routing := blockRouting(t, `event.plan == "paid"`)
	routing.Rules = routing.Rules[:1] // only it counts, and blocks by ip
	routing.Allow = nil
	v := compiled(t, opt, routing)
	messages := goodEvents(100)
	build := func() (c *chunk, told, counted int) {
		c = newBuilder(opt, memory).build([]*source{sourceAt(0, v, 0, 100)}, filled(map[int]int64{0: 100}, messages...))
		for _, k := range records(t, c) {
			if k.Hint() {
				told++
			} else if counted++; k.Good != detectors.KnownGood {
				t.Fatalf("%+v", k)
			}
		}
		return c, told, counted
	}
	for range 2 {
		c, told, counted := build()
		if told != 7 || len(c.hints) != 7 || counted != 50 || c.stats.Records != 57 {
			t.Fatalf("nothing is acknowledged: %d hints, %d to remember, %d counted, stats %+v; want 7, 7, 50", told, len(c.hints), counted, c.stats.Records)
		}
	}
	c, _, _ := build()
	for _, key := range c.hints {
		memory.add(key)
	}
	if c, told, counted := build(); told != 0 || len(c.hints) != 0 || counted != 50 {
		t.Errorf("acknowledged: %d hints, %d to remember, %d counted; want 0, 0, 50", told, len(c.hints), counted)
	}
}

// Who routes the same events again writes the same records of them, whatever he remembers of hints: these are no links of the chain.
func TestHintsChangeNoOtherRecord(t *testing.T) {
	opt := routedOptions(true)
	routing := blockRouting(t, `event.plan == "paid"`)
	routing.Rules, routing.Allow = routing.Rules[:4], nil // which leave some events to nobody
	v := compiled(t, opt, routing)
	messages := goodEvents(60)
	full := &hintMemory{}
	var first []string
	for i, memory := range []*hintMemory{{}, full} {
		c := newBuilder(opt, memory).build([]*source{sourceAt(0, v, 0, 60)}, filled(map[int]int64{0: 60}, messages...))
		var got []string
		for _, b := range c.batches {
			for _, value := range b.Values {
				var k detectors.Keyed
				if err := detectors.DecodeKeyed(value, &k); err != nil {
					t.Fatal(err)
				}
				if !k.Hint() {
					got = append(got, fmt.Sprintf("%d %x", b.Partition, value))
				}
			}
		}
		slices.Sort(got)
		if i == 0 {
			if first = got; len(c.hints) == 0 {
				t.Fatal("no hints")
			}
			for _, key := range c.hints {
				full.add(key)
			}
		} else if !slices.Equal(got, first) || len(c.hints) > 0 {
			t.Errorf("%d hints; records\n%s\nwant\n%s", len(c.hints), got, first)
		}
	}
}

func TestHintMemoryIsBounded(t *testing.T) {
	m := &hintMemory{}
	for key := uint64(1); key <= 5; key++ {
		m.add(key * hintSets)
	}
	for key := uint64(1); key <= 5; key++ {
		if got := m.has(key * hintSets); got != (key > 1) {
			t.Errorf("the %d. of five in one set is known: %v", key, got)
		}
	}
	if m.has(7) {
		t.Error("one that was never added is known")
	}
}

// Before record format 6 nothing is told, and a known_good is refused: a process of an older build would read over it.
func TestEvidenceNeedsItsFormat(t *testing.T) {
	opt, routing := routedOptions(true), blockRouting(t, "")
	routing.RecordFormat = rules.EvidenceRecordFormat - 1
	c := newBuilder(opt, &hintMemory{}).build([]*source{sourceAt(0, compiled(t, opt, routing), 0, 40)}, filled(map[int]int64{0: 40}, goodEvents(40)...))
	for _, k := range records(t, c) {
		if len(k.Rules) == 0 || int(k.Good)+len(k.Reached)+len(k.Beyond) > 0 {
			t.Fatalf("%+v", k)
		}
	}
	for expr, want := range map[string]string{
		`event.plan == "paid"`: "known_good: got \"event.plan == \\\"paid\\\"\" in record format 5, allowed from record format 6 on",
	} {
		routing.KnownGood = expr
		if _, err := compile(routing, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	routing.RecordFormat, routing.KnownGood = rules.EvidenceRecordFormat, `event.plan = 1`
	if _, err := compile(routing, opt); err == nil || !strings.Contains(err.Error(), "known_good: ") {
		t.Errorf("one that does not compile: %v", err)
	}
}
