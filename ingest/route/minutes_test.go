package route

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// Chunks of events of any minutes are counted, each event once: by its own minute, and by each rule that watches it. The store may fail and
// not answer; routers come and go, each with its last report made.
func TestMinutesAreStoredOnce(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, blockRouting(t, `event.plan == "paid"`))
	rapid.Check(t, func(t *rapid.T) {
		now := noon.Add(100 * 24 * time.Hour)
		store := &figureStore{sums: map[string]int64{}}
		store.fails = func() (bool, bool) {
			return rapid.Bool().Draw(t, "fails before"), rapid.Bool().Draw(t, "fails after")
		}
		opt := *opt
		opt.Owner, opt.Figures, opt.Clock = "a", store, func() traffic.Time { return now }
		m := newMinutes(&opt, newTally())
		want := map[string]int64{}
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 11, 60, 200}).Draw(t, "seconds")) * time.Second)
			m.add(drawMinutes(t, v, &opt, want))
			_ = m.due(t.Context())
			if rapid.IntRange(0, 4).Draw(t, "restarts") == 0 {
				store.fails = func() (bool, bool) { return false, false }
				if err := m.store(t.Context()); err != nil {
					t.Fatal(err)
				}
				now++ // a process under the same name begins later than the one before
				m = newMinutes(&opt, newTally())
			}
		}
		store.fails = func() (bool, bool) { return false, false }
		if err := m.store(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for id, n := range store.sums {
			fields := strings.Fields(id) // stream, router, part, minute, what
			if n != 0 {
				got[fields[3]+" "+fields[4]] += n
			}
		}
		if store.shrunk != "" || !maps.Equal(got, want) {
			t.Fatalf("stored %v\nwant %v; a sum that shrank: %q", got, want, store.shrunk)
		}
	})
}

// drawMinutes builds a chunk of events, and adds what is to be counted of them to want.
func drawMinutes(t *rapid.T, v *routingVersion, opt *Options, want map[string]int64) map[traffic.Time]*minuteCounts {
	var messages []traffic.Message
	for o := range rapid.IntRange(0, 12).Draw(t, "events") {
		e := blockEvent{
			path: rapid.SampledFrom([]string{"/login", "/pay", "/other"}).Draw(t, "path"), ip: "192.0.2.7", status: 200,
			plan:    rapid.SampledFrom([]string{"paid", "free", ""}).Draw(t, "plan"),
			verdict: rapid.SampledFrom([]string{"", "", `"verdict":{"rule":"r"},`}).Draw(t, "verdict"),
			at:      noon.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * time.Second),
		}
		messages = append(messages, e.message(int64(o)))
		count := func(what string) { want[fmt.Sprint(e.at-e.at%60_000_000, " ", what)]++ }
		count("events")
		if e.verdict != "" {
			count("refused")
			continue
		}
		if what := map[string]string{"paid": "good", "": "unjudged"}[e.plan]; what != "" {
			count(what)
		}
		count("rule-g-none")
		for _, rule := range map[string][]string{"/login": {"a-plain", "d-other", "e-wider"}, "/pay": {"f-sum"}}[e.path] {
			count("rule-" + rule)
		}
	}
	end := int64(len(messages))
	messages = append(messages, traffic.Message{Offset: end, Appended: noon, Value: []byte("no event")})
	return newBuilder(opt, &hintMemory{}).build([]*source{sourceAt(0, v, 0, end+1)}, filled(map[int]int64{0: end + 1}, messages...)).stats.minutes
}

// What no rule watches has its minutes, too.
func TestUnwatchedEventsHaveTheirMinutes(t *testing.T) {
	opt, routing := routedOptions(true), blockRouting(t, "")
	routing.Rules, routing.Allow = routing.Rules[:1], nil
	messages := goodEvents(10)
	c := newBuilder(opt, &hintMemory{}).build([]*source{sourceAt(0, compiled(t, opt, routing), 0, 10)}, filled(map[int]int64{0: 10}, messages...))
	got := c.stats.minutes[noon]
	if len(c.stats.minutes) != 1 || got.events != 10 || got.unwatched != 5 || got.unjudged != 10 || got.good != 0 || got.matched["a-plain"] != 5 {
		t.Errorf("%+v", got)
	}
	if judged := c.stats.KnownGood; judged[detectors.NotJudged] != 10 {
		t.Errorf("judged %v", judged)
	}
}

// While the store is away no more is kept than fits, and what does not is counted.
func TestMinutesAreBounded(t *testing.T) {
	opt, tally := routedOptions(true), newTally()
	opt.Figures, opt.Clock = &figureStore{}, func() traffic.Time { return noon }
	m := newMinutes(opt, tally)
	for minute := range traffic.Time(maxOpenSums/2 + 10) {
		m.add(map[traffic.Time]*minuteCounts{minute * figuresMinute: {events: 3, matched: map[string]int64{"r": 1}}})
	}
	if m.sums != maxOpenSums || len(m.open) != maxOpenSums/2 || tally.snapshot().MinutesLeftOut != 30 {
		t.Errorf("%d sums, %d minutes, %d events left out; want %d, %d, 30", m.sums, len(m.open), tally.snapshot().MinutesLeftOut, maxOpenSums, maxOpenSums/2)
	}
}

func TestMinuteOf(t *testing.T) {
	for at, want := range map[traffic.Time]traffic.Time{
		0: 0, 59_999_999: 0, 60_000_000: 60_000_000, -1: -60_000_000, -60_000_000: -60_000_000,
		traffic.BeforeTime: firstMinute, traffic.EndOfTime: lastMinute, firstMinute + 5: firstMinute, lastMinute + 59_999_999: lastMinute,
	} {
		if got := minuteOf(at); got != want {
			t.Errorf("%v lies in the minute %v, want %v", at, got, want)
		}
	}
}
