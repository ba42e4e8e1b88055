package enforce

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// OpenHits gives from history who is over a limit now.
type OpenHits interface {
	// OpenHits are the live episodes of a rule that go on and were over the limit at since or later, at most so many, those with the most
	// events first.
	OpenHits(ctx context.Context, rule string, since traffic.Time, most int) ([]detectors.Hit, error)
}

// How much is blocked at once when a rule begins to block. The others are with the next update of their episodes.
const (
	backfillMost = 1000   // hits of a rule, over all processes
	backfillRead = 20_000 // of these are asked for, since a canary holds a part of them only
	backfillPage = 200    // hits that are applied together
)

const (
	backfillEvery   = time.Second
	backfillTimeout = 10 * time.Second
)

// backfilled is what was last done for a rule: the next promotion, the next step of a canary, and partitions that are new to this
// process ask for it again.
type backfilled struct {
	generation int64
	mode       rules.Mode
	share      int
	asked      int
}

// Backfill blocks who is over the limit of a rule when the rule begins to block, its canary takes a step, or this process is given
// partitions: their hits came while the rule did not block, and the next one may be a while. The hits are read from history and take
// the way that all hits take, so all that withholds a block does; applied again they change nothing.
type Backfill struct {
	e    *Enforcer
	done map[string]backfilled // by rule
}

// NewBackfill makes the Backfill of a stage; Run does its work. Without OpenHits it does nothing.
func NewBackfill(e *Enforcer) *Backfill { return &Backfill{e, map[string]backfilled{}} }

// Run works until ctx is done, and then returns nil. Failures are logged, and tried again.
func (b *Backfill) Run(ctx context.Context) error {
	e := b.e
	var trouble retry.Trouble
	ticker := time.NewTicker(backfillEvery)
	defer ticker.Stop()
	for {
		if err := b.look(ctx); err == nil {
			trouble.Over(e.o.Logger, "who is over a limit when its rule begins to block is blocked at once again")
		} else if ctx.Err() == nil {
			trouble.Failed(e.o.Logger, "who is over the limit of a rule that begins to block is blocked with his next hit only; trying again", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look does what is due.
func (b *Backfill) look(ctx context.Context) error {
	e := b.e
	if e.o.OpenHits == nil {
		return nil
	}
	for rule, m := range e.modes.known() {
		due := backfilled{m.Generation, m.Mode, m.Share, e.standing.came()}
		if !m.Mode.Blocks() || rules.IsByHand(rule) || b.done[rule] == due {
			continue
		}
		if err := b.rule(ctx, &m); err != nil {
			return fmt.Errorf("rule %s: %w", rule, err)
		}
		b.done[rule] = due
	}
	return nil
}

// rule reads who is over the limit of a rule, and applies those hits that are this process's.
func (b *Backfill) rule(ctx context.Context, m *rules.ModeState) error {
	e := b.e
	ctx, cancel := context.WithTimeout(ctx, backfillTimeout)
	defer cancel()
	terms, found, err := e.versions.spec(ctx, versionKey{m.Rule, m.Newest})
	if err != nil || !found {
		return err
	}
	hits, err := e.o.OpenHits.OpenHits(ctx, m.Rule, e.o.Clock().Add(-terms.MaxLag), backfillRead)
	if err != nil {
		return err
	}
	var batch []traffic.Message
	taken := 0
	for i := range hits {
		h := &hits[i]
		if h.BlockSubject == "" || !e.within(m, blocklist.Name{Subject: h.BlockSubject.Stored(), Rule: m.Rule}) {
			continue
		}
		if taken++; taken > backfillMost {
			e.o.Logger.Info("more sources are over the limit of a rule that begins to block than are blocked at once; the others are with their next hit",
				"rule", m.Rule, "at_once", backfillMost)
			break
		}
		partition := h.Partition(e.standing.n)
		if !e.standing.has(partition) {
			continue
		}
		value, err := detectors.EncodeHit(h)
		if err != nil {
			return err
		}
		if batch = append(batch, traffic.Message{Partition: partition, Appended: h.Seen, Value: value}); len(batch) == backfillPage {
			if err := b.again(ctx, batch); err != nil {
				return err
			}
			batch = nil
		}
	}
	return b.again(ctx, batch)
}

// again applies records that were applied before, under other modes.
func (b *Backfill) again(ctx context.Context, batch []traffic.Message) error {
	e := b.e
	if len(batch) == 0 {
		return nil
	}
	s := newBatchState(e.o.Clock(), e.told)
	s.again = true
	if err := e.apply(ctx, s, batch); err != nil {
		e.modes.changed()
		return err
	}
	e.metrics.again.Add(float64(len(batch)))
	clear(s.kinds)
	e.count(s)
	return nil
}
