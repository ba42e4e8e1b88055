package history_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/traffic"
)

func TestDecisionRecorder(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	box := &letterBox{}
	registry := prometheus.NewRegistry()
	if _, err := history.NewHitRecorder(b.Store, history.Live, "weir.hits", box, b.days(), registry); err != nil {
		t.Fatal(err) // both share the registry of a process
	}
	recorder, err := history.NewDecisionRecorder(b.Store, history.Live, "weir.blocks", box, b.days(), registry)
	if err != nil {
		t.Fatal(err)
	}
	early := blocklist.Decision{Format: blocklist.DecisionFormat, ID: "1", Action: blocklist.ActionWithheld, Reason: "max_lag\x00", Rule: "flood",
		Subject: "ip=192.0.2.7%2F32", Hit: "h", Generation: 2, Since: dawn, Until: traffic.EndOfTime, At: dawn.Add(time.Second)}
	late := early
	late.At, late.Reason = dawn.Add(time.Minute), "never_block"
	plain := blocklist.Decision{Format: blocklist.DecisionFormat, ID: "2", Action: blocklist.ActionReleased, At: dawn}
	poison := plain
	poison.ID = "\x00"
	for _, batch := range [][]blocklist.Decision{{late, plain}, {early, poison}, {late, early, late}} {
		var msgs []traffic.Message
		for _, d := range batch {
			value, err := blocklist.EncodeDecision(&d)
			if err != nil {
				t.Fatal(err)
			}
			msgs = append(msgs, traffic.Message{Value: value})
		}
		if err := recorder.Apply(t.Context(), append(msgs, traffic.Message{Value: []byte("[")})); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.Decisions(t.Context(), history.DecisionQuery{})
	if err != nil || len(got) != 2 {
		t.Fatalf("%d decisions, %v", len(got), err)
	}
	early.Reason = `max_lag\x00`
	if got[0].Decision != early || got[1].Decision != plain {
		t.Errorf("got %+v and %+v", got[0].Decision, got[1].Decision)
	}
	if len(box.letters) != 4 || box.letters[1].Reason != "malformed" || box.letters[2].Reason != "refused" {
		t.Errorf("dead letters %+v", box.letters)
	}
}

func TestDecisionOfANewerBuildIsLeftForItsReader(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	box := &letterBox{}
	r, err := history.NewDecisionRecorder(b.Store, history.Live, "weir.blocks", box, b.days(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{`{"v":%d,"id":"1","action":"written"}`, `{"v":%d,"id":1,"action":{"kind":"written"}}`} {
		batch := []traffic.Message{{Value: fmt.Appendf(nil, value, blocklist.DecisionFormat+1)}}
		var newer *detectors.UnknownFormatError
		if err := r.Apply(t.Context(), batch); !errors.As(err, &newer) || len(box.letters) > 0 {
			t.Errorf("%s: %v, dead letters %+v", batch[0].Value, err, box.letters)
		}
	}
	if err := r.Apply(t.Context(), []traffic.Message{{Value: []byte(`{"v":0,"id":"1","action":"written"}`)}}); err != nil || len(box.letters) != 1 {
		t.Errorf("damaged: %v, dead letters %+v", err, box.letters)
	}
}
