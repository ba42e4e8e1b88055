package evidence_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// TestWhoWasTakenOffAListIsMissed: whom an entry let pass is in no evidence of that time once the list does not have it
// any more, were it taken off behind the dossier's last minute. What the list has still is let pass by the rule.
func TestWhoWasTakenOffAListIsMissed(t *testing.T) {
	t.Parallel()
	office := rules.AllowEntry{Kind: rules.AllowCIDR, Value: "192.0.2.0/24", Reason: "the office"}
	paying := rules.AllowEntry{Kind: rules.AllowCIDR, Value: "198.51.100.99/32", Reason: "for a while"}
	b := newBed(t)
	b.rule.Allow = []string{"office"}
	b.minutes(t, plain(0, 60)...)
	b.Run(t, "ALTER TABLE weir.allow_versions DISABLE TRIGGER allow_versions_stay")
	for version, entries := range [][]rules.AllowEntry{{office, paying}, {office}} {
		list := rules.AllowList{ID: "office", Owner: "team", Entries: entries}
		if _, err := b.Rules.Apply(t.Context(), historytest.Documents(b.rule), "ann", "",
			rulestore.ApplyOptions{AllowLists: []rules.AllowList{list}}); err != nil {
			t.Fatal(err)
		}
		b.applied(t, b.noon.Add(-24*time.Hour))
		b.Run(t, "UPDATE weir.rule_versions SET created_at = $1 WHERE version = 1", b.noon.Add(-48*time.Hour))
		at := []time.Time{b.at(-100), b.at(60.2)}[version]
		b.Run(t, "UPDATE weir.allow_versions SET created_at = $1 WHERE version = $2", at, version+1)
		allowed := func(until float64) (minutes int64) {
			for _, m := range b.gather(t, evidence.Question{Until: traffic.At(b.at(until))}).Observed.Missing {
				if m.Reason == evidence.GapAllowed {
					minutes = m.Minutes
				}
			}
			return minutes
		}
		if got, want := allowed(60), []int64{0, 60}[version]; got != want {
			t.Errorf("version %d: somebody was let pass in %d minutes whom no entry names now, want %d", version+1, got,
				want)
		}
		if got, want := allowed(30), []int64{0, 30}[version]; got != want {
			t.Errorf("version %d, half of it: %d minutes, want %d", version+1, got, want)
		}
	}
}
