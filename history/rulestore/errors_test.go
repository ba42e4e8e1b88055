package rulestore_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Every error begins with what was being done, and names its rule or list once, but for the commands that it recommends.
func TestErrorsBeginAlike(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	ctx := t.Context()
	b.Publish(t, rules.Format{Name: "weir"})
	pail, quiet, bare := historytest.Document("pail"), historytest.Document("quiet"), historytest.Document("bare")
	pail.Algorithm, bare.Block = rules.AlgorithmLeakyBucket, nil
	if _, err := b.Rules.Apply(ctx, historytest.Documents(pail, quiet, bare), "ann", "test", rulestore.ApplyOptions{AllowLists: []rules.AllowList{office("192.0.2.0/24")}}); err != nil {
		t.Fatal(err)
	}
	setMode(t, b, "pail", rules.ModeBlock)
	setMode(t, b, "quiet", rules.ModeOff)
	raise := func(rule string, limit int, ahead time.Duration) error {
		_, err := b.Rules.RaiseLimit(ctx, rulestore.LimitChange{Rule: rule, Limit: limit, Until: time.Now().Add(ahead), By: "ann"})
		return err
	}
	promote := func(c rulestore.ModeChange) error {
		c.Mode, c.By = rules.ModeBlock, "ann"
		_, err := b.Rules.SetMode(ctx, c)
		return err
	}
	second := func(_ any, err error) error { return err }
	commands := regexp.MustCompile(`weir [a-z ]+(pail|quiet|bare|office)`)
	_, _, noAllowList := b.Rules.AllowList(ctx, "none", 0)
	for begins, tt := range map[string]struct {
		object string
		err    error
	}{
		`history: raising the limit of rule "bare": got 3, allowed 6 to `:                 {"bare", raise("bare", 3, time.Hour)},
		`history: raising the limit of rule "bare": until: got `:                          {"bare", raise("bare", 9, -time.Hour)},
		`history: raising the limit of rule "pail": it blocks, and `:                      {"pail", raise("pail", 9, time.Hour)},
		`history: raising the limit of rule "none": not found`:                            {"none", raise("none", 9, time.Hour)},
		`history: setting rule "bare" to block: its document has no block`:                {"bare", promote(rulestore.ModeChange{Rule: "bare"})},
		`history: setting rule "quiet" to block: version: got 9, allowed 1`:               {"quiet", promote(rulestore.ModeChange{Rule: "quiet", Version: 9})},
		`history: setting rule "quiet" to block: no version is pending`:                   {"quiet", promote(rulestore.ModeChange{Rule: "quiet", Pending: true})},
		`history: resetting a count of rule "quiet": it is off`:                           {"quiet", second(reset(b, t, "quiet", sofa))},
		`history: resetting a count of rule "pail": it blocks, and `:                      {"pail", second(reset(b, t, "pail", sofa))},
		`history: resetting a count of rule "bare": SOURCE: `:                             {"bare", second(reset(b, t, "bare", "ip=192.0.2.1%2F32"))},
		`history: reading rule "none": not found`:                                         {"none", second(b.Rules.Find(ctx, "none"))},
		`history: reading allow list "none": not found`:                                   {"none", noAllowList},
		`history: reading routing version 99 of live: not found`:                          {"live", second(b.Rules.Routing(ctx, "live", 99))},
		`history: changing allow list "office": entries[0].cidr: got "nowhere"`:           {"office", second(b.Rules.ChangeAllowList(ctx, "office", audit.Entry{Action: "add-entry", Actor: "ann"}, setEntry("nowhere")))},
		`history: applying rules: allow list office: entries[0].cidr: got "nowhere"`:      {"office", second(b.Rules.Apply(ctx, nil, "ann", "", rulestore.ApplyOptions{AllowLists: []rules.AllowList{office("nowhere")}}))},
		`history: applying rules: rule quiet is given twice`:                              {"quiet", second(b.Rules.Apply(ctx, historytest.Documents(quiet, quiet), "ann", "", rulestore.ApplyOptions{}))},
		`history: applying rules: rule pail blocks and would be removed: demote it first`: {"pail", second(b.Rules.Apply(ctx, nil, "ann", "", rulestore.ApplyOptions{Prune: true}))},
	} {
		if tt.err == nil || !strings.HasPrefix(tt.err.Error(), begins) {
			t.Errorf("got  %v\nwant %s…", tt.err, begins)
			continue
		}
		if rest := commands.ReplaceAllString(tt.err.Error(), ""); len(regexp.MustCompile(`\b`+tt.object+`\b`).FindAllString(rest, -1)) != 1 {
			t.Errorf("%v\nnames %s not once", tt.err, tt.object)
		}
	}
}

// setEntry makes the first entry of a list another address.
func setEntry(value string) func(*rules.AllowList, traffic.Time) error {
	return func(l *rules.AllowList, _ traffic.Time) error {
		l.Entries[0].Value = value
		return nil
	}
}
