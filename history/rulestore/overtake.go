package rulestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/rules"
)

// Named are numbers that other stores remember.
type Named struct {
	Modes   []rules.ModeState // as Redis has them
	Never   int64             // revision of the never-block list in Redis
	Routing int64             // greatest routing version of the live stream in the commits of Kafka
	// Repeats, where it is set, keeps modes that come again and again from filling the audit trail.
	Repeats *Repeats
}

// Overtaken is what a rule store that had come back older has made of it.
type Overtaken struct {
	Floor int64          // numbers begin above it now; 0: nothing was behind
	Rules []OvertakenOne // ascending by rule
	// Strangers are the modes of rules that the store does not know, or has removed, and that Redis knows as others:
	// off.
	Strangers []rules.ModeState
	Routing   int64 // a new routing version, above all that was named; 0: none was needed
}

// OvertakenOne is a rule of which Redis knew a later mode than the store.
type OvertakenOne struct {
	Redis, Was, Is rules.ModeState
}

// String says what was found, and what became of it.
func (o *OvertakenOne) String() string {
	text := fmt.Sprintf("rule %s: Redis had generation %d (%s), the rule store %d (%s): it was restored or has lost "+
		"changes; ", o.Was.Rule, o.Redis.Generation, o.Redis.Mode, o.Was.Generation, o.Was.Mode)
	if o.Is.Mode != o.Was.Mode {
		return text + fmt.Sprintf("it is in %s now, generation %d, since somebody had stopped it from blocking",
			o.Is.Mode, o.Is.Generation)
	}
	return text + fmt.Sprintf("generation %d (%s) now, blocks of before hold no longer", o.Is.Generation, o.Is.Mode)
}

// Lines say all of it.
func (o *Overtaken) Lines() (lines []string) {
	for i := range o.Rules {
		lines = append(lines, o.Rules[i].String())
	}
	for i := range o.Strangers {
		lines = append(lines, fmt.Sprintf("rule %s: Redis knew it, and the rule store has no such rule: it is off",
			o.Strangers[i].Rule))
	}
	if o.Routing > 0 {
		lines = append(lines, fmt.Sprintf("routing version %d: Kafka's commits named a later one than the rule "+
			"store had", o.Routing))
	}
	if o.Floor > 0 {
		lines = append(lines, fmt.Sprintf("numbers of versions, lineages and modes begin above %d", o.Floor))
	}
	return lines
}

// mostAbove is how far above the floor a number may be that weir has given, where the floor is above rules.MostGiven:
// somebody else has written a number there that an older build took for one of weir's.
const mostAbove = 1 << 20

// given reports whether weir may have given a number that others name: what it gives from then on, above that, is no
// less so.
func given(number, floor int64) bool { return number <= max(rules.MostGiven, floor+mostAbove) }

// Overtake compares what others name with what is stored. Where they name later numbers, the store has come back
// older: the floor rises beyond all of them, and each such rule gets a generation above. Its mode stays what is
// stored, but for a rule that blocks and that Redis knows in shadow or off: somebody has stopped it, and that was
// lost, so it stops; unless it is decided, the rule whose stored mode somebody has just set. What is named must have
// been read before: what is stored is looked at under the lock of the live stream. What has a number that weir never
// gave is left as it is and named by the error; the rest is done.
func (s *Store) Overtake(ctx context.Context, named Named, by, via, decided string) (done Overtaken, err error) {
	var never error
	var repeat repeated
	var now time.Time
	err = s.db.Transact(ctx, "comparing numbers with those that others name", func(tx pgx.Tx) error {
		floor, err := begin(ctx, tx)
		if err != nil {
			return err
		}
		o := overtaking{s: s, tx: tx, named: named, by: by, via: via, decided: decided}
		err = o.compare(ctx, floor)
		never = errors.Join(o.never...)
		if err != nil || o.top == 0 {
			return err
		}
		if o.done.Floor, err = raiseFloor(ctx, tx, o.top); err != nil {
			return err
		}
		if o.now, err = clock(ctx, tx); err != nil {
			return err
		}
		ours, made := o.names()
		o.repeat = named.Repeats.look(ours, made, o.now)
		err = o.raise(ctx, floor)
		done, repeat, now = o.done, o.repeat, o.now
		return err
	})
	if err == nil {
		named.Repeats.done(repeat, now)
	}
	return done, cmp.Or(err, never)
}

type overtaking struct {
	s                *Store
	tx               pgx.Tx
	named            Named
	by, via, decided string

	behind  []*Rule
	redis   []rules.ModeState // of behind
	routing *rules.Routing    // to be stored once more; nil: it is not behind
	top     int64             // of all that is ahead of the store; 0: nothing is
	never   []error           // of numbers that weir never gave
	now     time.Time         // of the database
	repeat  repeated
	done    Overtaken
}

// names are the rules that are overtaken, of the store and others; none where something else is, too, of which each
// time is told.
func (o *overtaking) names() (ours, made []string) {
	if o.routing != nil || o.named.Never > 0 {
		return nil, nil
	}
	for i := range o.redis {
		ours = append(ours, o.redis[i].Rule)
	}
	for i := range o.done.Strangers {
		made = append(made, o.done.Strangers[i].Rule)
	}
	return ours, made
}

// compare finds what is ahead of the store.
func (o *overtaking) compare(ctx context.Context, floor int64) error {
	stored, err := loadRules(ctx, o.tx, "true")
	if err != nil {
		return err
	}
	byID := make(map[string]*Rule, len(stored))
	for i := range stored {
		byID[stored[i].Newest.Version.ID] = &stored[i]
	}
	for i := range o.named.Modes {
		m := &o.named.Modes[i]
		if rules.IsByHand(m.Rule) {
			continue
		}
		r := byID[m.Rule]
		unknown := r == nil || r.Removed
		switch {
		case unknown && m.Mode.Blocks() && !m.Given():
			o.done.Strangers, o.top = append(o.done.Strangers, *m), max(o.top, floor, 1)
			continue
		case !m.Given(): // the rule's own mode replaces it, whatever its numbers are
			continue
		case unknown && (m.Mode.Blocks() || r == nil && m.Generation > floor ||
			r != nil && m.Generation > r.Generation):
			o.done.Strangers = append(o.done.Strangers, *m)
		case !unknown && r.behind(m):
			o.behind, o.redis = append(o.behind, r), append(o.redis, *m)
		default:
			continue
		}
		o.top = max(o.top, m.Generation, int64(m.Newest))
	}
	var never int64
	if err := o.tx.QueryRow(ctx, "SELECT $1 + coalesce(max(revision), 0) FROM never_block_entries",
		floor).Scan(&never); err != nil {
		return err
	}
	switch {
	case !given(o.named.Never, floor):
		o.never = append(o.never, fmt.Errorf("revision %d of the never-block list, as Redis has it, was never given "+
			"by weir: look who writes there", o.named.Never))
	case o.named.Never > never:
		o.top = max(o.top, o.named.Never)
	}
	if !given(o.named.Routing, floor) {
		o.never = append(o.never, fmt.Errorf("routing version %d, as commits in Kafka name it, was never given by "+
			"weir: look who commits for groups of weir", o.named.Routing))
		return nil
	}
	newest, err := newestRouting(ctx, o.tx, "live")
	if err == nil && newest != nil && o.named.Routing > newest.Number {
		o.routing, o.top = newest, max(o.top, o.named.Routing)
	}
	return err
}

// behind reports whether m, as Redis has it, is later than what is stored.
func (r *Rule) behind(m *rules.ModeState) bool {
	is := r.modeState()
	return m.After(&is)
}

// raise gives what is behind numbers above the floor, which was raised from before.
func (o *overtaking) raise(ctx context.Context, before int64) error {
	for i, r := range o.behind {
		one := OvertakenOne{Redis: o.redis[i], Was: r.modeState()}
		stood := r.stands()
		c := ModeChange{Rule: one.Was.Rule, Mode: r.Mode, By: o.by, Via: o.via}
		if r.Mode.Blocks() && !one.Redis.Mode.Blocks() && c.Rule != o.decided {
			c.Mode = rules.ModeShadow
		}
		c.quiet = c.Mode == r.Mode && o.repeat.quietOf(c.Rule)
		c.Reason = fmt.Sprintf("Redis had generation %d (%s), the rule store %d (%s)", one.Redis.Generation,
			one.Redis.Mode, r.Generation, r.Mode)
		if err := o.s.storeMode(ctx, o.tx, r, c, audit.Entry{Action: "raise-numbers", Before: stood}); err != nil {
			return fmt.Errorf("rule %s: %w", c.Rule, err)
		}
		one.Is = r.modeState()
		o.done.Rules = append(o.done.Rules, one)
	}
	var gone []string
	for i := range o.done.Strangers {
		m := &o.done.Strangers[i]
		gone = append(gone, m.Rule)
		*m = rules.ModeState{Rule: m.Rule, Mode: rules.ModeOff, Generation: o.done.Floor, Match: m.Match}
	}
	if _, err := o.tx.Exec(ctx, "UPDATE rule_modes SET generation = $2 WHERE rule = ANY($1) AND removed", gone,
		o.done.Floor); err != nil {
		return err
	}
	if o.routing != nil {
		next := *o.routing
		next.Number = o.done.Floor + 1
		o.done.Routing = next.Number
		if err := insertRouting(ctx, o.s, o.tx, &next); err != nil {
			return err
		}
	}
	if o.repeat.quiet {
		return nil
	}
	lines := few(o.done.Lines())
	if o.repeat.count != "" {
		lines += "; " + o.repeat.count
	}
	return audit.Write(ctx, o.tx, audit.Entry{
		Actor: o.by, Via: o.via, Action: "raise-numbers", Object: "numbers",
		Reason: "other stores name later numbers than the rule store had",
		Detail: lines, Before: fmt.Sprint(before), After: fmt.Sprint(o.done.Floor)})
}

// fewLines bounds an entry of the audit trail: somebody else may have written thousands of modes.
const fewLines = 20

// few joins lines, and says how many it leaves out.
func few(lines []string) string {
	if more := len(lines) - fewLines; more > 0 {
		lines = append(slices.Clone(lines[:fewLines]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}
