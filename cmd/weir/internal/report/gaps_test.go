package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/traffic"
)

// What could not be read of a live topic, and what was given up, stands among what was not read.
func TestGapsAreTold(t *testing.T) {
	t.Parallel()
	r := &Report{Files: []string{"weir.requests"}, Live: true, Result: &backtest.Result{
		Lines: 3, Events: 2, GivenUp: []string{"b\u202e.log"}, Examples: []string{"one.gz:7: truncated: unexpected EOF"},
		Broken: []archive.Break{{File: "one.gz", Line: 7, Reason: "truncated", Detail: "unexpected EOF"}, {File: "t\u202ewo.gz", Line: 9, Reason: "unreadable", Detail: "gzip: invalid checksum"}},
		Gaps:   []backtest.Gap{{Partition: 3, From: -1, To: 70, Why: "expired: x"}, {Partition: 4, From: 5, To: 9, Why: "bad\x1b checksum"}},
	}}
	got := r.unread()
	for _, want := range []string{
		"  one.gz:7: truncated: unexpected EOF", "  t·wo.gz:9: unreadable: gzip: invalid checksum", "given up: b", "not read, partition 3: what came before offset 70: expired: x", "not read, partition 4: offsets 5 up to, not with, 9: bad",
	} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if all := strings.Join(got, "\n"); strings.ContainsAny(all, "\u202e\x1b") || strings.Count(all, "one.gz") != 1 {
		t.Errorf("%q", all)
	}
	if got := r.headline(); !strings.HasPrefix(got, "2 events of 3 records") {
		t.Errorf("headline %q", got)
	}
	r.Result.Gaps = slices.Repeat(r.Result.Gaps, 10)
	if got := r.gaps(); len(got) != gapsShown+1 || got[gapsShown] != "  and 12 gaps more" {
		t.Errorf("%q", got)
	}
}

// An answer without events, or without one that a rule watches, says by which time the live events were chosen: they may have happened then,
// and have come later.
func TestNothingFoundSaysByWhichTime(t *testing.T) {
	t.Parallel()
	noon := traffic.Time(1_767_268_800_000_000)
	for _, tt := range []struct {
		since, until traffic.Time
		want         string
	}{
		{noon, noon.Add(time.Hour), " between 2026-01-01T12:00:00Z and 2026-01-01T13:00:00Z, by append time, at which Kafka took them"},
		{noon, 0, " since 2026-01-01T12:00:00Z, by append time, at which Kafka took them"},
		{0, noon, " before 2026-01-01T12:00:00Z, by append time, at which Kafka took them"},
		{0, 0, ""},
	} {
		var said bytes.Buffer
		r := &Report{Live: true, Since: tt.since, Until: tt.until, Result: &backtest.Result{}}
		if err := r.Warn(&said); err != nil {
			t.Fatal(err)
		}
		want := "weir: nothing to count: 0 events" + tt.want + "\n"
		if tt.want == "" {
			want = "weir: nothing to count: the topic has no record\n"
		}
		if said.String() != want {
			t.Errorf("%q, want %q", said.String(), want)
		}
		r.Result = &backtest.Result{Lines: 3, Events: 3, Rules: []backtest.RuleResult{{Rule: "a"}}}
		if got := r.notes(); len(got) != 1 || !strings.HasPrefix(got[0], "rule a matched none of 3 events"+tt.want+": it watches ") {
			t.Errorf("%q, want %q in it", got, tt.want)
		}
		r.Live = false
		if got := r.notes(); len(got) != 1 || strings.Contains(got[0], "append time") {
			t.Errorf("of files: %q", got)
		}
	}
}
