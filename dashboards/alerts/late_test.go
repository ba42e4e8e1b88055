package alerts

import (
	"strings"
	"testing"
	"time"
)

// Prometheus takes a sample for five minutes. A series that is read at an instant is there also when an evaluation is left out, as by a
// Prometheus that is busy or restarted; otherwise what it holds up resolves, and begins its hold anew.
func TestRecordedSeriesOutliveALateEvaluation(t *testing.T) {
	const lookBack = 5 * time.Minute
	late := 0
	for _, g := range Groups(RunbookURL) {
		if g.Interval == "" {
			continue
		}
		every, err := time.ParseDuration(g.Interval)
		if err != nil {
			t.Fatal(err)
		}
		if 2*every < lookBack {
			continue
		}
		late++
		for _, r := range g.Rules {
			if at := readAtAnInstant(r.Record); at != "" {
				t.Errorf("%s is recorded each %s and read at an instant by %s", r.Record, g.Interval, at)
			}
		}
	}
	if late == 0 {
		t.Error("no group is evaluated that rarely: the test tries nothing")
	}
}

// readAtAnInstant is a rule that reads a recorded series without a range; "" if none does.
func readAtAnInstant(record string) string {
	for _, g := range Groups(RunbookURL) {
		for _, r := range g.Rules {
			for _, after := range strings.Split(r.Expr, record)[1:] {
				if !strings.HasPrefix(after, "[") {
					return r.Record + r.Alert
				}
			}
		}
	}
	return ""
}
