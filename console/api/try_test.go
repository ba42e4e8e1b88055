package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// trials find one source over every rule.
type trials struct{}

var _ acts.Trials = trials{}

func (trials) Tests(context.Context, []acts.File, []rules.AllowList) ([]acts.RuleTest, []string, error) {
	return []acts.RuleTest{{Rule: "tokens", Name: "is over", Line: 7, OK: true}}, nil, nil
}

func (trials) Traffic(_ context.Context, set *rules.Set, _ []rules.AllowList, over time.Duration) (acts.TrafficTried, error) {
	until := traffic.At(time.Now())
	out := acts.TrafficTried{Until: until, Since: until.Add(-over), Events: 9}
	for i := range set.Rules {
		out.Rules = append(out.Rules, acts.RuleTried{Rule: set.Rules[i].ID, Sources: 1, Episodes: 1, Over: 8,
			Top: []acts.SourceTried{{Subject: "ip=203.0.113.77%2F32", Over: 8, Peak: 9}}})
	}
	return out, nil
}

// TestTriedTellsNoValue: who is shown pseudonyms is shown them of whom a rule would have found; and who may not apply a
// document may not try it.
func TestTriedTellsNoValue(t *testing.T) {
	b := newBed(t, maskedBelowAdmin(t))
	b.Apply(t, historytest.Document("tokens"))
	doc := historytest.Document("tokens")
	doc.Limit++
	text := doc.YAML()
	request := acts.TryRequest{Files: []acts.File{{Name: "tokens.yaml", Text: text}}}
	for _, who := range []struct {
		name   string
		status int
		plain  bool
	}{{"adam", http.StatusOK, true}, {"otto", http.StatusOK, false}, {"olga", http.StatusForbidden, false}} {
		got := b.ask(t, who.name, "POST", "/api/v1/try", request)
		if text := string(got.body); got.status != who.status || strings.Contains(text, "203.0.113.77") != who.plain ||
			who.status == http.StatusOK && !strings.Contains(text, `"over":8`) {
			t.Errorf("%s: %d %s", who.name, got.status, text)
		}
	}
	var tried acts.Tried
	b.ask(t, "adam", "POST", "/api/v1/try", request).read(t, &tried)
	if tried.Plan == nil || len(tried.Changes) != 1 || len(tried.Tests) != 1 || tried.Traffic == nil || tried.Traffic.Events != 9 {
		t.Errorf("tried: %+v", tried)
	}
	if r, err := b.Rules.Find(t.Context(), "tokens"); err != nil || len(r.Versions) != 1 {
		t.Errorf("to try has changed it: %+v, %v", r.Versions, err)
	}
}
