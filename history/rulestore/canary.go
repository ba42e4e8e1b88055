package rulestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
)

// Canary is where a rule in canary stands. Its steps are those of the document that was promoted.
type Canary struct {
	Share promotion.Share   `json:"share"` // of the block keys, that may be held now
	Step  int               `json:"step"`  // which of Steps that is, from 1
	Steps []promotion.Share `json:"steps"`
	Since time.Time         `json:"since"` // when the step began
	Hold  promotion.Span    `json:"hold"`  // how long it lasts at least
	// Predicted is what the dossier of the promotion leads one to expect. More than that ends the canary.
	Predicted promotion.Prediction `json:"predicted"`
}

// Due is when the step may be followed by the next one.
func (c *Canary) Due() time.Time { return c.Since.Add(time.Duration(c.Hold)) }

// canaryColumns are what scanCanary reads.
const canaryColumns = "m.canary_share, m.canary_step, m.canary_steps, m.canary_since, m.canary_hold, m.predicted"

// canaryRow is a row's canaryColumns.
type canaryRow struct {
	share, step *int
	steps       []int
	since       *time.Time
	hold        *int64
	predicted   *string
}

func (c *canaryRow) targets() []any {
	return []any{&c.share, &c.step, &c.steps, &c.since, &c.hold, &c.predicted}
}

// canary is what the row says of a rule in canary, where constraints keep all of it. Whoever edits rows by hand may be
// beyond those: no step that there is not is looked up.
func (c *canaryRow) canary() (*Canary, error) {
	if c.share == nil || c.step == nil || c.since == nil || c.hold == nil || c.predicted == nil {
		return nil, errors.New("a canary without its columns")
	}
	if *c.step < 1 || *c.step > len(c.steps) {
		return nil, fmt.Errorf("its row in rule_modes says that its canary is at step %d of %d", *c.step, len(c.steps))
	}
	if longest := int64(promotion.MaxHold / time.Second); *c.hold < 0 || *c.hold > longest {
		return nil, fmt.Errorf("its row in rule_modes says that a step lasts %d seconds, and it is at most %d", *c.hold,
			longest)
	}
	out := &Canary{
		Share: promotion.Share(*c.share), Step: *c.step, Since: c.since.UTC(), Hold: promotion.Span(time.Duration(*c.hold) * time.Second),
	}
	for _, s := range c.steps {
		out.Steps = append(out.Steps, promotion.Share(s))
	}
	return out, json.Unmarshal([]byte(*c.predicted), &out.Predicted)
}

// beginCanary puts r into the first step of its document's canary.
func (r *Rule) beginCanary(predicted promotion.Prediction) {
	c := rules.CanaryOf(&r.Newest.Version.Document)
	r.Canary = &Canary{Share: c.Steps[0], Step: 1, Steps: c.Steps, Hold: c.Hold, Predicted: predicted}
}

// setCanary stores where r's canary stands.
func (r *Rule) setCanary(ctx context.Context, tx pgx.Tx) error {
	c := r.Canary
	predicted, err := json.Marshal(c.Predicted)
	if err != nil {
		return err
	}
	steps := make([]int, len(c.Steps))
	for i, s := range c.Steps {
		steps[i] = int(s)
	}
	err = tx.QueryRow(ctx, `UPDATE rule_modes SET canary_share = $2, canary_step = $3, canary_steps = $4, canary_hold = $5, predicted = $6,
			canary_since = clock_timestamp() WHERE rule = $1 RETURNING canary_since`,
		r.Newest.Version.ID, int(c.Share), c.Step, steps, int64(time.Duration(c.Hold)/time.Second), string(predicted)).Scan(&c.Since)
	c.Since = c.Since.UTC()
	return err
}

// ByWeir is who changes the mode of a rule whose canary goes on, or falls back, by itself.
const ByWeir = "weir"

// FellBack says why the rule's canary ended in shadow by itself; empty: it did not, or somebody has set the mode since.
func (r *Rule) FellBack() string {
	if !r.fell {
		return ""
	}
	return r.Reason
}

// CanaryStep names a canary at a step: as somebody has looked at it, who finds it still there or does nothing.
type CanaryStep struct {
	Rule       string
	Generation int64
	Step       int
	By         string
	Reason     string
}

// Canaries are the rules in canary, ascending by id, and the time by the clock that dates their steps.
func (s *Store) Canaries(ctx context.Context) (all []Rule, now time.Time, err error) {
	if all, err = loadRules(ctx, s.db, "m.mode = 'canary' AND NOT m.removed"); err == nil {
		err = s.db.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	}
	if err != nil {
		return nil, now, s.db.Fail("reading the rules in canary", err)
	}
	return all, now.UTC(), nil
}

// NextStep has a canary go on to its next step, or the rule block after the last one. Blocks that stand go on to hold: the generation stays.
// It does nothing, and says so, where the canary is another one by now, or its step has not lasted as long as it is to: of several
// processes that find a step due, one acts.
func (s *Store) NextStep(ctx context.Context, at CanaryStep) (ModeSet, error) {
	return s.moveCanary(ctx, at, "raising the canary of rule %q", func(tx pgx.Tx, r *Rule, now time.Time) (bool, error) {
		if now.Before(r.Canary.Due()) {
			return false, nil
		}
		c, stood := r.Canary, r.stands()
		if c.Step >= len(c.Steps) {
			detail := fmt.Sprintf("to block, generation %d: the canary has gone through its steps", r.Generation)
			return true, s.storeMode(ctx, tx, r, ModeChange{Rule: at.Rule, Mode: rules.ModeBlock, By: at.By, Reason: at.Reason, goesOn: true},
				audit.Entry{Action: "promote", Detail: detail, Before: stood})
		}
		before := c.Share
		c.Step++
		c.Share = c.Steps[c.Step-1]
		if err := r.setCanary(ctx, tx); err != nil {
			return false, err
		}
		if err := s.db.Notify(ctx, tx, modesTopic(), at.Rule); err != nil {
			return false, err
		}
		return true, audit.Write(ctx, tx, audit.Entry{
			Actor: at.By, Action: "canary", Object: "rule " + at.Rule, Reason: at.Reason, Detail: fmt.Sprintf("step %d of %d: %s → %s of its block keys", c.Step, len(c.Steps), before, c.Share),
			Before: stood, After: r.stands(),
		})
	})
}

// FallBack puts a rule in canary back into shadow, unless the canary is another one by now.
func (s *Store) FallBack(ctx context.Context, at CanaryStep) (ModeSet, error) {
	return s.moveCanary(ctx, at, "ending the canary of rule %q", func(tx pgx.Tx, r *Rule, _ time.Time) (bool, error) {
		detail := fmt.Sprintf("from step %d of %d, %s of its block keys", r.Canary.Step, len(r.Canary.Steps), r.Canary.Share)
		err := s.storeMode(ctx, tx, r, ModeChange{Rule: at.Rule, Mode: rules.ModeShadow, By: at.By, Reason: at.Reason},
			audit.Entry{Action: "fall-back", Detail: detail, Before: r.stands()})
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE rule_modes SET fell_generation = generation WHERE rule = $1", at.Rule)
		}
		return true, err
	})
}

func (s *Store) moveCanary(ctx context.Context, at CanaryStep, doing string, move func(tx pgx.Tx, r *Rule, now time.Time) (bool, error)) (set ModeSet, err error) {
	err = s.db.Transact(ctx, fmt.Sprintf(doing, at.Rule), func(tx pgx.Tx) error {
		if _, err := begin(ctx, tx); err != nil {
			return err
		}
		r, err := findRule(ctx, tx, at.Rule)
		if err != nil {
			return err
		}
		if r.Removed || r.Canary == nil || r.Generation != at.Generation || r.Canary.Step != at.Step {
			set = r.modeSet(false)
			return nil
		}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		changed, err := move(tx, &r, now)
		set = r.modeSet(changed)
		return err
	})
	return set, err
}

// knowsCanary says that this transaction is of a build that knows of canaries, see migration 21.
func knowsCanary(ctx context.Context, q postgres.Querier) error {
	rows, err := q.Query(ctx, "SELECT set_config('weir.knows_canary', 'on', true)")
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	return err
}
