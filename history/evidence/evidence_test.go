package evidence_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// bed is a history with a rule "flood" that was applied long before noon, the time about which tests ask.
type bed struct {
	*historytest.Bed
	*evidence.Store
	noon time.Time
	rule rules.Document
	n    int
}

func newBed(t *testing.T, edit ...func(*rules.Document)) *bed {
	t.Helper()
	b := &bed{Bed: historytest.New(t), noon: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), rule: historytest.Document("flood")}
	ip := []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}
	b.rule.Key, b.rule.Block.Key = ip, ip
	for _, e := range edit {
		e(&b.rule)
	}
	b.Publish(t, historytest.Routing().Format)
	b.Apply(t, b.rule)
	b.applied(t, b.noon.Add(-24*time.Hour))
	b.Store = evidence.New(b.DB, b.Rules)
	return b
}

// applied moves the beginning of all versions.
func (b *bed) applied(t *testing.T, at time.Time) {
	b.Run(t, "ALTER TABLE weir.rule_versions DISABLE TRIGGER rule_versions_stay")
	b.Run(t, "UPDATE weir.rule_versions SET created_at = $1", at)
}

func (b *bed) at(minutes float64) time.Time {
	return b.noon.Add(time.Duration(minutes * float64(time.Minute)))
}

// hit is a row of hits; the zero value of a member is a plain one.
type hit struct {
	subject, block   string
	from, to         float64 // minutes from noon: first and last
	events, peak     int64
	refused          int64
	good             int
	users, devices   int64
	version          int
	phase            int
	kind             string
	rule             string
	atLeast          bool
	noBlock, replays bool
}

func (b *bed) hits(t *testing.T, rows ...hit) {
	t.Helper()
	for _, h := range rows {
		b.n++
		if h.subject == "" {
			h.subject = source(b.n)
		}
		if h.block == "" && !h.noBlock {
			h.block = h.subject
		}
		if h.version == 0 {
			h.version = 1
		}
		if h.phase == 0 {
			h.phase = 3
		}
		if h.rule == "" {
			h.rule = "flood"
		}
		stream := "live"
		if h.replays {
			stream = "replay/x"
		}
		table, kind, value := "hits", "", ""
		if h.kind != "" {
			table, kind, value = "hits_beside", ", kind", ", '"+h.kind+"'"
		}
		b.Run(t, `INSERT INTO weir.`+table+` (stream, id, rule, rule_version, lineage, phase, subject, block_subject, grouped, rule_limit, window_ms, events, peak, first, last,
			seen_first, seen_last, cut, generation, source_partition, source_offset, keyed_partition, into_id, users, devices, samples, samples_rank, at_least, opened, known_good, refused`+kind+`)
			VALUES ($1, $2, $3, $4, 1, $5, $6, $7, false, 5, 60000, $8, $9, $10, $11, $10, $11, false, 1, 0, $12, 0, '', $13, $14, $15, 1, $16, $10, $17, $18`+value+`)`,
			stream, fmt.Sprintf("%032x", b.n), h.rule, h.version, h.phase, h.subject, h.block, h.events, h.peak, b.at(h.from), b.at(h.to), b.n,
			h.users, h.devices, []string{fmt.Sprintf(`{"path":"/%d"}`, b.n)}, h.atLeast, h.good, h.refused)
	}
}

// source is the subject of an address.
func source(n int) string { return fmt.Sprintf("ip=192.0.2.%d%%2F32", n) }

// told is what ROUTE and DETECT have told of one minute of the rule.
type told struct {
	minute                         int // from noon
	all, ours, unjudged, matched   int64
	events, reached, refused, good int64
	limits, refusedAt              []int64
	version                        int
	kind                           string
	noRoute, noMatch, noCount      bool
	atLeast                        bool
	partition                      int
}

func (b *bed) minutes(t *testing.T, rows ...told) {
	t.Helper()
	for _, m := range rows {
		b.n++
		if m.version == 0 {
			m.version = 1
		}
		if m.kind == "" {
			m.kind = "hit"
		}
		at := b.at(float64(m.minute))
		if !m.noRoute {
			b.Run(t, `INSERT INTO weir.event_minutes (stream, router, part, minute, events, refused, unwatched, good, unjudged, seen) VALUES ('live', 'r', 0, $1, $2, $3, 0, 0, $4, $1)`, at, m.all, m.ours, m.unjudged)
		}
		if !m.noMatch {
			b.Run(t, `INSERT INTO weir.rule_event_minutes (stream, router, part, rule, minute, matched, seen) VALUES ('live', 'r', 0, 'flood', $1, $2, $1)`, at, m.matched)
		}
		if !m.noCount {
			b.Run(t, `INSERT INTO weir.rule_minutes (stream, id, rule, rule_version, lineage, kind, minute, keyed_partition, events, reached, refused, refused_good, limits, refused_at, seen, at_least)
				VALUES ('live', $1, 'flood', $2, 1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $4, $12)`, fmt.Sprintf("m%d", b.n), m.version, m.kind, at, m.partition,
				m.events, m.reached, m.refused, m.good, orNone(m.limits), orNone(m.refusedAt), m.atLeast)
		}
	}
}

func orNone(list []int64) []int64 { return append([]int64{}, list...) }

// plain are minutes from noon in which all was well: 100 events a minute, of which the rule watches and counts 10.
func plain(from, to int) (out []told) {
	for m := from; m < to; m++ {
		out = append(out, told{minute: m, all: 100, matched: 10, events: 10, reached: 10})
	}
	return out
}

func (b *bed) gather(t *testing.T, q evidence.Question) *evidence.Dossier {
	t.Helper()
	if q.Rule == "" {
		q.Rule = "flood"
	}
	if q.Since == 0 {
		q.Since = traffic.At(b.noon)
	}
	if q.Until == 0 {
		q.Until = q.Since.Add(time.Hour)
	}
	d, err := b.Gather(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// same compares figures by what they say.
func same(t *testing.T, what string, got fmt.Stringer, want string) {
	t.Helper()
	if got.String() != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.minutes(t, plain(0, 60)...)
	b.minutes(t, // a second partition in two of them, which refuses
		told{minute: 10, noRoute: true, noMatch: true, events: 40, reached: 60, refused: 30, good: 4, limits: []int64{5, 7, 9}, refusedAt: []int64{30, 20, 0}, partition: 1},
		told{minute: 11, noRoute: true, noMatch: true, reached: 10, refused: 10, limits: []int64{5, 7, 9}, refusedAt: []int64{10, 4, 1}, partition: 1})
	b.minutes(t, told{minute: -1, all: 7, matched: 7, events: 7, refused: 7}, told{minute: 60, all: 7, matched: 7, events: 7, refused: 7}, told{minute: 20, noRoute: true, noMatch: true, version: 2, refused: 9},
		told{minute: 20, noRoute: true, noMatch: true, kind: "candidate", refused: 9})
	b.hits(t,
		hit{subject: source(1), from: 10, to: 11, events: 30, peak: 20, refused: 25, good: 2, users: 12, devices: 3},
		hit{subject: source(2), from: 12, to: 13, events: 10, peak: 9, refused: 10, good: 1, users: 1},
		hit{subject: source(2), from: 30, to: 31, events: 11, peak: 40, refused: 3, good: 1, users: 2},
		hit{subject: source(3), from: 40, to: 41, events: 3, peak: 6, good: 0},
		hit{from: -5, to: -1, events: 3, peak: 6}, hit{from: 60, to: 61, events: 3, peak: 6}, // outside
		hit{from: 5, to: 6, phase: 4, events: 9, peak: 9}, hit{from: 5, to: 6, version: 2, events: 9, peak: 9},
		hit{from: 5, to: 6, kind: "candidate", events: 9, peak: 9}, hit{from: 5, to: 6, rule: "other", events: 9, peak: 9}, hit{from: 5, to: 6, replays: true, events: 9, peak: 9},
		hit{from: 50, to: 51, subject: "ip", noBlock: true, events: 8, peak: 8})
	d := b.gather(t, evidence.Question{})
	if d.Observed.Minutes != 60 || d.Observed.Span != 60 || len(d.Observed.Gaps) != 0 {
		t.Errorf("observed %+v", d.Observed)
	}
	for what, f := range map[string]struct {
		got  fmt.Stringer
		want string
	}{
		"all": {d.Traffic.All, "6000"}, "matched": {d.Traffic.Matched, "600"}, "counted": {d.Traffic.Counted, "640"}, "reach": {d.Traffic.WithReach, "670"},
		"requests": {d.Held.Requests, "40"}, "sources": {d.Held.Sources, "3"}, "refusing": {d.Held.Refusing, "2"}, "over": {d.Held.Over, "4"}, "episodes": {d.Held.Episodes, "5"},
		"of all": {d.Held.ShareOfAll, "0.67 %"}, "of matched": {d.Held.ShareOfMatched, "6.7 %"}, "of reach": {d.Held.ShareOfReach, "6.0 %"},
		"known good": {d.KnownGood.Sources, "at least 1"}, "its requests": {d.KnownGood.Requests, "at least 4"}, "coverage": {d.KnownGood.Coverage, "66.7 %"},
		"event coverage": {d.KnownGood.EventCoverage, "100.0 %"}, "users": {d.Behind.Users.Sources, "2"}, "most": {d.Behind.Users.Most, "12"}, "many": {d.Behind.Users.Many, "1"},
		"devices": {d.Behind.Devices.Most, "3"}, "overlap": {d.Overlap.Sources, "0.0 %"},
		"at 5": {d.At(5).Sources, "3"}, "at 6": {d.At(6).Sources, "2"}, "at 19": {d.At(19).Sources, "2"}, "at 20": {d.At(20).Sources, "1"}, "at 40": {d.At(40).Sources, "0"},
		"requests at 5": {d.At(5).Requests, "40"}, "requests at 6": {d.At(6).Requests, "24 to 40"}, "requests at 7": {d.At(7).Requests, "24"}, "requests at 9": {d.At(9).Requests, "1"},
		"requests at 50": {d.At(50).Requests, "0 to 1"},
	} {
		same(t, what, f.got, f.want)
	}
	if got, _ := d.At(4).Sources.Known(); got != 0 || d.At(4).Sources.State != evidence.NotMeasurable || d.At(4).Requests.State != evidence.NotMeasurable {
		t.Errorf("below the own limit: %+v", d.At(4))
	}
	var top []string
	for _, s := range d.Top {
		top = append(top, fmt.Sprintf("%s %d %d %s", s.Subject, s.Refused, s.Episodes, s.KnownGood))
	}
	if want := []string{source(1) + " 25 1 yes", source(2) + " 13 2 no", "ip 0 1 not judged", source(3) + " 0 1 not judged"}; !slices.Equal(top, want) {
		t.Errorf("top %q, want %q", top, want)
	}
	if d.Top[1].Peak != 40 || d.Top[1].Events != 21 || len(d.Top[1].Samples) != 1 || d.Top[1].Hit == "" {
		t.Errorf("second %+v", d.Top[1])
	}
	if len(d.Notes) != 1 || !strings.Contains(d.Notes[0], "block nobody") {
		t.Errorf("notes %q", d.Notes)
	}
}

func TestDocumentIsCanonical(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.minutes(t, plain(0, 60)...)
	b.hits(t, hit{from: 10, to: 11, events: 30, peak: 20, refused: 25, good: 2, users: 12, devices: 3}, hit{subject: "ip=%3C%26%3E", from: 10, to: 11, events: 3, peak: 7})
	var first []byte
	for range 3 {
		doc, err := b.gather(t, evidence.Question{}).Document()
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = doc
		}
		if string(doc) != string(first) || evidence.Hash(doc) != evidence.Hash(first) || len(evidence.Hash(doc)) != 64 {
			t.Errorf("the same rows gave %s and %s", first, doc)
		}
	}
	d, err := evidence.Decode(first)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.Document(); err != nil || string(again) != string(first) {
		t.Errorf("read and written again: %s, %v; want %s", again, err, first)
	}
	b.hits(t, hit{from: 20, to: 21, events: 1, peak: 6})
	if doc, err := b.gather(t, evidence.Question{}).Document(); err != nil || evidence.Hash(doc) == evidence.Hash(first) {
		t.Errorf("another row, the same hash, %v", err)
	}
	for _, bad := range []string{"", "{}", `{"format":2}`, `{"format":1,"more":0}`, string(first) + "{}", strings.Replace(string(first), `"format":1`, `"format":9`, 1)} {
		if _, err := evidence.Decode([]byte(bad)); !errors.Is(err, evidence.ErrDossier) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
}

func TestGaps(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.applied(t, b.at(3.5)) // the minute in which it begins, and the next, are warming: its window is a minute
	rows := append(plain(0, 20), plain(30, 60)...)
	rows = slices.DeleteFunc(rows, func(m told) bool { return m.minute < 3 && m.minute != 1 || m.minute == 40 || m.minute == 41 })
	b.minutes(t, rows...)
	b.minutes(t, told{minute: 0, all: 5, noCount: true}, told{minute: 2, all: 5, noCount: true}, // before the version
		told{minute: 40, all: 100, matched: 3, noCount: true}, told{minute: 41, all: 100, noCount: true}) // uncounted; nothing to count
	b.Run(t, `INSERT INTO weir.losses (stream, id, generation, source_partition, source_offset, keyed_partition, offsets, watermark, seen, accepted_by, reason)
		VALUES ('live', 'l', 1, 0, 0, 0, 9, $1, $1, 'ann', 'x'), ('replay/x', 'l', 1, 0, 0, 0, 9, $1, $1, 'ann', 'x')`, b.at(50.5))
	d := b.gather(t, evidence.Question{})
	var got []string
	for _, g := range d.Observed.Gaps {
		got = append(got, fmt.Sprintf("%s %d-%d", g.Reason, (g.Since-traffic.At(b.noon))/60e6, (g.Until-traffic.At(b.noon))/60e6))
	}
	want := "before 0-1, before 2-3, warming 3-5, silent 20-30, uncounted 40-41, loss 50-51"
	if strings.Join(got, ", ") != want {
		t.Errorf("gaps %s, want %s", strings.Join(got, ", "), want)
	}
	if d.Observed.Minutes != 60-2-2-10-1-1 || d.Observed.Losses != 1 {
		t.Errorf("observed %+v", d.Observed)
	}
	if r := d.Held.Requests; r.State != evidence.Bounded || r.Side != evidence.AtLeast || !strings.Contains(r.Reason, "lost") || !strings.Contains(r.Reason, "1 minutes") {
		t.Errorf("requests %+v", r)
	}
}

func TestNotMeasurable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit   func(*rules.Document)
		fill   func(*testing.T, *bed)
		what   func(*evidence.Dossier) evidence.Count
		reason string // empty: it is known
	}{
		"nothing at all":         {what: func(d *evidence.Dossier) evidence.Count { return d.Held.Requests }, reason: "no minute was observed"},
		"nothing at all, good":   {what: func(d *evidence.Dossier) evidence.Count { return d.KnownGood.Sources }, reason: "no minute was observed"},
		"nothing at all, events": {what: func(d *evidence.Dossier) evidence.Count { return d.Traffic.All }, reason: "no router"},
		"quiet": {fill: func(t *testing.T, b *bed) { b.minutes(t, told{minute: 1, all: 4, noMatch: true, noCount: true}) },
			what: func(d *evidence.Dossier) evidence.Count { return d.Held.Requests }},
		"an old DETECT": {fill: func(t *testing.T, b *bed) {
			b.minutes(t, told{minute: 0, all: 4, noMatch: true, noCount: true}, told{minute: 1, all: 4, matched: 4, noCount: true})
		}, what: func(d *evidence.Dossier) evidence.Count { return d.Held.Requests }, reason: "DETECT has recorded no minute"},
		"no block": {edit: func(d *rules.Document) { d.Block = nil }, fill: func(t *testing.T, b *bed) {
			b.minutes(t, plain(0, 60)...)
			b.hits(t, hit{from: 1, to: 2, events: 3, peak: 9, noBlock: true})
		}, what: func(d *evidence.Dossier) evidence.Count { return d.Held.Sources }, reason: "no block"},
		"no block, over": {edit: func(d *rules.Document) { d.Block = nil }, fill: func(t *testing.T, b *bed) {
			b.minutes(t, plain(0, 60)...)
			b.hits(t, hit{from: 1, to: 2, events: 3, peak: 9, noBlock: true})
		}, what: func(d *evidence.Dossier) evidence.Count { return d.Held.Over }},
		"nobody judged": {fill: func(t *testing.T, b *bed) {
			b.minutes(t, plain(0, 60)...)
			b.hits(t, hit{from: 1, to: 2, events: 3, peak: 9})
		}, what: func(d *evidence.Dossier) evidence.Count { return d.KnownGood.Sources }, reason: "none of 1 sources"},
		"nobody held": {fill: func(t *testing.T, b *bed) { b.minutes(t, plain(0, 60)...) },
			what: func(d *evidence.Dossier) evidence.Count { return d.KnownGood.Sources }},
		"users of users": {edit: func(d *rules.Document) {
			d.Key = append(d.Key, traffic.KeyField{Field: traffic.FieldUser})
			d.Block.Key = d.Key
		}, fill: func(t *testing.T, b *bed) {
			b.minutes(t, plain(0, 60)...)
			b.hits(t, hit{subject: source(1) + "&user=a", from: 1, to: 2, users: 1})
		}, what: func(d *evidence.Dossier) evidence.Count { return d.Behind.Users.Most }, reason: "key has the user"},
		"no user": {fill: func(t *testing.T, b *bed) { b.minutes(t, plain(0, 60)...); b.hits(t, hit{from: 1, to: 2}) },
			what: func(d *evidence.Dossier) evidence.Count { return d.Behind.Users.Most }, reason: "named a user"},
		"a bucket": {edit: func(d *rules.Document) { d.Algorithm = rules.AlgorithmTokenBucket }, fill: func(t *testing.T, b *bed) {
			b.minutes(t, plain(0, 60)...)
			b.hits(t, hit{from: 1, to: 2, peak: 9})
		}, what: func(d *evidence.Dossier) evidence.Count { return d.At(8).Sources }, reason: "drain at another rate"},
		"no ladder": {fill: func(t *testing.T, b *bed) { b.minutes(t, plain(0, 60)...) },
			what: func(d *evidence.Dossier) evidence.Count { return d.At(8).Requests }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var edits []func(*rules.Document)
			if c.edit != nil {
				edits = append(edits, c.edit)
			}
			b := newBed(t, edits...)
			if c.fill != nil {
				c.fill(t, b)
			}
			got := c.what(b.gather(t, evidence.Question{}))
			if _, known := got.Known(); known != (c.reason == "") || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("%+v, want the reason %q", got, c.reason)
			}
		})
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(d *rules.Document) {
		d.Key = historytest.Document("x").Key // ip and device
		d.Block.Key = d.Key
	})
	b.minutes(t, plain(0, 60)...)
	source := func(n int) string { return fmt.Sprintf("%s&device=tv-%d", source(n), n) }
	for n := 1; n <= 6; n++ {
		b.hits(t, hit{subject: source(n), from: 10, to: 12, events: 9, peak: 9, refused: 10})
	}
	decide := func(id, rule, subject, action string, since, until float64) {
		b.Run(t, `INSERT INTO weir.block_decisions (stream, id, action, reason, rule, subject, hit, generation, since, until, at, decided_by)
			VALUES ('live', $1, $2, '', $3, $4, 'h', 1, $5, $6, $5, 'x')`, id, action, rule, subject, b.at(since), b.at(until))
	}
	decide("1", "old", source(1), "written", 5, 10.5)
	decide("2", "old", "ip=192.0.2.2%2F32", "extended", 11, 30) // wider
	decide("3", "new", "ip=192.0.2.2%2F32", "written", 11, 30)
	decide("4", "old", source(3), "written", 5, 10)           // over before
	decide("5", "old", source(4), "withheld", 5, 30)          // never was
	decide("6", "flood", source(5), "written", 5, 30)         // its own
	decide("7", "old", source(6)+"&user=a", "written", 5, 30) // narrower
	d := b.gather(t, evidence.Question{})
	same(t, "sources", d.Overlap.Sources, "33.3 %")
	same(t, "requests", d.Overlap.Requests, "at most 33.3 %")
	if got := fmt.Sprint(d.Overlap.Rules); got != "[{old 2} {new 1}]" {
		t.Errorf("rules %s", got)
	}
	if got := fmt.Sprint(d.Top[1].HeldBy); got != "[new old]" {
		t.Errorf("top %+v", d.Top[1])
	}
}

func TestOwnBlocks(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.minutes(t, plain(0, 60)...)
	audited := func(action string, at float64) {
		b.Run(t, "INSERT INTO weir.audit (at, actor, action, object, reason) VALUES ($1, 'ann', $2, 'rule flood', '')", b.at(at), action)
	}
	audited("promote", -50)
	audited("demote", -40)
	same(t, "before", b.gather(t, evidence.Question{}).Held.Requests, "0")
	audited("disable", 20.5)
	b.Run(t, "DELETE FROM weir.rule_minutes WHERE minute >= $1 AND minute < $2", b.at(20), b.at(30))
	b.Run(t, "DELETE FROM weir.rule_event_minutes WHERE minute >= $1 AND minute < $2", b.at(20), b.at(30))
	audited("enable", 30)
	d := b.gather(t, evidence.Question{})
	if d.Observed.Minutes != 51 || d.Observed.Gaps[0].Reason != evidence.GapOff {
		t.Errorf("observed %+v", d.Observed)
	}
	audited("promote", 50)
	d = b.gather(t, evidence.Question{})
	if r := d.Held.Requests; r.Side != evidence.AtLeast || !strings.Contains(r.Reason, "itself blocked") {
		t.Errorf("requests %+v", r)
	}
}

func TestForgottenTrials(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.minutes(t, plain(0, 60)...)
	b.minutes(t, told{minute: 5, noRoute: true, noMatch: true, refused: 3, reached: 9, atLeast: true, partition: 1})
	if r := b.gather(t, evidence.Question{}).Held.Requests; r.String() != "at least 3" || !strings.Contains(r.Reason, "forgot some") {
		t.Errorf("requests %+v", r)
	}
}

// Of rows that history has left out it is known how many there are, and not whose they are: sources are bounds, requests are not.
func TestRowsNotKept(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.minutes(t, plain(0, 60)...)
	b.minutes(t, told{minute: 10, noRoute: true, noMatch: true, refused: 35, reached: 50, partition: 1})
	b.hits(t, hit{subject: source(1), from: 10, to: 11, events: 30, peak: 20, refused: 25, good: 1, users: 3}, hit{subject: source(2), from: 12, to: 13, events: 10, peak: 9, refused: 10, good: 1})
	leave := func(minutes float64, rule, kind string, rows, merged, bare int) {
		b.Run(t, `INSERT INTO weir.hits_left_out (stream, rule, kind, minute, hits_partition, beyond, rows, merged, ended, events, peak, without_samples)
			VALUES ('live', $1, $2, $3, 0, 'x', $4, $5, 0, 0, 0, $6)`, rule, kind, b.at(minutes), rows, merged, bare)
	}
	leave(20, "other", "hit", 9, 0, 9)
	leave(20, "flood", "candidate", 9, 0, 9)
	leave(60, "flood", "hit", 9, 0, 9)    // begins after the hour
	leave(-1500, "flood", "hit", 9, 0, 9) // has been cut before it
	leave(21, "flood", "hit", 4, 4, 0)    // of episodes that others have taken in
	d := b.gather(t, evidence.Question{})
	for what, f := range map[string]fmt.Stringer{"over": d.Held.Over, "sources": d.Held.Sources, "episodes": d.Held.Episodes} {
		same(t, what+" where nothing of it was left out", f, "2")
	}
	if len(d.Notes) != 0 {
		t.Errorf("notes %q", d.Notes)
	}
	// Nobody was refused under the own limit, so no other one was told of. A block of a higher one stands at other times, and may have refused some.
	quiet := newBed(t)
	quiet.minutes(t, plain(0, 60)...)
	quiet.hits(t, hit{subject: source(1), from: 10, to: 11, events: 30, peak: 20})
	q := quiet.gather(t, evidence.Question{})
	same(t, "requests at the own limit", q.At(5).Requests, "0")
	same(t, "requests above it", q.At(6).Requests, "about 0")
	if q.At(6).Requests.State != evidence.Bounded {
		t.Errorf("%+v", q.At(6).Requests)
	}
	leave(22, "flood", "hit", 100, 10, 7)
	leave(-1000, "flood", "hit", 10, 0, 0) // may last until then
	d = b.gather(t, evidence.Question{})
	for what, f := range map[string]fmt.Stringer{
		"over": d.Held.Over, "sources": d.Held.Sources, "refusing": d.Held.Refusing, "episodes": d.Held.Episodes, "above 5": d.At(5).Sources, "above 8": d.At(8).Sources,
	} {
		same(t, what, f, "at least 2")
	}
	same(t, "above 9", d.At(9).Sources, "at least 1")
	same(t, "known good", d.KnownGood.Sources, "at least 0")
	same(t, "users", d.Behind.Users.Sources, "at least 1")
	same(t, "requests", d.Held.Requests, "35")
	if !strings.Contains(d.Held.Sources.Reason, "left out 100 rows") {
		t.Errorf("sources %+v", d.Held.Sources)
	}
	if len(d.Notes) != 2 || !strings.Contains(d.Notes[0], "rows_per_minute: 100;") || !strings.Contains(d.Notes[1], "samples_per_minute): 7") {
		t.Errorf("notes %q", d.Notes)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(d *rules.Document) { d.Candidate = &rules.Candidate{Limit: 3} })
	if _, err := b.Rules.SetMode(t.Context(), rulestore.ModeChange{Rule: "flood", Mode: rules.ModeBlock, By: "ann", Reason: "x", Override: "tests"}); err != nil {
		t.Fatal(err)
	}
	tighter := b.rule
	tighter.Limit = 4
	b.Apply(t, tighter)
	b.Run(t, "ALTER TABLE weir.pending_versions DISABLE TRIGGER pending_versions_stay")
	b.Run(t, "UPDATE weir.pending_versions SET created_at = $1", b.at(-60))
	b.minutes(t, plain(0, 60)...)
	b.minutes(t, told{minute: 5, noRoute: true, noMatch: true, kind: "candidate", version: 2, refused: 77, reached: 90, events: 90})
	b.minutes(t, told{minute: 6, noRoute: true, noMatch: true, kind: "candidate", refused: 31, reached: 90, events: 90})
	b.hits(t, hit{from: 1, to: 2, peak: 8}, hit{from: 1, to: 2, peak: 5, kind: "candidate", version: 2}, hit{from: 1, to: 2, peak: 5, kind: "candidate", version: 2},
		hit{from: 1, to: 2, peak: 4, kind: "candidate"}, hit{from: 1, to: 2, peak: 4, kind: "candidate"}, hit{from: 1, to: 2, peak: 4, kind: "candidate"}, hit{from: 1, to: 2, peak: 4, kind: "near"})
	for name, c := range map[string]struct {
		q                 evidence.Question
		role              evidence.Role
		version, limit    int
		sources, requests string
	}{
		"acting":    {role: evidence.Acting, version: 1, limit: 5, sources: "at least 1", requests: "at least 0"},
		"pending":   {q: evidence.Question{Role: evidence.Pending}, role: evidence.Pending, version: 2, limit: 4, sources: "at least 2", requests: "at least 77"},
		"by number": {q: evidence.Question{Version: 2}, role: evidence.Pending, version: 2, limit: 4, sources: "at least 2", requests: "at least 77"},
		"candidate": {q: evidence.Question{Role: evidence.Candidate}, role: evidence.Candidate, version: 1, limit: 3, sources: "at least 3",
			requests: "at least 31"},
	} {
		b.Run(t, "UPDATE weir.audit SET at = $1 WHERE action = 'promote'", b.at(30))
		d := b.gather(t, c.q)
		if d.Role != c.role || d.Version != c.version || d.Terms.Limit != c.limit {
			t.Errorf("%s: %s %d, limit %d", name, d.Role, d.Version, d.Terms.Limit)
		}
		same(t, name+" sources", d.Held.Sources, c.sources)
		same(t, name+" requests", d.Held.Requests, c.requests)
	}
	for name, q := range map[string]evidence.Question{"number": {Version: 9}, "no candidate": {Version: 2, Role: evidence.Candidate}} {
		q.Rule, q.Since, q.Until = "flood", 0, 60e6
		if name == "no candidate" {
			continue
		}
		if _, err := b.Gather(t.Context(), q); !errors.Is(err, evidence.ErrNoVersion) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.Gather(t.Context(), evidence.Question{Rule: "nosuch", Until: 60e6}); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("unknown rule: %v", err)
	}
	for _, span := range [][2]traffic.Time{{0, 0}, {60e6, 0}, {0, 59e6}, {0, traffic.Time(101 * 24 * time.Hour / time.Microsecond)}} {
		if _, err := b.Gather(t.Context(), evidence.Question{Rule: "flood", Since: span[0], Until: span[1]}); err == nil {
			t.Errorf("span %v was taken", span)
		}
	}
}
