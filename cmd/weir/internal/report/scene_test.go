package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const loginRule = `
id: login-guessing
owner: accounts
match: {method: POST, path: /login}
key: [ip]
limit: 5
window: 1m
block: {ttl: 10m}
`

// hostile is what a client may call its device: markup, a formula, a terminal's escape, a change of direction.
const hostile = "=cmd|' /C calc'!A0<script>alert(1)</script>\"'>\x1b[2J\u202e,;\n"

func version(t *testing.T, text string) rules.Version {
	t.Helper()
	docs, err := rules.ParseFiles([]rules.File{{Name: "rule.yaml", Src: []byte(text)}}, rules.Environment{Identity: traffic.DefaultIdentityMap()})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := rules.NextVersion(nil, docs[0])
	return v
}

func at(text string) traffic.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return traffic.At(t)
}

func subjectOf(ip, device string) traffic.Subject {
	return traffic.Subject("ip=" + strings.ReplaceAll(ip, "/", "%2F") + "&device=" + escaped(device))
}

// escaped writes every byte as a percent escape.
func escaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteByte('%')
		b.WriteByte("0123456789ABCDEF"[s[i]>>4])
		b.WriteByte("0123456789ABCDEF"[s[i]&15])
	}
	return b.String()
}

// scene is a report with a rule that blocks, one that watches, one that matched nothing, and a client that wants to be more than text.
func scene(t *testing.T) *Report {
	t.Helper()
	first, last := at("2026-11-21T08:00:29Z"), at("2026-11-21T09:12:00Z")
	guessing := version(t, loginRule)
	watching := version(t, "id: device-flood\nowner: devices\nmatch: {path: /v1/*}\nkey: [ip, device]\nlimit: 100\nwindow: 5m\n")
	idle := version(t, "id: never-seen\nowner: devices\nmatch: {method: PUT, path: '/<b>x'}\nkey: [ip]\nlimit: 100\nwindow: 5m\ncount: {distinct: device}\n")
	sample := `{"time":"2026-11-21T08:00:29.000000Z","ip":"203.0.113.9","method":"POST","path":"/login","status":401,"user_agent":"python-requests/2.32"}`
	bad := `{"time":"2026-11-21T08:00:29.000000Z","ip":"203.0.113.9","method":"=1+1","path":"/v1/<img src=x onerror=alert(1)>` + "\u202e" + strings.Repeat("y", 200) + `","user_agent":"` + "\u202e" + `"}`
	hits := []detectors.Hit{
		{Rule: "login-guessing", Subject: "ip=203.0.113.9%2F32", First: first, Last: first.Add(time.Minute), Count: 7, Peak: 12, Limit: 5, Users: 3, Devices: 1, ID: strings.Repeat("ab", 16)},
		{Rule: "login-guessing", Subject: "ip=203.0.113.9%2F32", First: last.Add(-time.Minute), Last: last, Count: 11, Peak: 16, Limit: 5, Users: 9, AtLeast: true, ID: strings.Repeat("cd", 16)},
	}
	flood := []detectors.Hit{{Rule: "device-flood", Subject: subjectOf("198.51.100.7/32", hostile), First: first, Last: last, Count: 300, Peak: 180, Limit: 100, ID: strings.Repeat("ef", 16)}}
	return &Report{
		Files: []string{"access.log.gz", "b<b>\u202e.log"}, Format: "combined", Reorder: 15 * time.Minute, Since: at("2026-11-21T00:00:00Z"), Until: at("2026-11-22T00:00:00Z"),
		Result: &backtest.Result{
			Lines: 10_120, Events: 10_000, LeftOut: 100, OwnRefusals: 4, Refused: map[string]int64{"malformed": 17, "truncated": 1},
			Examples: []string{"access.log.gz:61: malformed: <script>alert(1)</script>\x1b[2J", "b<b>.log:99: truncated: unexpected EOF"},
			TooLate:  1, Forced: 3, Evicted: 5, First: first, Last: last, Took: 1234 * time.Millisecond,
			Rules: []backtest.RuleResult{
				{
					Rule: guessing.ID, Version: guessing, Matched: 420, Counted: 411, Uncounted: map[string]int64{"late": 2, "missing_field": 7, "missing_value": 0},
					Sources: 1, Episodes: 2, Over: 18, First: first, Last: last,
					Top:   []backtest.Source{{Subject: "ip=203.0.113.9%2F32", Episodes: 2, Over: 18, Peak: 16, First: first, Last: last, Samples: []string{sample, sample}}},
					Peaks: []backtest.PeakBucket{{From: 1, To: 1, Sources: 1200}, {From: 2, To: 2, Sources: 310}, {From: 3, To: 5, Sources: 24}, {From: 6, To: 8}, {From: 9, To: 16, Sources: 1}}, PeaksShare: 1,
					Block: &backtest.BlockResult{Refused: 30, Held: 1, Offered: 420, ShareOfAll: 0.003, ShareOfMatched: 30.0 / 420, FirstRefused: first.Add(time.Second)},
					Hits:  slices.Values(hits),
				},
				{
					Rule: watching.ID, Version: watching, Matched: 9000, Counted: 9000, Sources: 12, Episodes: 13, Over: 300, First: first, Last: last,
					Top:    []backtest.Source{{Subject: subjectOf("198.51.100.7/32", hostile), Episodes: 13, Over: 300, Peak: 180, First: first, Last: last, Samples: []string{bad}}},
					TopCut: 11, Peaks: []backtest.PeakBucket{{From: 1, To: 100, Sources: 3000}, {From: 101, To: 200, Sources: 12}}, PeaksShare: 16,
					Hits: slices.Values(flood), HitsCut: 12,
				},
				{Rule: idle.ID, Version: idle, Hits: slices.Values([]detectors.Hit(nil))},
			},
		},
	}
}

// sweep is a report of three limits of one rule.
func sweep(t *testing.T) *Report {
	t.Helper()
	r := scene(t)
	r.Sweep = backtest.SweepLimit
	r.Result.Rules = r.Result.Rules[:1]
	base := r.Result.Rules[0]
	r.Result.Rules = nil
	for _, tried := range []struct {
		limit            int
		sources, refused int64
	}{{10, 1, 0}, {1, 335, 600}, {5, 1, 30}} {
		found := base
		found.Version.Limit, found.Sources = tried.limit, tried.sources
		found.Swept = map[int]string{1: "limit=1", 5: "limit=5", 10: "limit=10"}[tried.limit]
		b := *base.Block
		b.Refused, b.ShareOfAll = tried.refused, float64(tried.refused)/10_000
		found.Block, found.HitsCut = &b, 3
		if tried.limit < 10 {
			found.Peaks = found.Peaks[:1] // what a lower limit keeps may be less
		}
		r.Result.Rules = append(r.Result.Rules, found)
	}
	return r
}
