package route

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

func judging() *Router {
	return &Router{opt: *routedOptions(true), tally: newTally(), refused: map[int]refusedCommit{}}
}

func TestJudgeCommit(t *testing.T) {
	says := func(g, offset, end int64, keyed int) ingest.Commit {
		a := ingest.Announcement{Generation: g, Offset: offset, End: end, Version: 3, Prev: sentBefore(0, keyed), Progress: noon}
		return a.Commit()
	}
	moved := says(7, 50, 60, simKeyed)
	movedTo := func(o int64) ingest.Commit { return ingest.Commit{Offset: o, Metadata: moved.Metadata} }
	log := ingest.Bounds{Start: 40, End: 100}
	tests := []struct {
		name     string
		commit   ingest.Commit
		absent   bool
		log      ingest.Bounds
		want     string // part of the reason; empty: taken
		gap, end int64
		progress traffic.Time
	}{
		{name: "good", commit: says(7, 50, 60, simKeyed), log: log},
		{name: "at the log's start", commit: says(7, 40, 40, simKeyed), log: log},
		{name: "at the log's end", commit: says(7, 100, 100, simKeyed), log: log},
		{name: "announced up to the log's end", commit: says(7, 50, 100, simKeyed), log: log},
		{name: "absent", absent: true, log: log, want: "no commit", gap: 40, end: 40, progress: traffic.BeforeTime},
		{name: "no metadata", commit: ingest.Commit{Offset: 55}, log: log, want: "another tool", gap: 55, end: 55, progress: traffic.BeforeTime},
		{name: "no metadata, before the log", commit: ingest.Commit{Offset: 3}, log: log, want: "another tool", gap: 40, end: 40, progress: traffic.BeforeTime},
		{name: "no metadata, beyond the log", commit: ingest.Commit{Offset: 300}, log: log, want: "another tool", gap: 100, end: 100, progress: traffic.BeforeTime},
		{name: "foreign metadata", commit: ingest.Commit{Offset: 55, Metadata: "hello"}, log: log, want: "cannot be read", gap: 55, end: 55, progress: traffic.BeforeTime},
		{name: "an older generation", commit: says(6, 50, 60, simKeyed), log: log, want: "run weir migrate", gap: 40, end: 40, progress: traffic.BeforeTime},
		{name: "a newer generation", commit: says(8, 50, 60, simKeyed), log: log, want: "restart it", gap: noGap},
		{name: "other partitions", commit: says(7, 50, 60, simKeyed+1), log: log, want: "5 keyed partitions", gap: noGap},
		{name: "moved forward by hand", commit: movedTo(55), log: log, want: "offsets 50 to 54 would be lost", gap: 55, end: 60, progress: noon},
		{name: "moved far forward by hand", commit: movedTo(80), log: log, want: "moved by hand", gap: 80, end: 80, progress: noon},
		{name: "moved back by hand", commit: movedTo(45), log: log, want: "goes on at offset 50", gap: 50, end: 60, progress: noon},
		{name: "moved beyond the log by hand", commit: movedTo(500), log: log, want: "moved by hand", gap: 100, end: 100, progress: noon},
		{name: "retention passed the commit", commit: says(7, 30, 35, simKeyed), log: log, want: "offsets 30 to 39 would be lost", gap: 40, end: 40, progress: noon},
		{name: "retention is within the announced chunk", commit: says(7, 30, 45, simKeyed), log: log, want: "retention", gap: 40, end: 45, progress: noon},
		{name: "the log is shorter than the commit", commit: says(7, 150, 160, simKeyed), log: log, want: "has lost records", gap: noGap},
		{name: "the log is shorter than the announcement", commit: says(7, 90, 160, simKeyed), log: log, want: "has lost records", gap: noGap},
		{name: "an empty log", commit: says(7, 5, 5, simKeyed), log: ingest.Bounds{}, want: "has lost records", gap: noGap},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at, no := judging().judge(0, tt.commit, !tt.absent, tt.log)
			if tt.want == "" {
				if no != nil || at.Offset != tt.commit.Offset || at.Version != 3 {
					t.Errorf("got %+v, %+v; want it taken", at, no)
				}
				return
			}
			if no == nil || !strings.Contains(no.reason, tt.want) || no.gap() != tt.gap {
				t.Fatalf("got %+v, want a refusal with %q and gap %d", no, tt.want, tt.gap)
			}
			if tt.gap == noGap {
				return
			}
			r := no.resume
			if r.Offset != tt.gap || r.End != tt.end || r.Progress != tt.progress || r.Generation != 7 || len(r.Prev) != simKeyed || r.Prev[0] != tt.gap-1 {
				t.Errorf("resumes at %+v, want [%d,%d) progress %v", r, tt.gap, tt.end, tt.progress)
			}
			if r.End > r.Offset && r.Version == 0 {
				t.Errorf("resumes in an announced chunk without its version: %+v", r)
			}
		})
	}
}

// TestJudgeRemembers: a log that has lost records grows past its commit, and must not look healthy then.
func TestJudgeRemembers(t *testing.T) {
	r := judging()
	c := (&ingest.Announcement{Generation: 7, Offset: 150, End: 160, Version: 3, Prev: sentBefore(0, simKeyed)}).Commit()
	if _, no := r.judge(0, c, true, ingest.Bounds{Start: 0, End: 100}); no == nil || no.gap() != noGap {
		t.Fatalf("got %+v, want a refusal that nobody can lift: fences may stand beyond the log's end", no)
	}
	if _, no := r.judge(0, c, true, ingest.Bounds{Start: 0, End: 159}); no == nil || no.gap() != noGap {
		t.Errorf("the log has grown, but not far enough: got %+v", no)
	}
	if _, no := r.judge(0, c, true, ingest.Bounds{Start: 0, End: 1000}); no == nil || no.gap() != 160 || no.resume.Prev[1] != 159 {
		t.Errorf("the log has grown: got %+v, want a gap up to what was announced", no)
	}
	if _, no := r.judge(0, c, true, ingest.Bounds{Start: 170, End: 1000}); no == nil || no.gap() != 170 || no.resume.Prev[1] != 169 {
		t.Errorf("retention has passed the gap: got %+v, want a gap up to 170", no)
	}
	if _, no := r.judge(0, ingest.InitialCommit(7, 100, 0, simKeyed), true, ingest.Bounds{Start: 0, End: 1000}); no != nil {
		t.Errorf("another commit: got %+v, want it taken", no)
	}
}
