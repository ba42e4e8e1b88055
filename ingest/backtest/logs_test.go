package backtest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// realLogs are those of internal/acceptance, with what its oracle says of them.
var realLogs = []struct {
	name, file string
	combined   bool
	key        string
	sources    int64 // over 10 in (t-60s, t]
	late       string
	episodes   int64 // of the sorted log
	over       int64
}{
	{name: "elastic-apache", file: "elastic-apache.log.gz", combined: true, key: "[ip]", sources: 79, episodes: 108, over: 1729},
	{name: "saunathinker", file: "saunathinker.jsonl.gz", key: "[ip]", sources: 2, episodes: 2, over: 764},
	{name: "farmwork", file: "farmwork.jsonl.gz", key: "[ip]", sources: 2, episodes: 83, over: 3346},
	{name: "seart-api-nginx", file: "seart-api-nginx.jsonl.gz", key: "[ip]"},
	{name: "cloudtrail", file: "cloudtrail-invictus.jsonl.gz", key: "[user, session]", late: "15m", sources: 15, episodes: 20, over: 2351},
}

func TestRealLogs(t *testing.T) {
	t.Parallel()
	for _, log := range realLogs {
		t.Run(log.name, func(t *testing.T) {
			t.Parallel()
			late := log.late
			if late == "" {
				late = "60s"
			}
			file := onDisk(t, filepath.Join("..", "..", "internal", "acceptance", "testdata", "logs", log.file))
			o := Options{Format: "combined", Identity: traffic.DefaultIdentityMap()}
			if !log.combined {
				o.Format, o.Fields = "json", map[string]string{"time": "ts", "user_agent": "ua"}
			}
			o.Rules = parseRules(t, fmt.Sprintf("id: burst\nowner: tests\nmatch: {}\nkey: %s\non_missing: skip\nlimit: 10\nwindow: 60s\nlateness: %s\n", log.key, late))
			r := run1(t, o, file)
			if got := r.Rules[0]; got.Sources != log.sources || got.Uncounted["late"] != 0 || len(r.Refused) != 0 || got.Matched != r.Events {
				t.Errorf("as it comes: %d sources, uncounted %v, %d matched, refused %v", got.Sources, got.Uncounted, got.Matched, r.Refused)
			}
			o.Reorder = 15 * time.Minute
			if log.late != "" {
				o.Rules[0].Lateness = time.Minute
			}
			for workers := range 8 {
				o.Workers = workers + 1
				r = run1(t, o, file)
				if got := r.Rules[0]; got.Counted+got.Uncounted["late"]+got.Uncounted["missing_field"] != got.Matched {
					t.Errorf("sorted: %d counted and uncounted %v are not %d matched", got.Counted, got.Uncounted, got.Matched)
				}
				if got := r.Rules[0]; got.Sources != log.sources || got.Episodes != log.episodes || got.Over != log.over {
					t.Errorf("sorted, with %d workers: %d sources, %d episodes, %d over, want %d, %d, %d", o.Workers, got.Sources, got.Episodes, got.Over, log.sources, log.episodes, log.over)
				}
			}
			// One pass gives what a pass for each limit gives.
			limits := []int{5, 10, 20, 50}
			o.Sweep = Sweep{Field: SweepLimit, Limits: limits}
			swept := run1(t, o, file)
			for i, limit := range limits {
				alone := o
				alone.Sweep, alone.Rules = Sweep{}, []rules.Version{o.Rules[0]}
				alone.Rules[0].Limit = limit
				equalRules(t, fmt.Sprintf("limit %d", limit), &swept.Rules[i], &run1(t, alone, file).Rules[0])
			}
		})
	}
}

// equalRules compares what two runs have found, but for the ids.
func equalRules(t *testing.T, what string, got, want *RuleResult) {
	t.Helper()
	if got.Sources != want.Sources || got.Episodes != want.Episodes || got.Over != want.Over || got.Matched != want.Matched ||
		got.Counted != want.Counted || !maps.Equal(got.Uncounted, want.Uncounted) || got.First != want.First || got.Last != want.Last {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
	a, b := episodesOf(got), episodesOf(want)
	if !maps.Equal(a, b) {
		t.Errorf("%s: episodes\n got %v\nwant %v", what, a, b)
	}
}

// episode is what is equal of an episode in whatever way its log was run.
type episode struct {
	rule        string
	subject     traffic.Subject
	first, last traffic.Time
	count       int64
}

func episodesOf(r *RuleResult) map[episode]int {
	out := map[episode]int{}
	r.Hits(func(h detectors.Hit) bool {
		out[episode{h.Rule, h.Subject, h.First, h.Last, h.Count}]++
		return true
	})
	return out
}

func onDisk(t testing.TB, path string) File {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return File{Name: path, Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(path) }}
}

// fataler is what a test and a rapid test have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func parseRules(t fataler, texts ...string) []rules.Version {
	t.Helper()
	var out []rules.Version
	for i, text := range texts {
		conditions, err := condition.New()
		if err != nil {
			t.Fatal(err)
		}
		docs, err := rules.ParseFiles([]rules.File{{Name: fmt.Sprint(i), Src: []byte(text)}}, rules.Environment{Identity: identity(), Conditions: conditions})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			v, _ := rules.NextVersion(nil, d)
			out = append(out, v)
		}
	}
	return out
}

func run1(t fataler, o Options, files ...File) *Result {
	t.Helper()
	if reflect.ValueOf(o.Identity).IsZero() {
		o.Identity = identity()
	}
	r, err := Run(context.Background(), o, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// identity is the default map of a gateway that vouches for users and devices, so that blocks may name them.
func identity() traffic.IdentityMap {
	m := traffic.DefaultIdentityMap()
	m.User.Vouched, m.Device.Vouched = true, true
	return m
}
