package erasure_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

const hitColumns = `id, rule, rule_version, lineage, phase, subject, block_subject, ip, device, user_id, grouped, rule_limit, window_ms, events, peak,
	first, last, seen_first, seen_last, cut, generation, source_partition, source_offset, keyed_partition, into_id, users, devices, samples, samples_rank, at_least, reason`

// A person is gone from every table, wherever a column or a text may hold him; others stay as they are.
func TestErase(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Run(t, "SET search_path TO weir")
	now := time.Now().UTC()
	hit := func(id, subject, block, ip, device, user string, samples ...string) {
		b.Run(t, `INSERT INTO hits (stream, `+hitColumns+`) VALUES ('live', $1, 'flood', 1, 1, 3, $2, $3, NULLIF($4, '')::cidr, NULLIF($5, ''), NULLIF($6, ''), false, 2, 1000, 3, 3,
			$7, $7, $7, $7, false, 1, 0, 0, 0, '', 1, 1, $8, 1, false, '')`, id, subject, block, ip, device, user, now.Add(-time.Hour), samples)
	}
	const alice, bob = `{"time":"2026-11-20T00:00:00Z","before":true,"user":"alice","ip":"192.0.2.7"}`, `{"time":"2026-11-20T00:00:00Z","user":"bob","ip":"192.0.2.8"}`
	hit("1", "user=alice", "user=alice", "", "", "alice", alice)
	hit("2", "ip=192.0.2.7%2F32", "ip=192.0.2.7%2F32", "192.0.2.7/32", "", "", alice, bob)
	hit("3", "ip=192.0.2.8%2F32", "ip=192.0.2.8%2F32&user=alice", "192.0.2.8/32", "", "", bob)
	hit("4", "user=alice2", "user=alice2", "", "", "alice2", bob)
	decision := func(id, subject, user string, until time.Time) {
		b.Run(t, `INSERT INTO block_decisions (stream, id, action, reason, rule, subject, user_id, hit, generation, since, until, at, decided_by)
			VALUES ('live', $1, 'written', '', 'flood', $2, $3, '1', 1, $4, $5, $4, 'enforce')`, id, subject, user, now.Add(-time.Hour), until)
	}
	decision("d1", "user=alice", "alice", now.Add(-time.Minute))
	decision("d2", "user=alice", "alice", now.Add(time.Hour))
	decision("d3", "user=bob", "bob", now.Add(-time.Minute))
	b.Run(t, `INSERT INTO block_decisions (stream, id, action, reason, rule, subject, user_id, hit, generation, since, until, at, decided_by)
		VALUES ('live', 'd4', 'written', '', 'flood', 'user=alice', 'alice', '5', 1, $1, $1, $1, 'enforce')`, now.Add(-time.Hour)) // its hit is over for longer
	for _, r := range []struct{ rule, block string }{{"flood", "1"}, {"flood", "1"}, {"flood", "4"}, {"flood", "5"},
		{"other", "1"}, {"flood", ""}} {
		b.Run(t, `INSERT INTO refusals (stream, id, rule, block, keyed_partition, minute, latest, seen, events, known_good)
			VALUES ('live', gen_random_uuid()::text, $1, $2, 0, $3, $3, $3, 1, 0)`, r.rule, r.block, now.Add(-time.Minute))
	}
	trail := audit.NewTrail(b.DB)
	for _, e := range []audit.Entry{
		{Actor: "ann", Action: "release", Object: "block flood user=alice", Reason: "alice called, and alice2 did not"},
		{Actor: "ann", Action: "release", Object: "block flood user=bob", Reason: "malice"},
	} {
		if err := trail.Add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	b.Run(t, "INSERT INTO saved_views (made_by, name, query, shared) VALUES ('ann', 'a', 'source=user%3Dalice', false), ('ann', 'b', 'source=user%3Dbob', false)")
	eraser := erasure.New(b.DB, b.Streams)
	request := erasure.Request{Person: erasure.Person{Field: traffic.FieldUser, Value: "alice"}, By: "root", Reason: "alice asked for it", DryRun: true}
	want := []erasure.Count{
		{What: "sums of refused requests", N: 3}, {What: "episodes", N: 2},
		{What: "samples in episodes of other sources", N: 1}, {What: "block decisions", N: 2},
		{What: "saved views", N: 1},
		{What: "entries of the audit trail, in which a pseudonym stands now", N: 2},
	}
	dry, err := eraser.Erase(t.Context(), request)
	if err != nil || !slices.Equal(dry.Erased, want) || b.Number(t, "SELECT count(*) FROM hits") != 4 || b.Number(t, "SELECT count(*) FROM audit") != 2 {
		t.Fatalf("a dry run: %+v, %v", dry, err)
	}
	request.DryRun = false
	done, err := eraser.Erase(t.Context(), request)
	if err != nil || !slices.Equal(done.Erased, want) || done.Pseudonym != dry.Pseudonym {
		t.Fatalf("%+v, %v", done, err)
	}
	if len(done.Blocks) != 1 || done.Blocks[0].Subject != "user=alice" || done.Blocks[0].Rule != "flood" {
		t.Errorf("blocks %+v", done.Blocks)
	}
	if ids := b.Number(t, "SELECT sum(id::int) FROM hits"); ids != 2+4 {
		t.Errorf("hits that stay add up to %d", ids)
	}
	if n := b.Number(t, "SELECT count(*) FROM hits WHERE samples = ARRAY[$1]", bob); n != 2 {
		t.Errorf("%d episodes have the samples of others", n)
	}
	// alice2's block, one of a rule that alice has no block of, and one that nobody can be told from, stay.
	if n := b.Number(t, "SELECT count(*) FROM refusals WHERE (rule, block) IN (('flood', '4'), ('other', '1'), ('flood', ''))"); n != 3 || b.Number(t, "SELECT count(*) FROM refusals") != 3 {
		t.Errorf("%d sums of refused requests of others", n)
	}
	entries, err := trail.Of(t.Context(), "", 0)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	text, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		text string
		n    int
	}{{"alice", 2}, {"alice2", 1}, {"malice", 1}, {done.Pseudonym, 4}, {"user=bob", 1}} {
		if n := strings.Count(string(text), e.text); n != e.n {
			t.Errorf("%q stands %d times in the audit trail, want %d: %s", e.text, n, e.n, text)
		}
	}
	if again, err := eraser.Erase(t.Context(), request); err != nil || len(again.Erased) != 1 { // its own entry
		t.Errorf("again: %+v, %v", again.Erased, err)
	}
}

// An address is erased with what lies within it; what tells of a wider prefix tells of others.
func TestEraseAddress(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Run(t, "SET search_path TO weir")
	for id, prefix := range map[string]string{"1": "192.0.2.7/32", "2": "192.0.2.0/24", "3": "192.0.2.77/32"} {
		b.Run(t, `INSERT INTO block_decisions (stream, id, action, reason, rule, subject, ip, hit, generation, since, until, at, decided_by)
			VALUES ('live', $1, 'withheld', '', 'flood', $2, $3::cidr, '1', 1, now(), NULL, now(), 'enforce')`, id, "ip="+strings.ReplaceAll(prefix, "/", "%2F"), prefix)
	}
	p := netip.MustParsePrefix("192.0.2.7/32")
	done, err := erasure.New(b.DB, b.Streams).Erase(t.Context(), erasure.Request{Person: erasure.Person{Field: traffic.FieldIP, Value: p.String(), Prefix: p}, By: "root", Reason: "asked"})
	if err != nil || b.Number(t, "SELECT sum(id::int) FROM block_decisions") != 2+3 || done.Left[0].N != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestStoreGoesAway: an erasure that loses its connection at any step has erased nothing and audited nothing, and the next one does all.
func TestStoreGoesAway(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Run(t, "SET search_path TO weir")
	b.Run(t, `INSERT INTO hits (stream, `+hitColumns+`) VALUES ('live', '1', 'flood', 1, 1, 3, 'user=alice', 'user=alice', NULL, NULL, 'alice', false, 2, 1000, 3, 3,
		$1, $1, $1, $1, false, 1, 0, 0, 0, '', 1, 1, '{}', 1, false, '')`, time.Now().UTC().Add(-time.Hour))
	eraser := erasure.New(b.DB, b.Streams)
	request := erasure.Request{Person: erasure.Person{Field: traffic.FieldUser, Value: "alice"}, By: "root", Reason: "asked for it"}
	var steps []string
	request.DryRun, request.Progress = true, func(what string) { steps = append(steps, what) }
	if _, err := eraser.Erase(t.Context(), request); err != nil || len(steps) != 6 {
		t.Fatalf("steps %q, %v", steps, err)
	}
	request.DryRun = false
	for _, last := range steps[1:] { // at the first one nothing is changed yet
		request.Progress = func(what string) {
			if what == last {
				b.Run(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()")
			}
		}
		if done, err := eraser.Erase(t.Context(), request); err == nil {
			t.Fatalf("the connection went away at %s, and it did %+v", last, done)
		}
		if n, acted := b.Number(t, "SELECT count(*) FROM hits"), b.Number(t, "SELECT count(*) FROM audit"); n != 1 || acted != 0 {
			t.Fatalf("away at %s: %d hits and %d entries", last, n, acted)
		}
	}
	request.Progress = nil
	testbed.Eventually(t, time.Minute, func() error {
		_, err := eraser.Erase(t.Context(), request)
		return err
	})
	if n, acted := b.Number(t, "SELECT count(*) FROM hits"), b.Number(t, "SELECT count(*) FROM audit"); n != 0 || acted != 1 {
		t.Errorf("at last %d hits and %d entries", n, acted)
	}
}

// hostileNames are what clients may call themselves, and then ask to be forgotten.
func hostileNames() []string {
	return []string{"rule", "block", "version", "limit", "shadow", "login-burst", "search", "ann", "user", "none",
		"step", "holds", "a",
		"alice&device=tv", "50%", "x=y", "o'hara", "zoe.quill", "Ann", "erased", "subject", "audit", "a b"}
}

// TestNoNameTouchesWeirsOwnWords: whatever a person is called, the audit trail tells afterwards what it told before, of
// everybody and everything else. The entries about the person are found by their sources.
func TestNoNameTouchesWeirsOwnWords(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Run(t, "SET search_path TO weir")
	b.Run(t, `INSERT INTO rule_versions (rule, version, lineage, document, source, hash, author, reason)
		VALUES ('login-burst', 1, 1, '{"id":"login-burst","owner":"search"}', '', '', 'ann',
			'the rule of the search team')`)
	trail := audit.NewTrail(b.DB)
	eraser := erasure.New(b.DB, b.Streams)
	for _, name := range hostileNames() {
		b.Run(t, "DELETE FROM audit")
		subject := traffic.SubjectOf([]traffic.SubjectValue{{Field: "user", Value: name}})
		both := traffic.SubjectOf([]traffic.SubjectValue{{Field: "device", Value: "tv-7"},
			{Field: "user", Value: name}})
		ours := []audit.Entry{
			{Actor: "ann", Action: "promote", Object: "rule login-burst", Before: "shadow, version 1",
				After: "block, version 1", Detail: "dossier 0a1b, step 1 of 2"},
			{Actor: "ann", Action: "set-limit", Object: "rule login-burst", Before: "limit 10",
				After: "limit 20 until 2026-11-28", Detail: "none holds"},
			{Actor: "search", Action: "release", Object: "block login-burst user=somebody", Before: "none",
				After: "released"},
			{Actor: "Ann", Action: "reset-count", Object: "rule login-burst", Detail: "user=" + "x" +
				strings.ReplaceAll(string(subject), "user=", "")},
		}
		for _, e := range append(slices.Clone(ours), audit.Entry{Actor: "ann", Action: "release",
			Object: "block login-burst " + string(subject), Reason: "he called"},
			audit.Entry{Actor: "ann", Action: "release", Object: "block login-burst " + string(both),
				Reason: "he called, the user " + name}) {
			if err := trail.Add(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		done, err := eraser.Erase(t.Context(), erasure.Request{Person: erasure.Person{Field: traffic.FieldUser,
			Value: name}, By: "root", Reason: "asked"})
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		entries, err := trail.Of(t.Context(), "", 0)
		if err != nil || len(entries) != 7 {
			t.Fatalf("%q: %d entries, %v", name, len(entries), err)
		}
		slices.Reverse(entries)
		for i, want := range ours {
			if got := entries[i]; got.Object != want.Object || got.Before != want.Before || got.After != want.After ||
				got.Detail != want.Detail || got.Actor != want.Actor {
				t.Errorf("%q: %+v became %+v", name, want, got)
			}
		}
		for _, e := range entries[4:6] {
			if strings.Contains(strings.ReplaceAll(e.Object, done.Pseudonym, "P"), string(subject)) ||
				!strings.Contains(e.Object, "user="+done.Pseudonym) || !strings.HasPrefix(e.Object,
				"block login-burst ") {
				t.Errorf("%q: still named: %+v", name, e)
			}
		}
		if e := entries[5]; e.Reason != "he called, the user "+done.Pseudonym || !strings.Contains(e.Object,
			"device=tv-7") {
			t.Errorf("%q: the reason %q, the object %q", name, e.Reason, e.Object)
		}
	}
}

// TestEveryReasonIsLookedThrough writes to each table that has reasons, and finds none of them afterwards; a dry run
// shows the lines.
func TestEveryReasonIsLookedThrough(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Run(t, "SET search_path TO weir")
	const reason = "Zoe.Quill is a partner, so is zoe.quill2; ~pseudo1 and the rest stay"
	b.Run(t, "INSERT INTO rule_versions (rule, version, lineage, document, source, hash, author, reason) "+
		"VALUES ('r', 1, 1, '{}', '', '', 'ann', $1)", reason)
	b.Run(t, "INSERT INTO rule_modes (rule, mode, generation, changed_by, reason) "+
		"VALUES ('r', 'shadow', 1, 'ann', $1)", reason)
	b.Run(t, "INSERT INTO allow_versions (list, version, document, hash, created_at, author, reason) "+
		"VALUES ('l', 1, '{}', '', now(), 'ann', $1)", reason)
	b.Run(t, "INSERT INTO never_block_entries (prefix, added_by, via, reason) "+
		"VALUES ('192.0.2.0/24', 'ann', 'local', $1)", reason)
	b.Run(t, "INSERT INTO saved_views (made_by, name, query, shared) "+
		"VALUES ('ann', 'rules', 'rule=zoe.quill', false), "+
		"('ann', 'hers', 'source=user%3D~pseudo1', false), "+
		"('ann', 'both', 'source=device%3Dtv%26user%3Dzoe.quill', false)")
	request := erasure.Request{Person: erasure.Person{Field: traffic.FieldUser, Value: "zoe.quill"},
		Shown: []string{"~pseudo1"}, By: "root", Reason: "asked", DryRun: true}
	eraser := erasure.New(b.DB, b.Streams)
	dry, err := eraser.Erase(t.Context(), request)
	if err != nil || len(dry.Texts) != 4 || dry.TextsMore != 0 {
		t.Fatalf("%+v, %v", dry, err)
	}
	want := dry.Pseudonym + " is a partner, so is zoe.quill2; " + dry.Pseudonym + " and the rest stay"
	for i, where := range []string{"allow_versions", "never_block_entries", "rule_modes", "rule_versions"} {
		if got := dry.Texts[i]; !strings.Contains(got.Where, where) || got.Was != reason || got.Is != want {
			t.Errorf("%s: %+v", where, got)
		}
	}
	request.DryRun = false
	done, err := eraser.Erase(t.Context(), request)
	if err != nil || len(done.Texts) != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	for _, table := range []string{"rule_versions", "rule_modes", "allow_versions", "never_block_entries"} {
		if n := b.Number(t, "SELECT count(*) FROM "+table+" WHERE reason = $1", want); n != 1 {
			t.Errorf("%s still names her", table)
		}
	}
	if n := b.Number(t, "SELECT count(*) FROM saved_views WHERE name = 'rules'"); n != 1 ||
		b.Number(t, "SELECT count(*) FROM saved_views") != 1 {
		t.Errorf("of the views %d of the rule", n)
	}
}

// TestAddressesInTexts: an address is one wherever it stands, and what only looks like it is another.
func TestAddressesInTexts(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	trail := audit.NewTrail(b.DB)
	for _, e := range []audit.Entry{
		{Actor: "ann", Action: "never-block", Object: "never-block 192.0.2.7/32", Reason: "from 192.0.2.7."},
		{Actor: "ann", Action: "sign-in", Object: "session", Detail: "id ann from 192.0.2.7: role admin",
			Reason: "192.0.2.77, 1192.0.2.7, 192.0.2.7.8 and 192.0.2.7:443"},
		{Actor: "ann", Action: "release", Object: "block flood ip=192.0.2.7%2F32&user=x",
			Reason: "::ffff:192.0.2.7, not 192.0.2.0/24"},
	} {
		if err := trail.Add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	p := netip.MustParsePrefix("192.0.2.7/32")
	done, err := erasure.New(b.DB, b.Streams).Erase(t.Context(),
		erasure.Request{Person: erasure.Person{Field: traffic.FieldIP, Value: p.String(), Prefix: p}, By: "root",
			Reason: "asked"})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := trail.Of(t.Context(), "", 0)
	if err != nil || len(entries) != 4 {
		t.Fatalf("%+v, %v", entries, err)
	}
	x := done.Pseudonym
	for i, want := range []struct{ object, detail, reason string }{
		{"block flood ip=" + x + "&user=x", "", x + ", not 192.0.2.0/24"},
		{"session", "id ann from " + x + ": role admin", "192.0.2.77, 1192.0.2.7, 192.0.2.7.8 and " + x + ":443"},
		{"never-block " + x, "", "from " + x + "."},
	} {
		if got := entries[i+1]; got.Object != want.object || got.Detail != want.detail || got.Reason != want.reason {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// TestEraseByAnotherSpelling: a person is erased whose value ROUTE has read in another way than it is typed, in both
// spellings, and it is said who was read.
func TestEraseByAnotherSpelling(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Run(t, "SET search_path TO weir")
	for id, user := range []string{"a\ufffdb", "a\nb", "ab"} {
		written := traffic.SubjectOf([]traffic.SubjectValue{{Field: "user", Value: user}})
		sample, _ := json.Marshal(map[string]string{"time": "2026-11-20T00:00:00Z", "user": user})
		b.Run(t, `INSERT INTO hits (stream, `+hitColumns+`)
			VALUES ('live', $1::int, 'flood', 1, 1, 3, $2, $2, NULL, NULL, $3, false, 2, 1000, 3, 3, $4, $4, $4, $4,
				false, 1, 0, 0, 0, '', 1, 1, '{}', 1, false, '')`, id, written, user, time.Now())
		b.Run(t, `INSERT INTO hits (stream, `+hitColumns+`)
			VALUES ('live', $1::int, 'flood', 1, 1, 3, '', '', NULL, NULL, NULL, false, 2, 1000, 3, 3, $2, $2, $2, $2,
				false, 1, 0, 0, 0, '', 1, 1, $3, 1, false, '')`, 10+id, time.Now(), []string{string(sample)})
	}
	person := erasure.Person{Field: traffic.FieldUser, Value: "a\ufffdb", Typed: "a\nb"}
	done, err := erasure.New(b.DB, b.Streams).Erase(t.Context(),
		erasure.Request{Person: person, By: "root", Reason: "asked"})
	want := []erasure.Count{{What: "episodes", N: 2}, {What: "samples in episodes of other sources", N: 2}}
	if err != nil || done.Subject != "user=a%EF%BF%BDb" || !slices.Equal(done.Erased, want) {
		t.Errorf("erased %+v of %s, %v; want %+v", done.Erased, done.Subject, err, want)
	}
	if n := b.Number(t, "SELECT count(*) FROM hits WHERE user_id = 'ab'"); n != 1 {
		t.Errorf("of another one %d episodes are left", n)
	}
}
