package acts_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/ingest"
)

// at is a gap that somebody was shown.
func at(source int, offset int64, side ingest.Side, n int, reason string) acts.ResumeRequest {
	return acts.ResumeRequest{Side: side, Partition: n, GapSource: &source, GapOffset: &offset, Reason: reason}
}

// TestResumeTakesTheGapThatWasShown: what is accepted is what whoever asks has looked at, of a partition that has
// stopped, by an admin who says why; and it is stored and audited once, however often it is asked for.
func TestResumeTakesTheGapThatWasShown(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	s, err := acts.New(acts.Options{
		Rules: in.Rules, Gates: in, Blocks: in, Releases: in, Documents: in, Dossiers: in, Clock: now,
		Erasing: erasure.New(in.DB, in.Streams), Logger: slog.New(slog.DiscardHandler), Orders: in.Orders,
		Knows: explore.New(in.Store), Partitions: in.Partitions,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	none := ingest.PartitionStatus{GapSource: ingest.GapInKeyed, GapOffset: ingest.NoOffset}
	running, leaderless, halted, refused := none, none, none, none
	running.Side, running.Partition, running.State = ingest.SideKeyed, 0, ingest.Running
	leaderless.Side, leaderless.Partition, leaderless.State, leaderless.Reason = ingest.SideKeyed, 1, ingest.Halted,
		"it has no leader"
	halted.Side, halted.Partition, halted.State, halted.GapSource, halted.GapOffset = ingest.SideKeyed, 2,
		ingest.Halted,
		5, 70
	refused.Side, refused.Partition, refused.State, refused.GapSource, refused.GapOffset = ingest.SideRequests, 0,
		ingest.Refused, 0, 0
	if err := in.Partitions.Report(ctx, history.Live, []ingest.PartitionStatus{running, leaderless, halted,
		refused}); err != nil {
		t.Fatal(err)
	}
	adam := access.Actor{Name: "adam", Role: access.Admin, Via: access.ViaToken}
	const why = "broker 3 lost its disk"
	withoutGap, withoutOffset := at(5, 70, ingest.SideKeyed, 2, why), at(5, 70, ingest.SideKeyed, 2, why)
	withoutGap.GapSource, withoutOffset.GapOffset = nil, nil
	for _, tt := range []struct {
		name string
		who  access.Actor
		r    acts.ResumeRequest
		says string
	}{
		{"no reason", adam, at(5, 70, ingest.SideKeyed, 2, ""), "reason: got"},
		{"a reason of nothing that can be seen", adam, at(5, 70, ingest.SideKeyed, 2, "\u202e…"), "reason: got"},
		{"a reason beyond all bounds", adam, at(5, 70, ingest.SideKeyed, 2, strings.Repeat("x", 2001)), "2001 bytes"},
		{"a viewer", access.Actor{Name: "vera", Role: access.Viewer}, at(5, 70, ingest.SideKeyed, 2, why),
			"resume needs the role admin"},
		{"an analyst", access.Actor{Name: "anna", Role: access.Analyst}, at(5, 70, ingest.SideKeyed, 2, why),
			"resume needs the role admin"},
		{"an owner of all", access.Actor{Name: "otto", Role: access.Owner, Owners: []string{"", "identity"}},
			at(5, 70, ingest.SideKeyed, 2, why), "resume needs the role admin"},
		{"nobody", access.Actor{}, at(5, 70, ingest.SideKeyed, 2, why), "nobody is signed in"},
		{"no gap", adam, withoutGap, "gap_source: got"},
		{"half a gap", adam, withoutOffset, "gap_offset: got"},
		{"no such side", adam, at(5, 70, "hits", 2, why), "side: got \"hits\"; allowed: requests, keyed"},
		{"no side", adam, at(5, 70, "", 2, why), "side: got \"\""},
		{"a negative partition", adam, at(5, 70, ingest.SideKeyed, -1, why), "partition: got \"-1\""},
		{"a partition of 33 bits", adam, at(5, 70, ingest.SideKeyed, 1<<31, why), "partition: got \"2147483648\""},
		{"the last partition that there may be", adam, at(5, 70, ingest.SideKeyed, 1<<31-1, why),
			"there is no partition \"keyed/2147483647\""},
		{"an unknown partition", adam, at(5, 70, ingest.SideRequests, 2, why), "there is no partition \"requests/2\""},
		{"one that runs", adam, at(5, 70, ingest.SideKeyed, 0, why), "keyed/0 is running: there is nothing to accept"},
		{"one that only waits", adam, at(-1, -1, ingest.SideKeyed, 1, why),
			"not for a gap that could be accepted: it has no leader"},
		{"another source", adam, at(4, 70, ingest.SideKeyed, 2, why),
			"now stands at the gap before offset 70 of source partition 5"},
		{"another offset", adam, at(5, 71, ingest.SideKeyed, 2, why),
			"not at the one before offset 71 of source partition 5"},
		{"the keyed log's own", adam, at(-1, 70, ingest.SideKeyed, 2, why),
			"offset 70 of the keyed log, which was looked at"},
		{"a keyed log made anew", adam, at(-2, 70, ingest.SideKeyed, 2, why),
			"the start of a keyed log that ends before offset 70, which was looked at"},
	} {
		done, err := s.ResumePartition(ctx, tt.who, tt.r)
		if err == nil || !strings.Contains(err.Error(), tt.says) || done.Side != "" {
			t.Errorf("%s: %+v, %v, want %q", tt.name, done, err, tt.says)
		}
	}
	if all, err := in.Partitions.Accepted(ctx, history.Live); err != nil || len(all) != 0 {
		t.Fatalf("what was refused was accepted: %+v, %v", all, err)
	}
	reason := "its disk\u202e, ticket 4711" // what reorders the line is kept, and made visible where it is shown
	for i, again := range []bool{false, true} {
		done, err := s.ResumePartition(ctx, adam, at(5, 70, ingest.SideKeyed, 2, reason))
		if err != nil || done.Again != again || done.Name() != "keyed/2" || *done.GapSource != 5 ||
			*done.GapOffset != 70 {
			t.Errorf("%d: %+v, %v", i, done, err)
		}
	}
	if _, err := s.ResumePartition(ctx, adam, at(0, 0, ingest.SideRequests, 0, why)); err != nil {
		t.Errorf("a commit that was refused: %v", err)
	}
	all, err := in.Partitions.Accepted(ctx, history.Live)
	if err != nil || len(all) != 2 || all[0].By != "adam" || all[0].Reason != reason {
		t.Errorf("accepted: %+v, %v", all, err)
	}
	entries, err := in.Audit.Of(ctx, "partition keyed/2 of live", 0)
	if err != nil || len(entries) != 1 || entries[0].Via != access.ViaToken || entries[0].Reason != reason {
		t.Errorf("the audit trail has %+v, %v", entries, err)
	}

	// The gap has changed since the second tab was opened.
	halted.GapOffset = 90
	if err := in.Partitions.Report(ctx, history.Live, []ingest.PartitionStatus{halted}); err != nil {
		t.Fatal(err)
	}
	changed := (*acts.GapChangedError)(nil)
	if _, err := s.ResumePartition(ctx, adam, at(5, 70, ingest.SideKeyed, 2, why)); !errors.As(err, &changed) ||
		*changed.Now.GapOffset != 90 {
		t.Errorf("an older gap: %v", err)
	}
	listed, err := s.Partitions(ctx, access.Actor{Name: "vera", Role: access.Viewer})
	if err != nil || len(listed) != 4 || listed[0].Name() != "requests/0" || *listed[0].GapOffset != 0 ||
		listed[1].GapOffset != nil || listed[2].GapOffset != nil {
		t.Errorf("listed: %+v, %v", listed, err)
	}
	if _, err := s.Partitions(ctx, access.Actor{}); err == nil {
		t.Error("nobody is shown the partitions")
	}
}
