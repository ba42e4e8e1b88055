package acceptance

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// backtestRules are of all kinds of windows.
const backtestRules = `
id: by-ip
owner: tests
match: {}
key: [ip]
limit: 10
window: 60s
block: {key: [ip], ttl: 10m}
---
id: by-method
owner: tests
match: {method: [POST, HEAD], path: /*}
key: [ip]
limit: 1
window: 5m
---
id: fixed
owner: tests
match: {}
key: [ip]
limit: 8
window: 60s
algorithm: fixed
---
id: bucket
owner: tests
match: {}
key: [{field: ip, v4: 24, v6: 48}]
limit: 12
window: 60s
algorithm: token-bucket
---
id: sessions
owner: tests
match: {}
key: [user, session]
on_missing: skip
limit: 10
window: 60s
lateness: 15m
---
id: users
owner: tests
match: {}
key: [ip]
count: {distinct: user}
limit: 1
window: 10m
---
id: all
owner: tests
match: {}
key: []
limit: 100
window: 60s
---
id: pages-of-an-agent
owner: tests
match: {}
key: [user_agent, ip]
count: {distinct: [path, method]}
limit: 8
window: 10m
block: {key: [ip], ttl: 10m}
---
id: traffic-of-a-path
owner: tests
match: {path: "/{top}/*"}
key: ["{top}", "user|ip"]
count: {sum: bytes}
limit: 500000
window: 5m
`

// TestBacktestIsAReplay holds a backtest to the replay of the same file: its hits are the same, id by id, with one source
// partition or several; a source whose events come through several of them has at least the same episodes.
func TestBacktestIsAReplay(t *testing.T) {
	t.Parallel()
	in := newInstall(t, [3]int{1, 8, 2}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 0)
	identity := traffic.DefaultIdentityMap()
	identity.Device = traffic.FieldSource{Header: "X-Device-Id", Vouched: true}
	docs, err := rules.ParseFiles([]rules.File{{Name: "rules.yaml", Src: []byte(backtestRules)}}, rules.Environment{Identity: identity})
	if err != nil {
		t.Fatal(err)
	}
	o := backtest.Options{Identity: identity}
	for _, d := range docs {
		v, _ := rules.NextVersion(nil, d)
		o.Rules = append(o.Rules, v)
	}
	in.query("SELECT value FROM {ns}.secrets", func(rows pgx.Rows) error {
		var value []byte
		err := rows.Scan(&value)
		copy(o.Secret[:], value)
		return err
	})
	file := in.Write("backtest.yaml", backtestRules)
	for _, log := range realLogs {
		for _, partitions := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d partitions", log.name, partitions), func(t *testing.T) {
				path, err := filepath.Abs(filepath.Join("testdata", "logs", log.file))
				if err != nil {
					t.Fatal(err)
				}
				o := o
				o.Format, o.Partitions = "combined", partitions
				name := fmt.Sprintf("backtest-%s-%d", log.name, partitions)
				args := []string{"ingest", path, "--replay", name, "--partitions", fmt.Sprint(partitions), "--rules", file, "--format", "combined"}
				if !log.combined {
					o.Format, o.Fields = "json", map[string]string{"time": "ts", "user_agent": "ua"}
					args = append(args[:len(args)-1], "json", "--map", "time=ts,user_agent=ua")
				}
				if partitions > 1 {
					o.Reorder = 15 * time.Minute
					args = append(args, "--reorder", "15m")
				}
				var s summary
				in.json(&s, args...)
				var recorded []detectors.Hit
				in.json(&recorded, "history", "hits", "--replay", name, "--limit", "100000")
				samples := map[string][]string{}
				in.query(`SELECT id, samples FROM {ns}.hits_all WHERE stream = 'replay/`+name+`'`, func(rows pgx.Rows) error {
					var id string
					var kept []string
					err := rows.Scan(&id, &kept)
					samples[id] = kept
					return err
				})
				for i := range recorded {
					recorded[i].Samples = overLimit(samples[recorded[i].ID])
				}
				if len(recorded) > 0 {
					o.Generation = recorded[0].Generation
				}
				got, err := backtest.Run(context.Background(), o, []backtest.File{{Name: path, Size: -1, Open: func() (io.ReadCloser, error) { return os.Open(path) }}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got.Events != int64(s.Events) {
					t.Errorf("%d events, the replay has %d", got.Events, s.Events)
				}
				compareHits(t, got, recorded, partitions == 1)
				for i, r := range s.Rules {
					b := &got.Rules[i]
					if partitions > 1 && (r.Rule == "all" || r.Rule == "bucket") {
						continue
					}
					if r.Rule != b.Rule || int64(r.Sources) != b.Sources || int64(r.Episodes) != b.Episodes || r.Events != b.Over || int64(r.LateWithKey) != b.Uncounted["late"] {
						t.Errorf("%s: %d sources, %d episodes, %d events, uncounted %v, the replay has %+v", b.Rule, b.Sources, b.Episodes, b.Over, b.Uncounted, r)
					}
				}
			})
		}
	}
}

// overLimit are the samples of events over the limit, as a backtest has them: what came before, and whether it is known, stages alone keep.
func overLimit(samples []string) []string {
	var out []string
	for _, s := range samples {
		if s = regexp.MustCompile(`^(\{"time":"[^"]*"),"earlier":"[a-z]+"`).ReplaceAllString(s, "$1"); !regexp.MustCompile(`^\{"time":"[^"]*","before":true`).MatchString(s) {
			out = append(out, s)
		}
	}
	return out
}

// compareHits compares all that a hit says but for when it was seen; without ids only what does not depend on the order in
// which events of several source partitions arrive.
func compareHits(t *testing.T, got *backtest.Result, recorded []detectors.Hit, ids bool) {
	t.Helper()
	// Whose events come through several source partitions is counted in the order of their arrival, which is chance in a replay.
	spread := func(h *detectors.Hit) bool { return !ids && (h.Rule == "all" || h.Rule == "bucket") }
	line := func(h *detectors.Hit) string {
		if !ids && h.Rule == "sessions" { // of several addresses, and so of several source partitions
			return fmt.Sprint(h.Rule, h.Subject, h.First, h.Last, h.Count)
		}
		if !ids { // how far the watermark was behind is chance too, and peaks are lower bounds
			return fmt.Sprint(h.ID, h.Rule, h.Subject, h.First, h.Last, h.Count, h.Source, h.Offset)
		}
		return fmt.Sprint(h.ID, h.Rule, h.RuleVersion, h.Lineage, h.Subject, h.BlockSubject, h.Grouped, h.Limit, h.WindowMS, h.Count, h.AtLeast, min(h.Peak, h.Limit+1),
			h.First, h.Last, h.Cut, h.Source, h.Offset, h.Users, h.Devices, h.Samples)
	}
	var have, want []string
	peaks := map[string]int{} // of the replay, whose stages follow who is over a limit further
	for i := range recorded {
		peaks[recorded[i].ID] = recorded[i].Peak
	}
	for i := range got.Rules {
		for h := range got.Rules[i].Hits {
			if peak, known := peaks[h.ID]; ids && known && h.Peak > peak {
				t.Errorf("hit %s: a peak of %d, the replay says %d", h.ID, h.Peak, peak)
			}
			if !spread(&h) {
				have = append(have, line(&h))
			}
		}
	}
	for i := range recorded {
		if !spread(&recorded[i]) {
			want = append(want, line(&recorded[i]))
		}
	}
	for _, x := range have {
		if i := slices.Index(want, x); i >= 0 {
			want = slices.Delete(want, i, i+1)
		} else {
			t.Errorf("the replay has not: %s", x)
		}
	}
	for _, x := range want {
		t.Errorf("only the replay has: %s", x)
	}
}
