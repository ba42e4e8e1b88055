package enforce

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Orders are the blocks that people have ordered.
type Orders interface {
	// Due are the orders that have not ended and of which ENFORCE has not had its last word, the oldest first: at most
	// so many.
	Due(ctx context.Context, most int) ([]blocklist.Order, error)
	// Settle notes what became of an order, OrderWritten or the reason why it was not; last says that it is tried no
	// more.
	Settle(ctx context.Context, id, outcome string, last bool) error
}

// Outcomes of an order, beside the reasons of withheld decisions.
const (
	OrderWritten   = "written"   // its block stands
	OrderUnchanged = "unchanged" // another order's block stands, and lasts as long or longer
)

const (
	ordersEvery   = time.Second
	ordersTimeout = 10 * time.Second
	ordersPage    = 200  // that are carried out together
	ordersMost    = 2000 // that are asked for at once
)

// Carrier carries out what people order. Each process does it for the partitions of the hits topic that are its own, so
// that an order is one process's, as the hits and the releases of its source are.
type Carrier struct {
	e       *Enforcer
	changed chan struct{} // holds one
}

// NewCarrier makes the Carrier of a stage; Run does its work. Without Orders it does nothing.
func NewCarrier(e *Enforcer) *Carrier { return &Carrier{e, make(chan struct{}, 1)} }

// Ordered has Run look at once. It never waits.
func (c *Carrier) Ordered() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Run works until ctx is done, and then returns nil. Failures are logged, and tried again.
func (c *Carrier) Run(ctx context.Context) error {
	if c.e.o.Orders == nil {
		return nil
	}
	var trouble retry.Trouble
	ticker := time.NewTicker(ordersEvery)
	defer ticker.Stop()
	for {
		if err := c.Look(ctx); err == nil {
			trouble.Over(c.e.o.Logger, "blocks that people order are written again")
		} else if ctx.Err() == nil {
			trouble.Failed(c.e.o.Logger, "blocks that people order cannot be written; trying again", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-c.changed:
		}
	}
}

// Look does one round. Run calls it; it must not be called beside Run.
func (c *Carrier) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ordersTimeout)
	defer cancel()
	due, err := c.e.o.Orders.Due(ctx, ordersMost)
	if err != nil {
		return fmt.Errorf("orders: %w", err)
	}
	mine := slices.DeleteFunc(due, func(o blocklist.Order) bool { return !c.e.standing.has(c.partition(&o)) })
	for page := range slices.Chunk(mine, ordersPage) {
		if err := c.carry(ctx, page); err != nil {
			return err
		}
	}
	return nil
}

// partition is where the hits and releases of an order's source are.
func (c *Carrier) partition(o *blocklist.Order) int {
	h := detectors.Hit{BlockSubject: o.Subject}
	return h.Partition(c.e.standing.n)
}

// carry carries out orders: in Redis, then told to gates, then to the blocks topic, and then only settled. Whoever
// stops in between does the same again, which changes nothing.
func (c *Carrier) carry(ctx context.Context, page []blocklist.Order) error {
	e := c.e
	modes, err := e.currentModes(ctx, newestOrder(page))
	if err != nil {
		return err
	}
	s := newBatchState(e.o.Clock(), e.told)
	s.again = true
	planned := make([]*effect, len(page))
	for i := range page {
		planned[i] = c.plan(s, &page[i], modes)
	}
	if err := e.effect(ctx, s); err != nil {
		e.modes.changed()
		return err
	}
	if err := e.tell(ctx, s); err != nil {
		return err
	}
	e.remember(s)
	e.count(s)
	for i, f := range planned {
		outcome, last := settled(f)
		if outcome == "" {
			continue
		}
		if err := e.o.Orders.Settle(ctx, page[i].ID, outcome, last); err != nil {
			return fmt.Errorf("order %s: %w", page[i].ID, err)
		}
	}
	return nil
}

// newestOrder is when the newest order was given: modes as of then know its rule.
func newestOrder(page []blocklist.Order) (newest traffic.Time) {
	for i := range page {
		newest = max(newest, page[i].Since)
	}
	return newest
}

// plan decides what an order should do, without looking at Redis. nil: its rule is not known yet.
func (c *Carrier) plan(s *batchState, o *blocklist.Order, modes map[string]rules.ModeState) *effect {
	e := c.e
	h := detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: o.ID, Rule: o.Rule, Subject: o.Subject,
		BlockSubject: o.Subject,
		First:        o.Since, Last: o.Since, Seen: o.Since,
	}
	mode, known := modes[o.Rule]
	if !known || !mode.Mode.Blocks() {
		return nil
	}
	f := newEffect(&hitRecord{hit: h, message: traffic.Message{Partition: c.partition(o), Appended: o.Since}})
	f.ordered, f.block = o, o.Block(mode.Generation)
	switch {
	case checkHit(f.Name, &h) != nil || !blocklist.Storable(o.Until):
		f.refused = blocklist.ReasonUnreadable
	case e.never.Now().Holds(f.Subject):
		f.refused = blocklist.ReasonNeverBlock
	case o.Until <= s.now:
		f.refused = blocklist.ReasonExpired
	default:
		s.effects = append(s.effects, f) // each by itself: the one that lasts longest stands, whichever comes first
		return f
	}
	s.withhold(f, f.refused)
	return f
}

// settled is what became of an order; "" where nothing is known yet.
func settled(f *effect) (outcome string, last bool) {
	if f == nil {
		return "", false
	}
	if f.refused != "" {
		return f.refused, true
	}
	switch f.outcome {
	case blocklist.OutcomeWritten, blocklist.OutcomeExtended, blocklist.OutcomeSame, blocklist.OutcomeSameExtended:
		return OrderWritten, true
	case blocklist.OutcomeUnchanged:
		return OrderUnchanged, true
	case blocklist.OutcomeReleased:
		return blocklist.ReasonReleased, true
	case blocklist.OutcomeFull:
		return blocklist.ReasonFull, false
	case blocklist.OutcomeCrowded:
		return blocklist.ReasonCrowded, false
	case blocklist.OutcomeUnreached:
		return blocklist.ReasonUnreachable, false
	case blocklist.OutcomeStale, outcomeDemoted:
		return blocklist.ReasonStale, false
	}
	return blocklist.ReasonUnreadable, false
}
