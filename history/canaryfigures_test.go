package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
)

func TestWhatACanaryDoes(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.PublishRecordFormat(t, detectors.RecordFormat)
	began := time.Now().UTC().Truncate(time.Minute).Add(-20 * time.Minute)
	decided := func(action, hit string, generation int, after time.Duration) {
		b.Run(t, `INSERT INTO weir.block_decisions (stream, id, action, reason, rule, subject, hit, generation, since, until, at, decided_by)
			VALUES ('live', $1, $2, '', 'flood', $3, $4, $5, $6, $6, $6, '')`,
			fmt.Sprint(action, hit, generation, after), action, "device="+hit, hit, generation, began.Add(after))
	}
	hit := func(id string, good int) {
		b.Run(t, `INSERT INTO weir.hits (stream, id, rule, rule_version, lineage, phase, subject, block_subject, grouped, rule_limit, window_ms, events, peak, first, last,
				seen_first, seen_last, cut, generation, source_partition, source_offset, keyed_partition, into_id, users, devices, samples, samples_rank, at_least, reason, known_good)
			VALUES ('live', $1, 'flood', 1, 1, 1, 'device=x', 'device=x', false, 1, 1000, 1, 1, $2, $2, $2, $2, false, 1, 0, 0, 0, '', 0, 0, '{}', 0, false, '', $3)`, id, began, good)
	}
	minute := func(after time.Duration, refused int, recorded time.Time) {
		b.Run(t, `INSERT INTO weir.rule_minutes (stream, id, rule, rule_version, lineage, kind, minute, keyed_partition, events, reached, refused, refused_good, limits, refused_at, seen, at_least, recorded_at)
			VALUES ('live', $1, 'flood', 1, 1, 'hit', $2, 0, 10, 10, $3, 0, '{}', '{}', $2, false, $4)`, fmt.Sprint("m", after), began.Add(after), refused, recorded)
		b.Run(t, `INSERT INTO weir.event_minutes (stream, minute, router, part, events, refused, unwatched, good, unjudged, seen)
			VALUES ('live', $1, 'r', 1, 1000, 0, 0, 0, 0, $1)`, began.Add(after))
	}
	refused := func(after time.Duration, rule, block string, n int) {
		b.Run(t, `INSERT INTO weir.refusals (stream, id, rule, block, keyed_partition, minute, latest, seen, events, known_good)
			VALUES ('live', $1, $2, $3, 0, $4, $4, $4, $5, 0)`, fmt.Sprint(after, rule, block), rule, block, began.Add(after), n)
	}
	ask := func() promotion.Observed {
		t.Helper()
		seen, err := b.CanaryFigures(t.Context(), "flood", 3, began, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
	if seen := ask(); seen.Measurable() {
		t.Errorf("nothing is recorded, and it is measurable: %+v", seen)
	}
	decided("written", "a", 3, time.Minute)
	decided("written", "b", 3, 2*time.Minute)
	decided("written", "b", 2, 2*time.Minute) // of another generation
	decided("extended", "c", 3, 3*time.Minute)
	decided("written", "d", 3, -time.Minute) // of a canary before
	hit("a", 1)
	hit("b", 0)
	hit("d", 2)
	minute(-time.Minute, 50, time.Now())
	minute(time.Minute, 4, time.Now().Add(-15*time.Minute))
	if seen := ask(); seen.Measurable() {
		t.Errorf("what is recorded is old, and it is measurable: %+v", seen)
	}
	for _, whole := range []time.Duration{2, 5, 17} {
		minute(whole*time.Minute, 3, time.Now())
		refused(whole*time.Minute, "flood", "a", 4)
	}
	minute(19*time.Minute, 3, time.Now()) // not all of it is told yet
	for _, out := range []time.Duration{0, 1, 19} {
		refused(out*time.Minute, "flood", "a", 1000)
	}
	refused(5*time.Minute, "flood", "b", 3)
	refused(5*time.Minute, "flood", "d", 1000) // by a block of a canary before
	refused(5*time.Minute, "flood", "", 1000)  // by nobody knows which
	refused(5*time.Minute, "logins", "a", 1000)
	seen := ask()
	if !seen.Measurable() || *seen.Blocks != 2 || *seen.Good != 0 || *seen.Released != 0 ||
		*seen.Traffic != (promotion.Part{Some: 15, All: 3000}) {
		t.Errorf("%+v: blocks %d, good %d, released %d, traffic %+v", seen, *seen.Blocks, *seen.Good, *seen.Released, seen.Traffic)
	}
	// Who pays is known of requests that are refused, too.
	b.Run(t, "UPDATE weir.refusals SET known_good = 1 WHERE block = 'd' OR rule = 'logins' OR block = ''")
	if seen := ask(); *seen.Good != 0 {
		t.Errorf("requests that other blocks refused made %d of its own good", *seen.Good)
	}
	b.Run(t, "UPDATE weir.refusals SET known_good = 1 WHERE block = 'a' AND rule = 'flood'")
	if seen := ask(); *seen.Good != 1 {
		t.Errorf("good %d, of which one was known by what it refused", *seen.Good)
	}
	b.Run(t, "UPDATE weir.refusals SET known_good = 0")
	decided("released", "a", 0, 4*time.Minute)
	b.Run(t, "UPDATE weir.hits SET known_good = 2 WHERE id = 'b'")
	if seen := ask(); *seen.Good != 1 || *seen.Released != 1 {
		t.Errorf("good %d, released %d", *seen.Good, *seen.Released)
	}
	// Under an older format no stage tells of refused requests.
	b.PublishRecordFormat(t, rules.RefusalRecordFormat-1)
	if seen := ask(); seen.Traffic != nil || !seen.Measurable() {
		t.Errorf("refused requests are not counted, and it says %+v", seen.Traffic)
	}
}
