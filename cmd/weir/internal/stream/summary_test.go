package stream

import (
	"slices"
	"testing"

	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
)

// A replay tells on how many events a rule's conditions could not be judged, also of a rule that matched none for that reason.
func TestSummaryTellsWhatConditionsFailOn(t *testing.T) {
	st := route.RuleStats{Matched: 4}
	for fault := range st.Faults { // from 1 on; 0 is none
		st.Faults[fault] = int64(10 + fault)
	}
	st.TierFaults[1] = 1
	seen := ReplayedRule{Rule: "seen"}
	seen.routed(&st)
	none := ReplayedRule{Rule: "none"}
	unseen := route.RuleStats{}
	unseen.Faults[1] = 8
	none.routed(&unseen)
	p := &replay{ReplayOptions: ReplayOptions{Rules: []rules.Version{{}, {}}}}
	got := p.notes(&Summary{Events: 8, Rules: []ReplayedRule{seen, none}})
	for _, want := range []string{
		"rule seen: events that it does not watch, since match.when could not be judged: " +
			"budget 15, cost 14, size 13, type 11, value 12",
		"rule seen: events under the greatest limit that they may have, since the condition of a tier could not be judged: type 1",
		"rule none: events that it does not watch, since match.when could not be judged: type 8",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}
