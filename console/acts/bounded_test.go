package acts_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/bounds"
	"github.com/weirhq/weir/traffic"
)

// documented is an installation that reads documents as they are written.
type documented struct{ *installation }

func (d documented) Read(files []acts.File, lists []string) (*rules.Set, []rules.Problem, error) {
	var sources []rules.File
	for _, f := range files {
		sources = append(sources, rules.File{Name: f.Name, Src: []byte(f.Text)})
	}
	set, err := rules.ParseSet(sources, rules.Environment{Identity: traffic.DefaultIdentityMap(), AllowLists: lists})
	return set, nil, err
}

func ruleText(id, owner, match, more string) acts.File {
	return acts.File{Name: id + ".yaml", Text: fmt.Sprintf(
		"id: %s\nowner: %s\nmatch: %s\nkey: [ip]\nlimit: 9\nwindow: 1m\nblock: {ttl: 5m}\n%s", id, owner, match, more)}
}

const within, outside = "{host: api.example.com, path: /v1/search/all}", "{method: POST, path: /login}"

// Who is owner of rules that are bound to hosts and paths does nothing with one that reaches beyond, but stop it.
func TestAnOwnerStaysWithinHisBounds(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	s, err := acts.New(acts.Options{
		Rules: in.Rules, Gates: in, Blocks: in, Releases: in, Documents: documented{in}, Dossiers: in,
		Orders: in.Orders, Knows: struct{ acts.Knows }{}, Partitions: in.Partitions, Clock: now,
		Logger: slog.New(slog.DiscardHandler),
		Bounds: bounds.Bounds{"search": {{Hosts: []string{"api.example.com"}, Path: "/v1/search/*"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, admin := t.Context(), access.Actor{Name: "ada", Role: access.Admin, Via: access.ViaOIDC}
	owner := access.Actor{Name: "sue", Role: access.Owner, Owners: []string{"search", "identity"}, Via: access.ViaOIDC}
	apply := func(who access.Actor, dry bool, files ...acts.File) error {
		return second(s.Apply(ctx, who, acts.ApplyRequest{Files: files, Alone: true, DryRun: dry, Reason: "x"}))
	}
	change := func(who access.Actor, list string, remove bool) error {
		return second(s.ChangeAllow(ctx, who, acts.AllowRequest{List: list, Remove: remove, Reason: "x",
			Entries: []acts.AllowSource{{Kind: rules.AllowCIDR, Value: "203.0.113.0/24"}}}))
	}
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: got %v; allowed: no error", what, err)
		}
	}
	refused := func(what string, err error, says ...string) {
		t.Helper()
		var beyond *acts.BeyondError
		if !errors.As(err, &beyond) {
			t.Errorf("%s: got %v; allowed: refused for what it reaches", what, err)
			return
		}
		says = append(says, `owner "search" is bound to any method /v1/search/*, host api.example.com`,
			"nothing was done")
		for _, words := range says {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%s: got %q; allowed: with %q", what, err, words)
			}
		}
	}
	versions := func(rule string) int {
		t.Helper()
		r, err := in.Rules.Find(ctx, rule)
		ok("looking at "+rule, err)
		return len(r.Versions)
	}

	ok("a rule within", apply(owner, false, ruleText("scan", "search", within, "")))
	ok("of an owner who is not bound", apply(owner, false, ruleText("logins", "identity", outside, "")))
	refused("a dry run", apply(owner, true, ruleText("login", "search", outside, "")),
		"apply needs the role admin here: match of rule login reaches POST /login (every host, since it names none)")
	refused("a rule beyond, among others", apply(owner, false, ruleText("scan", "search", within, "near: 0.5\n"),
		ruleText("login", "search", outside, "")))
	refused("an edit", apply(owner, false, ruleText("scan", "search", outside, "")), "match of rule scan")
	refused("a block that holds more", apply(owner, false, acts.File{Name: "scan.yaml",
		Text: strings.Replace(ruleText("scan", "search", within, "").Text, "ttl: 5m", "ttl: 5m, match: "+outside, 1)}),
		"block.match of rule scan reaches POST /login")
	refused("taking a rule over", apply(owner, false, ruleText("logins", "search", outside, "")), "rule logins")
	refused("a trial", second(s.Try(ctx, owner, acts.TryRequest{Files: []acts.File{
		ruleText("login", "search", outside, "")}})), "rule login reaches")
	if n := versions("scan"); n != 1 {
		t.Errorf("scan has %d versions; allowed: the one within", n)
	}

	list := acts.File{Name: "l.yaml", Text: "kind: allow\nid: friends\nowner: search\nentries:\n" +
		"- {cidr: 198.51.100.0/24, reason: ours}\n"}
	ok("an admin's rule beyond", apply(admin, false, list, ruleText("login", "search", outside, "allow: [friends]\n")))
	ok("the same once more", apply(owner, false, ruleText("login", "search", outside, "allow: [friends]\n")))
	refused("another limit", apply(owner, false, ruleText("login", "search", outside, "near: 0.5\nallow: [friends]\n")))
	refused("another text", apply(owner, false, ruleText("login", "search", outside, "allow: [friends] # agreed\n")))
	promote := func(who access.Actor, to rules.Mode, version int) error {
		return second(s.Promote(ctx, who, acts.PromoteRequest{Rule: "login", To: to, Version: version, Override: "x y",
			Reason: "x y"}))
	}
	mode := func(who access.Actor, to rules.Mode) error {
		return second(s.SetMode(ctx, who, acts.ModeRequest{Rule: "login", Mode: to, Reason: "x y"}))
	}
	refused("promote", promote(owner, rules.ModeBlock, 0), "promote needs the role admin here: match of rule login")
	refused("canary", promote(owner, rules.ModeCanary, 0), "promote needs")
	ok("promote, by an admin", promote(admin, rules.ModeBlock, 0))
	until := time.Now().Add(time.Hour).UTC()
	refused("a raised limit", second(s.SetLimit(ctx, owner, acts.LimitRequest{Rule: "login", Limit: 20, Until: until,
		Reason: "x y"})), "set-limit needs")
	refused("a reset", second(s.ResetCount(ctx, owner, acts.ResetRequest{Rule: "login", Subject: "ip=192.0.2.1%2F32",
		Reason: "x y"})), "reset needs")
	ok("demote", mode(owner, rules.ModeShadow))
	ok("disable", mode(owner, rules.ModeOff))
	refused("enable", mode(owner, rules.ModeShadow), "enable needs")
	ok("enable, by an admin", mode(admin, rules.ModeShadow))

	for _, remove := range []bool{false, true} {
		refused("an entry of a list that it names", change(owner, "friends", remove),
			"allow needs the role admin here: rule login names allow list friends, and match of rule login reaches "+
				"POST /login")
		ok("the same, by an admin", change(admin, "friends", remove))
	}
	list.Text += "- {cidr: 203.0.113.0/24, reason: theirs}\n"
	refused("the list by a document", apply(owner, false, list), "rule login names allow list friends")
	ok("a list of who is not bound", change(owner, "office", false))
	refused("a list that is taken over", apply(owner, false, acts.File{Name: "o.yaml",
		Text: "kind: allow\nid: office\nowner: search\nentries:\n- {cidr: 198.51.100.0/24, reason: ours}\n"},
		ruleText("logins", "identity", outside, "allow: [office]\n")), "rule logins names allow list office")

	ok("back within", apply(owner, false, ruleText("login", "search", within, "allow: [friends]\n")))
	refused("rollback", second(s.Rollback(ctx, owner, acts.RollbackRequest{Rule: "login", Reason: "x y"})),
		"rollback needs the role admin here: match of rule login reaches POST /login")
	ok("an entry, now that none reaches beyond", change(owner, "friends", false))
	ok("promote, within", promote(owner, rules.ModeBlock, 0))
	ok("an edit that waits, by an admin", apply(admin, false, ruleText("login", "search", outside,
		"allow: [friends]\n")))
	refused("promote what waits", promote(owner, rules.ModeBlock, versions("login")), "promote needs")
	refused("an entry, for what waits", change(owner, "friends", true), "rule login names allow list friends")
	ok("demote beside what waits", mode(owner, rules.ModeShadow))
	ok("disable beside what waits", mode(owner, rules.ModeOff))
	refused("enable what waits", mode(owner, rules.ModeShadow), "enable needs")
}

var _ acts.Documents = documented{}
