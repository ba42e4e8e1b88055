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

func (trials) Traffic(_ context.Context, set *rules.Set, _ []rules.AllowList, over time.Duration) (acts.TrafficTried,
	error) {
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
	if tried.Plan == nil || len(tried.Changes) != 1 || len(tried.Tests) != 1 || tried.Traffic == nil ||
		tried.Traffic.Events != 9 {
		t.Errorf("tried: %+v", tried)
	}
	if r, err := b.Rules.Find(t.Context(), "tokens"); err != nil || len(r.Versions) != 1 {
		t.Errorf("to try has changed it: %+v, %v", r.Versions, err)
	}
}

// TestPlansNameNobody: what would change in an allow list names whom it lets pass, and why. Who is shown pseudonyms is
// not shown that, of documents that he tries, plans or applies; and a plan that he was shown so is carried out all the
// same.
func TestPlansNameNobody(t *testing.T) {
	b := newBed(t, maskedBelowAdmin(t))
	list := func(entries string) []acts.File {
		return []acts.File{{Name: "office.yaml", Text: "kind: allow\nid: office\nowner: identity\nentries: " +
			entries + "\n"}}
	}
	if got := b.ask(t, "adam", "POST", "/api/v1/apply", acts.ApplyRequest{Reason: "x",
		Files: list(`[{cidr: 198.51.100.77, reason: "the partner 198.51.100.78"},
			{cidr: 203.0.113.9, reason: "alice at home"}]`)}); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	plain := []string{"198.51.100.77", "198.51.100.78", "203.0.113.9", "alice"}
	asked := acts.ApplyRequest{Files: list("[]"), DryRun: true, Alone: true}
	for _, q := range []struct {
		path string
		body any
	}{{"/api/v1/try", acts.TryRequest{Files: asked.Files}}, {"/api/v1/apply", asked}} {
		for who, shown := range map[string]bool{"adam": true, "otto": false} {
			got := b.ask(t, who, "POST", q.path, q.body)
			for _, text := range plain {
				if strings.Contains(string(got.body), text) && !shown || got.status != http.StatusOK {
					t.Errorf("%s as %s: %d %s", q.path, who, got.status, got.body)
				}
			}
			if shown && !strings.Contains(string(got.body), "198.51.100.77") {
				t.Errorf("%s as %s does not say what would change: %s", q.path, who, got.body)
			}
		}
	}
	var planned acts.ApplyDone
	b.ask(t, "otto", "POST", "/api/v1/apply", asked).read(t, &planned)
	asked.DryRun, asked.Shown, asked.Reason = false, planned.Plan, "over"
	if got := b.ask(t, "otto", "POST", "/api/v1/apply", asked); got.status != http.StatusOK ||
		strings.Contains(string(got.body), "alice") {
		t.Errorf("what was shown is applied: %d %s", got.status, got.body)
	}
	if got := b.ask(t, "otto", "POST", "/api/v1/apply", asked); got.status != http.StatusConflict {
		t.Errorf("it is not so any more: %d %s", got.status, got.body)
	}
}
