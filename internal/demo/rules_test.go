package demo

import (
	"go/parser"
	"go/token"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// parsed are the documents in the order of the truth's own account of them.
func parsed(t *testing.T) []rules.Document {
	t.Helper()
	documents, err := rules.ParseFiles([]rules.File{{Name: "rules.yaml", Src: Rules()}}, rules.Environment{Identity: IdentityMap()})
	if err != nil {
		t.Fatal(err)
	}
	order := RuleIDs()
	slices.SortFunc(documents, func(a, b rules.Document) int { return slices.Index(order, a.ID) - slices.Index(order, b.ID) })
	return documents
}

// TestRulesTwice: the documents and the truth's own account of them say the same, and a block is never over so soon that
// what it let pass still counts, or so late that the closing of its episode could prolong it.
func TestRulesTwice(t *testing.T) {
	documents := parsed(t)
	truth := truthRules()
	if len(documents) != len(truth) || len(RuleIDs()) != len(truth) {
		t.Fatalf("%d documents, %d rules", len(documents), len(truth))
	}
	for i, d := range documents {
		key := []string{}
		for _, f := range d.Key {
			key = append(key, f.Field.String())
		}
		got := oracle.Rule{
			ID: d.ID, Method: strings.Join(d.Match.Methods, " "), Path: d.Match.Path, Device: len(key) == 2, Limit: d.Limit,
			Window: d.Window.Microseconds(), TTL: d.Block.TTL.Microseconds(),
		}
		if got != truth[i] || RuleIDs()[i] != d.ID || strings.Join(key, " ") != strings.Join([]string{"ip", "device"}[:len(key)], " ") {
			t.Errorf("document %+v with key %s, truth %+v", got, key, truth[i])
		}
		if d.Block.Extend != rules.ExtendOnHit || d.Missing != rules.MissingSkip || len(d.Block.Key) != len(d.Key) {
			t.Errorf("%s: extend %s, on_missing %s", d.ID, d.Block.Extend, d.Missing)
		}
		if d.Block.TTL < d.Window+Allowance || d.Lateness < d.Block.TTL-d.Window {
			t.Errorf("%s: window %s, lateness %s, ttl %s", d.ID, d.Window, d.Lateness, d.Block.TTL)
		}
	}
}

// TestCast: same options, same cast; nobody shares a source with anybody under any rule, but for the office's address
// and the neighbours of those who never use a rule by address.
func TestCast(t *testing.T) {
	documents := parsed(t)
	for seed := range uint64(50) {
		cast := Options{Seed: seed}.Cast()
		again, later := Options{Seed: seed}.Cast(), Options{Seed: seed, Round: 1}.Cast()
		owner := map[source]int{}
		kinds := map[Kind]int{}
		for i, c := range cast {
			kinds[c.Kind]++
			if c != again[i] || c.Device == later[i].Device {
				t.Fatalf("seed %d: %+v, %+v, %+v", seed, c, again[i], later[i])
			}
			for k, rule := range truthRules() {
				s := source{rule.ID, rule.Subject(c.Network.Addr(), c.Device)}
				id := traffic.Identity{IP: c.Network.Addr(), Device: c.Device}
				if want, missing := traffic.MakeSubject(&id, documents[k].Key); missing > 0 || s.subject != string(want) {
					t.Fatalf("subject %q, weir has %q", s.subject, want)
				}
				other, shared := owner[s]
				if shared && (rule.Device || !mayShare(cast[other].Kind, c.Kind)) {
					t.Errorf("seed %d: %s and %s are one source under %s", seed, cast[other].Name, c.Name, rule.ID)
				}
				owner[s] = i
			}
		}
		if kinds[KindOffice] != 50 || kinds[KindNeighbour] != 12 || kinds[KindExact] != 3 || kinds[KindRotating] != 3 {
			t.Errorf("seed %d: %v", seed, kinds)
		}
	}
}

func mayShare(a, b Kind) bool {
	return a == KindOffice && b == KindOffice || b == KindNeighbour && a != KindStuffer && a != KindScraper
}

func TestSubjectsAgree(t *testing.T) {
	key := parsed(t)[0].Key
	for _, device := range []string{"tv-7", "a b", "ü", "a&b=c%", "\xff\x00", "~._-", "/:{}"} {
		for _, address := range []string{"192.0.2.1", "2001:db8:1:2:3:4:5:6", "::1"} {
			id := traffic.Identity{IP: netip.MustParseAddr(address), Device: device}
			want, _ := traffic.MakeSubject(&id, key)
			if got := truthRules()[0].Subject(id.IP, device); got != string(want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
}

// TestTruthIsItsOwn: whoever judges detection must not borrow from it.
func TestTruthIsItsOwn(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			for _, not := range []string{"/detectors", "/rules", "/ingest", "/history"} {
				faulty := name == "fault.go" && not == "/rules" // it plays a gate that errs, which is asked about a rules.Target
				if !faulty && strings.HasSuffix(strings.Trim(spec.Path.Value, `"`), "weir"+not) {
					t.Errorf("%s imports %s", name, spec.Path.Value)
				}
			}
		}
	}
}
