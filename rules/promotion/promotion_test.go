package promotion_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/rules/promotion"
)

func TestShare(t *testing.T) {
	for text, want := range map[string]promotion.Share{
		"0%": 0, "0.01%": 1, "0.25%": 25, "1%": 100, "12.5%": 1250, "10.00%": 1000, "100%": promotion.All,
	} {
		got, err := promotion.ParseShare(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
		if back, err := promotion.ParseShare(got.String()); err != nil || back != want {
			t.Errorf("%s is written %s, which reads as %d, %v", text, got, back, err)
		}
	}
	for _, text := range []string{"", "%", "1", "01%", "1.%", ".5%", "-1%", "1.125%", "100.01%", "101%", "1e1%", "1 %", "+1%", "9999%"} {
		if got, err := promotion.ParseShare(text); err == nil {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}

func TestSideIsEvenSteadyAndSecret(t *testing.T) {
	const keys = 20_000
	within := func(secret, rule string, share promotion.Share) (n int) {
		for i := range keys {
			if promotion.Side([]byte(secret), rule, fmt.Sprintf("ip=192.0.2.%d", i)) < share {
				n++
			}
		}
		return n
	}
	for _, share := range []promotion.Share{1, 100, 1000, 5000, 9999, promotion.All} {
		want := keys * int(share) / int(promotion.All)
		if got := within("secret", "flood", share); got < want-want/10-20 || got > want+want/10+20 {
			t.Errorf("%s of %d keys: %d", share, keys, got)
		}
	}
	same := 0
	for i := range keys {
		subject := fmt.Sprintf("ip=192.0.2.%d", i)
		side := promotion.Side([]byte("secret"), "flood", subject)
		if again := promotion.Side([]byte("secret"), "flood", subject); again != side || side < 0 || side >= promotion.All {
			t.Fatalf("%s lies at %d, then at %d", subject, side, again)
		}
		if promotion.Side([]byte("other"), "flood", subject) == side || promotion.Side([]byte("secret"), "other", subject) == side {
			same++
		}
	}
	if same > keys/1000 {
		t.Errorf("%d of %d keys have the side that they have by another secret or rule", same, keys)
	}
}

func part(some, all int64) *promotion.Part { return &promotion.Part{Some: some, All: all} }

func n(v int64) *int64 { return &v }

// evidence passes the default gates.
func evidence() promotion.Evidence {
	return promotion.Evidence{Observed: promotion.Span(48 * time.Hour), Coverage: part(5, 10), Good: part(0, 5), Traffic: part(1000, 100_000)}
}

func TestGates(t *testing.T) {
	const all = "min_shadow max_known_good min_coverage max_traffic_share"
	for _, tt := range []struct {
		what   string
		change func(e *promotion.Evidence)
		missed string
	}{
		{"all is well", func(*promotion.Evidence) {}, ""},
		{"a day to the second", func(e *promotion.Evidence) { e.Observed = promotion.Span(24 * time.Hour) }, ""},
		{"a second less", func(e *promotion.Evidence) { e.Observed = promotion.Span(24*time.Hour - time.Second) }, "min_shadow: failed"},
		{"one good one", func(e *promotion.Evidence) { e.Good = part(1, 5) }, "max_known_good: failed"},
		{"too many requests", func(e *promotion.Evidence) { e.Traffic = part(1001, 100_000) }, "max_traffic_share: failed"},
		{"too few judged", func(e *promotion.Evidence) { e.Coverage = part(4, 10) }, "max_known_good: not measurable, min_coverage: failed"},
		{"too few judged, and one of them good", func(e *promotion.Evidence) { e.Coverage, e.Good = part(4, 10), part(1, 4) }, "max_known_good: failed, min_coverage: failed"},
		{"nobody could be judged", func(e *promotion.Evidence) { e.Coverage, e.Good = nil, nil }, "max_known_good: not measurable, min_coverage: not measurable"},
		{"nobody was over the limit", func(e *promotion.Evidence) { e.Coverage, e.Good = part(0, 0), part(0, 0) },
			"max_known_good: not measurable, min_coverage: not measurable"},
		{"the traffic is not known", func(e *promotion.Evidence) { e.Traffic = nil }, "max_traffic_share: not measurable"},
		{"nothing is known", func(e *promotion.Evidence) { *e = promotion.Evidence{} },
			"min_shadow: failed, max_known_good: not measurable, min_coverage: not measurable, max_traffic_share: not measurable"},
	} {
		e := evidence()
		tt.change(&e)
		verdicts := promotion.DefaultGates().Judge(&e)
		var names, missed []string
		for _, v := range verdicts {
			names = append(names, v.Gate)
		}
		for _, v := range promotion.Missed(verdicts) {
			missed = append(missed, v.Gate+": "+string(v.Outcome))
		}
		if got := strings.Join(missed, ", "); got != tt.missed || strings.Join(names, " ") != all {
			t.Errorf("%s: missed %q, want %q, of %v", tt.what, got, tt.missed, names)
		}
	}
	if got := len(promotion.Missed(promotion.DefaultGates().Judge(nil))); got != 4 {
		t.Errorf("without evidence %d of 4 gates miss", got)
	}
	lax := promotion.Gates{MaxKnownGood: promotion.All, MaxTrafficShare: promotion.All}
	if missed := promotion.Missed(lax.Judge(&promotion.Evidence{})); len(missed) != 3 {
		t.Errorf("gates that ask for nothing pass what is not measurable: %v", missed)
	}
}

func TestPrediction(t *testing.T) {
	gates, e := promotion.DefaultGates(), evidence()
	e.Good = part(2, 100) // a promotion was made over that
	p := gates.Predict(&e)
	for _, tt := range []struct {
		what string
		o    promotion.Observed
		want string
	}{
		{"as predicted", promotion.Observed{Blocks: n(100), Good: n(2), Released: n(2), Traffic: part(100, 10_000)}, ""},
		{"nothing yet", promotion.Observed{Blocks: n(0), Good: n(0), Released: n(0)}, ""},
		{"nothing is known", promotion.Observed{}, ""},
		{"more, as chance has it", promotion.Observed{Blocks: n(100), Good: n(5), Released: n(5), Traffic: part(120,
			10_000)}, ""},
		{"too few requests to tell", promotion.Observed{Blocks: n(1), Good: n(0), Released: n(0), Traffic: part(199,
			199)}, ""},
		{"good ones", promotion.Observed{Blocks: n(100), Good: n(9), Released: n(0)},
			"known-good sources: 9 of 100 blocks, 3.97% at least, predicted 2%"},
		{"releases", promotion.Observed{Blocks: n(100), Good: n(0), Released: n(9)},
			"releases: 9 of 100 blocks, 3.97% at least, predicted 2%"},
		{"traffic", promotion.Observed{Blocks: n(100), Good: n(0), Released: n(0), Traffic: part(200, 10_000)},
			"share of traffic: 200 of 10000 requests refused, 1.67% at least, predicted 1%"},
		{"of the least that is judged", promotion.Observed{Blocks: n(1), Good: n(0), Released: n(0), Traffic: part(200,
			200)}, "share of traffic: 200 of 200 requests refused, 96.8% at least, predicted 1%"},
	} {
		if got := p.Exceeded(&tt.o); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
	if got := p.Uncompared(); got != "" {
		t.Errorf("all is predicted: %q", got)
	}
	// Whoever has promoted over a share has seen it.
	e.Traffic = part(30, 100)
	if p = gates.Predict(&e); p.Traffic != 0.3 || p.Exceeded(&promotion.Observed{Blocks: n(100), Traffic: part(3500,
		10_000)}) != "" {
		t.Errorf("30%% were seen, and %+v is predicted", p)
	}
	e.Traffic = nil
	if got, want := gates.Predict(&e).Uncompared(),
		"the share of traffic: not compared, since the evidence could not predict it"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	worst := promotion.Observed{Blocks: n(1000), Good: n(1000), Released: n(1000), Traffic: part(1000, 1000)}
	if p = gates.Predict(nil); p.Exceeded(&worst) != "" ||
		p.Uncompared() != "known-good sources and releases and the share of traffic: not compared, since the evidence could not predict it" {
		t.Errorf("without evidence %+v, %q, %q", p, p.Exceeded(&worst), p.Uncompared())
	}
}

// The lower end is that share of which what was seen lies 2.58 standard deviations above: so Wilson defines it.
func TestLeast(t *testing.T) {
	for _, all := range []int64{1, 2, 3, 10, 99, 200, 10_000, 1 << 40} {
		for _, some := range []int64{0, 1, 2, 5, all / 3, all / 2, all - 1, all} {
			if some < 0 || some > all {
				continue
			}
			low, seen := promotion.Least(some, all), float64(some)/float64(all)
			if away := seen - low - 2.5758293035489004*math.Sqrt(low*(1-low)/float64(all)); low < 0 || low > seen ||
				math.Abs(away) > 1e-9 {
				t.Errorf("%d of %d: %g, off by %g", some, all, low, away)
			}
		}
	}
	for _, none := range [][2]int64{{0, 0}, {5, 0}, {-1, 10}, {1, -1}} {
		if got := promotion.Least(none[0], none[1]); got != 0 {
			t.Errorf("%d of %d: %g", none[0], none[1], got)
		}
	}
}

func TestStoredForm(t *testing.T) {
	canary := promotion.DefaultCanary()
	b, err := json.Marshal(struct {
		G promotion.Gates
		C promotion.Canary
	}{promotion.DefaultGates(), canary})
	const want = `{"G":{"min_shadow":"1d","max_known_good":"0%","min_coverage":"50%","max_traffic_share":"1%"},"C":{"steps":["1%","10%","50%"],"hold":"30m"}}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	var back promotion.Canary
	if err := json.Unmarshal([]byte(`{"steps":["1%","10%","50%"],"hold":"30m"}`), &back); err != nil || !back.Equal(&canary) {
		t.Errorf("%+v, %v", back, err)
	}
	for _, steps := range [][]promotion.Share{nil, {0}, {promotion.All}, {5, 5}, {10, 5}, make([]promotion.Share, 11)} {
		if promotion.CheckSteps(steps) == nil {
			t.Errorf("steps %v are taken", steps)
		}
	}
}
