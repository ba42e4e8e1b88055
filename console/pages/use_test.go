package pages

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/bounds"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

func post(t testing.TB, p *Pages, v access.Visit, address string, form url.Values) (int, string, http.Header) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, address, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	as(v, p.Handler()).ServeHTTP(w, r)
	return w.Code, w.Body.String(), w.Header()
}

// blocking is the form of a block by hand.
func blocking(of, length, what, match string) url.Values {
	return url.Values{"of": {of}, "for": {length}, "what": {what}, "match": {match}, "reason": {"a scraper"},
		"confirm": {"yes"}}
}

// A form is done only with a tick, and what comes of it is a page of its own.
func TestFormsAct(t *testing.T) {
	until := sceneTime().Std().Format("2006-01-02T15:04:05Z07:00")
	whole := url.Values{"confirm": {"yes"}, "reason": {"two quiet days"}, "seen": {"r7"}, "version": {"3"}, "to": {"canary"}, "dossier": {"c0f76e34"}, "until": {until}}
	without := func(name string) url.Values {
		f := url.Values{}
		for k, v := range whole {
			if k != name {
				f[k] = v
			}
		}
		return f
	}
	verdict := func(got string, outcome promotion.Outcome) []promotion.Verdict {
		return []promotion.Verdict{{Gate: "max_known_good", Allowed: "at most 0%", Got: got, Outcome: outcome}}
	}
	turned := &acts.TurnedError{Rule: "catalogue-scrape", Since: sceneTime().Std(), Then: verdict("0%",
		promotion.Passed), Now: verdict("2%", promotion.Failed)}
	beyond := &acts.BeyondError{Act: access.Promote, Beyond: bounds.Beyond{Rule: "catalogue-scrape", Field: "match",
		Owner: "discovery", Allowed: []rules.Match{{Methods: []string{"GET"}}}}}
	tests := []struct {
		name, address string
		form          url.Values
		refuses       error
		status        int
		goes          string
		says          string
		done          int
	}{
		{"promote", "/rules/catalogue-scrape/promote", whole, nil, 303, "/rules/catalogue-scrape?did=canary", "", 1},
		{"no tick", "/rules/catalogue-scrape/promote", without("confirm"), nil, 422, "", "tick the box", 0},
		{"no time", "/rules/catalogue-scrape/promote", without("until"), nil, 400, "", "until", 0},
		{"to nothing", "/rules/catalogue-scrape/promote", without("to"), nil, 400, "", "canary, block", 0},
		{"somebody was quicker", "/rules/catalogue-scrape/promote", whole, &acts.ChangedError{Rule: "catalogue-scrape"}, 409, "", "Look at the rule again", 1},
		{"a gate turned", "/rules/catalogue-scrape/promote", whole, turned, 409, "",
			"Known good, of those whom it would hold: then 0% (passed), now 2% (failed); allowed is at most 0%", 1},
		{"a gate does not pass", "/rules/catalogue-scrape/promote", whole, &rulestore.GatesError{Verdicts: turned.Now},
			422, "", "Known good, of those whom it would hold: found 2% (failed), allowed is at most 0%.", 1},
		{"looked at long ago", "/rules/catalogue-scrape/promote", whole, &acts.Invalid{Field: "until", Got: until,
			Allowed: "a time of the last 19m: look again"}, 422, "", "look again", 1},
		{"half done", "/rules/catalogue-scrape/promote", whole, &acts.UnfinishedError{Done: "stored", Undone: "not told", Cause: errors.New("Redis")}, 502, "", "What is done stays done", 1},
		{"not by him", "/rules/catalogue-scrape/promote", whole, &access.Forbidden{Act: access.Promote}, 403, "", "You may not", 1},
		{"beyond his bounds", "/rules/catalogue-scrape/promote", whole, beyond, 403, "",
			"promote needs the role admin here: " +
				"match of rule catalogue-scrape reaches any method any path; owner &#34;discovery&#34; is bound to", 1},
		{"demote", "/rules/login-stuffing/demote", whole, nil, 303, "/rules/login-stuffing?did=demote", "", 1},
		{"disable", "/rules/login-stuffing/disable", whole, nil, 303, "/rules/login-stuffing?did=disable", "", 1},
		{"no such rule", "/rules/login-stufing/demote", whole, nil, 404, "", `Did you mean &#34;login-stuffing&#34;`, 0},
		{"release", "/release", url.Values{"confirm": {"yes"}, "reason": {"a school"}, "rule": {"login-stuffing"}, "subject": {"ip=203.0.113.7%2F32"}}, nil, 303, "/sources?of=ip%3D203.0.113.7&did=release", "", 1},
		{"erase", "/erase", erasing("user=alice", "asked for it"), nil, 303, "/sources?of=user%3Dalice&did=erase", "", 1},
		{"erase for long", "/erase", erasing("user=alice", "long"), nil, 303, "/sources?of=user%3Dalice&did=erasing", "", 1},
		{"erase without a tick", "/erase", url.Values{"of": {"user=alice"}, "reason": {"x"}}, nil, 422, "", "tick the box", 0},
		{"erase several", "/erase", erasing("ip=203.0.113.7%2F32&device=tv-7", "x"), nil, 400, "", "FIELD=VALUE of one person", 0},
		{"erase by a path", "/erase", erasing("path=/x", "x"), nil, 400, "", "FIELD=VALUE", 0},
		{"erase with the store away", "/erase", erasing("user=alice", "x"), errors.New("PostgreSQL does not answer"), 422, "", "PostgreSQL does not answer", 1},
		{"block", "/block", blocking("ip=203.0.113.7", "2h", "everything", ""), nil, 303,
			"/sources?of=ip%3D203.0.113.7&did=block", "", 1},
		{"block with ENFORCE away", "/block", blocking("ip=203.0.113.7", "2h", "everything", ""),
			&acts.UnfinishedError{Done: "stored", Undone: "not done"}, 303, "/sources?of=ip%3D203.0.113.7&did=ordered",
			"", 1},
		{"block for too long", "/block", blocking("ip=203.0.113.7", "1y", "everything", ""),
			&acts.Invalid{Field: "for", Got: "1y", Allowed: "1s to 31d"}, 422, "", "Allowed: 1s to 31d", 1},
		{"block without a tick", "/block", url.Values{"of": {"ip=203.0.113.7"}, "for": {"1h"}, "reason": {"x"}}, nil,
			422, "", "tick the box", 0},
		{"block a path", "/block", blocking("path=/x", "1h", "everything", ""), nil, 400, "", "FIELD=VALUE", 0},
		{"never block", "/never-block/change", url.Values{"entry": {"198.51.100.0/24"}, "for": {"30d"},
			"reason": {"the office"}, "confirm": {"yes"}}, nil, 303, "/never-block?did=never", "", 1},
		{"never block without a tick", "/never-block/change", url.Values{"entry": {"198.51.100.0/24"},
			"reason": {"the office"}}, nil, 422, "", "tick the box", 0},
		{"never block for nonsense", "/never-block/change", url.Values{"entry": {"198.51.100.0/24"}, "for": {"soon"},
			"reason": {"x"}, "confirm": {"yes"}}, nil, 422, "", "such as 30d", 0},
		{"never block nobody", "/never-block/change", url.Values{"entry": {"x"}, "reason": {"x"}, "confirm": {"yes"}},
			&acts.Invalid{Field: "entries[0]", Got: "x", Allowed: "an address"}, 422, "", "Allowed: an address", 1},
		{"let be blocked", "/never-block/change", url.Values{"remove": {"198.51.100.0/24"}, "reason": {"moved"},
			"confirm": {"yes"}}, nil, 303, "/never-block?did=never-remove", "", 1},
		{"block nobody", "/block", blocking("", "1h", "everything", ""), nil, 400, "", "FIELD=VALUE", 0},
		{"block a proxy", "/block", blocking("ip=203.0.113.7", "1h", "everything", ""),
			&acts.NeverBlockedError{Subject: "ip=203.0.113.7%2F32", Entry: netip.MustParsePrefix("203.0.113.0/24"),
				List: "never_block"}, 409, "", "203.0.113.0/24 is in never_block", 1},
		{"raise a limit", "/rules/login-stuffing/limit", url.Values{"limit": {"50"}, "for": {"2h"},
			"reason": {"the sale"}, "confirm": {"yes"}}, nil, 303, "/rules/login-stuffing?did=limit", "", 1},
		{"raise a limit by words", "/rules/login-stuffing/limit", url.Values{"limit": {"much"}, "for": {"2h"},
			"reason": {"x"}, "confirm": {"yes"}}, nil, 422, "", "a whole number above", 0},
		{"raise a limit for good", "/rules/login-stuffing/limit", url.Values{"limit": {"50"}, "reason": {"x"},
			"confirm": {"yes"}}, nil, 422, "", "such as 2h", 0},
		{"raise a limit that somebody else raised", "/rules/login-stuffing/limit", url.Values{"limit": {"50"},
			"for": {"2h"}, "reason": {"x"}, "confirm": {"yes"}}, &acts.ChangedError{Rule: "login-stuffing"}, 409, "",
			"Look at the rule again", 1},
		{"end a raised limit", "/rules/login-stuffing/limit", url.Values{"end": {"yes"}, "reason": {"over"},
			"confirm": {"yes"}}, nil, 303, "/rules/login-stuffing?did=limit-end", "", 1},
		{"roll back", "/rules/login-stuffing/rollback", url.Values{"to": {"2"}, "reason": {"wrong"},
			"confirm": {"yes"}}, nil, 303, "/rules/login-stuffing?did=rollback", "", 1},
		{"roll back without a reason", "/rules/login-stuffing/rollback", url.Values{"to": {"2"}, "confirm": {"yes"}},
			nil, 422, "", "words that say why", 0},
		{"roll back another rule than was seen", "/rules/login-stuffing/rollback", url.Values{"to": {"2"},
			"reason": {"x"}, "seen": {"r6"}, "confirm": {"yes"}}, nil, 409, "", "Look at the rule again", 0},
		{"roll back another plan", "/rules/login-stuffing/rollback", url.Values{"to": {"2"}, "reason": {"x"},
			"confirm": {"yes"}}, rulestore.ErrOvertaken, 409, "", "Look at the rule again", 1},
		{"reset", "/rules/login-stuffing/reset", url.Values{"subject": {"ip=203.0.113.7%2F32"}, "reason": {"a test"},
			"confirm": {"yes"}}, nil, 303, "/sources?of=ip%3D203.0.113.7&did=reset", "", 1},
		{"reset what counts otherwise", "/rules/login-stuffing/reset", url.Values{"subject": {"user=x"},
			"reason": {"x"}, "confirm": {"yes"}}, errors.New("it counts by ip"), 422, "", "it counts by ip", 1},
		{"reset nonsense", "/rules/login-stuffing/reset", url.Values{"subject": {"%%"}, "reason": {"x"},
			"confirm": {"yes"}}, nil, 400, "", "canonical subject", 0},
		{"release of nothing", "/release", url.Values{"confirm": {"yes"}, "rule": {"login-stuffing"}, "subject": {"x"}}, nil, 400, "", "canonical subject", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene()
			s.does.refuses = tt.refuses
			status, body, h := post(t, newPages(t, s.options()), admin(), tt.address, tt.form)
			if status != tt.status || h.Get("Location") != tt.goes || !strings.Contains(body, tt.says) {
				t.Errorf("status %d, want %d; goes to %q, want %q; want %q in %s", status, tt.status, h.Get("Location"), tt.goes, tt.says, body)
			}
			if len(s.does.did) != tt.done {
				t.Errorf("did %+v, want %d", s.does.did, tt.done)
			}
		})
	}
	hand := newScene()
	post(t, newPages(t, hand.options()), admin(), "/block", blocking("ip=2001:db8::7", "2h", "match", "{path: /v1/*}"))
	asked := acts.BlockRequest{Subject: "ip=2001%3Adb8%3A%3A%2F64", Match: "{path: /v1/*}", For: "2h",
		Wait: releaseWait, Reason: "a scraper"}
	if got := hand.does.did[0]; got != asked {
		t.Errorf("asked for %+v, want %+v", got, asked)
	}
	// Nothing but the choice of all requests means all of them: what contradicts it goes to who refuses it.
	for _, what := range []string{"everything", "match", "bogus", ""} {
		both := newScene()
		post(t, newPages(t, both.options()), admin(), "/block", blocking("ip=203.0.113.7", "1h", what, "{path: /v1/*}"))
		if got, ok := both.does.did[0].(acts.BlockRequest); !ok || got.Match != "{path: /v1/*}" ||
			got.Everything != (what == "everything") {
			t.Errorf("%q: asked for %+v", what, both.does.did[0])
		}
	}
	back := newScene()
	post(t, newPages(t, back.options()), admin(), "/rules/login-stuffing/rollback", url.Values{"to": {"2"},
		"reason": {"wrong"}, "confirm": {"yes"}})
	if got := back.does.did[0].(acts.RollbackRequest); got.To != 2 || got.Shown == nil || got.DryRun {
		t.Errorf("asked for %+v, want the plan that was shown", got)
	}
	high := newScene()
	post(t, newPages(t, high.options()), admin(), "/rules/login-stuffing/limit", url.Values{"limit": {"50"},
		"for": {"2h"}, "reason": {"the sale"}, "confirm": {"yes"}, "seen": {"r7"}})
	if got, want := high.does.did[0], (acts.LimitRequest{Rule: "login-stuffing", Limit: 50, For: "2h",
		Reason: "the sale", Seen: "r7"}); got != want {
		t.Errorf("asked for %+v, want %+v", got, want)
	}
	s := newScene()
	post(t, newPages(t, s.options()), admin(), "/rules/catalogue-scrape/promote", whole)
	want := acts.PromoteRequest{Rule: "catalogue-scrape", Version: 3, To: "canary", Until: sceneTime().Std(), Dossier: "c0f76e34", Reason: "two quiet days", Seen: "r7"}
	if got := s.does.did[0]; got != want {
		t.Errorf("asked for %+v, want %+v", got, want)
	}
}

// What came after somebody had looked is said on the page that tells that it is done. A link that somebody has made up
// says nothing else.
func TestPromotionsSayWhatHasCome(t *testing.T) {
	until := sceneTime().Std().Format("2006-01-02T15:04:05Z07:00")
	s := newScene()
	s.does.grown = acts.Grown{Sources: 3, Events: 5, Since: sceneTime().Std()}
	p := newPages(t, s.options())
	form := url.Values{"confirm": {"yes"}, "reason": {"two quiet days"}, "seen": {"r7"}, "version": {"3"},
		"to": {"block"}, "dossier": {"c0f76e34"}, "until": {until}}
	_, _, h := post(t, p, admin(), "/rules/catalogue-scrape/promote", form)
	if _, body, _ := get(t, p, admin(), h.Get("Location")); !strings.Contains(body,
		"Promoted: it blocks from now on. 3 sources had 5 more events since 14:30 UTC.") {
		t.Errorf("%s does not say what has come", h.Get("Location"))
	}
	for _, link := range []string{"did=promote", "did=promote&sources=x&events=5&looked=1",
		"did=promote&sources=-3&events=5&looked=1", "did=promote&sources=3&events=0&looked=1", "did=promote&events=5",
		"did=promote&sources=99999999999999999999&events=5&looked=1"} {
		if _, body, _ := get(t, p, admin(), "/rules/catalogue-scrape?"+link); strings.Contains(body, "more event") ||
			!strings.Contains(body, "Promoted: it blocks from now on.</p>") {
			t.Errorf("%s tells of events", link)
		}
	}
}

// Who may not act sees no button, no form, and is refused.
func TestRolesSeeWhatTheyMay(t *testing.T) {
	s := newScene()
	p := newPages(t, s.options())
	person := func(role access.Role, owners ...string) access.Visit {
		return access.Visit{Actor: access.Actor{Name: "vic", Role: role, Owners: owners}}
	}
	tests := []struct {
		name    string
		who     access.Visit
		address string
		status  int
		has     string
		lacks   string
	}{
		{"nobody", access.Visit{}, "/", 403, "may not", "catalogue-scrape"},
		{"viewer", person(access.Viewer), "/rules/catalogue-scrape", 200, "In shadow", "Promote"},
		{"owner", person(access.Owner, "discovery"), "/rules/catalogue-scrape", 200, "/rules/catalogue-scrape/promote", ""},
		{"other owner", person(access.Owner, "player"), "/rules/catalogue-scrape", 200, "In shadow", "/rules/catalogue-scrape/promote"},
		{"other owner's form", person(access.Owner, "player"), "/rules/catalogue-scrape/promote", 403, "may not", "textarea"},
		{"viewer's blocks", person(access.Viewer), "/blocks", 200, "in force", "/release?"},
		{"analyst's blocks", person(access.Analyst), "/blocks", 200, "/release?rule=", ""},
		{"admin's source", person(access.Admin), "/sources?of=user%3Dalice", 200, "/erase?of=user%3Dalice", ""},
		{"admin's source of two values", person(access.Admin), "/sources?of=ip%3D203.0.113.7%252F32%26device%3Dtv-7", 200, "Timeline", "/erase?"},
		{"owner's source", person(access.Owner, "player"), "/sources?of=user%3Dalice", 200, "Timeline", "/erase?"},
		{"owner's form to erase", person(access.Owner, "player"), "/erase?of=user%3Dalice", 403, "may not", "textarea"},
		{"admin's form to erase", person(access.Admin), "/erase?of=user%3Dalice", 200, "They do not come back", ""},
		{"admin's source to block", person(access.Admin), "/sources?of=user%3Dalice", 200, "/block?of=user%3Dalice",
			""},
		{"owner's source to block", person(access.Owner, "player"), "/sources?of=user%3Dalice", 200, "Timeline",
			"/block?"},
		{"owner's blocks", person(access.Owner, "player"), "/blocks", 200, "in force", "by hand"},
		{"admin's blocks", person(access.Admin), "/blocks", 200, `action="/block"`, ""},
		{"owner's form to block", person(access.Owner, "player"), "/block?of=user%3Dalice", 403, "may not", "textarea"},
		{"admin's form to block", person(access.Admin), "/block?of=ip%3D203.0.113.7", 200,
			"seen with 7 users: ann, ben", ""},
		{"analyst's release shows who is behind", person(access.Analyst),
			"/release?rule=login-stuffing&subject=ip%3D203.0.113.7%252F32", 200, "seen with 7 users: ann, ben", ""},
		{"viewer's never-block list", person(access.Viewer), "/never-block", 200, "the office", "/never-block/change"},
		{"admin's never-block list", person(access.Admin), "/never-block", 200,
			"/never-block/change?remove=198.51.100.7%2F32", "remove=203.0.113"},
		{"owner's form to never block", person(access.Owner, "player"), "/never-block/change", 403, "may not",
			"textarea"},
		{"admin's form to never block", person(access.Admin), "/never-block/change", 200, "are released", ""},
		{"a rule by hand has no page", person(access.Viewer), "/rules/by-hand", 303, "/blocks?rule=by-hand", ""},
		{"owner's block id", person(access.Owner, "identity-platform"), "/hits/" + held(s), 200,
			"/rules/login-stuffing/demote", ""},
		{"owner's block id to let pass", person(access.Owner, "identity-platform"), "/hits/" + held(s), 200,
			"&amp;pass=30d", ""},
		{"other owner's block id", person(access.Owner, "player"), "/hits/" + held(s), 200, "/release?", "pass=30d"},
		{"other owner's block id to demote", person(access.Owner, "player"), "/hits/" + held(s), 200, "/release?",
			"/demote"},
		{"owner's limit", person(access.Owner, "identity-platform"), "/rules/login-stuffing", 200,
			"/rules/login-stuffing/limit", "limit?end"},
		{"owner's older versions", person(access.Owner, "identity-platform"), "/rules/login-stuffing", 200,
			"/rules/login-stuffing/rollback?to=2", "rollback?to=3"},
		{"other owner's limit", person(access.Owner, "player"), "/rules/login-stuffing", 200, "Blocking", "/limit"},
		{"other owner's older versions", person(access.Owner, "player"), "/rules/login-stuffing", 200, "Blocking",
			"/rollback"},
		{"other owner's form of a limit", person(access.Owner, "player"), "/rules/login-stuffing/limit", 403,
			"may not", "textarea"},
		{"other owner's form of a rollback", person(access.Owner, "player"), "/rules/login-stuffing/rollback?to=2",
			403, "may not", "textarea"},
		{"other owner's form of a reset", person(access.Owner, "player"),
			"/rules/login-stuffing/reset?subject=ip%3D203.0.113.7%252F32", 403, "may not", "textarea"},
		{"owner's source to reset", person(access.Owner, "identity-platform"), "/sources?of=ip%3D203.0.113.7", 200,
			"/rules/login-stuffing/reset?subject=ip%3D203.0.113.7%252F32", "/rules/catalogue-scrape/reset"},
		{"viewer's source to reset", person(access.Viewer), "/sources?of=ip%3D203.0.113.7", 200, "Timeline", "/reset?"},
		{"what a rollback means", person(access.Admin), "/rules/login-stuffing/rollback?to=2", 200,
			"waits for its promotion: the limit is lower", ""},
		{"a rollback to no version", person(access.Admin), "/rules/login-stuffing/rollback?to=9", 400, "1 to 3", ""},
		{"a rollback to nothing", person(access.Admin), "/rules/login-stuffing/rollback", 400, "1 to 3", ""},
		{"viewer's allow lists", person(access.Viewer), "/allow", 200, "/allow/offices", ""},
		{"viewer's allow list", person(access.Viewer), "/allow/offices", 200, "the office in the harbour", "/change"},
		{"secrets of an allow list", person(access.Admin), "/allow/offices", 200, "…itor", "pk_live_of"},
		{"owner's allow list", person(access.Owner, "partners"), "/allow/partners", 200, "/allow/partners/change", ""},
		{"other owner's allow list", person(access.Owner, "partners"), "/allow/offices", 200, "198.51.100.0/24",
			"/change"},
		{"other owner's form of an allow list", person(access.Owner, "partners"), "/allow/offices/change", 403,
			"may not", "textarea"},
		{"admin's form to remove", person(access.Admin), "/allow/offices/change?version=4&remove=1", 200,
			"198.51.100.0/24, let pass since", ""},
		{"admin's form to remove a secret", person(access.Admin), "/allow/offices/change?version=4&remove=4", 200,
			"API key …itor", "pk_live_of"},
		{"no such allow list", person(access.Viewer), "/allow/ofices", 404, "Did you mean &#34;offices&#34;", ""},
		{"viewer's file", person(access.Viewer), "/explore.csv", 403, "may not", ""},
	}
	for _, tt := range tests {
		status, body, _ := get(t, p, tt.who, tt.address)
		if status != tt.status || !strings.Contains(body, tt.has) || tt.lacks != "" && strings.Contains(body, tt.lacks) {
			t.Errorf("%s: status %d, want %d with %q and without %q: %s", tt.name, status, tt.status, tt.has, tt.lacks, body)
		}
	}
}

// Whoever is shown pseudonyms finds no value of a masked field on any page, nor in a file.
func TestMaskedPagesTellNoValue(t *testing.T) {
	s := newScene()
	o := s.options()
	var err error
	if o.Masker, err = access.NewMasker(access.Masking{Key: []byte(strings.Repeat("k", access.MaskKeyBytes)), Below: access.Admin, Fields: access.DefaultMaskedFields()}); err != nil {
		t.Fatal(err)
	}
	p := newPages(t, o)
	who := access.Visit{Actor: access.Actor{Name: "ana", Role: access.Analyst}}
	pages := addresses(s)
	pages["csv"], pages["json"], pages["csv-source"] = "/explore.csv?by=episode", "/explore.json?by=source", "/explore.csv?by=source"
	delete(pages, "source") // it names the value itself
	delete(pages, "release")
	delete(pages, "reset")
	delete(pages, "promote")
	for name, at := range pages {
		_, body, _ := get(t, p, who, at)
		for _, value := range []string{"203.0.113.", "living-room-", "pk_live_"} {
			if strings.Contains(body, value) {
				t.Errorf("%s tells %s", name, value)
			}
		}
	}
	if status, body, _ := get(t, p, who, "/sources?of=ip%3D203.0.113.7"); status != 400 || !strings.Contains(body, "pseudonym") {
		t.Errorf("a plain address was taken: %d", status)
	}
	masked := string(o.Masker.Subject(who.Actor, "ip=203.0.113.7%2F32"))
	if status, body, _ := get(t, p, who, "/sources?of="+url.QueryEscape(masked)); status != 200 || strings.Contains(body, "203.0.113.7") {
		t.Errorf("a pseudonym was not taken, or told: %d", status)
	}
	// Where a page ends may name a source: the link to the next one is sealed, and no other place is taken.
	_, body, _ := get(t, p, who, "/explore?by=episode&top=1")
	sealed := regexp.MustCompile(`cursor=(%7E|~)[0-9a-v]+`).FindString(body)
	if sealed == "" || strings.Contains(body, "cursor=more") {
		t.Errorf("the next page of whoever is shown pseudonyms: %q", sealed)
	}
	if status, _, _ := get(t, p, who, "/explore?by=episode&top=1&"+sealed); status != 200 {
		t.Errorf("the next page: %d", status)
	}
	for _, at := range []string{"/explore?by=episode&cursor=more", "/explore.csv?by=episode&cursor=more", "/audit?cursor=more"} {
		if status, body, _ := get(t, p, who, at); status != 400 || !strings.Contains(body, "cursor") {
			t.Errorf("%s: %d", at, status)
		}
	}
}

// What cannot be asked is told by field and by what is allowed; a store that is away is told, too.
func TestPagesSayWhatIsWrong(t *testing.T) {
	s := newScene()
	p := newPages(t, s.options())
	tests := []struct {
		address string
		status  int
		says    string
	}{
		{"/rules/guest-token-flod", 404, "Did you mean &#34;guest-token-flood&#34;?"},
		{"/rules/guest-token-flood?since=tomorrow", 400, "since: got"},
		{"/rules/guest-token-flood?since=1h&until=2h", 400, "a time before until"},
		{"/rules/guest-token-flood?since=9999d", 400, "since"},
		{"/rules/guest-token-flood?limit=3", 400, "limit: got"},
		{"/explore?by=colour", 400, "episode, rule, source, hour, day"},
		{"/explore?top=0", 400, "1 to 1000"},
		{"/explore?source=colour%3Dred", 400, "no field of a subject"},
		{"/blocks?sort=x", 400, "newest, ending, rule"},
		{"/blocks?rule=login-stufing", 400, "did you mean"},
		{"/hits/xyz", 400, "hex digits"},
		{"/hits/ffffffffffffffff", 404, "No episode has an id"},
		{"/sources", 400, "of: got"},
		{"/nowhere", 404, "There is no page at /nowhere"},
		{"/scheme?to=pink", 400, "system, light, dark"},
	}
	for _, tt := range tests {
		if status, body, _ := get(t, p, admin(), tt.address); status != tt.status || !strings.Contains(body, tt.says) {
			t.Errorf("%s: status %d, want %d with %q: %s", tt.address, status, tt.status, tt.says, body)
		}
	}
	s.away["redis"] = errors.New("gone")
	if status, body, _ := get(t, newPages(t, s.options()), admin(), "/blocks"); status != 200 || !strings.Contains(body, "Redis does not answer") {
		t.Errorf("without Redis: %d", status)
	}
	s.away["history"] = errors.New("gone")
	if status, body, h := get(t, newPages(t, s.options()), admin(), "/explore"); status != 503 || !strings.Contains(body, "A store does not answer") || h.Get("Retry-After") == "" {
		t.Errorf("without history: %d", status)
	}
	s.away["history"], s.away["evidence"] = nil, errors.New("too slow")
	if status, body, _ := get(t, newPages(t, s.options()), admin(), "/rules/login-stuffing"); status != 200 || !strings.Contains(body, "could not be gathered: too slow") {
		t.Errorf("without evidence: %d", status)
	}
}

// The search box goes where the text leads.
func TestSearch(t *testing.T) {
	s := newScene()
	p := newPages(t, s.options())
	id := s.hits[0].ID[:16]
	for text, goes := range map[string]string{
		id: "/hits/" + id, strings.ToUpper(id): "/hits/" + id, "login-stuffing": "/rules/login-stuffing", "203.0.113.9": "/sources?of=ip%3D203.0.113.9",
		" 2001:db8::7 ": "/sources?of=ip%3D2001%3Adb8%3A%3A7", "device=tv-7": "/sources?of=device%3Dtv-7", "u1234567": "/sources?of=u1234567", "203.0.113.0/24": "/sources?of=203.0.113.0%2F24",
	} {
		if status, _, h := get(t, p, admin(), "/search?q="+url.QueryEscape(text)); status != 303 || h.Get("Location") != goes {
			t.Errorf("%q: %d, goes to %q, want %q", text, status, h.Get("Location"), goes)
		}
	}
	if status, body, _ := get(t, p, admin(), "/search?q=stuff"); status != 200 || !strings.Contains(body, "/rules/login-stuffing") || !strings.Contains(body, "/sources?of=stuff") {
		t.Errorf("a part of a name: %d %s", status, body)
	}
}

func TestSchemeGoesNowhereElse(t *testing.T) {
	p := newPages(t, newScene().options())
	for back, goes := range map[string]string{
		"/blocks?rule=x": "/blocks?rule=x", "https://example.org/": "/", "//example.org": "/", "/\\example.org": "/", "": "/", "javascript:alert(1)": "/", "/%2F/x": "/",
	} {
		_, _, h := get(t, p, admin(), "/scheme?to=dark&back="+url.QueryEscape(back))
		if h.Get("Location") != goes || !strings.Contains(h.Get("Set-Cookie"), "weir_scheme=dark") {
			t.Errorf("back to %q goes to %q, want %q", back, h.Get("Location"), goes)
		}
	}
}

// What clients chose is shown as text and never runs, on every page; what cannot be seen is made visible.
func hostileTextIsShown(chrome context.Context, t *testing.T) {
	const hostile = "<img src=x onerror=\"window.pwned=1\"><script>window.pwned=1</script>\u202e\x00'\"`{{.}}"
	s := newScene()
	id := traffic.Identity{Device: hostile}
	subject, _ := traffic.MakeSubject(&id, []traffic.KeyField{{Field: traffic.FieldDevice}})
	text, err := json.Marshal(traffic.Sample{Time: s.now, Device: traffic.Printable(hostile), UserAgent: traffic.Printable(hostile), Path: traffic.Printable(hostile), Attrs: hostile})
	if err != nil {
		t.Fatal(err)
	}
	before, _ := traffic.MarkSample(text, traffic.SampleBefore)
	h := history.RecordedHit{Stream: history.Live, Hit: detectors.Hit{
		ID: strings.Repeat("f", 32), Rule: "catalogue-scrape", Subject: subject, BlockSubject: subject, First: s.now.Add(-1), Last: s.now, Count: 1 << 40, Phase: detectors.PhaseUpdate,
		Samples: []string{string(before), string(text), hostile},
	}}
	s.hits = append(s.hits, h)
	s.rules[0].Reason, s.rules[0].ChangedBy, s.rules[0].Newest.Source = hostile, hostile, hostile
	s.listed[0].Subject = subject
	s.entries[0].Reason, s.entries[0].Actor, s.entries[0].Object, s.entries[0].Detail = hostile, hostile, "rule catalogue-scrape "+hostile, hostile
	address := serve(t, newPages(t, s.options()), admin())
	all := addresses(s)
	all["hostile"], all["hostile-source"], all["hostile-search"] = "/hits/"+h.ID, "/sources?of="+url.QueryEscape(string(subject)), "/search?q="+url.QueryEscape(hostile)
	p := open(chrome, t, address+"/", looks()[0])
	for name, at := range all {
		p.do(chromedp.Navigate(address + at))
		if got := p.text(`String(window.pwned) + document.images.length + document.scripts.length + document.body.innerText.includes("\u202e")`); got != "undefined11false" {
			t.Errorf("%s: %s", name, got)
		}
	}
	_, csv, _ := get(t, newPages(t, s.options()), admin(), "/explore.csv?by=episode&rule=catalogue-scrape")
	if strings.Contains(csv, "<img") || strings.Contains(csv, "\u202e") {
		t.Error("the file has the text as it is")
	}
}

// erasing is the form that erases somebody, as it is sent.
func erasing(of, reason string) url.Values {
	return url.Values{"of": {of}, "reason": {reason}, "confirm": {"yes"}}
}
