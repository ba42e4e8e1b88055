package stream

import (
	"slices"
	"testing"

	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
)

// A replay tells on how many events a rule's conditions could not be judged, also of a rule that matched none for that reason.
func TestSummaryTellsWhatConditionsFailOn(t *testing.T) {
	st := route.RuleStats{Matched: 4}
	st.Faults[condition.FaultType], st.Faults[condition.FaultSize], st.TierFaults[condition.FaultValue] = 3, 1, 1
	seen := ReplayedRule{Rule: "seen"}
	seen.routed(&st)
	none := ReplayedRule{Rule: "none"}
	none.routed(&route.RuleStats{Faults: [condition.NumFaults]int64{condition.FaultType: 8}})
	p := &replay{ReplayOptions: ReplayOptions{Rules: []rules.Version{{}, {}}}}
	got := p.notes(&Summary{Events: 8, Rules: []ReplayedRule{seen, none}})
	for _, want := range []string{
		"rule seen: match.when could not be judged on 4 events, so it does not watch them: size 1, type 3",
		"rule seen: the condition of a tier could not be judged on 1 event, so the greatest limit counts that they may have: value 1",
		"rule none: match.when could not be judged on 8 events, so it does not watch them: type 8",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}
