package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
)

// halt has a stage report that a keyed partition stands before a gap.
func (b *bed) halt(t *testing.T, n, source int, offset int64) {
	t.Helper()
	halted := ingest.PartitionStatus{Side: ingest.SideKeyed, Partition: n, Owner: "weir-3", State: ingest.Halted,
		End:    90,
		Reason: "records before 10.0.0.7 are missing", GapSource: source, GapOffset: offset}
	if err := b.Partitions.Report(t.Context(), history.Live, []ingest.PartitionStatus{halted}); err != nil {
		t.Fatal(err)
	}
}

// TestResumeOverHTTP: every byte of the address and of the body is the client's choice; what is not the gap that stands
// there now is refused, with what stands there.
func TestResumeOverHTTP(t *testing.T) {
	b := newBed(t, maskedBelowAdmin(t))
	b.halt(t, 2, 5, 70)
	running := ingest.PartitionStatus{Side: ingest.SideRequests, State: ingest.Running, GapOffset: ingest.NoOffset}
	if err := b.Partitions.Report(t.Context(), history.Live, []ingest.PartitionStatus{running}); err != nil {
		t.Fatal(err)
	}
	body := func(source, offset any, reason string) map[string]any {
		return map[string]any{"gap_source": source, "gap_offset": offset, "reason": reason}
	}
	shown := body(5, 70, "a disk")
	for _, q := range []struct {
		who, path string
		body      any
		status    int
		field     string
	}{
		{"vera", "keyed/2", shown, 403, ""}, {"anna", "keyed/2", shown, 403, ""}, {"otto", "keyed/2", shown, 403, ""},
		{"nobody", "keyed/2", shown, 401, ""},
		{"adam", "keyed/2", body(5, 70, ""), 400, "reason"}, {"adam", "keyed/2", body(5, 70, "\u202e"), 400, "reason"},
		{"adam", "keyed/2", map[string]any{"reason": "x"}, 400, "gap_source"},
		{"adam", "keyed/2", body(nil, 70, "x"), 400, "gap_source"}, {"adam", "keyed/2", body(5, nil, "x"), 400,
			"gap_offset"},
		{"adam", "keyed/2", body("5", 70, "x"), 400, "gap_source"}, {"adam", "keyed/2", body(5, 1.5, "x"), 400,
			"gap_offset"},
		{"adam", "keyed/2", body(5, 1e30, "x"), 400, "gap_offset"},
		{"adam", "keyed/2", map[string]any{"gap_source": 5, "gap_offset": 70, "reason": "x", "side": "keyed"}, 400,
			"body"},
		{"adam", "hits/2", shown, 400, "side"}, {"adam", "Keyed/2", shown, 400, "side"}, {"adam", "%20/2", shown, 400,
			"side"},
		{"adam", "keyed/-1", shown, 400, "partition"}, {"adam", "keyed/2147483648", shown, 400, "partition"},
		{"adam", "keyed/99999999999999999999", shown, 400, "partition"}, {"adam", "keyed/two", shown, 400, "partition"},
		{"adam", "keyed/0x2", shown, 400, "partition"}, {"adam", "keyed/3", shown, 404, ""},
		{"adam", "requests/0", shown, 409, ""}, // it runs
		{"adam", "keyed/2", body(5, 71, "x"), 409, ""}, {"adam", "keyed/2", body(-1, 70, "x"), 409, ""},
	} {
		got := b.askWrongly(t, q.who, "POST", "/api/v1/partitions/"+q.path+"/resume", q.body)
		if p := got.problem(t); got.status != q.status || p.Field != q.field {
			t.Errorf("%s, %s, %v: %d %s, want %d, field %q", q.who, q.path, q.body, got.status, got.body, q.status,
				q.field)
		}
	}
	b.halt(t, 2, 5, 90) // the gap has changed since the second tab was opened
	p := b.ask(t, "adam", "POST", "/api/v1/partitions/keyed/2/resume", shown).problem(t)
	if p.Status != http.StatusConflict || p.Type != api.TypeChanged || p.Partition == nil ||
		*p.Partition.GapOffset != 90 {
		t.Errorf("an older gap: %+v", p)
	}
	if all, err := b.Partitions.Accepted(t.Context(), history.Live); err != nil || len(all) != 0 {
		t.Errorf("what was refused was accepted: %+v, %v", all, err)
	}
	// Reasons are for everybody, without what looks like an address in them.
	got := b.ask(t, "vera", "GET", "/api/v1/partitions?stopped=true", nil)
	var page api.Page[acts.Partition]
	got.read(t, &page)
	if len(page.Items) != 1 || page.Items[0].Owner != "weir-3" || !strings.Contains(page.Items[0].Reason,
		"records before ~ ") {
		t.Errorf("listed: %s", got.body)
	}
	b.ask(t, "vera", "GET", "/api/v1/partitions", nil).read(t, &page)
	if len(page.Items) != 2 || page.Items[0].Side != ingest.SideRequests {
		t.Errorf("listed: %+v", page.Items)
	}
	if got := b.askWrongly(t, "vera", "GET", "/api/v1/partitions?stopped=1", nil); got.status != http.StatusBadRequest {
		t.Errorf("stopped=1: %d", got.status)
	}
	if got := b.ask(t, "adam", "POST", "/api/v1/partitions/keyed/2/resume", body(5, 90,
		"a disk\u202e")); got.status != http.StatusOK {
		t.Errorf("resumed: %d %s", got.status, got.body)
	}
}
