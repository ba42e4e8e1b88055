package pages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/story"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const edited = "id: login-stuffing\nowner: identity\nlimit: 3\n"

// triedAs is what an edit of a rule would do.
func triedAs(rule string) acts.Tried {
	return acts.Tried{
		Plan: &rulestore.Plan{Changes: []rulestore.RuleChange{{Rule: rule, Kind: rulestore.ChangePending, Version: 9,
			Diff: []string{"limit 8 → 3"}, Pending: []string{"the limit is lower"}}}},
		Warnings: []rules.Problem{{File: "login-stuffing.yaml", Line: 3, Field: "limit", Got: "3", Allowed: "more"}},
		Tests: []acts.RuleTest{{Rule: rule, Name: "passes", Line: 4, OK: true},
			{Rule: rule, Name: "fails\u202e", Line: 9, Diff: "- {count: 1}\n+ {count: 2}"}},
		Traffic: &acts.TrafficTried{Since: sceneTime().Add(-300e9), Until: sceneTime(),
			Shorter: "there are more than 7",
			Events:  1234, Unread: 2, Rules: []acts.RuleTried{{Rule: rule, Matched: 90, Sources: 2, Episodes: 3,
				AtLeast: true,
				Top:     []acts.SourceTried{{Subject: "ip=203.0.113.7%2F32", Over: 17, Peak: 5}}, TopCut: 1,
				Block: &acts.BlockTried{Held: 2, Refused: 45, Share: 0.0365}}}},
	}
}

// somebody is a visitor in a role.
func somebody(role access.Role, owns ...string) access.Visit {
	return access.Visit{Actor: access.Actor{Name: "jonas", Role: role, Owners: owns}}
}

// planOf is what a form has of what documents would change.
func planOf(tried acts.Tried) string {
	text, err := json.Marshal(tried.Plan)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// hidden is what a form has in a hidden field.
func hidden(body, name string) string {
	found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(body)
	if found == nil {
		return ""
	}
	return html.UnescapeString(found[1])
}

// A text is tried before it is applied, and is applied as it was shown: with the plan that its form had.
func TestDocumentsAreTriedThenApplied(t *testing.T) {
	s := newScene()
	s.does.tried = triedAs("login-stuffing")
	p := newPages(t, s.options())
	for who, offered := range map[string]bool{"mara": true, "jonas": false} {
		v := admin()
		if !offered {
			v = somebody(access.Viewer)
		}
		if _, body, _ := get(t, p, v, "/"); strings.Contains(body, `href="/write"`) != offered {
			t.Errorf("the overview offers %s to write: %t", who, !offered)
		}
	}
	const at = "/rules/login-stuffing/edit"
	status, body, _ := get(t, p, admin(), at)
	if status != 200 || !strings.Contains(body, "id: login-stuffing") || strings.Contains(body, `value="apply"`) {
		t.Fatalf("status %d; the form is to have the rule's document, and no button that applies it: %s", status, body)
	}
	status, body, _ = post(t, p, admin(), at, url.Values{"text": {strings.ReplaceAll(edited, "\n", "\r\n")},
		"do": {"try"}})
	for _, want := range []string{"limit 8 → 3", "waits for its promotion", "1 of 2 failed", "fails", `\u{202e}`,
		"+ {count: 2}",
		"line 3", "limit: 3", "<b>2</b> sources over the limit", "refused 45 requests", "3.65 %", "203.0.113.7",
		"1 more sources are not listed", "there are more than 7", "2 records could not be read", "at least",
		"1 of its tests fail"} {
		if !strings.Contains(body, want) {
			t.Errorf("status %d, %q is missing in %s", status, want, body)
		}
	}
	if status != 200 || len(s.does.did) != 0 || hidden(body, "tried") != digestOf(edited) {
		t.Fatalf("status %d; to try is to do nothing: did %v; tried %q", status, s.does.did, hidden(body, "tried"))
	}
	form := url.Values{"text": {edited}, "do": {"apply"}, "reason": {"calmer"}, "confirm": {"yes"},
		"tried": {hidden(body, "tried")}, "plan": {hidden(body, "plan")}}
	status, _, h := post(t, p, admin(), at, form)
	if status != 303 || h.Get("Location") != "/rules/login-stuffing?did=applied" || len(s.does.did) != 1 {
		t.Fatalf("status %d to %q, did %+v", status, h.Get("Location"), s.does.did)
	}
	did, _ := s.does.did[0].(acts.ApplyRequest)
	if did.Shown == nil || did.Shown.Changes[0].Diff[0] != "limit 8 → 3" || !did.Alone || did.Files[0].Text != edited ||
		did.Reason != "calmer" || did.DryRun {
		t.Errorf("applied was %+v", did)
	}
}

// Whatever the client sends: nothing is applied that is not right, and what was written is not lost.
func TestDocumentsAreNotApplied(t *testing.T) {
	own := triedAs("login-stuffing")
	whole := url.Values{"text": {edited}, "do": {"apply"}, "reason": {"calmer"}, "confirm": {"yes"},
		"tried": {digestOf(edited)}}
	with := func(name, value string) url.Values {
		f := url.Values{}
		for k, v := range whole {
			f[k] = v
		}
		f.Set(name, value)
		return f
	}
	problems := rules.Problems{{File: "login-stuffing.yaml", Line: 3, Field: "limit", Got: `"x"`, Allowed: "a number"}}
	other := triedAs("search-hammer")
	tests := []struct {
		name, address string
		as            access.Visit
		form          url.Values
		tried         acts.Tried
		trial, apply  error
		status        int
		says          string
	}{
		{"changed since", "", admin(), with("text", edited+"# more\n"), own, nil, nil, 409,
			"has changed since it was tried"},
		{"never tried", "", admin(), with("tried", ""), own, nil, nil, 409, "has changed since it was tried"},
		{"without what was shown", "", admin(), whole, own, nil, nil, 409, "has changed since it was tried"},
		{"no tick", "", admin(), with("confirm", ""), own, nil, nil, 422, "tick the box"},
		{"no reason", "", admin(), with("reason", " … "), own, nil, nil, 422, "words that say why"},
		{"no plan", "", admin(), with("plan", "{"), own, nil, nil, 422, "what the form had"},
		{"another rule", "", admin(), with("plan", planOf(other)), other, nil, nil, 422,
			"one document, of the rule login-stuffing"},
		{"another rule tried", "", admin(), with("do", "try"), other, nil, nil, 422,
			"one document, of the rule login-stuffing"},
		{"problems", "", admin(), with("do", "try"), acts.Tried{}, problems, nil, 422,
			"limit: got &#34;x&#34;, allowed a number"},
		{"nothing in it", "/write", admin(), with("do", "try"), acts.Tried{}, acts.ErrNoRules, nil, 422,
			"no rule and no allow list"},
		{"somebody was quicker", "/write", admin(), with("plan", planOf(own)), own, nil, rulestore.ErrOvertaken, 409,
			"Look at what it would do"},
		{"a store is away", "/write", admin(), with("do", "try"), acts.Tried{}, errors.New("PostgreSQL"), nil, 503,
			"does not answer"},
		{"not by a viewer", "", somebody(access.Viewer), whole, own, nil, nil, 403, "You may not"},
		{"not by another owner", "", somebody(access.Owner, "search"), whole, own, nil, nil, 403, "You may not"},
		{"of no rule", "/rules/nobody/edit", admin(), whole, own, nil, nil, 404, "nobody"},
		{"not of another's", "/write", somebody(access.Owner, "search"), with("do", "try"), acts.Tried{},
			&access.Forbidden{Act: access.Apply, Needs: access.Owner}, nil, 403, "needs the role"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene()
			s.does.tried, s.does.refusesTrial, s.does.refuses = tt.tried, tt.trial, tt.apply
			address := tt.address
			if address == "" {
				address = "/rules/login-stuffing/edit"
			}
			status, body, h := post(t, newPages(t, s.options()), tt.as, address, tt.form)
			if status != tt.status || !strings.Contains(body, tt.says) || h.Get("Location") != "" {
				t.Errorf("status %d, want %d; goes to %q; want %q in %s", status, tt.status, h.Get("Location"),
					tt.says, body)
			}
			for _, did := range s.does.did {
				if one, _ := did.(acts.ApplyRequest); !one.DryRun && tt.apply == nil {
					t.Errorf("applied was %+v", one)
				}
			}
			if status == 409 || status == 422 {
				if !strings.Contains(body, html.EscapeString(strings.TrimSpace(tt.form.Get("text")))) {
					t.Errorf("what was written is lost: %s", body)
				}
			}
		})
	}
}

// Who is shown pseudonyms is shown them here, too.
func TestTriedSourcesAreMasked(t *testing.T) {
	s := newScene()
	s.does.tried = triedAs("login-stuffing")
	o := s.options()
	var err error
	if o.Masker, err = access.NewMasker(access.Masking{Key: []byte(strings.Repeat("k", access.MaskKeyBytes)),
		Below: access.Admin, Fields: access.DefaultMaskedFields()}); err != nil {
		t.Fatal(err)
	}
	s.does.tried.AllowLists = []rulestore.AllowChange{{List: "offices", Kind: rulestore.ChangeEdited, Version: 5,
		Diff:    []string{`cidr "198.51.100.77/32" removed`, `user "alice" removed`},
		Refused: []string{"bob would be counted"}}}
	status, body, _ := post(t, newPages(t, o), somebody(access.Owner, "identity-platform"), "/write",
		url.Values{"text": {edited}, "do": {"try"}})
	for _, plain := range []string{"203.0.113.7", "198.51.100.77", "alice", "bob"} {
		if strings.Contains(body, plain) {
			t.Errorf("status %d: %s is shown: %s", status, plain, body)
		}
	}
	if status != 200 || !strings.Contains(body, "17") || !strings.Contains(body, "2 lines about whom it lets pass") {
		t.Errorf("status %d: %s", status, body)
	}
}

// What an author begins with is a rule once it has a name: it has no problem, and its test passes.
func TestBlankRule(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(blankRule, "tests"), "id: ", "id: x", 1)
	var kept []story.Test
	set, err := rules.ParseSet([]rules.File{{Name: "blank.yaml", Src: []byte(text)}}, rules.Environment{
		AllowLists: []string{}, Warn: func(p rules.Problem) { t.Error(p.Error()) },
		Identity: traffic.IdentityMap{}, Tests: &story.Tests{Keep: func(one story.Test) { kept = append(kept, one) }},
	})
	if err != nil || len(set.Rules) != 1 || len(kept) != 1 {
		t.Fatalf("%v: %d tests of %+v", err, len(kept), set)
	}
	got, err := story.Fold(kept[0].Story)
	if err != nil {
		t.Fatal(err)
	}
	if diff := kept[0].Story.Diff(got); diff != "" {
		t.Error(diff)
	}
}

// In a browser: a text is tried, seen beside what it would do, and applied, without a script of ours.
func writesARule(chrome context.Context, t *testing.T) {
	s := newScene()
	s.does.tried = triedAs("login-stuffing")
	address := serve(t, newPages(t, s.options()), admin())
	for _, look := range looks() {
		p := open(chrome, t, address+"/rules/login-stuffing/edit", look)
		p.until(`document.getElementById("text")`)
		p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("text").value += "# " + "x".repeat(300) + "\n"`),
			chromedp.Evaluate[chromedp.Void](`document.querySelector('[value="try"]').click()`))
		p.until(`document.readyState === "complete" && document.querySelector('[value="apply"]')`)
		if wide := p.text(`String(document.documentElement.scrollWidth - document.documentElement.clientWidth)`); wide != "0" {
			t.Errorf("%s: the page scrolls sideways by %s px", look.name, wide)
		}
		p.shoot("write-"+look.name, true)
		p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("reason").value = "calmer";
			document.querySelector('[name="confirm"]').click(); document.querySelector('[value="apply"]').click()`))
		p.until(`location.search === "?did=applied"`)
		p.blameless(address)
	}
	if len(s.does.did) != len(looks()) {
		t.Errorf("did %+v", s.does.did)
	}
}
