package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

// ruleWays are, for each command of weir rules, ways to call it on the rule tokens, promotions aside. DIR is a directory with stricter
// documents, LOOSE one with documents that block less, SHORT one whose allow list lacks what it had, NONE one whose rule names no allow
// list, OUT is for what is exported. A command without any may lead into blocking.
func ruleWays() map[string][]string {
	return map[string][]string{
		"test": {"test DIR"}, "explain": {"explain tokens -f DIR --event DIR/event.json"}, "schema": {"schema"},
		"lint": {"lint -f DIR"}, "list": {"list"}, "show": {"show tokens"}, "history": {"history tokens"}, "evidence": {"evidence tokens"},
		"diff": {"diff -f DIR --prune", "diff tokens 1", "diff tokens 1 1"},
		"apply": {"apply -f DIR", "apply -f DIR --yes", "apply -f DIR --prune --yes", "apply -f DIR --dry-run", "apply -f LOOSE --prune", "apply -f LOOSE/other.yaml --prune",
			"apply -f SHORT", "apply -f SHORT/office.yaml --yes", "apply -f NONE --prune --yes", "apply -f NONE --yes"},
		"rollback":  {"rollback tokens", "rollback tokens --to 1", "rollback tokens --to 2 --yes"},
		"export":    {"export -o OUT/a", "export tokens -o OUT/a --force", "export -o -"},
		"try":       {"try -f DIR", "try -f LOOSE"},
		"set-limit": {"set-limit tokens 1 --for 1h --reason path", "set-limit tokens 500 --for 1s --reason path", "set-limit tokens --clear --reason path", "set-limit tokens 50 --until 2020-01-01T00:00:00Z --reason path"},
		"demote":    {"demote tokens --reason path"},
		"disable":   {"disable tokens --reason path"},
		"promote":   nil, // is the one that may
	}
}

// allowWays are the same for the commands of weir allow, on the list office, which the rule names.
func allowWays() map[string][]string {
	return map[string][]string{
		"list": {"list"}, "show": {"show office"},
		"add":    {"add office cidr=203.0.113.0/24 --reason path", "add office cidr=192.0.2.0/24 --until 1s --reason path"},
		"remove": {"remove office cidr=192.0.2.0/24 --reason path", "remove office cidr=203.0.113.0/24 --reason path"},
	}
}

// counterWays are the same for the commands of weir counters.
func counterWays() map[string][]string {
	return map[string][]string{"show": {"show tokens ip=198.51.100.7 --at http://127.0.0.1:1"}, "reset": {"reset tokens ip=198.51.100.7 --reason path", "reset tokens ip=203.0.113.9 --reason path", "reset tokens --reason path"}}
}

const officeList = "kind: allow\nid: office\nowner: identity\nentries:\n  - {cidr: 192.0.2.0/24, reason: the office}\n"

func TestEveryCommandOnRulesIsAPath(t *testing.T) {
	t.Parallel()
	root := (&app{}).root()
	var known []string
	for name, ways := range map[string]map[string][]string{"rules": ruleWays(), "allow": allowWays(), "counters": counterWays()} {
		family, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range family.Commands() {
			of, ok := ways[c.Name()]
			if !ok {
				t.Errorf("weir %s %s: enter it among its ways, with all that it can do to a rule", name, c.Name())
			}
			for _, way := range of {
				known = append(known, name+" "+way)
			}
		}
	}
	slices.Sort(known)

	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	strict, loose, short, none, out := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	limit := func(n string) string {
		return strings.Replace(tokenRule, "limit: 3", "limit: "+n, 1) + "allow: [office]\n"
	}
	if !strings.Contains(limit("2"), "limit: 2\n") {
		t.Fatal("the rule has another limit")
	}
	write(strict, "tokens.yaml", limit("1"))
	write(loose, "tokens.yaml", limit("9"))
	write(loose, "other.yaml", strings.Replace(limit("1"), "id: tokens", "id: other", 1))
	write(strict, "office.yaml", officeList)
	write(loose, "office.yaml", officeList)
	write(strict, "event.json", strings.TrimSpace(calls("198.51.100.7", 1)))
	write(short, "tokens.yaml", limit("3"))
	write(short, "office.yaml", "kind: allow\nid: office\nowner: identity\nentries: []\n")
	write(none, "tokens.yaml", tokenRule)
	places := strings.NewReplacer("DIR", strict, "LOOSE", loose, "SHORT", short, "NONE", none, "OUT", out)

	// The live document of the rule, nil where it does not block.
	stored := b.store()
	blocks := func() *rules.Document {
		t.Helper()
		r, err := stored.Rules.Find(t.Context(), "tokens")
		if err != nil {
			t.Fatal(err)
		}
		if r.Mode != rules.ModeBlock {
			return nil
		}
		return &r.Newest.Version.Document
	}
	holds := func(way string, was *rules.Document) {
		t.Helper()
		now := blocks()
		if now == nil {
			return
		}
		office := decode[struct {
			Document rules.AllowList `json:"document"`
			Removed  bool            `json:"removed"`
		}](b, "allow", "show", "office")
		if office.Removed || !slices.ContainsFunc(office.Document.Entries, func(e rules.AllowEntry) bool { return e.Value == "192.0.2.0/24" && e.Until == 0 }) {
			t.Errorf("weir %s: the rule may block what it was promoted to let pass: %+v", way, office)
		}
		if was == nil {
			t.Errorf("weir %s: the rule blocks", way)
		} else if reasons := rules.MayBlockMore(was, now); len(reasons) > 0 {
			t.Errorf("weir %s: the rule may block more: %v", way, reasons)
		}
		if m := b.publishedMode("tokens"); m.Mode == rules.ModeBlock && !reflect.DeepEqual(m.Match, rules.Held(now.Reach())) {
			t.Errorf("weir %s: gates hold %+v, the rule blocks %+v", way, m.Match, now.Match)
		}
	}
	for _, pending := range []bool{false, true} {
		for i, way := range known {
			if slowBuild && i%5 != 0 {
				continue // commands one after the other have nothing for the race detector; the run without it has them all
			}
			if !testbed.AtNight() && pending != (i%2 == 0) {
				continue // a landing has each way once
			}
			write(strict, "tokens.yaml", limit("3"))
			if o := b.weir("rules", "apply", "-f", strict, "--yes"); o.code != exitOK { // without what came to the list
				t.Fatalf("before weir %s: %s", way, o.stderr)
			}
			if blocks() == nil {
				b.ok("rules", "promote", "tokens", "--reason", "the start", "--yes", "--override", "tests")
			}
			b.weir("rules", "promote", "tokens", "--pending", "--reason", "the start", "--yes", "--override", "tests") // where what went before left a looser one
			b.ok("rules", "set-limit", "tokens", "--clear", "--reason", "the start")
			write(strict, "tokens.yaml", limit("1"))
			if pending {
				b.ok("rules", "apply", "-f", strict, "--yes")
			}
			was := blocks()
			b.weir(strings.Fields(places.Replace(way))...)
			holds(way, was)
			if !pending {
				continue
			}
			was = blocks()
			// What was exported, applied again, changes nothing.
			b.ok("rules", "export", "-o", out+"/again", "--force")
			if text := b.ok("rules", "diff", "-f", out+"/again", "--prune"); text != "no difference\n" && blocks() != nil {
				t.Errorf("after weir %s, what is exported applies to a change:\n%s", way, text)
			}
			b.ok("rules", "apply", "-f", out+"/again", "--yes", "--prune")
			holds(way+", exported and applied again", was)
			if err := os.RemoveAll(out + "/again"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Scripts go by the exit code: a difference is one thing, not to know whether there is one another.
func TestDiffAnswersByItsExitCode(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	same, wrong := writeFile(t, "same.yaml", tokenRule), writeFile(t, "wrong.yaml", "id: tokens\n")
	other := writeFile(t, "other.yaml", strings.Replace(tokenRule, "id: tokens", "id: other", 1))
	edited := writeFile(t, "edited.yaml", strings.Replace(tokenRule, "limit: 3", "limit: 4", 1))
	comments := writeFile(t, "comments.yaml", "# as agreed\n"+tokenRule)
	b.ok("rules", "apply", "-f", same, "-f", other)
	b.ok("rules", "apply", "-f", edited)
	b.ok("rules", "rollback", "tokens", "--to", "1")
	for _, tt := range []struct {
		args        []string
		code, plain int // with --exit-code, and without
		says        string
	}{
		{[]string{"-f", same}, exitOK, exitOK, "no difference"},
		{[]string{"-f", comments}, exitOK, exitOK, "no difference"},
		{[]string{"-f", same, "-f", other, "--prune"}, exitOK, exitOK, "no difference"},
		{[]string{"-f", same, "--prune"}, exitError, exitOK, "removed   other"},
		{[]string{"-f", edited}, exitError, exitOK, "limit 3 → 4"},
		{[]string{"-f", edited, "--output", "json"}, exitError, exitOK, `"limit 3 → 4"`},
		{[]string{"tokens", "1"}, exitOK, exitOK, "no difference"},
		{[]string{"tokens", "1", "2"}, exitError, exitOK, "limit 3 → 4"},
		{[]string{"tokens", "9"}, exitOther, exitError, `version: got "9"`},
		{[]string{"nobody", "1"}, exitOther, exitError, `there is no rule "nobody"`},
		{[]string{"-f", wrong}, exitOther, exitError, "wrong.yaml:1:1: owner"},
		{[]string{"-f", same + ".none"}, exitOther, exitError, "no such file"},
		{[]string{"-f", same, "--set", "kafka.partitions.keyed=many"}, exitUsage, exitUsage, "kafka.partitions.keyed"},
		{[]string{"tokens"}, exitUsage, exitUsage, "1 argument"},
	} {
		args := append([]string{"rules", "diff"}, tt.args...)
		if o := b.weir(args...); o.code != tt.plain || !strings.Contains(o.stdout+o.stderr, tt.says) {
			t.Errorf("%v: exit code %d, want %d\n%s%s", tt.args, o.code, tt.plain, o.stdout, o.stderr)
		}
		o := b.weir(append(args, "--exit-code")...)
		if o.code != tt.code || !strings.Contains(o.stdout+o.stderr, tt.says) || (o.code <= exitError) != (o.stderr == "") {
			t.Errorf("%v --exit-code: exit code %d, want %d\n%s%s", tt.args, o.code, tt.code, o.stdout, o.stderr)
		}
	}
}

// What is exported is all that documents say: pruning by it removes and changes nothing, and it makes another installation what this one is.
func TestExportIsWhole(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	rule := tokenRule + "allow: [office]\ncandidate: {limit: 9}\nnear: 0.8\ntiers:\n  - {when: event.status == 401, limit: 1}\n"
	unused := strings.NewReplacer("id: office", "id: tokens", "192.0.2.0", "198.51.100.0").Replace(officeList) // a list with the id of a rule
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", rule+"---\n"+officeList+"---\n"+unused), "--yes")
	b.ok("rules", "promote", "tokens", "--reason", "test", "--yes", "--override", "tests")
	b.ok("allow", "add", "office", "cidr=203.0.113.0/24", "--until", "30d", "--reason", "it's \"another\": # one")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", strings.Replace(rule, "limit: 3", "limit: 2", 1)), "--yes") // pending
	dir := t.TempDir()
	if text := b.ok("rules", "export", "-o", dir); text != "1 rule and 2 allow lists written to "+dir+"\n" {
		t.Errorf("export: %s", text)
	}
	for _, form := range []string{dir, writeFile(t, "all.yaml", b.ok("rules", "export", "-o", "-"))} {
		if text := b.ok("rules", "diff", "-f", form, "--prune"); text != "no difference\n" {
			t.Errorf("diff:\n%s", text)
		}
		if text := b.ok("rules", "apply", "-f", form, "--prune", "--yes"); !strings.Contains(text, "no change; routing version ") {
			t.Errorf("apply --prune:\n%s", text)
		}
	}
	if text := b.ok("rules", "export", "tokens", "-o", "-"); strings.Contains(text, "kind: allow") || !strings.Contains(text, "allow: [office]") {
		t.Errorf("one rule:\n%s", text)
	}
	other := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	other.ok("migrate")
	other.ok("rules", "apply", "-f", dir, "--yes")
	if got, want := other.ok("rules", "export", "-o", "-"), b.ok("rules", "export", "-o", "-"); got != want {
		t.Errorf("another installation has\n%swant\n%s", got, want)
	}
}

// What is exported is what was applied, byte for byte, with comments and tests, as long as that says what is stored.
func TestExportKeepsTheTextThatWasApplied(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	text := func(note string) string {
		return "# Tokens: " + note + "\n" + strings.TrimLeft(tokenRule, "\n") +
			"tests:\n  - name: nobody   # " + note + "\n    timeline: []\n    expect: {hits: []}\n"
	}
	when := "id: sign-ins # by the dozen\nowner: accounts\nmatch: {path: /login, when: 'event.status == 401'}\nkey: [ip]\nlimit: 9\nwindow: 60s\n"
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", text("first")+"---\n"+when), "--yes")
	exported := func(rule string) string { return b.ok("rules", "export", rule, "-o", "-") }
	is := func(at, rule, want string) {
		t.Helper()
		if got := exported(rule); got != want {
			t.Errorf("%s: exported\n%swant\n%s", at, got, want)
		}
	}
	is("applied", "tokens", text("first"))
	is("with a condition", "sign-ins", when)
	dir := t.TempDir()
	b.ok("rules", "export", "-o", dir)
	if got := b.ok("rules", "apply", "-f", dir, "--prune", "--yes"); !strings.Contains(got, "no change; routing version ") {
		t.Errorf("what was exported applies to a change:\n%s", got)
	}
	is("applied again", "tokens", text("first"))

	// Another comment is no version, and the text all the same.
	got := b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", text("second")), "--yes")
	if !strings.Contains(got, "text      tokens version 1, shadow\n") {
		t.Errorf("another comment applies to:\n%s", got)
	}
	is("commented", "tokens", text("second"))
	b.ok("rules", "promote", "tokens", "--reason", "test", "--yes", "--override", "tests")
	stricter := strings.Replace(text("third"), "limit: 3", "limit: 2", 1)
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", stricter), "--yes")
	is("pending", "tokens", stricter)
	stricter = strings.Replace(stricter, "third", "fourth", 2)
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", stricter), "--yes")
	is("pending, commented", "tokens", stricter)
	b.ok("rules", "set-limit", "tokens", "50", "--for", "1h", "--reason", "test")
	is("raised", "tokens", stricter)
	b.ok("rules", "promote", "tokens", "--version", "2", "--reason", "test", "--yes", "--override", "tests")
	is("promoted", "tokens", stricter)
	b.ok("rules", "rollback", "tokens", "--yes", "--reason", "test")
	is("rolled back", "tokens", text("second"))

	// A text that says otherwise by now, or that is too long, is none.
	if got := b.ok("rules", "export", "tokens", "-o", "-", "--set", "identity.ip.v4=24"); strings.Contains(got, "#") || !strings.Contains(got, "{field: ip, v4: 32, v6: 64}") {
		t.Errorf("by another identity map it is exported as\n%s", got)
	}
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", "# "+strings.Repeat("long ", 14000)+"\n"+text("fifth")), "--yes")
	if got := exported("tokens"); strings.Contains(got, "#") || !strings.Contains(got, "limit: 3\n") {
		t.Errorf("a long text is exported as\n%.200s", got)
	}
}

// A version whose allow list is gone does not come back, and the error says how it may.
func TestRollbackToARemovedAllowList(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	list := writeFile(t, "office.yaml", officeList)
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", tokenRule+"allow: [office]\n"), "-f", list, "--yes")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", tokenRule), "--prune", "--yes")
	for _, more := range []string{"--dry-run", "--yes"} {
		if o := b.weir("rules", "rollback", "tokens", more); o.code != exitError ||
			!strings.Contains(o.stderr, `rule tokens: allow: got "office", an allow list that was removed: weir allow show office has its document, to be applied again`) {
			t.Errorf("rollback %s: exit code %d, %s%s", more, o.code, o.stdout, o.stderr)
		}
	}
	if out := b.ok("allow", "show", "office"); !strings.Contains(out, "# removed\n") || !strings.Contains(out, "192.0.2.0/24") {
		t.Errorf("show: %s", out)
	}
	b.ok("rules", "apply", "-f", list, "--yes")
	if out := b.ok("rules", "rollback", "tokens", "--yes"); !strings.Contains(out, "tokens version 3, shadow") {
		t.Errorf("rollback: %s", out)
	}
}
