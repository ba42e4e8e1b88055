package detectors_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// wayBench is a bench whose records have the format that keeps what came before the limit, with numbered samples.
type wayBench struct{ *bench }

func newWayBench(t testing.TB, budget int64, v rules.Version, format int) *wayBench {
	b := newBench(t, 1)
	b.cfg.Budget = budget
	b.p = detectors.NewPartition(b.cfg)
	b.p.Learn(wayPlan(v, format))
	return &wayBench{b}
}

func wayPlan(v rules.Version, format int) *detectors.Plan {
	return detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, RecordFormat: format, Rules: []rules.Version{v}})
}

// send folds an event: of so many units, and of a device.
func (b *wayBench) send(at traffic.Time, ip, device string, units int64) string {
	b.t.Helper()
	k := b.event(0, at, ip, 1)
	id := fmt.Sprint("e", k.Offset)
	k.Identity.Device, k.Units = device, []int64{units}
	k.Sample = traffic.AppendPackedSample(nil, &traffic.Request{ID: id, Path: "/v1/tokens"}, &k.Identity)
	b.must(k)
	return id
}

// wordsOf are the samples of a hit in a few words: the events before the limit, then those over it, then what is said of what came earlier.
func wordsOf(t testing.TB, h *detectors.Hit) string {
	t.Helper()
	var before, over, words []string
	for _, text := range h.Samples {
		var s traffic.Sample
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		switch {
		case s.Before && len(over) > 0:
			t.Fatalf("%q: an event from before the limit comes after one over it", h.Samples)
		case s.Before:
			before = append(before, s.ID)
		default:
			over = append(over, s.ID)
		}
		if s.Earlier != "" {
			words = append(words, s.Earlier)
		}
	}
	return strings.Join(slices.Concat(before, []string{"|"}, over, words), " ")
}

func lastOf(hits []detectors.Hit, phase detectors.Phase) *detectors.Hit {
	for i := range slices.Backward(hits) {
		if hits[i].Kind == detectors.KindHit && hits[i].Phase == phase {
			return &hits[i]
		}
	}
	return &detectors.Hit{}
}

// What a hit tells of the way to the limit, by rule: up to three requests from half the limit on.
func TestWhatCameBeforeTheLimit(t *testing.T) {
	device := traffic.KeyField{Field: traffic.FieldDevice}
	steady := func(n int) (at []int) {
		for i := range n {
			at = append(at, i)
		}
		return at
	}
	for _, c := range []struct {
		name   string
		limit  int
		edit   func(*rules.Version)
		at     []int // seconds
		units  int64
		format int
		want   string
	}{
		{name: "log", limit: 5, at: steady(8), want: "e2 e3 e4 | e5 e6 e7"},
		{name: "the first three of more", limit: 9, at: steady(10), want: "e4 e5 e6 | e9"},
		{name: "limit of 1", limit: 1, at: steady(2), want: "| e1 none"},
		{name: "limit of 0", limit: 0, at: steady(1), want: "| e0 none"},
		{name: "limit of 2", limit: 2, at: steady(3), want: "e1 | e2"},
		{name: "an older record format", limit: 5, at: steady(8), format: rules.EvidenceRecordFormat - 1, want: "| e5 e6 e7"},
		{name: "all at one instant", limit: 4, at: []int{0, 0, 0, 0, 0}, want: "e1 e2 e3 | e4"},
		// At half the limit since the first three, whose place later ones take as they leave the window.
		{name: "half the limit for long", limit: 6, at: []int{0, 4, 8, 12, 16, 20, 24, 28, 32, 33, 34, 35, 36}, want: "e6 e7 e8 | e11 e12"},
		{name: "fixed", limit: 4, edit: func(v *rules.Version) { v.Algorithm = rules.AlgorithmFixed }, at: steady(6), want: "e1 e2 e3 | e4 e5"},
		{name: "sliding-counter", limit: 4, edit: func(v *rules.Version) { v.Algorithm = rules.AlgorithmSlidingCounter }, at: steady(6), want: "e1 e2 e3 | e4 e5"},
		{name: "slices", limit: 130, at: slices.Repeat([]int{1}, 131), want: "e64 e65 e66 | e130"},
		{name: "log out of its slot", limit: 130, edit: func(v *rules.Version) { v.Algorithm = rules.AlgorithmSlidingLog }, at: slices.Repeat([]int{1}, 131), want: "e64 e65 e66 | e130"},
		{name: "first-seen", limit: 4, edit: func(v *rules.Version) { v.Algorithm = rules.AlgorithmFirstSeen }, at: steady(6), want: "e1 e2 e3 | e4 e5"},
		{name: "token-bucket", limit: 4, edit: func(v *rules.Version) { v.Algorithm = rules.AlgorithmTokenBucket }, at: slices.Repeat([]int{0}, 6), want: "e1 e2 e3 | e4 e5"},
		{name: "leaky-bucket by its burst", limit: 2, edit: func(v *rules.Version) { v.Algorithm, v.Burst = rules.AlgorithmLeakyBucket, 8 }, at: slices.Repeat([]int{0}, 9), want: "e3 e4 e5 | e8"},
		{name: "sum", limit: 10, units: 2, edit: func(v *rules.Version) { v.Algorithm, v.Count.Sum = rules.AlgorithmSlidingLog, "attrs.cost" }, at: steady(6), want: "e2 e3 e4 | e5"},
		{name: "sum that is over at once", limit: 10, units: 6, edit: func(v *rules.Version) { v.Algorithm, v.Count.Sum = rules.AlgorithmFixed, "attrs.cost" }, at: steady(2), want: "e0 | e1"},
		{name: "sum of which one is over", limit: 10, units: 11, edit: func(v *rules.Version) { v.Algorithm, v.Count.Sum = rules.AlgorithmFixed, "attrs.cost" }, at: steady(1), want: "| e0 none"},
		{name: "distinct", limit: 4, edit: func(v *rules.Version) { v.Algorithm, v.Count.Distinct = rules.AlgorithmSliding, &device }, at: steady(5), want: "e1 e2 e3 | e4"},
		{name: "distinct fixed", limit: 4, edit: func(v *rules.Version) { v.Algorithm, v.Count.Distinct = rules.AlgorithmFixed, &device }, at: steady(5), want: "e1 e2 e3 | e4"},
		{name: "distinct bucket", limit: 4, edit: func(v *rules.Version) { v.Algorithm, v.Count.Distinct = rules.AlgorithmLeakyBucket, &device }, at: slices.Repeat([]int{0}, 5), want: "e1 e2 e3 | e4"},
		{name: "distinct above 128", limit: 130, edit: func(v *rules.Version) { v.Algorithm, v.Count.Distinct = rules.AlgorithmSliding, &device }, at: slices.Repeat([]int{0}, 160), want: "e64 e65 e66 |"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := rule(c.limit, 16*time.Second, time.Second)
			if c.edit != nil {
				c.edit(&v)
			}
			if c.format == 0 {
				c.format = rules.EvidenceRecordFormat
			}
			b := newWayBench(t, 0, v, c.format)
			for i, s := range c.at {
				b.send(base+traffic.Time(s)*second, "192.0.2.1", fmt.Sprint("d", i), max(1, c.units))
			}
			b.end()
			got := wordsOf(t, lastOf(b.hits, detectors.PhaseClosed))
			if got != c.want && (c.name != "distinct above 128" || !strings.HasPrefix(got, c.want)) { // whose counts are estimates
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Beside the limit, each of the windows has a way of its own.
func TestWayToEachLimitOfARule(t *testing.T) {
	v := rule(8, 16*time.Second, time.Second)
	v.Near, v.Candidate = 50, &rules.Candidate{Limit: 6}
	b := newWayBench(t, 0, v, rules.EvidenceRecordFormat)
	for i := range 10 {
		b.send(base+traffic.Time(i)*second, "192.0.2.1", "d", 1)
	}
	b.end()
	got := map[detectors.Kind]string{}
	for i := range b.hits {
		if h := &b.hits[i]; h.Phase == detectors.PhaseClosed {
			got[h.Kind] = wordsOf(t, h)
		}
	}
	want := map[detectors.Kind]string{
		detectors.KindNear: "e1 e2 | e3 e4 e5", detectors.KindCandidate: "e2 e3 e4 | e6 e7 e8", detectors.KindHit: "e3 e4 e5 | e8 e9",
	}
	for kind, words := range want {
		if got[kind] != words {
			t.Errorf("%s: got %q, want %q", kind, got[kind], words)
		}
	}
}

// A second episode tells of its own way, and a reset source begins anew.
func TestWayAfterAnEpisodeAndAReset(t *testing.T) {
	v := rule(4, 10*time.Second, 0)
	b := newWayBench(t, 0, v, rules.EvidenceRecordFormat)
	for _, s := range []int{0, 1, 2, 3, 4, 30, 31, 32, 33, 34} {
		b.send(base+traffic.Time(s)*second, "192.0.2.1", "d", 1)
	}
	if got := wordsOf(t, lastOf(b.hits, detectors.PhaseOpen)); got != "e6 e7 e8 | e9" {
		t.Errorf("second episode: %q", got)
	}
	r := newWayBench(t, 0, v, rules.EvidenceRecordFormat)
	reset := &rules.Routing{Stream: "live", Number: 2, RecordFormat: rules.EvidenceRecordFormat, Rules: []rules.Version{v}}
	reset.Reset(rules.Reset{Rule: v.ID, Key: v.Key, Subject: subjectOf("192.0.2.1"), Since: 2})
	for i := range 3 {
		r.send(base+traffic.Time(i)*second/10, "192.0.2.1", "d", 1)
	}
	r.p.Learn(detectors.NewPlan(reset))
	for i := range 5 {
		k := r.event(0, base+second+traffic.Time(i), "192.0.2.1", 2)
		k.Sample = traffic.AppendPackedSample(nil, &traffic.Request{ID: fmt.Sprint("e", k.Offset)}, &k.Identity)
		r.must(k)
	}
	if got := wordsOf(t, lastOf(r.hits, detectors.PhaseOpen)); got != "e4 e5 e6 | e7" {
		t.Errorf("after a reset: %q", got)
	}
}

// A reset forgets the way of its source alone, and what has left the window is no part of the way.
func TestWayOfOthersAfterAResetAndOfAWindowBefore(t *testing.T) {
	v := rule(10, 16*time.Second, 0)
	v.Algorithm, v.Count.Sum = rules.AlgorithmSlidingLog, "attrs.cost"
	b := newWayBench(t, 0, v, rules.EvidenceRecordFormat)
	b.send(base, "192.0.2.1", "d", 6)
	b.send(base+20*second, "192.0.2.1", "d", 11)
	if got := wordsOf(t, lastOf(b.hits, detectors.PhaseOpen)); got != "| e1 none" {
		t.Errorf("after a pause of more than a window: %q", got)
	}
	b.send(base+21*second, "192.0.2.2", "d", 6)
	reset := &rules.Routing{Stream: "live", Number: 2, RecordFormat: rules.EvidenceRecordFormat, Rules: []rules.Version{v}}
	reset.Reset(rules.Reset{Rule: v.ID, Key: v.Key, Subject: subjectOf("192.0.2.3"), Since: 2})
	b.p.Learn(detectors.NewPlan(reset))
	k := b.event(0, base+22*second, "192.0.2.2", 2)
	k.Units, k.Sample = []int64{6}, traffic.AppendPackedSample(nil, &traffic.Request{ID: "over"}, &k.Identity)
	b.must(k)
	if got := wordsOf(t, lastOf(b.hits, detectors.PhaseOpen)); got != "e2 | over" {
		t.Errorf("after the reset of another source: %q", got)
	}
}

// However many come and are taken, the queue is no longer than what is kept asks for.
func TestQueueOfWaysIsShort(t *testing.T) {
	b := newWayBench(t, 0, rule(4, 10*time.Second, 0), rules.EvidenceRecordFormat)
	b.send(base, "192.0.2.1", "d", 1)
	b.send(base, "192.0.2.1", "d", 1) // stays at the front
	for n := range 500 {
		for range 5 {
			b.send(base+traffic.Time(n), fmt.Sprintf("198.51.%d.%d", n>>8, n&255), "d", 1)
		}
	}
	if live, length := b.p.Ways(); live != 1 || length > 32 {
		t.Errorf("%d events are kept in a queue of %d", live, length)
	}
}

// Of an event that comes late, and puts a newer one over, only what came before that instant is told.
func TestWayOfALateEvent(t *testing.T) {
	b := newWayBench(t, 0, rule(3, 10*time.Second, 10*time.Second), rules.EvidenceRecordFormat)
	for _, s := range []int{1, 2, 4} {
		b.send(base+traffic.Time(s)*second, "192.0.2.1", "d", 1)
	}
	b.send(base+3*second, "192.0.2.1", "d", 1) // the one at 4 s is over with it
	b.end()
	if got := wordsOf(t, lastOf(b.hits, detectors.PhaseClosed)); !strings.HasPrefix(got, "e1 |") {
		t.Errorf("got %q", got)
	}
	c := newWayBench(t, 0, rule(4, 10*time.Second, 10*time.Second), rules.EvidenceRecordFormat)
	for _, s := range []int{1, 4, 2, 5, 6} { // told in the order of their times
		c.send(base+traffic.Time(s)*second, "192.0.2.1", "d", 1)
	}
	if got := wordsOf(t, lastOf(c.hits, detectors.PhaseOpen)); got != "e2 e1 e3 | e4" {
		t.Errorf("one that came late on the way: %q", got)
	}
}

// Where many sources are on their way, those first that came first go: that is counted, and the episodes say it. What is of no use any
// more goes without a word.
func TestRoomForWaysIsBounded(t *testing.T) {
	// One source comes near its limit; then many do, a while apart; then it goes over.
	crowd := func(sources int, apart traffic.Time) (b *wayBench, got, over string) {
		b = newWayBench(t, 1<<20, rule(4, 10*time.Second, 0), rules.EvidenceRecordFormat)
		for i := range 4 {
			b.send(base+traffic.Time(i), "192.0.2.1", "d", 1)
		}
		at := base + second
		for n := range sources {
			for range 2 {
				b.send(at, fmt.Sprintf("198.51.%d.%d", n>>8, n&255), "d", 1)
			}
			at += apart
		}
		over = b.send(base+2*second, "192.0.2.1", "d", 1)
		return b, wordsOf(t, lastOf(b.hits, detectors.PhaseOpen)), over
	}
	b, got, over := crowd(20, 1)
	if got != "e1 e2 e3 | "+over || b.p.Counts().ApproachDropped != 0 {
		t.Errorf("few: got %q, %d dropped", got, b.p.Counts().ApproachDropped)
	}
	b, got, over = crowd(300, 1)
	if got != "| "+over+" dropped" {
		t.Errorf("many: got %q", got)
	}
	if n := b.p.Counts().ApproachDropped; n < 150 || n > 280 {
		t.Errorf("%d of 303 events dropped: 16 KiB have room for about 80", n)
	}
	// Later, when all that was dropped would have left the window anyway, nothing is missing.
	for range 5 {
		over = b.send(base+100*second, "192.0.2.77", "d", 1)
	}
	if got := wordsOf(t, lastOf(b.hits, detectors.PhaseOpen)); !strings.HasSuffix(got, " | "+over) || strings.Contains(got, "dropped") {
		t.Errorf("later: got %q", got)
	}
	slow := newWayBench(t, 1<<20, rule(4, 10*time.Second, 0), rules.EvidenceRecordFormat)
	for n := range 300 {
		for range 2 {
			slow.send(base+traffic.Time(n)*second, fmt.Sprintf("198.51.%d.%d", n>>8, n&255), "d", 1)
		}
	}
	if n := slow.p.Counts().ApproachDropped; n != 0 {
		t.Errorf("%d dropped though few were on their way at a time", n)
	}
}

// naiveWay tells the way of each episode's source from its events alone, for rules that count in windows that slide or are fixed.
type naiveWay struct {
	window traffic.Time
	limit  int
	fixed  bool
	times  []traffic.Time
	ids    []string
	kept   []int // not yet told
	ends   traffic.Time
	open   bool
}

// add returns the words of the episode that the event opens, if it does.
func (n *naiveWay) add(at traffic.Time, id string) (words string, opens bool) {
	n.times, n.ids = append(n.times, at), append(n.ids, id)
	count := 0
	for _, t := range n.times {
		if n.fixed && t/n.window == at/n.window || !n.fixed && t > at-n.window {
			count++
		}
	}
	within := func() (in []int) {
		for _, i := range n.kept {
			if n.times[i] > at-n.window {
				in = append(in, i)
			}
		}
		return in
	}
	if count <= n.limit {
		if half := max(2, (n.limit+1)/2); count >= half && len(within()) < 3 {
			n.kept = append(within(), len(n.times)-1)
		}
		return "", false
	}
	opens = !n.open || at >= n.ends+n.window
	n.open, n.ends = true, at
	if !opens {
		return "", false
	}
	for _, i := range within() {
		words += n.ids[i] + " "
	}
	n.kept = nil
	if words == "" {
		return "| " + id + " none", true
	}
	return words + "| " + id, true
}

// What hits tell of the way to the limit is what a count of all events by hand gives.
func TestWaysAgreeWithANaiveCount(t *testing.T) {
	episodes, ways := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		v := rule(rapid.IntRange(0, 9).Draw(rt, "limit"), time.Duration(rapid.IntRange(2, 20).Draw(rt, "window"))*time.Second, 0)
		v.Algorithm = rapid.SampledFrom([]rules.Algorithm{rules.AlgorithmSliding, rules.AlgorithmSlidingLog, rules.AlgorithmFixed}).Draw(rt, "algorithm")
		b := newWayBench(t, 0, v, rules.EvidenceRecordFormat)
		naive := map[string]*naiveWay{}
		now := base
		for range rapid.IntRange(1, 150).Draw(rt, "events") {
			now += second / 2 * traffic.Time(rapid.SampledFrom([]int{0, 0, 1, 1, 1, 2, 5, 30}).Draw(rt, "gap"))
			ip := rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"}).Draw(rt, "ip")
			if naive[ip] == nil {
				naive[ip] = &naiveWay{window: traffic.Time(v.Window.Microseconds()), limit: v.Limit, fixed: v.Algorithm == rules.AlgorithmFixed}
			}
			before := len(b.hits)
			id := b.send(now, ip, "d", 1)
			want, opens := naive[ip].add(now, id)
			got := ""
			for i := range b.hits[before:] {
				if h := &b.hits[before+i]; h.Kind == detectors.KindHit && h.Phase == detectors.PhaseOpen {
					got = wordsOf(t, h)
				}
			}
			if got != want {
				rt.Fatalf("event %s of %s at %v: told %q, by hand %q", id, ip, now, got, want)
			}
			if opens {
				episodes++
				if !strings.HasPrefix(want, "|") {
					ways++
				}
			}
		}
	})
	if episodes < 50 || ways < 20 {
		t.Errorf("%d episodes, %d with a way: the draw meets too few", episodes, ways)
	}
}

// A snapshot that is written in slices, while events come and go, is of the moment at which it began; one of a format before is read, and
// knows of no way.
func TestWaysInSnapshots(t *testing.T) {
	v := rule(4, 10*time.Second, time.Second)
	flow := func(b *wayBench, from int) {
		for i := from; i < from+700; i++ {
			b.send(base+traffic.Time(i)*second/100, fmt.Sprintf("198.51.%d.%d", i%250>>8, i%250), "d", 1)
		}
	}
	b := newWayBench(t, 4<<20, v, rules.EvidenceRecordFormat)
	flow(b, 0)
	whole := b.p.Snapshot(nil)
	if whole[0] != 7 {
		t.Fatalf("snapshot format %d, want 7", whole[0])
	}
	e := b.p.BeginSnapshot()
	var sliced []byte
	for i := 700; ; i += 7 {
		done := e.Next(500)
		sliced = append(sliced, e.Take(nil)...)
		if done {
			break
		}
		for n := range 7 {
			b.send(base+traffic.Time(i+n)*second/100, fmt.Sprintf("198.51.0.%d", (i+n)%250), "d", 1)
		}
	}
	if !slices.Equal(sliced, whole) {
		t.Error("written in slices it is not what it was when it began")
	}
	if b.p.Counts().ApproachDropped == 0 {
		t.Error("nothing was dropped")
	}
	for i := range whole {
		damaged := slices.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		if i%97 == 0 || i > len(whole)-200 {
			if _, err := detectors.Restore(b.cfg, damaged); err == nil {
				t.Fatalf("a flipped bit in byte %d of %d restores", i, len(whole))
			}
		}
	}
	small := b.cfg
	small.Budget = 1 << 20
	p, err := detectors.Restore(small, whole)
	if err != nil {
		t.Fatal(err)
	}
	if again := p.Snapshot(nil); len(again) >= len(whole)-20_000 {
		t.Errorf("%d bytes of %d with a quarter of the room", len(again), len(whole))
	}
}

// The two snapshots of a small state with ways in all forms: what is told, what waits, and what was dropped.
func TestSnapshotOfWaysIsKept(t *testing.T) {
	v := rule(4, 10*time.Second, time.Second)
	b := newWayBench(t, 64<<10, v, rules.EvidenceRecordFormat)
	for i := range 60 {
		b.send(base+traffic.Time(i*i)*second/400, fmt.Sprintf("192.0.2.%d", i*i%7), "d", 1)
	}
	raw := b.p.Snapshot(nil)
	golden(t, "snapshot-7.bin", raw)
	p, err := detectors.Restore(b.cfg, readFile(t, "snapshot-7.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Snapshot(nil), raw) {
		t.Error("restored it is written as something else")
	}
}
