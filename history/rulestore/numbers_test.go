package rulestore_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
)

// saved is the rule store as a dump has it, or a standby that has not heard of the last transactions.
type saved struct {
	t testing.TB
	b *historytest.Bed
}

var savedTables = []string{"rule_versions", "pending_versions", "rule_modes", "routing_versions", "rule_numbers"}

func save(t testing.TB, b *historytest.Bed) saved {
	t.Helper()
	for _, table := range savedTables {
		exec(t, b, "CREATE TABLE saved_"+table+" AS TABLE "+historytest.Schema+"."+table)
	}
	return saved{t, b}
}

// back puts the rows back. With other, the table that says which database this is was made anew, as pg_restore makes
// it, or the timeline is another one.
func (s saved) back(other bool) {
	s.t.Helper()
	for _, table := range savedTables[:2] { // as pg_restore has it, which makes triggers behind the rows
		exec(s.t, s.b, "ALTER TABLE "+historytest.Schema+"."+table+" DISABLE TRIGGER "+table+"_stay")
	}
	for _, table := range savedTables {
		exec(s.t, s.b, "DELETE FROM "+historytest.Schema+"."+table,
			"INSERT INTO "+historytest.Schema+"."+table+" SELECT * FROM saved_"+table)
	}
	if other {
		exec(s.t, s.b, "UPDATE "+historytest.Schema+".rule_numbers SET life = '7000000000000000001/00000001/4711'")
	}
}

func exec(t testing.TB, b *historytest.Bed, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := b.Conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%v: %s", err, statement)
		}
	}
}

// PostgreSQL fails over, and loses an edit of which routers and detectors have heard. Nothing that is given
// afterwards has a number of what was lost: not the routing version, not the lineage whose windows detectors hold,
// not the version, not the first of a new rule.
func TestNumbersOfALostEditAreNotGivenAgain(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	flood := historytest.Document("flood")
	b.Apply(t, flood)
	dump := save(t, b)

	lost := flood
	lost.Window *= 12
	extra := historytest.Document("extra")
	b.Apply(t, lost, extra)
	number, versions := newestVersions(t, b)
	dump.back(true)

	// A count is reset from the version on that says so, and not from a lost one on.
	reset, err := b.Rules.ResetCounter(t.Context(), rulestore.CounterReset{Rule: "flood",
		Subject: "ip=192.0.2.1%2F32&device=tv-7", By: "ann", Reason: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if routing, err := b.Rules.Routing(t.Context(), "live", reset.Routing); err != nil || len(routing.Resets) != 1 ||
		routing.Resets[0].Since != reset.Routing {
		t.Errorf("reset in routing version %d: %+v, %v", reset.Routing, routing, err)
	}

	again, other := flood, historytest.Document("extra")
	again.Window, other.Limit = 2*flood.Window, extra.Limit+1
	b.Apply(t, again, other)
	got, is := newestVersions(t, b)
	if got <= number {
		t.Errorf("routing version %d is given after version %d was lost: routers that have loaded that one never "+
			"look at this", got, number)
	}
	for _, id := range []string{"flood", "extra"} {
		if is[id].Number <= versions[id].Number || is[id].Lineage <= versions[id].Lineage {
			t.Errorf("rule %s has version %d of lineage %d, lost were version %d and lineage %d", id, is[id].Number,
				is[id].Lineage,
				versions[id].Number, versions[id].Lineage)
		}
	}
	// From there on numbers are given one after the other.
	again.Limit++
	b.Apply(t, again, other)
	if next, versions := newestVersions(t, b); next != got+1 || versions["flood"].Number != is["flood"].Number+1 ||
		versions["flood"].Lineage != is["flood"].Lineage {
		t.Errorf("after routing version %d and %+v come %d and %+v", got, is["flood"].Number, next,
			versions["flood"].Number)
	}
	if entries, err := b.Audit.Of(t.Context(), "numbers", 5); err != nil || len(entries) != 1 ||
		entries[0].Action != "raise-numbers" {
		t.Errorf("the audit trail has %+v, %v", entries, err)
	}
}

func newestVersions(t testing.TB, b *historytest.Bed) (number int64, versions map[string]rules.Version) {
	t.Helper()
	number, err := b.Rules.Newest(t.Context(), "live")
	if err != nil {
		t.Fatal(err)
	}
	routing, err := b.Rules.Routing(t.Context(), "live", number)
	if err != nil {
		t.Fatal(err)
	}
	versions = map[string]rules.Version{}
	for _, v := range routing.Rules {
		versions[v.ID] = v
	}
	return number, versions
}

// Rows are put back under a database that does not look as if it were another one. Others know better: Redis and Kafka.
func TestWhatOthersNameIsOvertaken(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what           string
		stored, redis  rules.Mode
		decided        string
		want           rules.Mode
		generation     int64 // in Redis, above the stored one
		unknown, fresh bool
	}{
		{what: "a promotion was lost", stored: rules.ModeShadow, redis: rules.ModeBlock, generation: 4,
			want: rules.ModeShadow},
		{what: "a demotion was lost", stored: rules.ModeBlock, redis: rules.ModeShadow, generation: 1,
			want: rules.ModeShadow},
		{what: "and somebody has promoted it again", stored: rules.ModeBlock, redis: rules.ModeShadow, generation: 1,
			decided: "flood", want: rules.ModeBlock},
		{what: "it was demoted and promoted", stored: rules.ModeBlock, redis: rules.ModeBlock, generation: 2,
			want: rules.ModeBlock},
		{what: "nothing was lost", stored: rules.ModeBlock, redis: rules.ModeBlock, generation: 0,
			want: rules.ModeBlock, fresh: true},
		{what: "Redis is behind", stored: rules.ModeBlock, redis: rules.ModeBlock, generation: -1,
			want: rules.ModeBlock, fresh: true},
		{what: "a rule was lost", stored: rules.ModeShadow, redis: rules.ModeBlock, generation: 4,
			want: rules.ModeShadow, unknown: true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			b := historytest.New(t)
			b.Publish(t, rules.Format{Name: "weir"})
			b.Apply(t, historytest.Document("flood"))
			if tt.stored == rules.ModeBlock {
				setMode(t, b, "flood", rules.ModeBlock)
			}
			is := only(t, b)
			seen := rules.ModeState{Rule: "flood", Mode: tt.redis, Generation: is.Generation + tt.generation,
				Newest: is.Newest}
			if tt.unknown {
				seen.Rule = "lost"
			}
			done, err := b.Rules.Overtake(t.Context(), rulestore.Named{Modes: []rules.ModeState{seen}}, "ann",
				"local", tt.decided)
			if err != nil {
				t.Fatal(err)
			}
			now := only(t, b)
			switch {
			case now.Mode != tt.want:
				t.Errorf("mode %s, want %s", now.Mode, tt.want)
			case tt.fresh && (done.Floor != 0 || now.Generation != is.Generation || len(done.Lines()) > 0):
				t.Errorf("nothing was behind, and it did %+v", done)
			case tt.unknown && (len(done.Strangers) != 1 || done.Strangers[0].Mode != rules.ModeOff ||
				done.Strangers[0].Generation <= seen.Generation):
				t.Errorf("of the stranger: %+v", done.Strangers)
			case !tt.fresh && !tt.unknown && (now.Generation <= seen.Generation || len(done.Rules) != 1):
				t.Errorf("generation %d is stored, Redis has %d; %+v", now.Generation, seen.Generation, done)
			}
			next := setMode(t, b, "flood", map[bool]rules.Mode{true: rules.ModeShadow,
				false: rules.ModeBlock}[now.Mode == rules.ModeBlock])
			if next.Generation <= max(seen.Generation, now.Generation) {
				t.Errorf("the next generation is %d", next.Generation)
			}
			again, err := b.Rules.Overtake(t.Context(), rulestore.Named{Modes: append(done.Strangers,
				next.ModeState)}, "ann", "local", "")
			if err != nil || again.Floor != 0 {
				t.Errorf("a second comparison does %+v, %v", again, err)
			}
		})
	}
}

func only(t testing.TB, b *historytest.Bed) rules.ModeState {
	t.Helper()
	modes, err := b.Rules.Modes(t.Context())
	if err != nil || len(modes) != 1 {
		t.Fatalf("%d modes, %v", len(modes), err)
	}
	return modes[0]
}

// Commits name a routing version that is lost, and Redis a revision of the never-block list; a canary had gone
// further than is stored.
func TestRoutingVersionsAndRevisionsAreOvertaken(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	b.Apply(t, historytest.Document("flood"))
	before, _ := newestVersions(t, b)
	told, err := b.Orders.NeverEntries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done, err := b.Rules.Overtake(t.Context(), rulestore.Named{Routing: before + 3, Never: told.Revision + 5}, "ann",
		"local", "")
	if err != nil {
		t.Fatal(err)
	}
	number, versions := newestVersions(t, b)
	if number <= before+3 || number != done.Routing || len(versions) != 1 {
		t.Errorf("routing version %d (%+v) after %d was named", number, done, before+3)
	}
	if now, err := b.Orders.NeverEntries(t.Context()); err != nil || now.Revision <= told.Revision+5 {
		t.Errorf("revision %d after %d was named, %v", now.Revision, told.Revision+5, err)
	}
	for _, named := range []rulestore.Named{{Routing: 1<<40 + 1}, {Never: 1 << 62}} {
		_, err = b.Rules.Overtake(t.Context(), named, "ann", "local", "")
		if err == nil || !strings.Contains(err.Error(), "never given by weir") {
			t.Errorf("%+v leaves no number to give: %v", named, err)
		}
	}
	// Whoever writes to Redis names ever greater numbers, beside a rule that nobody knows: that one is stopped. What is
	// beyond all numbers that weir gives is replaced, and raises none of them.
	lost := rules.ModeState{Rule: "lost", Mode: rules.ModeBlock}
	for _, generation := range []int64{1 << 40, 1<<40 + 1, 1<<40 + 1<<20, 1 << 60, 1 << 62} {
		seen := only(t, b)
		seen.Generation = generation
		lost.Generation = only(t, b).Generation + 1
		named := rulestore.Named{Modes: []rules.ModeState{seen, lost}}
		done, err := b.Rules.Overtake(t.Context(), named, "ann", "local", "")
		if err != nil || len(done.Strangers) != 1 || done.Strangers[0].Mode != rules.ModeOff || done.Floor > 1<<40+100 {
			t.Errorf("generation %d: %+v, %v", generation, done, err)
		}
		next := setMode(t, b, "flood", map[bool]rules.Mode{true: rules.ModeShadow,
			false: rules.ModeBlock}[only(t, b).Mode == rules.ModeBlock])
		named.Modes = append(done.Strangers, next.ModeState)
		again, err := b.Rules.Overtake(t.Context(), named, "ann", "local", "")
		if err != nil || again.Floor != 0 {
			t.Errorf("what weir has given itself: %+v, %v", again, err)
		}
	}
}

func TestAfter(t *testing.T) {
	t.Parallel()
	state := func(mode rules.Mode, generation int64, newest int, share promotion.Share) rules.ModeState {
		return rules.ModeState{Rule: "flood", Mode: mode, Generation: generation, Newest: newest, Share: int(share),
			Match: rules.Held{}}
	}
	for _, tt := range []struct {
		a, b rules.ModeState
		want bool
	}{
		{state(rules.ModeShadow, 3, 1, 0), state(rules.ModeBlock, 2, 9, 0), true},
		{state(rules.ModeShadow, 2, 9, 0), state(rules.ModeBlock, 3, 1, 0), false},
		{state(rules.ModeBlock, 3, 2, 0), state(rules.ModeBlock, 3, 1, 0), true},
		{state(rules.ModeCanary, 3, 1, 5000), state(rules.ModeCanary, 3, 1, 1000), true},
		{state(rules.ModeBlock, 3, 1, 0), state(rules.ModeCanary, 3, 1, 1000), true},
		{state(rules.ModeBlock, 3, 1, 0), state(rules.ModeBlock, 3, 1, 0), false},
		{state(rules.ModeBlock, 3, 1, 0), state(rules.ModeShadow, 3, 1, 0), false},
	} {
		if got := tt.a.After(&tt.b); got != tt.want {
			t.Errorf("%+v after %+v: %v", tt.a, tt.b, got)
		}
	}
}

// TestStrangersAreCounted: a rule that somebody else writes to Redis again and again is switched off each time, and
// does not fill the audit trail; nor does one that is known, but where it is stopped.
func TestStrangersAreCounted(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.Publish(t, rules.Format{Name: "weir"})
	b.Apply(t, historytest.Document("flood"))
	repeats := new(rulestore.Repeats)
	for i := range 12 {
		lost := rules.ModeState{Rule: "lost", Mode: rules.ModeBlock, Generation: 1}
		known := only(t, b)
		known.Generation++
		done, err := b.Rules.Overtake(t.Context(), rulestore.Named{Modes: []rules.ModeState{lost, known},
			Repeats: repeats}, "weir", "", "")
		if err != nil || len(done.Strangers) != 1 || done.Strangers[0].Mode != rules.ModeOff || len(done.Rules) != 1 {
			t.Fatalf("time %d: %+v, %v", i, done, err)
		}
	}
	for object, want := range map[string]int{"numbers": 2, "rule flood": 3} {
		entries, err := b.Audit.Of(t.Context(), object, 0)
		if err != nil || len(entries) != want {
			t.Errorf("%s has %d entries, %v, want %d", object, len(entries), err, want)
		}
		if object == "numbers" && (!strings.Contains(entries[0].Detail, "the like was done 10 times more since ") ||
			strings.Contains(entries[1].Detail, "times more") ||
			!strings.Contains(entries[1].Detail, "rule lost: Redis knew it")) {
			t.Errorf("the entries say %q and %q", entries[0].Detail, entries[1].Detail)
		}
	}
}
