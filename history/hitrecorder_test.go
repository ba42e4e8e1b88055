package history_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
)

// recordsOf draws the records that one episode may have sent, in the order of sending.
func recordsOf(r *rapid.T, n int) []detectors.Hit {
	h := hitNumber(n)
	var out []detectors.Hit
	for range rapid.IntRange(1, 5).Draw(r, "records") {
		out = append(out, h)
		h.Phase = detectors.PhaseUpdate
		h.Count += rapid.Int64Range(0, 3).Draw(r, "events")
		h.Peak += rapid.IntRange(0, 2).Draw(r, "peak")
		h.Last = h.Last.Add(rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(r, "last"))
		h.First = h.First.Add(-rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(r, "first"))
		h.Seen = h.Seen.Add(time.Second)
		h.Users += rapid.IntRange(0, 1).Draw(r, "users")
		h.Samples = rapid.SampledFrom([][]string{nil, h.Samples, {"a"}, {"a", "b"}, {"é"}}).Draw(r, "samples")
		h.Cut = h.Cut || rapid.Bool().Draw(r, "cut")
	}
	if last := &out[len(out)-1]; rapid.Bool().Draw(r, "ends") {
		last.Phase = rapid.SampledFrom([]detectors.Phase{detectors.PhaseClosed, detectors.PhaseMerged}).Draw(r, "end")
		if last.Phase == detectors.PhaseMerged {
			last.IntoID = fmt.Sprintf("%032x", n+1)
		} else {
			last.Reason = rapid.SampledFrom([]string{"", detectors.ReasonReset}).Draw(r, "reason")
		}
	}
	return out
}

// naiveRow is what an episode's records amount to, read off all of them at once.
func naiveRow(records []detectors.Hit) history.RecordedHit {
	rank := map[detectors.Phase]int{detectors.PhaseOpen: 1, detectors.PhaseUpdate: 2, detectors.PhaseClosed: 3, detectors.PhaseMerged: 4}
	row := history.RecordedHit{Stream: history.Live, Hit: records[0], SeenFirst: records[0].Seen}
	evidence := detectors.Hit{Samples: []string{}}
	for _, h := range records {
		if rank[h.Phase] > rank[row.Phase] {
			row.Phase = h.Phase
		}
		row.Count, row.Peak = max(row.Count, h.Count), max(row.Peak, h.Peak)
		row.First, row.Last = min(row.First, h.First), max(row.Last, h.Last)
		row.Seen, row.SeenFirst = max(row.Seen, h.Seen), min(row.SeenFirst, h.Seen)
		row.Users, row.Cut = max(row.Users, h.Users), row.Cut || h.Cut
		row.IntoID, row.Reason = max(row.IntoID, h.IntoID), max(row.Reason, h.Reason)
		better := h.Count > evidence.Count || h.Count == evidence.Count && (rank[h.Phase] > rank[evidence.Phase] ||
			h.Phase == evidence.Phase && slices.Compare(h.Samples, evidence.Samples) > 0)
		if len(h.Samples) > 0 && (len(evidence.Samples) == 0 || better) {
			evidence = h
		}
	}
	row.Samples = evidence.Samples
	return row
}

// Whatever the order in which an episode's records are read, how often, and how they fall into batches: the row is the
// same, and it is what a look at all of them says.
func TestRecorderIsOrderFree(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	recorder := b.hitRecorder(t, &letterBox{})
	episode := 0
	rapid.Check(t, func(r *rapid.T) {
		episode += 2
		records := recordsOf(r, episode)
		given := slices.Clone(records)
		for range rapid.IntRange(0, 4).Draw(r, "again") {
			given = append(given, rapid.SampledFrom(records).Draw(r, "twice"))
		}
		given = rapid.Permutation(given).Draw(r, "order")
		for len(given) > 0 {
			n := rapid.IntRange(1, len(given)).Draw(r, "batch")
			if err := recorder.Apply(t.Context(), messages(t, given[:n]...)); err != nil {
				r.Fatal(err)
			}
			given = given[n:]
		}
		device, err := history.ParseSource(fmt.Sprintf("device=tv-%d", episode))
		if err != nil {
			r.Fatal(err)
		}
		rows, err := b.Hits(t.Context(), history.HitQuery{Source: &device, Merged: true})
		if err != nil || len(rows) != 1 {
			r.Fatalf("%d rows, %v", len(rows), err)
		}
		rows[0].Recorded = time.Time{}
		if want := naiveRow(records); !reflect.DeepEqual(rows[0], want) {
			r.Fatalf("\n got %+v\nwant %+v", rows[0], want)
		}
	})
}

func TestDuplicatesCostNoWrite(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	recorder := b.hitRecorder(t, &letterBox{})
	batch := messages(t, hitNumber(1), hitNumber(2))
	version := func() int64 { return b.Number(t, "SELECT sum(xmin::text::bigint)::bigint FROM weir.hits_by_day") }
	if err := recorder.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	before := version()
	if err := recorder.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if after := version(); after != before {
		t.Error("records read again rewrote their rows")
	}
}

func TestReleaseIsAuditedOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	release := detectors.Hit{Format: detectors.HitFormat, Kind: detectors.KindRelease, ID: "r1", Rule: "flood", BlockSubject: "device=tv",
		By: "bob", Reason: "a school"}
	b.record(t, history.Live, release)
	b.record(t, history.Live, release, release)
	got, err := b.Audit.Of(t.Context(), "block flood device=tv", 0)
	if err != nil || len(got) != 1 || got[0].Actor != "bob" || got[0].Action != "release" || got[0].Reason != "a school" {
		t.Errorf("audit %+v, %v", got, err)
	}
}

// newerHits are records of the hits topic that this build does not know.
func newerHits() map[string]string {
	return map[string]string{
		"format":                 fmt.Sprintf(`{"v":%d,"kind":"hit","id":"00000000000000000000000000000001","rule":"a","phase":"open"}`, detectors.HitFormat+1),
		"format, other members":  fmt.Sprintf(`{"v":%d,"kind":"hit","id":["1"],"limit":{"of":3}}`, detectors.HitFormat+1),
		"kind":                   fmt.Sprintf(`{"v":%d,"kind":"weather","id":"00000000000000000000000000000001"}`, detectors.HitFormat),
		"kind that was reserved": fmt.Sprintf(`{"v":%d,"kind":"attempt","id":"00000000000000000000000000000001"}`, detectors.HitFormat),
	}
}

// A hit that a newer build wrote is that build's to record. What lies before it is stored; it and what lies behind it wait,
// however often they are given.
func TestHitOfANewerBuildIsLeftForItsReader(t *testing.T) {
	t.Parallel()
	for name, value := range newerHits() {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			box := &letterBox{}
			r := b.hitRecorder(t, box)
			batch := messages(t, hitNumber(1), hitNumber(2), hitNumber(3), hitNumber(4))
			batch[1].Value, batch[2].Value = []byte("damaged"), []byte(value)
			for i := range batch {
				batch[i].Partition, batch[i].Offset = 3, int64(100+i)
			}
			for range 3 {
				err := r.Apply(t.Context(), batch)
				var newer *detectors.UnknownFormatError
				if !errors.As(err, &newer) || !strings.Contains(err.Error(), "partition 3 offset 102") || !strings.Contains(err.Error(), "upgrade this process") {
					t.Fatalf("Apply: %v: its offset would be committed", err)
				}
			}
			if n := b.Number(t, "SELECT count(*) FROM weir.hits_all"); n != 1 || len(box.letters) > 0 {
				t.Errorf("%d hits stored, want the one before it; dead letters: %+v", n, box.letters)
			}
			if err := r.Apply(t.Context(), append(batch[:2:2], batch[3])); err != nil {
				t.Fatal(err)
			}
			if n := b.Number(t, "SELECT count(*) FROM weir.hits_all"); n != 2 || len(box.letters) != 1 {
				t.Errorf("without it: %d hits, dead letters: %+v", n, box.letters)
			}
		})
	}
}
