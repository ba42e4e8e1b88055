package holding_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/holding"
	"github.com/weirhq/weir/traffic"
)

const second = traffic.Time(time.Second / time.Microsecond)

// version draws what a version says of blocks, as a document has it and as the oracle does.
func version(t *rapid.T) (rules.Document, oracle.BlockRule) {
	seconds := func(name string, of ...int64) int64 { return rapid.SampledFrom(of).Draw(t, name) }
	r := oracle.BlockRule{
		TTL: seconds("ttl", 1, 10, 60, 300), MaxLag: seconds("max_lag", 1, 20, 60), OnHit: rapid.Bool().Draw(t, "on hit"), Window: seconds("window", 1, 10),
		Lateness: seconds("lateness", 0, 5), Cooldown: seconds("cooldown", 1, 60), Tuples: rapid.Bool().Draw(t, "tuples"),
	}
	d := rules.Document{
		Key: []traffic.KeyField{{Field: traffic.FieldIP}}, Window: time.Duration(r.Window) * time.Second, Lateness: time.Duration(r.Lateness) * time.Second,
		Cooldown: time.Duration(r.Cooldown) * time.Second, MaxLag: time.Duration(r.MaxLag) * time.Second,
		Block: &rules.Block{Key: []traffic.KeyField{{Field: traffic.FieldIP}}, TTL: time.Duration(r.TTL) * time.Second, Extend: rules.ExtendNever},
	}
	if r.OnHit {
		d.Block.Extend = rules.ExtendOnHit
	}
	if r.Tuples {
		d.Block.Key = append(d.Block.Key, traffic.KeyField{Field: traffic.FieldDevice})
	}
	return d, r
}

// A block is what the oracle says, begin and end, after each record: hits of several episodes and of rules that are
// edited, in any order, releases and changes of mode.
func TestBlocksAreThoseOfTheOracle(t *testing.T) {
	phases := map[string]holding.Phase{"open": holding.Opening, "update": holding.Update, "closed": holding.Closing}
	rapid.Check(t, func(t *rapid.T) {
		var want oracle.Blocks
		var got holding.Block
		var begin traffic.Time
		d, r := version(t)
		now, generation := int64(1000), int64(1)
		for range rapid.IntRange(1, 40).Draw(t, "records") {
			now += rapid.SampledFrom([]int64{0, 1, 5, 20, 61, 400}).Draw(t, "after")
			what := rapid.SampledFrom([]string{"open", "open", "update", "update", "closed", "closed", "release", "edit", "mode"}).Draw(t, "what")
			at := traffic.Time(now) * second
			switch what {
			case "edit":
				d, r = version(t)
			case "mode":
				generation += 2
				want.Take(oracle.BlockRecord{At: now, What: "shadow"})
				want.Take(oracle.BlockRecord{At: now, What: "block"})
			case "release":
				of := now - rapid.SampledFrom([]int64{0, 0, 30, 700}).Draw(t, "told after")
				if of+500 <= now || got.Release.Until > at && got.Release.At >= traffic.Time(of)*second {
					got.Free(traffic.Time(of)*second, at, 500*time.Second) // which changes nothing
					break
				}
				got.Free(traffic.Time(of)*second, at, 500*time.Second)
				want.Take(oracle.BlockRecord{At: now, Of: of, What: "release", Kept: 500})
			default:
				last := now - rapid.SampledFrom([]int64{0, 1, 5, 20, 21, 30, 35, 60, 61, 70, 90, 130, 140}).Draw(t, "last before") + rapid.SampledFrom([]int64{0, 0, 0, 7}).Draw(t, "clock ahead")
				first := last - rapid.SampledFrom([]int64{0, 0, 3, 50}).Draw(t, "lasting")
				id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
				terms := holding.TermsOf(&d)
				h := holding.Hit{Phase: phases[what], ID: id, First: traffic.Time(first) * second, Last: traffic.Time(last) * second, Generation: generation}
				if got.Take(&terms, &h, at) == holding.Made {
					begin = at
				}
				want.Take(oracle.BlockRecord{At: now, What: what, Hit: id, First: first, Last: last, Rule: r})
			}
			var b, until traffic.Time
			if n := len(want.Spans); n > 0 && !want.Spans[n-1].Released && want.Spans[n-1].Until > now {
				b, until = traffic.Time(want.Spans[n-1].Begin)*second, traffic.Time(want.Spans[n-1].Until)*second
			}
			if stands := got.Stands(at); stands != (until != 0) || stands && (got.Until != until || begin != b) {
				t.Fatalf("after %s at %d: %+v since %s, want %s to %s", what, now, got, begin, b, until)
			}
		}
	})
}

// A hit of a mode that is over leaves what a later one has written.
func TestAHitOfAnEarlierModeChangesNothing(t *testing.T) {
	terms := holding.Terms{TTL: time.Hour, OnHit: true, MaxLag: time.Minute}
	block := holding.Block{Until: 10 * second, Hit: "a", Generation: 3}
	before := block
	if got := block.Take(&terms, &holding.Hit{ID: "b", First: second, Last: second, Generation: 2}, 2*second); got != holding.Left || block != before {
		t.Errorf("%v: %+v, want %+v", got, block, before)
	}
}

// Why a hit asks for nothing is told, in this order.
func TestWhyAHitAsksForNothing(t *testing.T) {
	never := holding.Terms{TTL: 10 * time.Second, MaxLag: 20 * time.Second, Closing: 30 * time.Second}
	onHit := never
	onHit.OnHit = true
	for _, tt := range []struct {
		terms       holding.Terms
		phase       holding.Phase
		first, last traffic.Time
		want        holding.Claim
	}{
		{onHit, holding.Opening, 95, 95, holding.Raise},
		{onHit, holding.Opening, 90, 90, holding.Over},
		{onHit, holding.Opening, 79, 79, holding.TooOld},
		{onHit, holding.Update, 80, 80, holding.Over},
		{onHit, holding.Update, 50, 99, holding.Raise},
		{never, holding.Update, 50, 99, holding.RunOut},
		{never, holding.Update, 50, 60, holding.RunOut},
		{never, holding.Opening, 50, 60, holding.TooOld},
		{onHit, holding.Closing, 50, 99, holding.Lengthen},
		{onHit, holding.Closing, 50, 90, holding.Nothing},
		{never, holding.Closing, 99, 99, holding.Nothing},
	} {
		if got := tt.terms.Claim(&holding.Hit{Phase: tt.phase, First: tt.first * second, Last: tt.last * second}, 100*second); got != tt.want {
			t.Errorf("%+v: claim %d, want %d", tt, got, tt.want)
		}
	}
}

// The last event over the limit may be as old as max_lag; of a closing hit a window and the lateness older, and where
// an episode has several blocks, a cooldown more.
func TestHowOldAHitMayBe(t *testing.T) {
	d := rules.Document{
		Key: []traffic.KeyField{{Field: traffic.FieldIP}}, Window: 10 * time.Second, Lateness: 5 * time.Second, Cooldown: 100 * time.Second, MaxLag: 30 * time.Second,
		Block: &rules.Block{Key: []traffic.KeyField{{Field: traffic.FieldIP}}, TTL: time.Hour, Extend: rules.ExtendOnHit},
	}
	one := holding.TermsOf(&d)
	d.Block.Key = append(d.Block.Key, traffic.KeyField{Field: traffic.FieldDevice})
	several := holding.TermsOf(&d)
	for _, tt := range []struct {
		terms holding.Terms
		phase holding.Phase
		most  traffic.Time
	}{
		{one, holding.Opening, 30}, {one, holding.Update, 30}, {one, holding.Closing, 45}, {several, holding.Update, 30}, {several, holding.Closing, 145},
	} {
		h := holding.Hit{Phase: tt.phase, First: second, Last: second}
		for after, acts := range map[traffic.Time]bool{0: true, 1: false} {
			got := tt.terms.Claim(&h, (1+tt.most)*second+after)
			if (got == holding.Raise || got == holding.Lengthen) != acts {
				t.Errorf("%+v: phase %d, %d s and %d µs old: claim %d", tt.terms, tt.phase, tt.most, after, got)
			}
		}
	}
}

// A release that is told again, or late, leaves the newer one.
func TestAnOlderReleaseChangesNothing(t *testing.T) {
	terms := holding.Terms{TTL: time.Hour, OnHit: true, MaxLag: time.Minute}
	var block holding.Block
	block.Free(20*second, 20*second, time.Hour)
	block.Free(10*second, 21*second, time.Hour)
	if got := block.Take(&terms, &holding.Hit{ID: "a", First: 15 * second, Last: 22 * second}, 22*second); got != holding.Left {
		t.Errorf("an episode from before the newer release: effect %d", got)
	}
}
