package pages

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// passing is the form of a release that lets its source pass.
func passing(pass, part, list, reason string) url.Values {
	return url.Values{"confirm": {"yes"}, "reason": {reason}, "rule": {"login-stuffing"},
		"subject": {"ip=203.0.113.7%2F32"}, "pass": {pass}, "part": {part}, "list": {list}}
}

// The entry is made before the release. What is done and what is not is said where only one of them was.
func TestReleaseLetsPass(t *testing.T) {
	tests := []struct {
		name                  string
		form                  url.Values
		refuses, refusesAllow error
		status                int
		goes, says            string
		done                  int
	}{
		{"for 30 days", passing("30d", "ip", "partners", "a school\nbehind one address"), nil, nil, 303,
			"/sources?of=ip%3D203.0.113.7&did=passed", "", 2},
		{"not", passing("", "ip", "partners", "x"), nil, nil, 303, "/sources?of=ip%3D203.0.113.7&did=release", "", 1},
		{"for some time", passing("7d", "ip", "partners", "x"), nil, nil, 422, "", "Allowed: 1d, 30d, good", 0},
		{"by what it has not", passing("1d", "user", "partners", "x"), nil, nil, 422, "",
			"Allowed: a part of this source", 0},
		{"by a list that the rule does not name", passing("1d", "ip", "unused", "x"), nil, nil, 422, "",
			"Allowed: an allow list that the rule names", 0},
		{"who is in it for longer", passing("1d", "ip", "offices", "x"), nil, nil, 422, "",
			"it is in the list already, for longer", 0},
		{"who is in it for less", passing("30d", "ip", "offices", "x"), nil, nil, 303,
			"/sources?of=ip%3D203.0.113.7&did=passed", "", 2},
		{"whose block is over", passing("1d", "ip", "partners", "x"), &acts.NotBlockedError{}, nil, 303,
			"/sources?of=ip%3D203.0.113.7&did=passed", "", 2},
		{"with a long reason", passing("1d", "ip", "partners", strings.Repeat("long ", 60)), nil, nil, 422, "",
			"Allowed: 256 bytes", 0},
		{"the list refuses", passing("1d", "ip", "partners", "x"), nil, errors.New("the list is full"), 422, "",
			"the list is full", 1},
		{"the release fails", passing("1d", "ip", "partners", "x"), errors.New("Kafka is away"), nil, 502, "",
			"the source is entered in the allow list partners, but its block is not released (Kafka is away)", 2},
		{"the release is on its way", passing("1d", "ip", "partners", "x"),
			&acts.UnfinishedError{Done: "the release is in Kafka", Undone: "ENFORCE has not acted",
				Cause: errors.New("late")}, nil,
			502, "", "in the allow list partners, and the release is in Kafka, but ENFORCE has not acted", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene()
			s.does.refuses, s.does.refusesAllow = tt.refuses, tt.refusesAllow
			s.allow[0].List.Entries = append(s.allow[0].List.Entries, rules.AllowEntry{Kind: rules.AllowCIDR,
				Value: "203.0.113.7/32", Reason: "a school", Until: sceneTime().Add(9 * 24 * time.Hour)})
			status, body, h := post(t, newPages(t, s.options()), admin(), "/release", tt.form)
			if status != tt.status || h.Get("Location") != tt.goes || !strings.Contains(body, tt.says) ||
				len(s.does.did) != tt.done {
				t.Errorf("status %d, want %d; goes to %q, want %q; did %+v, want %d; want %q in %s", status, tt.status,
					h.Get("Location"), tt.goes, s.does.did, tt.done, tt.says, body)
			}
			if tt.done != 2 {
				return
			}
			entry, ok := s.does.did[0].(acts.AllowRequest)
			if !ok || entry.List != tt.form.Get("list") || entry.Entries[0] != (acts.AllowSource{Kind: "cidr",
				Value: "203.0.113.7/32"}) || strings.Contains(entry.Reason, "\n") ||
				entry.For == "" {
				t.Errorf("first it did %+v", s.does.did[0])
			}
		})
	}
}

// To let pass is offered to who may change a list that the rule names, by what an entry can name; where it is not, a
// sentence says why.
func TestLettingPassIsOffered(t *testing.T) {
	digest := traffic.SubjectOf([]traffic.SubjectValue{{Field: "device", Value: strings.Repeat("long", 40)}}).Stored()
	owner := func(of ...string) access.Visit {
		return access.Visit{Actor: access.Actor{Name: "olga", Role: access.Owner, Owners: of}}
	}
	tests := []struct {
		name       string
		who        access.Visit
		rule       string
		subject    string
		has, lacks string
	}{
		{"admin", admin(), "login-stuffing", "ip=203.0.113.7%2F32", `value="offices"`, ""},
		{"owner of one list", owner("partners"), "login-stuffing", "ip=203.0.113.7%2F32", `value="partners"`,
			`value="offices"`},
		{"owner of neither", owner("player"), "login-stuffing", "ip=203.0.113.7%2F32", "Release",
			"let it pass from now on"},
		{"analyst", access.Visit{Actor: access.Actor{Name: "ana", Role: access.Analyst}}, "login-stuffing",
			"ip=203.0.113.7%2F32", "Release", "allow list"},
		{"the rule names none", admin(), "search-hammer", "ip=203.0.113.7%2F32", "This rule names no allow list",
			"let it pass from now on"},
		{"a digest alone", admin(), "login-stuffing", string(digest), "only a digest is stored",
			"let it pass from now on"},
		{"a digest beside an address", admin(), "login-stuffing", "ip=203.0.113.7%2F32&" + string(digest),
			`value="ip"`, `<option value="device"`},
		{"by hand", admin(), "by-hand", "ip=203.0.113.7%2F32", "Release", "allow list"},
	}
	for _, tt := range tests {
		s := newScene()
		_, body, _ := get(t, newPages(t, s.options()), tt.who, "/release?rule="+tt.rule+"&subject="+
			url.QueryEscape(tt.subject))
		if !strings.Contains(body, tt.has) || tt.lacks != "" && strings.Contains(body, tt.lacks) {
			t.Errorf("%s: want %q and not %q in %s", tt.name, tt.has, tt.lacks, body)
		}
	}
}

// Who is shown pseudonyms lets a source pass whose value no page tells, not even where that fails.
func TestMaskedOwnersLetPass(t *testing.T) {
	s := newScene()
	o := s.options()
	var err error
	if o.Masker, err = access.NewMasker(access.Masking{Key: []byte(strings.Repeat("k", access.MaskKeyBytes)),
		Below: access.Admin, Fields: access.DefaultMaskedFields()}); err != nil {
		t.Fatal(err)
	}
	p, who := newPages(t, o), access.Visit{Actor: access.Actor{Name: "olga", Role: access.Owner,
		Owners: []string{"partners"}}}
	form := passing("30d", "device", "partners", "a shop")
	form.Set("subject", string(o.Masker.Subject(who.Actor, "ip=203.0.113.7%2F32&device=tv-7")))
	_, body, _ := get(t, p, who, "/release?"+url.Values{"rule": {"login-stuffing"},
		"subject": form["subject"]}.Encode())
	s.does.refusesAllow = errors.New(`entries[0].device: got "tv-7", which clients claim, at 203.0.113.7`)
	_, failed, _ := post(t, p, who, "/release", form)
	if all := body + failed; strings.Contains(all, "203.0.113.7") || strings.Contains(all, "tv-7") ||
		!strings.Contains(failed, "which clients claim") {
		t.Error("the form tells the source: ", all)
	}
	s.does.did, s.does.refusesAllow = nil, nil
	if status, body, _ := post(t, p, who, "/release", form); status != 303 ||
		s.does.did[0].(acts.AllowRequest).Entries[0].Value != "tv-7" {
		t.Errorf("status %d, did %+v: %s", status, s.does.did, body)
	}
}

// entering is the form of a new entry.
func entering(kind, value, length, reason string) url.Values {
	return url.Values{"kind": {kind}, "value": {value}, "for": {length}, "reason": {reason}, "confirm": {"yes"}}
}

// removing is the form that removes the nth entry of a version.
func removing(version, n string) url.Values {
	return url.Values{"version": {version}, "remove": {n}, "reason": {"moved"}, "confirm": {"yes"}}
}

// Entries are added and removed by forms, each by what the list has at the version that was looked at.
func TestAllowListsAreChanged(t *testing.T) {
	tests := []struct {
		name, list string
		form       url.Values
		refuses    error
		status     int
		says       string
		asked      *acts.AllowRequest
	}{
		{"enter", "offices", entering("cidr", " 192.0.2.0/24 ", "30d", "a lab"), nil, 303, "",
			&acts.AllowRequest{List: "offices", For: "30d", Reason: "a lab",
				Entries: []acts.AllowSource{{Kind: "cidr", Value: "192.0.2.0/24"}}}},
		{"enter for good", "partners", entering("user", "alice", "", "a\nb"), nil, 303, "",
			&acts.AllowRequest{List: "partners", Reason: "a b", Entries: []acts.AllowSource{{Kind: "user",
				Value: "alice"}}}},
		{"enter without a tick", "offices", url.Values{"kind": {"user"}, "value": {"x"}, "reason": {"x"}}, nil, 422,
			"tick the box", nil},
		{"enter a path", "offices", entering("path", "/x", "", "x"), nil, 422, "Allowed: address, device", nil},
		{"enter for nonsense", "offices", entering("user", "x", "soon", "x"), nil, 422, "such as 30d", nil},
		{"enter what clients claim", "offices", entering("device", "tv-7", "", "x"),
			rules.Problems{{Field: "entries[4].device", Got: "device, which clients claim",
				Allowed: "what the gateway vouches for"}}, 422,
			"which clients claim", &acts.AllowRequest{List: "offices", Reason: "x",
				Entries: []acts.AllowSource{{Kind: "device", Value: "tv-7"}}}},
		{"remove", "offices", removing("4", "4"), nil, 303, "", &acts.AllowRequest{List: "offices", Remove: true,
			Reason: "moved", Entries: []acts.AllowSource{{Kind: "api_key", Value: "pk_live_of_the_monitor"}}}},
		{"remove of another version", "offices", removing("3", "1"), nil, 404, "Look at it again", nil},
		{"remove what is not there", "offices", removing("4", "9"), nil, 400, "1 to 4", nil},
		{"no such list", "ofices", entering("user", "x", "", "x"), nil, 404, "Did you mean", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene()
			s.does.refusesAllow = tt.refuses
			status, body, h := post(t, newPages(t, s.options()), admin(), "/allow/"+tt.list+"/change", tt.form)
			if status != tt.status || !strings.Contains(body, tt.says) || status == 303 &&
				!strings.HasPrefix(h.Get("Location"), "/allow/"+tt.list+"?did=ent") {
				t.Errorf("status %d, want %d; goes to %q; want %q in %s", status, tt.status, h.Get("Location"),
					tt.says, body)
			}
			if (tt.asked == nil) != (len(s.does.did) == 0) {
				t.Fatalf("did %+v", s.does.did)
			}
			if tt.asked != nil {
				got := s.does.did[0].(acts.AllowRequest)
				if got.List != tt.asked.List || got.Remove != tt.asked.Remove || got.For != tt.asked.For ||
					got.Until != tt.asked.Until ||
					got.Reason != tt.asked.Reason || got.Entries[0] != tt.asked.Entries[0] {
					t.Errorf("did %+v, want %+v", got, *tt.asked)
				}
			}
		})
	}
}

// Who is shown pseudonyms finds no entry's value on the pages of a list, and names a new entry by a pseudonym alone.
func TestMaskedAllowLists(t *testing.T) {
	s := newScene()
	o := s.options()
	var err error
	if o.Masker, err = access.NewMasker(access.Masking{Key: []byte(strings.Repeat("k", access.MaskKeyBytes)),
		Below: access.Admin, Fields: access.DefaultMaskedFields()}); err != nil {
		t.Fatal(err)
	}
	p, who := newPages(t, o), access.Visit{Actor: access.Actor{Name: "olga", Role: access.Owner,
		Owners: []string{"identity-platform"}}}
	for _, at := range []string{"/allow", "/allow/offices", "/allow/offices/change",
		"/allow/offices/change?version=4&remove=1", "/allow/offices/change?version=4&remove=3",
		"/allow/offices/change?version=4&remove=4"} {
		status, body, _ := get(t, p, who, at)
		for _, value := range []string{"198.51.100.", "203.0.113.", "u0000042", "pk_live", "…itor"} {
			if status != 200 || strings.Contains(body, value) {
				t.Errorf("%s, status %d, tells %s", at, status, value)
			}
		}
	}
	if status, body, _ := post(t, p, who, "/allow/offices/change", entering("user", "alice", "",
		"x")); status != 422 || !strings.Contains(body, "pseudonym") || len(s.does.did) > 0 {
		t.Errorf("a plain value: %d, %s", status, body)
	}
	post(t, p, who, "/allow/offices/change", entering("user", o.Masker.Value(who.Actor, "user", "alice"), "", "x"))
	if len(s.does.did) != 1 || s.does.did[0].(acts.AllowRequest).Entries[0].Value != "alice" {
		t.Errorf("a pseudonym: did %+v", s.does.did)
	}
}
