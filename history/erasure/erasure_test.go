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
