package rulestore_test

import (
	"errors"
	"testing"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// Stages are given a mark in the place of a version that the store has lost, and of no other one.
func TestStagesAreToldOfALostVersion(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	b.Apply(t, historytest.Document("a"))
	b.Apply(t, historytest.Document("b"))
	newest, err := b.Rules.Newest(t.Context(), "live")
	if err != nil || newest < 3 {
		t.Fatalf("newest version %d, %v", newest, err)
	}
	b.Run(t, "DELETE FROM weir.routing_versions WHERE number = $1", newest-1)
	stages := rulestore.StageRoutings{Store: b.Rules}
	whole, err := stages.Routing(t.Context(), "live", newest)
	if err != nil || whole.Lost || len(whole.Rules) == 0 {
		t.Fatalf("the newest version is %+v, %v", whole, err)
	}
	lost, err := stages.Routing(t.Context(), "live", newest-1)
	if err != nil || !lost.Lost || lost.Number != newest-1 || len(lost.Rules) != 0 ||
		lost.RecordFormat != whole.RecordFormat || lost.SecretID != whole.SecretID || lost.Format.Name != "weir" {
		t.Errorf("a version that is gone: %+v, %v", lost, err)
	}
	// somebody may have published it, and the store be behind
	for _, number := range []int64{newest + 1, newest + 1000} {
		if r, err := stages.Routing(t.Context(), "live", number); !errors.Is(err, postgres.ErrNotFound) {
			t.Errorf("version %d of %d: %+v, %v", number, newest, r, err)
		}
	}
	if r, err := stages.Routing(t.Context(), "replay/none", 1); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("a stream without versions: %+v, %v", r, err)
	}
}
