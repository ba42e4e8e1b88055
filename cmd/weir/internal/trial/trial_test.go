package trial_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/trial"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// topic is a topic of which only the append times are known, ascending, by partition. What is before start is gone.
type topic struct {
	ingest.TimedLog
	times [][]traffic.Time
	start []int64
}

func (t *topic) Bounds(_ context.Context, partitions []int) (map[int]ingest.Bounds, error) {
	out := map[int]ingest.Bounds{}
	for _, p := range partitions {
		out[p] = ingest.Bounds{Start: t.start[p], End: int64(len(t.times[p]))}
	}
	return out, nil
}

func (t *topic) OffsetsAt(_ context.Context, partitions []int, at traffic.Time) (map[int]int64, error) {
	out := map[int]int64{}
	for _, p := range partitions {
		i, _ := slices.BinarySearch(t.times[p], at)
		if out[p] = int64(i); i == len(t.times[p]) {
			out[p] = ingest.NoOffset
		}
	}
	return out, nil
}

// since counts what is there from a time on, one by one.
func (t *topic) since(at traffic.Time) (n int64) {
	for p := range t.times {
		for i, one := range t.times[p] {
			if int64(i) >= t.start[p] && one >= at {
				n++
			}
		}
	}
	return n
}

// However requests are spread over an hour: what is tried fits, is the newest, and is no less than it has to be.
func TestSinceFits(t *testing.T) {
	until := traffic.At(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	const most = 500
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		log := &topic{times: make([][]traffic.Time, 3), start: make([]int64, 3)}
		n, burst := random.IntN(4*most), time.Duration(1+random.IntN(3600))*time.Second
		for p := range log.times {
			for range n / 3 {
				span := time.Hour
				if random.IntN(3) > 0 {
					span = burst
				}
				log.times[p] = append(log.times[p], until.Add(-time.Duration(random.Int64N(int64(span)))))
			}
			slices.Sort(log.times[p])
			if random.IntN(3) == 0 && len(log.times[p]) > 0 {
				log.start[p] = int64(random.IntN(len(log.times[p])))
			}
		}
		got, err := trial.Span{Log: log, Partitions: 3, Until: until}.Since(t.Context(), time.Hour, most)
		var untried *acts.UntriedError
		if errors.As(err, &untried) {
			if n := log.since(until.Add(-time.Second)); n <= most {
				t.Fatalf("seed %d: %v, with %d in the last second", seed, err, n)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		hour := until.Add(-time.Hour)
		if fits := log.since(hour) <= most; log.since(got) > most || got < hour || fits != (got == hour) {
			t.Fatalf("seed %d: since %s: %d of %d, at most %d", seed, got, log.since(got), log.since(hour), most)
		}
	}
}

// Tests name the stored allow lists, and those of the files in their place.
func TestTestsKnowTheStoredLists(t *testing.T) {
	trials := trial.New(trial.Options{Config: config.Default(),
		Environment: func(warn func(rules.Problem)) (rules.Environment, error) {
			conditions, err := condition.New()
			return rules.Environment{Conditions: conditions, Warn: warn}, err
		}})
	const rule = `id: flood
owner: tests
match: {path: /x}
allow: [office]
key: [ip]
limit: 0
window: 1m
tests:
  - {name: passes, timeline: [{at: 0s, path: /x, ip: 192.0.2.1}], expect: {hits: []}}
  - {name: is over, timeline: [{at: 0s, path: /x, ip: 192.0.2.2}], expect: {hits: [{count: 1}]}}
`
	list := func(cidr string) string {
		return "---\nkind: allow\nid: office\nowner: tests\nentries: [{cidr: " + cidr + ", reason: x}]\n"
	}
	stored := []rules.AllowList{{ID: "office", Entries: []rules.AllowEntry{{Kind: rules.AllowCIDR,
		Value: "192.0.2.1/32"}}}}
	for _, tt := range []struct {
		name, text string
		want       [2]bool
	}{{"stored", rule, [2]bool{true, true}}, {"its own", rule + list("192.0.2.2"), [2]bool{false, false}}} {
		all, untested, err := trials.Tests(t.Context(), []acts.File{{Name: "flood.yaml", Text: tt.text}}, stored)
		if err != nil || len(untested) != 0 || len(all) != 2 || [2]bool{all[0].OK, all[1].OK} != tt.want {
			t.Errorf("%s: %+v, %v, %v", tt.name, all, untested, err)
		}
	}
	if _, _, err := trials.Tests(t.Context(), []acts.File{{Name: "flood.yaml", Text: rule}}, nil); err == nil ||
		!strings.Contains(err.Error(), "office") {
		t.Errorf("a list that there is not: %v", err)
	}
	long := strings.Replace(rule, "{at: 0s, path: /x, ip: 192.0.2.2}",
		"{at: 0s, path: /x, ip: 192.0.2.2, times: 60000, every: 1s}", 1)
	twice := []acts.File{{Name: "a.yaml", Text: long}, {Name: "b.yaml", Text: strings.Replace(long, "id: flood",
		"id: other", 1)}}
	var many *acts.Invalid
	if _, _, err := trials.Tests(t.Context(), twice, stored); !errors.As(err, &many) || many.Field != "files" {
		t.Errorf("tests of two files have 120,002 events: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, _, err := trials.Tests(ended, []acts.File{{Name: "flood.yaml", Text: rule}}, stored); !errors.Is(err,
		context.Canceled) {
		t.Errorf("nobody waits any more: %v", err)
	}
}
