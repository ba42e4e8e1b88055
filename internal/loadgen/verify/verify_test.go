package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/loadgen"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// installation is what a verification asks, as far as a test says.
type installation struct {
	versions []rules.Routing // routing versions from 1 on
	stored   []rules.Version
	hits     []history.RecordedHit
	states   func() ([]partitions.ReportedPartition, error)
	recorded func() int64 // offset of RECORD on its only partition, of 10 hits
}

var (
	_ Rules      = (*installation)(nil)
	_ Findings   = (*installation)(nil)
	_ Partitions = (*installation)(nil)
	_ Broker     = (*installation)(nil)
	_ Bounds     = (*installation)(nil)
)

func (i *installation) Newest(context.Context, string) (int64, error) {
	return int64(len(i.versions)), nil
}

func (i *installation) Routing(_ context.Context, _ string, number int64) (*rules.Routing, error) {
	return &i.versions[number-1], nil
}

func (i *installation) RuleVersion(_ context.Context, id string, number int) (*rules.Version, bool, error) {
	for n := range i.stored {
		if v := &i.stored[n]; v.ID == id && v.Number == number {
			return v, true, nil
		}
	}
	return nil, false, nil
}

func (i *installation) Hits(_ context.Context, q history.HitQuery) (found []history.RecordedHit, err error) {
	for _, h := range i.hits {
		if h.Rule == q.Rule {
			found = append(found, h)
		}
	}
	return found, nil
}

func (i *installation) PartitionStates(context.Context, string) ([]partitions.ReportedPartition, error) {
	return i.states()
}

func (i *installation) WaitReady(context.Context) error                 { return nil }
func (i *installation) Partitions(context.Context, string) (int, error) { return 1, nil }
func (i *installation) Bounds(context.Context, []int) (map[int]ingest.Bounds, error) {
	return map[int]ingest.Bounds{0: {End: 10}}, nil
}

func (i *installation) FetchCommits(context.Context, string, string, []int) (map[int]ingest.Commit, error) {
	return map[int]ingest.Commit{0: {Offset: i.recorded()}}, nil
}

type sink struct{}

func (sink) Send(_ context.Context, events []loadgen.Outgoing) (int, error) { return len(events), nil }

// load is the truth of a minute of requests of which some sources are over the rules, sent live or written to a file.
func load(t *testing.T, live bool, used ...loadgen.RuleUsed) *loadgen.Truth {
	t.Helper()
	call := loadgen.Call{Method: "POST", Path: "/login", Weight: 1}
	s := loadgen.Settings{
		Seed: 7, Rate: 20, Duration: time.Minute, Viewers: 40, Abusers: 2, AbuseRate: 3, Patterns: []loadgen.Pattern{loadgen.Steady},
		Mix: []loadgen.Call{call}, Abuse: call,
	}
	start := traffic.At(time.Now())
	h := loadgen.Header{Started: start, Parameters: s}
	if live {
		h.Namespace, h.Partitions, h.Routing, h.Rules = "weir", 1, 1, used
	}
	var text bytes.Buffer
	w, err := loadgen.NewTruthWriter(&text, h)
	if err != nil {
		t.Fatal(err)
	}
	out, err := loadgen.Run(t.Context(), loadgen.RunOptions{
		Settings: s, Start: start, Paced: true, Sink: sink{}, Truth: w, Clock: func() traffic.Time { return traffic.At(time.Now()) }, Sent: func(int, int) {},
	})
	if err == nil {
		err = w.End(loadgen.End{At: traffic.At(time.Now()), Events: out.Events, Complete: true, Offsets: []int64{out.Events}})
	}
	if err != nil {
		t.Fatal(err)
	}
	truth, err := loadgen.ReadTruth("truth", &text)
	if err != nil {
		t.Fatal(err)
	}
	return truth
}

func rule(t *testing.T, id string, number, limit int) rules.Version {
	t.Helper()
	docs, err := rules.ParseFiles([]rules.File{{Name: "rule.yaml", Src: fmt.Appendf(nil, "id: %s\nowner: edge\nmatch: {path: /login}\nkey: [ip]\nlimit: %d\nwindow: 10s\n", id, limit)}},
		rules.Environment{Identity: traffic.DefaultIdentityMap()})
	if err != nil {
		t.Fatal(err)
	}
	return rules.Version{Document: docs[0], Number: number, Lineage: 1}
}

func routing(number int64, versions ...rules.Version) rules.Routing {
	return rules.Routing{Stream: history.Live, Number: number, Identity: traffic.DefaultIdentityMap(), Rules: versions}
}

func reported(side ingest.Side, offset int64, watermark traffic.Time) partitions.ReportedPartition {
	return partitions.ReportedPartition{PartitionStatus: ingest.PartitionStatus{Side: side, State: "running", Offset: offset, Watermark: watermark}}
}

func (i *installation) options(truth *loadgen.Truth, said *[]string) Options {
	return Options{
		Truth: truth, Stream: streams.Stream{Name: history.Live, Partitions: streams.PartitionCounts{Requests: 1, Keyed: 1, Hits: 1}},
		Rules: i, Findings: i, Partitions: i, Broker: i, Bounds: i, Hits: "weir.hits", Record: "weir.record", IdleMargin: detectors.DefaultIdleMargin, Wait: 5 * time.Minute,
		Log: slog.New(slog.DiscardHandler), Say: func(format string, args ...any) { *said = append(*said, fmt.Sprintf(format, args...)) },
	}
}

// Rules of one version are compared with what history has in the end; the others are not judged, and it is said why.
func TestSteadyRulesAreJudgedWhenHistoryHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, changed, removed := rule(t, "kept", 2, 15), rule(t, "changed", 1, 15), rule(t, "removed", 1, 15)
		later, added := rule(t, "changed", 2, 9), rule(t, "added", 1, 9)
		truth := load(t, true, loadgen.RuleUsed{ID: "kept", Version: 2, Lineage: 1}, loadgen.RuleUsed{ID: "changed", Version: 1, Lineage: 1},
			loadgen.RuleUsed{ID: "removed", Version: 1, Lineage: 1})
		i := &installation{
			versions: []rules.Routing{routing(1, changed, kept, removed), routing(2, added, later, kept)},
			stored:   []rules.Version{rule(t, "kept", 1, 200), kept},
		}
		loaded := time.Now()
		i.states = func() ([]partitions.ReportedPartition, error) {
			switch since := time.Since(loaded); {
			case since < 10*time.Second:
				return nil, errors.New("refused")
			case since < 20*time.Second:
				return []partitions.ReportedPartition{reported(ingest.SideRequests, 3, 0), reported(ingest.SideKeyed, 0, traffic.At(time.Now()))}, nil
			}
			return []partitions.ReportedPartition{
				reported(ingest.SideRequests, truth.End.Events, 0), reported(ingest.SideKeyed, 0, traffic.At(time.Now()).Add(-detectors.DefaultIdleMargin)),
			}, nil
		}
		i.recorded = func() int64 { return min(10, int64(time.Since(loaded)/(15*time.Second))) }
		var said []string
		verdicts, err := Run(t.Context(), i.options(truth, &said))
		if err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(said, "\n"))
		}
		if i.recorded() < 10 {
			t.Error("judged before RECORD had stored the hits")
		}
		got := ""
		for _, v := range verdicts {
			got += fmt.Sprintf("%s %d: %s %s\n", v.Rule, v.Version, v.Verdict, v.Reason)
		}
		want := "kept 2: differs \nchanged 1: not judged it was changed since the load began, from version 1 to 2\n" +
			"removed 1: not judged it was removed or disabled since the load began\nadded 1: not judged it is newer than the load's beginning\n"
		if got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if c := verdicts[0].Comparison; c.Missing != 2 || c.Sources != 2 || c.Exact != 0 {
			t.Errorf("a history without hits, of a lineage that was counted in slices: %+v", c)
		}
		if text := strings.Join(said, "\n"); !strings.Contains(text, "waiting: refused") || !strings.Contains(text, "are not routed yet, which stage route does") {
			t.Errorf("said\n%s", text)
		}
	})
}

func TestHistoryThatHasNotCaughtUpIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		truth := load(t, true, loadgen.RuleUsed{ID: "kept", Version: 1, Lineage: 1})
		started := truth.Header.Started
		stopped := reported(ingest.SideKeyed, 0, traffic.EndOfTime)
		stopped.State, stopped.Reason = "stopped", "a hole"
		for _, tc := range []struct {
			states []partitions.ReportedPartition
			want   string
		}{
			{[]partitions.ReportedPartition{reported(ingest.SideRequests, truth.End.Events, 0)}, "0 of 1 keyed partitions are reported"},
			{[]partitions.ReportedPartition{stopped}, "partition keyed/0 is stopped: a hole"},
			{[]partitions.ReportedPartition{reported(ingest.SideKeyed, 0, traffic.EndOfTime)}, "records of the requests topic are not routed yet"},
			{[]partitions.ReportedPartition{reported(ingest.SideKeyed, 0, started), reported(ingest.SideRequests, truth.End.Events, 0)}, "the watermark is at"},
			{[]partitions.ReportedPartition{reported(ingest.SideKeyed, 0, traffic.EndOfTime), reported(ingest.SideRequests, truth.End.Events, 0)}, "caught up with the hits: 10 records of topic weir.hits"},
		} {
			i := &installation{versions: []rules.Routing{routing(1, rule(t, "kept", 1, 5))}, recorded: func() int64 { return 0 }}
			i.states = func() ([]partitions.ReportedPartition, error) { return tc.states, nil }
			var said []string
			if _, err := Run(t.Context(), i.options(truth, &said)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		}
	})
}

// frozen is a broker that answers once, and then to nothing.
type frozen struct {
	*installation
	answered bool
}

func (f *frozen) FetchCommits(ctx context.Context, group, topic string, partitions []int) (map[int]ingest.Commit, error) {
	if f.answered {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.answered = true
	return f.installation.FetchCommits(ctx, group, topic, partitions)
}

// Where time runs out during a question, the error is what the answers before it showed.
func TestHitsThatAreNotRecordedAreTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &installation{recorded: func() int64 { return 3 }}
		var said []string
		o := i.options(load(t, true), &said)
		o.Broker = &frozen{installation: i}
		ctx, cancel := context.WithTimeout(t.Context(), recordTimeout)
		defer cancel()
		if err := (&verification{Options: o}).awaitRecorded(ctx); err == nil || !strings.Contains(err.Error(), "7 records of topic weir.hits are not in history yet") {
			t.Errorf("got %v", err)
		}
	})
}

func TestAnotherInstallationIsToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		truth := load(t, true, loadgen.RuleUsed{ID: "kept", Version: 1, Lineage: 1})
		for _, versions := range [][]rules.Routing{{}, {routing(1)}, {routing(1, rule(t, "kept", 2, 5))}} {
			i := &installation{versions: versions}
			var said []string
			if _, err := Run(t.Context(), i.options(truth, &said)); err == nil || !strings.Contains(err.Error(), "it is another installation, or was made anew") {
				t.Errorf("%d versions: got %v", len(versions), err)
			}
		}
	})
}

func TestReplayMustBeThatOfTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		truth := load(t, false)
		whole := map[string]any{"complete": true, "events": truth.End.Events, "first": truth.Header.Started}
		for _, tc := range []struct {
			change map[string]any
			want   string
		}{
			{nil, ""},
			{map[string]any{"complete": false, "error": "no disk"}, "broke off: no disk"},
			{map[string]any{"events": 3}, "took in 3 events and refused 0"},
			{map[string]any{"dead_letters": map[string]int{"not json": 4}}, "refused 4"},
			{map[string]any{"first": "1999-01-01T00:00:00Z"}, "it is not the replay of this load"},
		} {
			summary := map[string]any{}
			for _, from := range []map[string]any{whole, tc.change} {
				for k, v := range from {
					summary[k] = v
				}
			}
			raw, err := json.Marshal(summary)
			if err != nil {
				t.Fatal(err)
			}
			i := &installation{versions: []rules.Routing{routing(1, rule(t, "kept", 1, 5))}}
			var said []string
			o := i.options(truth, &said)
			o.Stream = streams.Stream{Name: "replay/tryout", Partitions: o.Stream.Partitions, Finished: time.Now(), Summary: raw}
			_, err = Run(t.Context(), o)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v: got %v, want %q", tc.change, err, tc.want)
			}
			o.Stream.Finished = time.Time{}
			if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "is not finished") {
				t.Errorf("unfinished: %v", err)
			}
		}
	})
}
