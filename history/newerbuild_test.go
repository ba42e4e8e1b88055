package history_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// While processes of two builds run, each meets what the other has written. What an older one does not know, it must not
// read over: neither a condition of a rule, nor a record.

func TestRoutingOfANewerBuildIsRefused(t *testing.T) {
	b := newBed(t)
	b.publish(t, rules.Format{Name: "weir"})
	plan := apply(t, b, rulesOf(document("login")))
	insert := func(number int64, change string) {
		t.Helper()
		b.exec(t, `INSERT INTO weir.routing_versions (stream, number, document)
			SELECT stream, $1::bigint, (`+change+`)::text FROM
			(SELECT stream, jsonb_set(document::jsonb, '{number}', to_jsonb($1::bigint)) AS d FROM weir.routing_versions WHERE number = $2) v`, number, plan.Routing)
	}
	for i, tt := range []struct{ name, change, want string }{
		{"another condition", `jsonb_set(d, '{rules,0,match,host}', '"api.example.com"')`, `unknown field "host"`},
		{"another member of a rule", `jsonb_set(d, '{rules,0,when}', '"status == 401"')`, `unknown field "when"`},
		{"another member of the version", `jsonb_set(d, '{sampling}', '2')`, `unknown field "sampling"`},
		{"a window of nothing", `jsonb_set(d, '{rules,0,window}', '0')`, "window"},
		{"a limit below zero", `jsonb_set(d, '{rules,0,limit}', '-5')`, "limit"},
	} {
		number := plan.Routing + 1 + int64(i)
		insert(number, tt.change)
		r, err := b.Routing(t.Context(), history.Live, number)
		if !errors.Is(err, rules.ErrRouting) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: %v, read as %+v", tt.name, err, r)
		}
	}
	// Whoever made the next version from what it cannot read would drop what it does not know.
	if _, err := b.ApplyRules(t.Context(), rulesOf(document("other")), "ann", "test", history.ApplyOptions{}); !errors.Is(err, rules.ErrRouting) {
		t.Errorf("rules were applied upon a version that cannot be read: %v", err)
	}
	if r, err := b.Routing(t.Context(), history.Live, plan.Routing); err != nil || len(r.Rules) != 1 {
		t.Errorf("the version before it: %+v, %v", r, err)
	}
}

func TestRuleOfANewerBuildIsRefused(t *testing.T) {
	b := newBed(t)
	b.publish(t, rules.Format{Name: "weir"})
	apply(t, b, rulesOf(document("login")))
	b.exec(t, `UPDATE weir.rule_versions SET document = jsonb_set(document::jsonb, '{match,host}', '"api.example.com"')::text`)
	const want = `unknown field "host"`
	if _, err := b.Rules(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("listed: %v", err)
	}
	if v, _, err := b.RuleVersion(t.Context(), "login", 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("ENFORCE would block by %+v: %v", v, err)
	}
	if modes, err := b.Modes(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("gates would refuse by %+v: %v", modes, err)
	}
}

// newerHits are records of the hits topic that this build does not know.
func newerHits() map[string]string {
	return map[string]string{
		"format":                 fmt.Sprintf(`{"v":%d,"kind":"hit","id":"00000000000000000000000000000001","rule":"a","phase":"open"}`, detectors.HitFormat+1),
		"format, other members":  fmt.Sprintf(`{"v":%d,"kind":"hit","id":["1"],"limit":{"of":3}}`, detectors.HitFormat+1),
		"kind":                   fmt.Sprintf(`{"v":%d,"kind":"weather","id":"00000000000000000000000000000001"}`, detectors.HitFormat),
		"kind that was reserved": fmt.Sprintf(`{"v":%d,"kind":"near","id":"00000000000000000000000000000001"}`, detectors.HitFormat),
	}
}

// A hit that a newer build wrote is that build's to record. What lies before it is stored; it and what lies behind it wait,
// however often they are given.
func TestHitOfANewerBuildIsLeftForItsReader(t *testing.T) {
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
			if n := b.number(t, "SELECT count(*) FROM weir.hits"); n != 1 || len(box.letters) > 0 {
				t.Errorf("%d hits stored, want the one before it; dead letters: %+v", n, box.letters)
			}
			if err := r.Apply(t.Context(), append(batch[:2:2], batch[3])); err != nil {
				t.Fatal(err)
			}
			if n := b.number(t, "SELECT count(*) FROM weir.hits"); n != 2 || len(box.letters) != 1 {
				t.Errorf("without it: %d hits, dead letters: %+v", n, box.letters)
			}
		})
	}
}

func TestDecisionOfANewerBuildIsLeftForItsReader(t *testing.T) {
	b := newBed(t)
	box := &letterBox{}
	r, err := history.NewDecisionRecorder(b.Store, history.Live, "weir.blocks", box, prometheus.NewRegistry())
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
