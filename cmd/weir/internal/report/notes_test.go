package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/rules"
)

// Every form tells on how many events a rule's conditions could not be judged, and what a sweep does not try: once for each rule,
// whatever the number of values.
func TestNotesAreInEveryForm(t *testing.T) {
	plain, swept := scene(t), sweep(t)
	plain.Result.Rules[0].Unjudged.When, plain.Result.Rules[0].Unjudged.Tiers = map[string]int64{"type": 2, "size": 1}, map[string]int64{"value": 1}
	plain.Result.Rules[2].Unjudged.When = map[string]int64{"type": 10_000}
	for i := range swept.Result.Rules {
		found := &swept.Result.Rules[i]
		found.Version.Tiers = []rules.Tier{{When: `event.plan == "partner"`, Limit: 500}, {When: "event.status == 404", Limit: 2}}
		found.Untried = []string{"near", "candidate"}
	}
	windows := sweep(t)
	windows.Sweep = backtest.SweepWindow
	windows.Result.Rules[0].Version.Tiers = []rules.Tier{{When: `event.plan == "partner"`, Limit: 500}}
	for _, tt := range []struct {
		report *Report
		want   []string
	}{
		{plain, []string{
			"rule login-guessing: events that it does not watch, since match.when could not be judged: size 1, type 2",
			"rule login-guessing: events under the greatest limit that they may have, since the condition of a tier could not be judged: value 1",
			"rule never-seen: events that it does not watch, since match.when could not be judged: type 10000",
		}},
		{swept, []string{
			"rule login-guessing: the sweep tries limit alone; its tiers keep their own: 500, 2",
			"rule login-guessing: the sweep leaves out near and candidate, which a backtest without --sweep shows",
		}},
		{windows, nil},
	} {
		var table, data, csv, said, page bytes.Buffer
		for _, err := range []error{
			tt.report.Table(&terminal.Output{Stdout: &table, Format: "table"}), tt.report.JSON(&terminal.Output{Stdout: &data, Format: "json"}),
			tt.report.CSV(&terminal.Output{Stdout: &csv, Stderr: &said}), tt.report.Page(&page),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for form, text := range map[string]string{"table": table.String(), "json": data.String(), "csv": said.String(), "page": page.String()} {
			for _, want := range tt.want {
				if strings.Count(text, want) != 1 {
					t.Errorf("the %s has %q %d times:\n%s", form, want, strings.Count(text, want), text)
				}
			}
			if tt.want == nil && strings.Contains(text, "the sweep ") {
				t.Errorf("the %s speaks of a sweep:\n%s", form, text)
			}
		}
	}
}
