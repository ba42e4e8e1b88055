package rulestore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestPublishRouting(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	ctx := t.Context()
	const stream = "replay/check"
	if _, err := b.Streams.Create(ctx, stream, streams.PartitionCounts{Requests: 1, Keyed: 2, Hits: 1}); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Rules.Newest(ctx, stream); n != 0 || err != nil {
		t.Fatalf("newest of none: %d, %v", n, err)
	}
	versions := []rules.Version{
		{Document: historytest.Document("zeta"), Number: 2, Lineage: 1},
		{Document: historytest.Document("alpha"), Number: 1, Lineage: 1},
	}
	publish := func(list []rules.Version) (int64, bool) {
		t.Helper()
		n, changed, err := b.Rules.PublishRouting(ctx, stream, func(*rules.Routing) (rules.Routing, error) {
			next := historytest.Routing()
			next.Number, next.Stream, next.Rules = 77, "other", list
			return next, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n, changed
	}
	for i, step := range []struct {
		rules   []rules.Version
		number  int64
		changed bool
	}{{versions, 1, true}, {versions, 1, false}, {versions[:1], 2, true}, {versions, 3, true}} {
		if n, changed := publish(step.rules); n != step.number || changed != step.changed {
			t.Errorf("step %d: number %d, changed %v; want %d, %v", i, n, changed, step.number, step.changed)
		}
	}
	got, err := b.Rules.Routing(ctx, stream, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got.Stream != stream || got.Number != 3 || len(got.Rules) != 2 || got.Rules[0].ID != "alpha" || got.Rules[1].Number != 2 {
		t.Errorf("stored %+v", got)
	}
	if got.Rules[1].Window != time.Minute || got.Rules[1].Key[1].Field != traffic.FieldDevice {
		t.Errorf("the document did not survive: %+v", got.Rules[1])
	}
	if _, err := b.Rules.Routing(ctx, stream, 4); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("unknown version: %v", err)
	}
	boom := errors.New("boom")
	_, _, err = b.Rules.PublishRouting(ctx, stream, func(*rules.Routing) (rules.Routing, error) { return rules.Routing{}, boom })
	if !errors.Is(err, boom) {
		t.Errorf("build's error is lost: %v", err)
	}
	fixed := historytest.Document("fixed")
	fixed.Algorithm = rules.AlgorithmFixed
	_, _, err = b.Rules.PublishRouting(ctx, stream, func(prev *rules.Routing) (rules.Routing, error) {
		next := *prev
		next.RecordFormat, next.Rules = 1, []rules.Version{{Document: fixed, Number: 1, Lineage: 1}}
		return next, nil
	})
	if err == nil || !strings.Contains(err.Error(), "weir migrate --record-format 2 raises it") {
		t.Errorf("a version that its record format cannot hold: %v", err)
	}
	if n, err := b.Rules.Newest(ctx, stream); n != 3 || err != nil {
		t.Errorf("the newest is %d, %v, want 3: ROUTE would stand still at what was refused", n, err)
	}
	if _, _, err := b.Rules.PublishRouting(ctx, "replay/none", func(*rules.Routing) (rules.Routing, error) { return rules.Routing{}, nil }); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("published to an unknown stream: %v", err)
	}
}

func TestPublishersWaitForEachOther(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	const publishers = 6
	errs := make([]error, publishers)
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			_, _, errs[i] = b.Rules.PublishRouting(t.Context(), streams.Live, func(prev *rules.Routing) (rules.Routing, error) {
				next := historytest.Routing()
				if prev != nil {
					next = *prev
				}
				next.Format.MaxEventBytes++
				return next, nil
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	r, err := b.Rules.Routing(t.Context(), streams.Live, publishers)
	if err != nil || r.Format.MaxEventBytes != historytest.Routing().Format.MaxEventBytes+publishers {
		t.Errorf("%d publishers, the last version says %+v, %v", publishers, r, err)
	}
}

func TestRoutingOfANewerBuildIsRefused(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	plan := b.Apply(t, historytest.Document("login"))
	insert := func(number int64, change string) {
		t.Helper()
		b.Run(t, `INSERT INTO weir.routing_versions (stream, number, document)
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
		r, err := b.Rules.Routing(t.Context(), streams.Live, number)
		if !errors.Is(err, rules.ErrRouting) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: %v, read as %+v", tt.name, err, r)
		}
	}
	// Whoever made the next version from what it cannot read would drop what it does not know.
	if _, err := b.Rules.Apply(t.Context(), historytest.Documents(historytest.Document("other")), "ann", "test", rulestore.ApplyOptions{}); !errors.Is(err, rules.ErrRouting) {
		t.Errorf("rules were applied upon a version that cannot be read: %v", err)
	}
	if r, err := b.Rules.Routing(t.Context(), streams.Live, plan.Routing); err != nil || len(r.Rules) != 1 {
		t.Errorf("the version before it: %+v, %v", r, err)
	}
}
