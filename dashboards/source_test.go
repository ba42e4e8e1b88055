package dashboards_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// What somebody types as the source on History, or brings along by a click, finds its episodes and no others.
func TestHistoryOfASource(t *testing.T) {
	w := newWorld(t)
	conn := w.asReader(t)
	boards := sqlBoards(t)
	b := boards[slices.IndexFunc(boards, func(b sqlBoard) bool { return b.uid == "weir-history" })]
	episodes := b.queries[slices.IndexFunc(b.queries, func(q named) bool { return q.name == "Episodes" })]
	g := w.view(t, conn, b, 0)
	one := w.chosen(g)[0]
	unblockable := w.hits[slices.IndexFunc(w.hits, func(h detectors.Hit) bool {
		return h.BlockSubject == "" && h.Subject != "" && h.Last >= traffic.At(g.from) && h.Phase != detectors.PhaseMerged
	})]
	all := w.hits[slices.IndexFunc(w.hits, func(h detectors.Hit) bool { return h.Rule == "all-traffic" })]
	for _, tt := range []struct {
		source string
		of     func(h *detectors.Hit) bool
	}{
		{"", func(*detectors.Hit) bool { return true }},
		{one.ID, func(h *detectors.Hit) bool { return h.Subject == one.Subject }},
		{unblockable.ID, func(h *detectors.Hit) bool { return h.Subject == unblockable.Subject }},
		{all.ID, func(h *detectors.Hit) bool { return h.Rule == "all-traffic" }},
		{string(one.Subject), func(h *detectors.Hit) bool { return h.Subject == one.Subject }},
		{"203.0.113.3", func(h *detectors.Hit) bool { return addressOf(h).String() == "203.0.113.3/32" }},
		{"203.0.113.0/24", func(h *detectors.Hit) bool { return networkOf(h).String() == "203.0.113.0/24" }},
		{"2001:db8:1:0:1::2", func(h *detectors.Hit) bool {
			return networkOf(h).String() == "2001:db8:1::/48" && addressOf(h).String() == "2001:db8:1::/64"
		}},
		{"2001:db8:2::/48", func(h *detectors.Hit) bool { return networkOf(h).String() == "2001:db8:2::/48" }},
		{"tv-10", func(h *detectors.Hit) bool { return readable(h.Subject) == "ip=203.0.110.10 device=tv-10" }},
		{"key-of-somebody-0007", func(h *detectors.Hit) bool { return readable(h.Subject) == "ip=198.51.100.7 api_key=…0007" }},
		{"aa:bb:cc:dd:ee:ff", func(*detectors.Hit) bool { return false }},
		{"o'brien", func(*detectors.Hit) bool { return false }},
	} {
		g.variables["source"] = []string{tt.source}
		want := 0
		for _, h := range w.chosen(g) {
			if tt.of(&h) {
				want++
			}
		}
		got := lines(ask(t, conn, g.expand(t, episodes.text), tt.source), []string{"value"})
		if !slices.Equal(got, []string{line(want)}) {
			t.Errorf("source %q: %v, want %d", tt.source, got, want)
		}
		if none := len(tt.source) == 17 || tt.source == "o'brien"; (want == 0) != none {
			t.Errorf("source %q has %d episodes in this world", tt.source, want)
		}
	}
}

// Blocks keep long values as digests, and so do the decisions about them. They are found all the same by what somebody knows of a source.
func TestDecisionsAboutASource(t *testing.T) {
	w := newWorld(t)
	conn := w.asReader(t)
	boards := sqlBoards(t)
	b := boards[slices.IndexFunc(boards, func(b sqlBoard) bool { return b.uid == "weir-history" })]
	decisions := b.queries[slices.IndexFunc(b.queries, func(q named) bool { return q.name == "Decisions" })]
	g := w.view(t, conn, b, 0)
	of := func(is func(s string) bool) (rows []string) {
		for i := range w.decisions {
			if d := &w.decisions[i]; is(string(d.Subject)) && !d.At.Std().Before(g.from) && !d.At.Std().After(g.to) {
				rows = append(rows, line(d.At, d.Rule, d.Action, d.Hit))
			}
		}
		slices.Sort(rows)
		return rows
	}
	var long, quoted *detectors.Hit
	for i := range w.hits {
		h := &w.hits[i]
		decided := slices.ContainsFunc(w.decisions, func(d blocklist.Decision) bool {
			return d.Hit == h.ID && !d.At.Std().Before(g.from) && !d.At.Std().After(g.to)
		})
		switch {
		case !decided:
		case h.Subject != h.Subject.Stored():
			long = h
		case strings.Contains(string(h.Subject), "%22"):
			quoted = h
		}
	}
	// A decision about a rule without a key, whose subject is empty like the block of an episode that cannot be blocked.
	unblockable := &w.hits[slices.IndexFunc(w.hits, func(h detectors.Hit) bool { return h.BlockSubject == "" })]
	w.Run(t, `INSERT INTO weir.block_decisions (stream, id, action, reason, rule, subject, hit, generation, at, decided_by)
		VALUES ('live', 'of nobody', 'withheld', 'subject', $1, '', 'x', 1, now() - interval '1 hour', '')`, unblockable.Rule)
	ofLong := of(func(s string) bool { return s == string(long.Subject.Stored()) })
	ofQuoted := of(func(s string) bool { return s == string(quoted.Subject) })
	_, device, _ := strings.Cut(string(long.Subject), "device=")
	_, odd, _ := strings.Cut(readable(quoted.Subject), "device=")
	for source, want := range map[string][]string{
		device: ofLong, string(long.Subject): ofLong, string(long.Subject.Stored()): ofLong, long.ID: ofLong,
		odd: ofQuoted, string(quoted.Subject): ofQuoted, quoted.ID: ofQuoted,
		device + "-": nil, unblockable.ID: of(func(s string) bool { return s == string(unblockable.Subject.Stored()) }),
	} {
		g.variables["source"] = []string{source}
		got := lines(ask(t, conn, g.expand(t, decisions.text), source), []string{"at", "rule", "action", "id"})
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("source %s:\n%v\nwant\n%v", source, got, want)
		}
	}
	if len(ofLong) == 0 || len(ofQuoted) == 0 {
		t.Error("this world has no such decisions")
	}
}

// Whatever is chosen, or cannot be since there is nothing yet: the question is SQL, and finds what is chosen.
func TestAnyChoiceIsSQL(t *testing.T) {
	w := newWorld(t)
	for i := range w.rules {
		w.rules[i].Owner = `the "late" o'clock \ team`
	}
	w.Apply(t, w.rules...)
	conn := w.asReader(t)
	ids := make([]string, len(w.rules))
	for i := range w.rules {
		ids[i] = w.rules[i].ID
	}
	for _, b := range sqlBoards(t) {
		g := w.view(t, conn, b, 0)
		if got := g.variables["rule"]; b.uid != "weir-rule" && len(got) != len(ids) {
			t.Errorf("of the owner %v the rules are %v", g.variables["owner"], got)
		}
		for _, chosen := range [][]string{{}, {""}, ids[:1], ids[1:3], ids, {"no'body", `"x"`, `\`}} {
			if b.uid == "weir-rule" && len(chosen) != 1 {
				continue // one at a time; where there is none it is empty
			}
			g.variables["rule"] = chosen
			for _, q := range b.queries {
				for _, row := range ask(t, conn, g.expand(t, q.text), b.uid+"/"+q.name) {
					if rule, ok := row["rule"].(string); ok && !slices.Contains(chosen, rule) {
						t.Errorf("%s/%s: with the rules %q chosen, it is about %s", b.uid, q.name, chosen, rule)
					}
				}
			}
		}
		for _, owners := range [][]string{{}, {""}, {`the "late" o'clock \ team`, "nobody"}} {
			g.variables["owner"] = owners
			for _, v := range b.variables {
				found := ask(t, conn, g.expand(t, v.text), b.uid+" variable "+v.name)
				if want := len(owners) == 2; v.name == "rule" && b.uid != "weir-rule" && (len(found) > 0) != want {
					t.Errorf("of the owners %q the rules are %v", owners, found)
				}
			}
		}
	}
}

// A block that another episode of the source brought about holds it, too, and is known by whom it holds.
func TestHeldByDigest(t *testing.T) {
	w := newWorld(t)
	conn := w.asReader(t)
	boards := sqlBoards(t)
	b := boards[slices.IndexFunc(boards, func(b sqlBoard) bool { return b.uid == "weir-rule" })]
	sources := b.queries[slices.IndexFunc(b.queries, func(q named) bool { return q.name == "Top sources" })]
	g := w.view(t, conn, b, 0)
	held := func() (rows []string) {
		for _, row := range ask(t, conn, g.expand(t, sources.text), sources.name) {
			if row["outcome"] == "held" && strings.Contains(line(row["source"]), "settop-") {
				rows = append(rows, line(row["rule"], row["source"], row["until"]))
			}
		}
		return rows
	}
	before := held()
	w.Run(t, `UPDATE weir.block_decisions SET hit = 'another ' || hit WHERE subject LIKE '%sha256:%'`)
	if after := held(); !slices.Equal(after, before) || len(before) == 0 {
		t.Errorf("held are %v, want %v", after, before)
	}
}

// A rule is offered by what it is now: its mode, its owner, and whether it is there at all.
func TestRulesAreOfferedByWhatTheyAre(t *testing.T) {
	w := newWorld(t)
	conn := w.asReader(t)
	boards := sqlBoards(t)
	b := boards[slices.IndexFunc(boards, func(b sqlBoard) bool { return b.uid == "weir-overlimit" })]
	g := w.view(t, conn, b, 0)
	offers := func(variable string) string {
		v := b.variables[slices.IndexFunc(b.variables, func(v named) bool { return v.name == variable })]
		rows, err := conn.Query(t.Context(), g.expand(t, v.text))
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(found, ",")
	}
	want := func(variable, want string) {
		t.Helper()
		if got := offers(variable); got != want {
			t.Errorf("%s offers %s, want %s", variable, got, want)
		}
	}
	want("mode", "block,shadow")
	if _, err := w.Rules.SetMode(t.Context(), rulestore.ModeChange{Rule: "login-burst", Mode: rules.ModeOff, By: "ann", Reason: "noise"}); err != nil {
		t.Fatal(err)
	}
	w.Run(t, "UPDATE weir.rule_modes SET removed = true WHERE rule = 'search-flood'")
	want("mode", "block,disabled,shadow")
	want("owner", "catalogue,crowds,identity")
	g.variables["mode"], g.variables["owner"] = []string{"disabled", "shadow"}, []string{"identity"}
	want("rule", "guest-token-flood,login-burst")
	g.variables["mode"] = []string{"disabled"}
	want("rule", "login-burst")
}
