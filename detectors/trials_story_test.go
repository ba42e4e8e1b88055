package detectors_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// attack is a burst of one address a second for so long, of a rule of 5 a minute that holds for ten.
func attack(t testing.TB, seconds, each int) *tryBench {
	v := rule(5, time.Minute, time.Second)
	v.Block.TTL, v.MaxLag = 10*time.Minute, rules.DefaultMaxLag
	b := newTryBench(t, v)
	for s := range seconds {
		for range each {
			b.second(s, oracle.TrialRequest{Counted: true, Reach: true})
		}
	}
	return b
}

// second folds a request of the attacker, appended when it was made.
func (b *tryBench) second(s int, q oracle.TrialRequest) {
	b.now = max(b.now, base+traffic.Time(s)*second)
	q.At = int64(base/second) + int64(s)
	b.request(q, "192.0.2.1", "d")
}

func (b *tryBench) of(kind detectors.Kind, phase detectors.Phase) (out []detectors.Hit) {
	for i := range b.hits {
		if b.hits[i].Kind == kind && (phase == "" || b.hits[i].Phase == phase) {
			out = append(out, b.hits[i])
		}
	}
	return out
}

// A source far over its limit is told with what it did, not with what its limit needs to be known.
func TestPeaksAreTrueBeyondTheLimit(t *testing.T) {
	for _, c := range []struct{ seconds, each, least, most int }{
		{1, 6, 6, 6},
		{10, 10, 100, 100},
		{100, 2, 120, 120},
		{100, 1, 60, 60},
		{30, 40, 1200, 1200},
		{100, 100, 5800, 6000}, // in slices of a 64th part of a minute
	} {
		b := attack(t, c.seconds, c.each)
		b.end()
		closed := b.of(detectors.KindHit, detectors.PhaseClosed)
		if len(closed) != 1 || closed[0].Peak < c.least || closed[0].Peak > c.most || closed[0].Count != int64(c.seconds*c.each-5) {
			t.Errorf("%d a second for %d s: %+v, wanted a peak of %d to %d", c.each, c.seconds, closed, c.least, c.most)
		}
	}
}

// While an episode runs its count is told about once a second, the hit's own records may be a minute apart.
func TestRunningCounts(t *testing.T) {
	b := attack(t, 30, 20)
	told := b.of(detectors.KindRunning, "")
	opened := b.of(detectors.KindHit, detectors.PhaseOpen)
	if len(opened) != 1 || len(told) < 28 || len(told) > 31 {
		t.Fatalf("%d hits opened, %d running counts in 30 s", len(opened), len(told))
	}
	for i := range told {
		h := &told[i]
		if h.ID != opened[0].ID || h.Opened != base || h.Phase != detectors.PhaseUpdate || len(h.Samples) > 0 || i > 0 && h.Count <= told[i-1].Count {
			t.Errorf("%+v", h)
		}
	}
	if last := told[len(told)-1]; last.Count < 29*20-5 || last.Peak != int(last.Count)+5 || last.Refused != last.Count-1 {
		t.Errorf("the last one is %+v", last)
	}
}

// The worst 64 are told of, and the others are counted.
func TestRunningCountsAreBounded(t *testing.T) {
	v := rule(0, time.Minute, time.Second)
	b := newTryBench(t, v)
	b.now = base
	for n := range 3 {
		for i := range 100 {
			if i >= n*30 {
				b.request(oracle.TrialRequest{At: int64(base / second), Counted: true, Reach: true}, "192.0.2."+itoa(i), "d")
			}
		}
	}
	b.now += 2 * second
	b.must(b.tick(0, base+second))
	told := b.of(detectors.KindRunning, "")
	if len(told) != 64 || b.p.Counts().RunningLeftOut != 6 {
		t.Fatalf("%d told, %d left out, want 64 and 6: 30 have had no second event", len(told), b.p.Counts().RunningLeftOut)
	}
	for i := range told {
		if want := int64(3); i < 40 && told[i].Count != want || i >= 40 && told[i].Count != 2 {
			t.Errorf("the %d-th told has %d events", i, told[i].Count)
		}
	}
}

// What is refused after a hit was closed is told under its id, and opens nothing.
func TestRefusedAfterTheClosing(t *testing.T) {
	b := attack(t, 10, 2)
	for s := 100; s < 700; s += 30 { // under the limit, for as long as the block holds
		b.second(s, oracle.TrialRequest{Counted: true, Reach: true})
		b.second(s, oracle.TrialRequest{Reach: true})
	}
	b.end()
	closed := b.of(detectors.KindHit, detectors.PhaseClosed)
	after := b.of(detectors.KindRunning, detectors.PhaseClosed)
	if len(closed) != 1 || closed[0].Refused != 14 || len(after) == 0 {
		t.Fatalf("closed %+v, after it %+v", closed, after)
	}
	// The block holds for ten minutes from the first request over the limit, since no other one feeds the trial's windows.
	last := after[len(after)-1]
	if last.ID != closed[0].ID || last.Opened != closed[0].Opened || last.BlockSubject != closed[0].BlockSubject || last.Refused != 14+2*17 {
		t.Errorf("%+v, want the id of %+v and %d refused", last, closed[0], 14+2*17)
	}
	if n := len(b.of(detectors.KindHit, detectors.PhaseOpen)); n != 1 {
		t.Errorf("%d hits opened", n)
	}
}

// A request that comes late is refused by a block that is over for as long as lateness allows, and then no more: whether a
// minute of append time has begun in between, in which what is over is forgotten, makes no difference.
func TestALateRequestMeetsABlockThatIsOver(t *testing.T) {
	for _, c := range []struct {
		newest  int // what the watermark shows when it comes
		refused int64
	}{{30, 1}, {32, 1}, {33, 0}, {58, 0}, {62, 0}, {150, 0}} {
		for _, atOnce := range []bool{false, true} { // appended at once: nothing is forgotten in between
			v := rule(5, 20*time.Second, 3*time.Second)
			v.Block.TTL, v.MaxLag = 30*time.Second, rules.DefaultMaxLag
			b := newTryBench(t, v)
			for range 6 {
				b.second(0, oracle.TrialRequest{Counted: true, Reach: true})
			}
			b.now = base + traffic.Time(c.newest)*second
			if atOnce {
				b.now = base // all is appended within one minute
			}
			b.request(oracle.TrialRequest{At: int64(base/second) + int64(c.newest), Counted: true, Reach: true}, "192.0.2.2", "d")
			b.request(oracle.TrialRequest{At: int64(base/second) + 29, Counted: true, Reach: true}, "192.0.2.1", "d")
			b.end()
			refused := int64(0)
			for _, m := range minutesOf(b.hits, 0) {
				refused += m.Refused
			}
			if refused != c.refused {
				t.Errorf("with %d s shown, appended at once %t: %d refused, want %d", c.newest, atOnce, refused, c.refused)
			}
		}
	}
}

// A source is known to be good for 30 days after its newest event that says so, whatever came since.
func TestKnownGood(t *testing.T) {
	for days, want := range map[int]detectors.Good{0: detectors.KnownGood, 30: detectors.KnownGood, 31: detectors.NotGood} {
		v := rule(5, time.Minute, time.Second)
		v.Block.TTL, v.MaxLag = 10*time.Minute, rules.DefaultMaxLag
		b := newTryBench(t, v)
		b.second(0, oracle.TrialRequest{Good: true})
		b.restart(v)
		for range 20 {
			b.second(days*86400+86399, oracle.TrialRequest{Counted: true, Reach: true})
		}
		b.end()
		m := minutesOf(b.hits, 0)
		good := int64(0)
		for _, x := range m {
			good += x.RefusedGood
		}
		opened := b.of(detectors.KindHit, detectors.PhaseOpen)
		if len(opened) != 1 || opened[0].Good != want || (good == 14) != (want == detectors.KnownGood) {
			t.Errorf("after %d days: %d refused of good sources, %+v", days, good, opened)
		}
	}
}

// Nothing of a trial is told, nor written, while the stream's records have an older format.
func TestTrialsWaitForTheirRecordFormat(t *testing.T) {
	b := newBench(t, 1)
	b.p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, RecordFormat: rules.LanguageRecordFormat, Rules: []rules.Version{rule(1, time.Minute, 0)}}))
	for range 100 {
		k := b.event(0, origin, "192.0.2.1", 1)
		k.Format = rules.LanguageRecordFormat
		b.now += second
		b.must(k)
	}
	if format := b.p.Snapshot(nil)[0]; format != 4 {
		t.Errorf("snapshot format %d", format)
	}
	b.end()
	for i := range b.hits {
		if h := &b.hits[i]; h.Kind != detectors.KindHit || h.Opened != 0 || h.Good != 0 || h.Refused != 0 || h.Trial != nil {
			t.Errorf("%+v", h)
		}
	}
}

// Trials take an eighth of the budget at most; what is forgotten is counted, and sums say that they may be wrong.
func TestTrialsAreBounded(t *testing.T) {
	v := rule(0, time.Minute, time.Second)
	v.Block.TTL = 24 * time.Hour
	b := newTryBench(t, v)
	b.cfg.Budget = 256 << 10
	b.p = detectors.NewPartition(b.cfg)
	b.learn(v)
	forgotten := int64(0)
	for i := range 2000 {
		b.now = base + traffic.Time(i)*second/10
		b.request(oracle.TrialRequest{At: int64(b.now / second), Counted: true, Reach: true}, "192.0."+itoa(i/250)+"."+itoa(i%250), "d")
		if i%500 == 499 {
			forgotten += b.p.Counts().TrialsEvicted
			b.restart(v)
		}
	}
	forgotten += b.p.Counts().TrialsEvicted
	if b.p.Bytes() > b.cfg.Budget+8<<10 {
		t.Errorf("%d bytes of %d", b.p.Bytes(), b.cfg.Budget)
	}
	b.end()
	atLeast := slices.ContainsFunc(b.of(detectors.KindStatistics, ""), func(h detectors.Hit) bool { return h.AtLeast })
	if forgotten == 0 || !atLeast {
		t.Errorf("%d forgotten, told: %v", forgotten, atLeast)
	}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

func triedBench(t testing.TB) *tryBench {
	b := attack(t, 90, 9)
	b.second(90, oracle.TrialRequest{Good: true})
	for s := 91; s < 200; s += 7 {
		b.second(s, oracle.TrialRequest{Counted: s%2 == 0, Reach: s%3 > 0})
	}
	return b
}

// A damaged snapshot of trials is refused, wherever it is torn or flipped.
func TestSnapshotOfTrialsRefusesDamage(t *testing.T) {
	b := triedBench(t)
	raw := b.p.Snapshot(nil)
	if old, err := detectors.Restore(b.cfg, readFile(t, "snapshot-6.bin")); err != nil || !slices.Equal(old.Snapshot(nil), readFile(t, "snapshot-6.bin")) {
		t.Errorf("the snapshot that the format before has of this state is read as something else: %v", err)
	}
	for i := range raw {
		damaged := slices.Clone(raw)
		damaged[i] ^= 1 << (i % 8)
		if _, err := detectors.Restore(b.cfg, damaged); err == nil {
			t.Fatalf("a flipped bit in byte %d of %d restores", i, len(raw))
		}
		if _, err := detectors.Restore(b.cfg, raw[:i]); !errors.Is(err, detectors.ErrSnapshot) {
			t.Fatalf("torn after %d bytes: %v", i, err)
		}
	}
}

// What a block lets by extends it with extend: on-hit, and the closing of an episode by what the cooldown kept back; with never nothing does.
func TestVirtualBlocksAreExtended(t *testing.T) {
	over, beyond := oracle.TrialRequest{Counted: true, Key: "k", Subject: "k"}, oracle.TrialRequest{Reach: true, Key: "k", Subject: "k"}
	for _, c := range []struct {
		name             string
		r                oracle.TrialRule
		beyond           []int // when there are requests that the block refuses: after two over the limit, at 0 and at 4
		onHit, otherwise int64 // refused
	}{
		{"while it stands", oracle.TrialRule{Window: 5, TTL: 10, Lateness: 30, Cooldown: 1}, []int{9, 12, 14}, 2, 1},
		{"by the closing", oracle.TrialRule{Window: 5, TTL: 100, Cooldown: 60}, []int{40, 99, 102, 104}, 3, 2},
		{"by no closing of a stream that falls idle", oracle.TrialRule{Window: 5, TTL: 100, Cooldown: 60}, []int{99, 102, 104}, 1, 1},
		{"by no closing after its end", oracle.TrialRule{Window: 5, TTL: 9, Lateness: 2, Cooldown: 60}, []int{8, 10, 12}, 1, 1},
	} {
		for _, c.r.OnHit = range []bool{true, false} {
			c.r.MaxLag, c.r.Idle = 60, 61
			v := tryRule(c.r, []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}})
			b := newTryBench(t, v)
			var log []oracle.TrialRequest
			send := func(s int, q oracle.TrialRequest) {
				b.second(s, q)
				q.At = int64(base/second) + int64(s)
				log = append(log, q)
			}
			send(0, over)
			send(4, over)
			for _, s := range c.beyond {
				send(s, beyond)
			}
			b.end()
			want := c.otherwise
			if c.r.OnHit {
				want = c.onHit
			}
			for who, of := range map[string]map[int64]oracle.TrialMinute{"the partition": minutesOf(b.hits, 0), "the oracle": figures(c.r.Judge(log))} {
				refused := int64(0)
				for _, m := range of {
					refused += m.Refused
				}
				if refused != want {
					t.Errorf("%s, on hit %v: %s refuses %d, want %d", c.name, c.r.OnHit, who, refused, want)
				}
			}
		}
	}
}
