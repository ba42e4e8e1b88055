package detectors_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// resetWorld is a log whose records name versions 1 to 6 as they come, of rules of every algorithm with all that can stand beside a
// limit, and the resets of each version.
type resetWorld struct {
	*many
	resets []rules.Reset
	plans  [2][]*detectors.Plan // of the versions, without the resets and with them: many partitions learn them
}

const resetVersions = 6

// plan works out the versions, each with the resets that it names.
func (w *resetWorld) plan() {
	for i, resets := range [][]rules.Reset{nil, w.resets} {
		for v := int64(1); v <= resetVersions; v++ {
			r := &rules.Routing{Stream: "live", Number: v, Rules: w.rules}
			for _, x := range resets {
				if x.Since <= v {
					r.Reset(x)
				}
			}
			w.plans[i] = append(w.plans[i], detectors.NewPlan(r))
		}
	}
}

// learnVersions teaches p the versions with their resets.
func (w *resetWorld) learnVersions(p *detectors.Partition) {
	for _, plan := range w.plans[1] {
		p.Learn(plan)
	}
}

func resetAddress(n int) string { return fmt.Sprintf("192.0.2.%d", n) }

// elsewhere is an address of no event of the world: of a key as it was before its nth reset.
func elsewhere(key, nth int) string { return fmt.Sprintf("198.51.%d.%d", 100+nth, key) }

func drawResets(t *testing.T, rt *rapid.T) *resetWorld {
	window := time.Duration(rapid.IntRange(2, 30).Draw(rt, "window")) * time.Second
	m := newMany(t, rapid.IntRange(1, 3).Draw(rt, "sources"), 0, everyRule(rapid.IntRange(0, 3).Draw(rt, "limit"), window, time.Duration(rapid.IntRange(0, 60).Draw(rt, "lateness"))*time.Second))
	if rapid.Bool().Draw(rt, "beside") {
		m.besideAll(origin + 40*second)
	}
	w := &resetWorld{many: m}
	keys := rapid.IntRange(1, 3).Draw(rt, "keys")
	for since := int64(2); since <= resetVersions; since++ {
		if !rapid.Bool().Draw(rt, "reset") {
			continue
		}
		key := rapid.IntRange(0, keys-1).Draw(rt, "key")
		for _, v := range w.rules {
			if !v.Pending && rapid.IntRange(0, 3).Draw(rt, "rule") > 0 {
				w.resets = append(w.resets, rules.Reset{Rule: v.ID, Key: v.Key, Subject: subjectOf(resetAddress(key)), Since: since})
			}
		}
	}
	seed := rapid.Uint64().Draw(rt, "seed")
	pick := func(n int) int {
		seed = seed*6364136223846793005 + 1442695040888963407
		return int(seed >> 33 % uint64(n))
	}
	w.p = detectors.NewPartition(w.cfg)
	w.plan()
	w.learnVersions(w.p)
	now, events := origin, rapid.IntRange(1, 250).Draw(rt, "events")
	for i := range events {
		now += traffic.Time([]int{0, 0, 1, 1, 2, 9}[pick(6)]) * second / 4
		at := now - traffic.Time([]int{0, 0, 0, 1, 8, 40}[pick(6)])*second
		version := int64(1 + min(i*resetVersions/events+pick(3), resetVersions-1)) // newer and older ones stand mixed
		k := w.event(pick(len(w.next)), at, resetAddress(pick(keys)), version)
		k.Identity.Device, k.Rules = fmt.Sprintf("d%d", pick(5)), nil
		for r := range w.rules {
			k.Rules, k.Units = append(k.Rules, r), append(k.Units, int64(pick(4)))
		}
		w.must(k)
		if i%7 == 6 {
			s := pick(len(w.next))
			w.must(w.tick(s, w.top[s]))
		}
	}
	w.end()
	return w
}

// nameless is a hit without what says whose it is.
func nameless(t *testing.T, h detectors.Hit) string {
	h.ID, h.IntoID, h.Subject, h.BlockSubject, h.Samples, h.Reason = "", "", "", "", nil, ""
	return encode(t, []detectors.Hit{h})[0]
}

// A key that is reset is, from then on, one that never came. The judge knows nothing of resets: it has another partition fold the same
// log in which the key had another name before, for the rules that reset it, and finds the same hits in both.
func TestResetKeyIsANewKey(t *testing.T) {
	resets, closed := int64(0), 0
	rapid.Check(t, func(rt *rapid.T) {
		w := drawResets(t, rt)
		resets += w.p.Counts().Reset
		for r := range w.rules {
			closed += w.judgeRule(t, rt, r)
		}
	})
	if resets == 0 || closed == 0 {
		t.Errorf("%d keys were reset, %d hits closed by it: the test proves nothing", resets, closed)
	}
}

// judgeRule judges the hits of one rule, at an index.
func (w *resetWorld) judgeRule(t *testing.T, rt *rapid.T, r int) (closed int) {
	rule := &w.rules[r]
	var since [3][]int64 // of each key, the versions of its resets
	for _, x := range w.resets {
		for key := range since {
			if x.Rule == rule.ID && x.Subject == subjectOf(resetAddress(key)) {
				since[key] = append(since[key], x.Since)
			}
		}
	}
	// Where a key was reset: the first event of a version at all, whoever it is of.
	plain, apart := detectors.NewPartition(w.cfg), detectors.NewPartition(w.cfg)
	w.learnVersions(plain)
	for _, plan := range w.plans[0] {
		apart.Learn(plan)
	}
	newest, done := int64(0), [3]int{}
	name := map[traffic.Subject]string{} // of a key before a reset → its own
	var got, want []string
	var gone, going []traffic.Subject
	for i := range w.log {
		gone, going = append(gone, going...), nil // what time brings about comes before the reset
		k := w.log[i].keyed
		if k.Kind == detectors.KeyedEvent {
			newest = max(newest, k.Version)
			k.Rules, k.Units = []int{r}, k.Units[r:r+1]
		}
		other := k
		for key := range since {
			for done[key] < len(since[key]) && since[key][done[key]] <= newest {
				done[key]++
				going = append(going, subjectOf(elsewhere(key, len(since[key])-done[key]+1)))
			}
			if left := len(since[key]) - done[key]; left > 0 {
				name[subjectOf(elsewhere(key, left))] = string(subjectOf(resetAddress(key)))
				if k.Identity.IP.IsValid() && k.Identity.IP.String() == resetAddress(key) {
					other.Identity.IP = netip.MustParseAddr(elsewhere(key, left))
				}
			}
		}
		hits, err := plain.Fold(w.log[i].appended, &k, nil)
		if err != nil {
			rt.Fatal(err)
		}
		for _, h := range hits {
			if h.Reason == detectors.ReasonReset {
				if h.Phase != detectors.PhaseClosed || !h.Kind.Episode() {
					rt.Fatalf("a reset closes with %+v", h)
				}
				closed++
				continue
			}
			got = append(got, fmt.Sprint(i, h.Subject, nameless(t, h)))
		}
		if hits, err = apart.Fold(w.log[i].appended, &other, nil); err != nil {
			rt.Fatal(err)
		}
		for _, h := range hits {
			if h.Kind.Episode() && slices.Contains(gone, h.Subject) {
				continue // what was reset closes later there
			}
			subject := string(h.Subject)
			if before, ok := name[h.Subject]; ok {
				subject = before
			}
			want = append(want, fmt.Sprint(i, subject, nameless(t, h)))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		rt.Fatalf("rule %s, resets at %v: got %d hits\n%q\nwant %d\n%q", rule.ID, since, len(got), got, len(want), want)
	}
	return closed
}

// Snapshots, at any record and written in slices, and a crash after: the same hits, each episode closed once, and the same state.
func TestResetsAreReplayed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawResets(t, rt)
		begin := rapid.IntRange(0, len(w.log)-1).Draw(rt, "snapshot at")
		p := detectors.NewPartition(w.cfg)
		w.learnVersions(p)
		var before, after []detectors.Hit
		var raw []byte
		var err error
		var e *detectors.SnapshotEncoder
		for i, l := range w.log {
			if i == begin {
				e = p.BeginSnapshot()
			}
			if i < begin {
				before, err = p.Fold(l.appended, &l.keyed, before)
			} else {
				after, err = p.Fold(l.appended, &l.keyed, after)
			}
			if err != nil {
				rt.Fatal(err)
			}
			if e != nil && e.Next(300) {
				raw, e = e.Take(nil), nil
			}
		}
		for e != nil {
			if e.Next(1 << 20) {
				raw, e = e.Take(nil), nil
			}
		}
		restored, err := detectors.Restore(w.cfg, raw)
		if err != nil {
			rt.Fatal(err)
		}
		w.learnVersions(restored)
		var records []detectors.Record
		for _, l := range w.log[begin:] {
			records = append(records, detectors.Record{Appended: l.appended, Keyed: l.keyed})
		}
		_, again, err := restored.FoldAll(records, nil)
		if err != nil {
			rt.Fatal(err)
		}
		if got, want := encode(t, again), encode(t, after); !slices.Equal(got, want) {
			rt.Fatalf("got %d hits %q\nwant %d hits %q", len(got), got, len(want), want)
		}
		if !slices.Equal(restored.Snapshot(nil), p.Snapshot(nil)) {
			rt.Fatal("the states differ")
		}
		open := map[string]int{}
		for _, h := range append(before, after...) {
			switch h.Phase {
			case detectors.PhaseOpen:
				open[h.ID]++
			case detectors.PhaseClosed, detectors.PhaseMerged:
				open[h.ID]--
			}
		}
		for id, n := range open {
			if n != 0 {
				rt.Fatalf("hit %s: %+d", id, n)
			}
		}
	})
}

// The first reset that a partition applies has it write the format that tells of it, and no record of an older version does. Keys of
// another rule, and of another name, stay.
func TestResetOfOneKey(t *testing.T) {
	b := newBench(t, 1, rule(1, 10*time.Second, time.Second))
	other := rule(1, 10*time.Second, time.Second)
	other.ID = "other"
	all := []rules.Version{rule(1, 10*time.Second, time.Second), other}
	b.p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: all}))
	b.p.Learn(detectors.NewPlan(&rules.Routing{Number: 2, Rules: all, Resets: []rules.Reset{{Rule: "burst", Key: all[0].Key, Subject: subjectOf("192.0.2.1"), Since: 2}}}))
	send := func(at traffic.Time, ip string, version int64) {
		k := b.event(0, origin+at*second, ip, version)
		k.Rules, k.Format = []int{0, 1}, rules.LanguageRecordFormat
		b.must(k)
	}
	for range 2 {
		send(0, "192.0.2.1", 1)
		send(0, "192.0.2.2", 1)
	}
	if got := b.p.Snapshot(nil)[0]; got != 4 {
		t.Errorf("snapshot format %d before any reset, want 4", got)
	}
	opened := len(b.hits)
	if opened != 4 {
		t.Fatalf("%d hits %v, want 4 opened", opened, phases(b.hits))
	}
	send(1, "192.0.2.3", 2)
	if len(b.hits) != opened+1 || b.hits[opened].Reason != detectors.ReasonReset || b.hits[opened].Rule != "burst" || b.hits[opened].Subject != subjectOf("192.0.2.1") ||
		b.hits[opened].Count != 1 || b.hits[opened].ID != b.hits[0].ID {
		t.Fatalf("%+v", b.hits[opened:])
	}
	send(1, "192.0.2.1", 1) // of a version before the reset, which came after it: counted, and no reason to reset again
	send(1, "192.0.2.1", 2)
	if got := b.hits[opened+1:]; len(got) != 1 || got[0].Phase != detectors.PhaseOpen || got[0].Rule != "burst" || got[0].ID == b.hits[0].ID {
		t.Fatalf("%+v", got)
	}
	if got := b.p.Counts().Reset; got != 1 {
		t.Errorf("%d keys were reset", got)
	}
	raw := b.p.Snapshot(nil)
	if raw[0] != 5 {
		t.Errorf("snapshot format %d, want 5", raw[0])
	}
	golden(t, "snapshot-5.bin", raw)
	if p, err := detectors.Restore(b.cfg, raw); err != nil || !slices.Equal(p.Snapshot(nil), raw) {
		t.Errorf("restored: %v", err)
	}
}

// Whatever a key is made of, the partition finds the windows of it by its subject alone.
func TestResetFindsEveryKey(t *testing.T) {
	extra := []traffic.KeyField{{Field: traffic.FieldFallback, Name: "api_key|ip", V4: 24, V6: 56}, {Field: traffic.FieldParam, Name: "id"}, {Field: traffic.FieldHost}}
	for name, key := range map[string][]traffic.KeyField{
		"everybody": {}, "one": {{Field: traffic.FieldDevice}}, "in another order": {{Field: traffic.FieldDevice}, {Field: traffic.FieldIP, V4: 24, V6: 64}},
		"fallback": extra[:1], "missing": {{Field: traffic.FieldSession}, {Field: traffic.FieldIP, V4: 32, V6: 64}}, "many": {extra[2], {Field: traffic.FieldUser}, extra[0], extra[1]},
	} {
		t.Run(name, func(t *testing.T) {
			v := rule(0, 10*time.Second, time.Second)
			v.Key, v.Missing, v.Block = key, rules.MissingGroup, nil
			v.Match = rules.Match{Path: "/v1/things/{id}"}
			b := newBench(t, 1)
			b.p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{v}}))
			send := func(ip string, version int64) {
				k := b.event(0, origin, ip, version)
				k.Extra = []detectors.ExtraValue{{Index: 0, Text: "api.example.com"}, {Index: 1, Text: "a&b"}}
				if name == "fallback" {
					k.Extra = nil
				}
				b.must(k)
			}
			r := rules.Routing{Number: 1, Rules: []rules.Version{v}}
			if fields := r.Extras().Fields; name == "many" && len(fields) != 2 {
				t.Fatalf("%+v", fields)
			}
			send("192.0.2.7", 1)
			if len(b.hits) != 1 {
				t.Fatalf("%+v", b.hits)
			}
			subject := b.hits[0].Subject
			b.p.Learn(detectors.NewPlan(&rules.Routing{Number: 2, Rules: []rules.Version{v}, Resets: []rules.Reset{{Rule: v.ID, Key: key, Subject: subject, Since: 2}}}))
			send("203.0.113.9", 2)
			if len(b.hits) < 2 || b.hits[1].Reason != detectors.ReasonReset || b.hits[1].ID != b.hits[0].ID || b.p.Counts().Reset != 1 {
				t.Errorf("%s: %+v", subject, b.hits[1:])
			}
		})
	}
}
