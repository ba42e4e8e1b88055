package evidence

import (
	"strings"
	"testing"
)

// A young version tells its minutes: 0.0 h of 0.0 h would say nothing.
func TestSummaryOfAYoungVersion(t *testing.T) {
	t.Parallel()
	for minutes, want := range map[int64]string{0: "0 min", 1: "1 min", 59: "59 min", 60: "1.0 h", 90: "1.5 h", 10_080: "168.0 h"} {
		d := Dossier{Observed: Observed{Minutes: minutes, Span: minutes, Missing: []Missing{{Reason: GapReason("stopped"), Minutes: minutes}}}}
		if got := d.Summary()[0]; got != "observed "+want+" of "+want+", stopped "+want || strings.Contains(got, " 0.0 h") {
			t.Errorf("%d minutes: %s", minutes, got)
		}
	}
}
