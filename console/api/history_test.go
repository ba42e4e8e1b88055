package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/console/why"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/traffic"
)

// blockedHit is the id of the hit behind the block of bed.block.
var blockedHit = strings.Repeat("ab", 16)

// happened puts into history what there is to ask about: three sources, a block, a release, an act.
func (b *bed) happened(t *testing.T) {
	t.Helper()
	b.Apply(t, historytest.Document("tokens"), historytest.Document("logins"))
	now := traffic.At(time.Now()).Add(-time.Hour)
	var hits []detectors.Hit
	for i, of := range []traffic.Subject{blocked, "ip=203.0.113.10%2F32&device=tv-8", "ip=203.0.113.11%2F32&device=%3D1%2B1"} {
		id := blockedHit
		if i > 0 {
			id = fmt.Sprintf("%08x%024x", i, i)
		}
		first := now.Add(-time.Duration(i) * time.Minute)
		hits = append(hits, detectors.Hit{
			Format: detectors.HitFormat, Kind: detectors.KindHit, ID: id, Rule: "tokens", RuleVersion: 1, Lineage: 1, Phase: detectors.PhaseClosed,
			Subject: of, BlockSubject: of, Limit: 5, WindowMS: 60_000, Count: 9, Peak: 7, Opened: first, First: first, Last: first.Add(time.Second), Seen: first, Generation: 1,
			Samples: []string{`{"time":"2026-11-20T00:00:00Z","method":"POST","path":"/x","ip":"203.0.113.9","device":"tv-7","user":"alice"}`},
		})
	}
	minute := now - now%traffic.Time(time.Minute/time.Microsecond)
	hits = append(hits, detectors.Hit{Format: detectors.HitFormat, Kind: detectors.KindRefused, ID: "refused-1",
		Rule: "tokens", Block: blockedHit[:16],
		Count: 12, Known: 3, First: minute, Last: now, Seen: now, Keyed: 3})
	b.Record(t, hits...)
	decision := func(id string, action blocklist.Action, reason string) blocklist.Decision {
		return blocklist.Decision{Format: blocklist.DecisionFormat, ID: id, Action: action, Reason: reason, Rule: "tokens", Subject: blocked, Hit: blockedHit,
			Generation: 1, Since: now, Until: now.Add(2 * time.Hour), At: now.Add(time.Minute), By: "enforce"}
	}
	b.Decide(t, decision("d1", blocklist.ActionWritten, ""), decision("d2", blocklist.ActionExtended, "tv-7 is still over, ip=203.0.113.9"))
	act := audit.Entry{Actor: "otto", Action: "release", Object: "block tokens " + string(blocked), Reason: "user alice asked, about TV-7 and 203.0.113.9.",
		Before: "block of " + string(blocked), After: "released for 203.0.113.9", Via: access.ViaToken}
	if err := b.Audit.Add(t.Context(), act); err != nil {
		t.Fatal(err)
	}
	b.block(t, "tokens")
}

func masking(t *testing.T) *access.Masker {
	t.Helper()
	m, err := access.NewMasker(access.Masking{Key: bytes.Repeat([]byte{9}, access.MaskKeyBytes), Below: access.Owner, Fields: access.DefaultMaskedFields()})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestHistoryIsAsked: pages join to the whole, totals and names hold, an answer that has not changed is 304, and why tells of hit and block.
func TestHistoryIsAsked(t *testing.T) {
	b := newBed(t, nil)
	b.happened(t)
	t.Run("pages", func(t *testing.T) { checkPages(t, b) })
	var top api.Counted[explore.GroupRow]
	b.ask(t, "vera", "GET", "/api/v1/history/top?by=day&rule=tokens", nil).read(t, &top)
	if len(top.Items) == 0 || top.Items[0].Episodes+top.Items[len(top.Items)-1].Episodes < 3 {
		t.Errorf("by day: %+v", top)
	}
	for path, want := range map[string]string{
		"/api/v1/history/hits?rule=tokenz": "did you mean tokens?", "/api/v1/history/sources?owner=identitty": "did you mean identity?",
		"/api/v1/history/decisions?rule=login": "did you mean logins?", "/api/v1/history/audit?action=releas": "did you mean release?",
	} {
		got := b.ask(t, "vera", "GET", path, nil)
		if p := got.problem(t); got.status != http.StatusNotFound || p.Near == "" || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %d %+v", path, got.status, p)
		}
	}
	for _, path := range []string{"/api/v1/history/hits/" + blockedHit[:8], "/api/v1/why/" + blockedHit[:16], "/api/v1/why?source=203.0.113.9"} {
		var told why.Answer
		b.ask(t, "vera", "GET", path, nil).read(t, &told)
		if told.ID != blockedHit || told.Subject != blocked || told.Hit == nil || len(told.Hit.Samples) != 1 || len(told.Decisions) != 2 || len(told.Acts) != 1 {
			t.Errorf("%s: %+v", path, told)
		}
		if strings.Contains(path, "why") && (told.Block == nil || told.Holds == nil || told.BlockID != blockedHit[:16]) {
			t.Errorf("%s does not say whether it holds: %+v", path, told)
		}
	}
	for _, path := range []string{"/api/v1/history/hits/01234567", "/api/v1/why/01234567", "/api/v1/why?source=192.0.2.77"} {
		if got := b.ask(t, "vera", "GET", path, nil); got.status != http.StatusNotFound || got.problem(t).Type != api.TypeUnrecorded {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	b.Record(t, detectors.Hit{Format: detectors.HitFormat, Kind: detectors.KindHit, ID: blockedHit[:8] + strings.Repeat("0", 24), Rule: "tokens", Phase: detectors.PhaseClosed, Subject: blocked, Opened: traffic.At(time.Now())})
	if p := b.ask(t, "vera", "GET", "/api/v1/why/"+blockedHit[:8], nil).problem(t); p.Type != api.TypeAmbiguous || len(p.Known) != 2 {
		t.Errorf("two hits that begin alike: %+v", p)
	}
}

func checkPages(t *testing.T, b *bed) {
	seen := map[string]bool{}
	for cursor := ""; ; {
		got := b.ask(t, "vera", "GET", "/api/v1/history/hits?limit=1&since=2h&cursor="+cursor, nil)
		var page api.Counted[history.RecordedHit]
		got.read(t, &page)
		if len(page.Items) != 1 || page.Total.N != 3 || page.Total.More || seen[page.Items[0].ID] {
			t.Fatalf("%d %s", got.status, got.body)
		}
		seen[page.Items[0].ID] = true
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(seen) != 3 {
		t.Errorf("pages have %d hits", len(seen))
	}
	once := b.ask(t, "vera", "GET", "/api/v1/history/decisions", nil)
	if again := b.ask(t, "vera", "GET", "/api/v1/history/decisions", nil, "If-None-Match", once.header.Get("ETag")); again.status != http.StatusNotModified {
		t.Errorf("nothing has changed: %d", again.status)
	}
}

// exports are the entries of the audit trail about files that were taken.
func (b *bed) exports(t *testing.T) int {
	t.Helper()
	all, err := b.Audit.Find(t.Context(), audit.Query{Action: string(access.Export)})
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestHistoryAsCSV: for analysts and above, by format or by Accept, without formulas; the next page stands in a Link.
func TestHistoryAsCSV(t *testing.T) {
	b := newBed(t, nil)
	b.happened(t)
	if got := b.ask(t, "vera", "GET", "/api/v1/history/hits?format=csv", nil); got.status != http.StatusForbidden {
		t.Errorf("a viewer takes history away: %d %s", got.status, got.body)
	}
	if got := b.ask(t, "vera", "GET", "/api/v1/history/seen-with?source=203.0.113.9", nil, "Accept", "text/csv"); got.status != http.StatusForbidden {
		t.Errorf("a viewer takes history away: %d %s", got.status, got.body)
	}
	for path, rows := range map[string]int{
		"hits?": 3, "sources?": 3, "top?by=rule": 1, "timeline?source=203.0.113.9": 4, "seen-with?source=203.0.113.9": 2, "decisions?": 2, "audit?action=release": 1,
	} {
		before := b.exports(t)
		got := b.ask(t, "anna", "GET", "/api/v1/history/"+path, nil, "Accept", "text/csv, application/json;q=0.5")
		if n := b.exports(t) - before; n != 1 {
			t.Errorf("%s: got %d entries of the audit trail; allowed: 1", path, n)
		}
		all, err := csv.NewReader(bytes.NewReader(got.body)).ReadAll()
		if err != nil || len(all) != rows+1 || got.header.Get("Content-Type") != "text/csv; charset=utf-8" {
			t.Errorf("%s: %v, %s\n%s", path, err, got.header.Get("Content-Type"), got.body)
		}
		for _, row := range all {
			for _, cell := range row {
				if strings.HasPrefix(cell, "=") {
					t.Errorf("%s: a formula: %q", path, cell)
				}
			}
		}
	}
	got := b.ask(t, "anna", "GET", "/api/v1/history/hits?limit=2&format=csv", nil)
	next, _, _ := strings.Cut(strings.TrimPrefix(got.header.Get("Link"), "<"), ">")
	if behind := b.ask(t, "anna", "GET", next, nil); bytes.Count(behind.body, []byte("\n")) != 2 || behind.header.Get("Link") != "" {
		t.Errorf("behind %q: %d %s", got.header.Get("Link"), behind.status, behind.body)
	}
}

// TestPseudonymsInAllOfHistory: whoever is shown pseudonyms finds no value in any answer, cursors and headers included, and asks by them.
func TestPseudonymsInAllOfHistory(t *testing.T) {
	m := masking(t)
	b := newBed(t, m)
	b.happened(t)
	anna := cast()["anna"]
	source := "source=ip%3D" + m.Value(anna, "ip", "203.0.113.9")
	for _, path := range []string{
		"history/hits?limit=1", "history/hits?" + source, "history/sources?limit=1", "history/top?by=source&limit=1", "history/timeline?limit=1&" + source,
		"history/seen-with?" + source, "history/decisions?limit=1", "history/audit?" + source, "history/hits/" + blockedHit, "history/hits?format=csv&limit=1",
		"history/timeline?format=csv&" + source, "history/seen-with?format=csv&" + source, "history/decisions?format=csv", "history/audit?format=csv", "history/sources?format=csv&limit=1",
		"why/" + blockedHit, "why?" + source, "why?source=" + m.Value(anna, "ip", "192.0.2.77"), "blocklist?limit=1", "audit", "rules/tokens/dossier",
		"history/dead", "history/dead?format=csv", "history/late", "history/uncounted?format=csv", "history/refused",
		"history/refused?format=csv", "history/hits?source=203.0.113.1", "history/hits?source=device%3Dtv",
		"history/hits?source=%7Eabc",
	} {
		got := b.ask(t, "anna", "GET", "/api/v1/"+path, nil)
		if strings.Contains(path, source) && got.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
		said := string(got.body) + got.header.Get("Link")
		for word := range strings.FieldsFuncSeq(said, func(r rune) bool { return strings.ContainsRune(`"<>&=? `, r) }) {
			if raw, err := base64.RawURLEncoding.DecodeString(word); err == nil {
				said += " " + string(raw)
			}
		}
		for _, value := range []string{"203.0.113.9", "203.0.113.10", "203.0.113.11", "192.0.2.77", "tv-7", "TV-7", "tv-8", "alice", "=1+1", "%3D1"} {
			if strings.Contains(said, value) {
				t.Errorf("%s tells of %s:\n%s", path, value, said)
			}
		}
	}
	for path, has := range map[string]string{"rules/tokens/dossier": "tv-8", "history/audit": "about TV-7",
		"history/decisions": "tv-7 is still over", "history/dead": "alice", "history/refused": "device=tv-7",
		"history/sources": "device=tv-7"} {
		if got := b.ask(t, "adam", "GET", "/api/v1/"+path, nil); !strings.Contains(string(got.body), has) { // else there would be nothing to mask
			t.Errorf("%s has no %s for adam: %s", path, has, got.body)
		}
	}
	cursorsOfOthers(t, b)
	// By the whole subject, and by the pseudonym alone, the same hit is found.
	for _, text := range []string{string(m.Subject(anna, blocked)), m.Value(anna, "ip", "203.0.113.9"), "device=" + m.Value(anna, "device", "tv-7")} {
		var page api.Counted[history.RecordedHit]
		b.ask(t, "anna", "GET", "/api/v1/history/hits?source="+url.QueryEscape(text), nil).read(t, &page)
		if len(page.Items) != 1 || page.Items[0].ID != blockedHit {
			t.Errorf("by %s: %+v", text, page)
		}
	}
}

// cursorsOfOthers: a page goes on by the cursor that was given, and by no other.
func cursorsOfOthers(t *testing.T, b *bed) {
	t.Helper()
	for _, list := range []string{"history/hits", "history/sources", "history/timeline?source=ip%3D" + masking(t).Value(cast()["anna"], "ip", "203.0.113.9")} {
		at := "/api/v1/" + list + map[bool]string{true: "&", false: "?"}[strings.Contains(list, "?")] + "limit=1&cursor="
		var mine, adams api.Page[any]
		b.ask(t, "anna", "GET", at, nil).read(t, &mine)
		b.ask(t, "adam", "GET", at, nil).read(t, &adams)
		if got := b.ask(t, "anna", "GET", at+mine.Next, nil); got.status != http.StatusOK || mine.Next == "" {
			t.Errorf("%s: %d %s", at, got.status, got.body)
		}
		if got := b.ask(t, "anna", "GET", at+adams.Next, nil); got.status != http.StatusBadRequest || adams.Next == "" {
			t.Errorf("%s by a cursor of another role: %d %s", at, got.status, got.body)
		}
	}
}

// TestDeadLettersAreShown: who sees values sees what a letter holds; who does not is told that it is left out; a broker that is away is named to nobody.
func TestDeadLettersAreShown(t *testing.T) {
	b := newBed(t, masking(t))
	var page api.Counted[api.Letter]
	b.ask(t, "adam", "GET", "/api/v1/history/dead?limit=7", nil).read(t, &page)
	if len(page.Items) != 1 || !strings.Contains(page.Items[0].Text, "alice") || page.Items[0].Detail != "after alice" || len(page.Items[0].Value) == 0 || page.Items[0].Hidden || page.Total.N != 7 {
		t.Errorf("to adam: %+v", page)
	}
	if got := b.ask(t, "adam", "GET", "/api/v1/history/dead?format=csv", nil); !strings.Contains(string(got.body), "after alice") {
		t.Errorf("as CSV: %s", got.body)
	}
	b.ask(t, "anna", "GET", "/api/v1/history/dead", nil).read(t, &page)
	if len(page.Items) != 1 || !page.Items[0].Hidden || page.Items[0].Reason != "malformed" {
		t.Errorf("to anna: %+v", page)
	}
	if got := b.ask(t, "vera", "GET", "/api/v1/history/dead?format=csv", nil); got.status != http.StatusForbidden {
		t.Errorf("a viewer takes a file: %d", got.status)
	}
	if got := b.ask(t, "adam", "GET", "/api/v1/history/dead?stage=record", nil); got.status != http.StatusBadRequest || got.problem(t).Allowed != "route" {
		t.Errorf("a stage that no letter has: %d %s", got.status, got.body)
	}
	b.away = true
	got := b.ask(t, "adam", "GET", "/api/v1/history/dead", nil)
	if p := got.problem(t); got.status != http.StatusServiceUnavailable || strings.Contains(string(got.body), "broker-1") || !strings.Contains(p.Detail, "Kafka does not answer") {
		t.Errorf("with the brokers away: %d %s", got.status, got.body)
	}
}
