package acts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Orders keeps the blocks that people order.
type Orders interface {
	// Add stores an order of so long, with its entry of the audit trail; *orders.TooManyError: there is no room.
	Add(ctx context.Context, o orders.Order, length time.Duration) (orders.Order, error)
	// Find returns the orders whose id begins with prefix, at most limit.
	Find(ctx context.Context, prefix string, limit int) ([]orders.Order, error)
	// ChangeNever changes the never-block list, with its entries of the audit trail; *orders.AbsentError,
	// *orders.TooManyError.
	ChangeNever(ctx context.Context, c orders.NeverChange) error
	// NeverList are the entries of the never-block list that hold, by prefix.
	NeverList(ctx context.Context) ([]orders.Never, error)
}

var _ Orders = (*orders.Store)(nil)

// Knows tells who is behind a source.
type Knows interface {
	Behind(ctx context.Context, source string, since traffic.Time) (explore.Behind, error)
}

var _ Knows = (*explore.Explorer)(nil)

// BlockRequest asks to block a source now, for a time, whatever rules say.
type BlockRequest struct {
	// Subject is the canonical subject to block: ip=192.0.2.1%2F32&device=tv-7.
	Subject traffic.Subject `json:"subject"`
	// Match says which of its requests are held, as block.match of a rule does; empty with Everything: all.
	Match      string `json:"match,omitempty"`
	Everything bool   `json:"everything,omitempty"`
	// For is how long, as in rules: 1h, at most MaxBlock.
	For string `json:"for"`
	// Wait is how long to wait until ENFORCE has written the block; at most MaxReleaseWait. 0: do not wait.
	Wait   time.Duration `json:"wait_ns,omitempty"`
	DryRun bool          `json:"dry_run,omitempty"` // only says what would be blocked, and who is behind it
	Reason string        `json:"reason"`
}

// MaxBlock is how long people may block at most: as long as rules may.
const MaxBlock = rules.MaxTTL

// The shortest prefixes that people may block: beyond them a slip of the keyboard is a country.
const (
	LeastBlocked4 = 16
	LeastBlocked6 = 32
)

// BlockDone is what became of an order to block, or what would become of it.
type BlockDone struct {
	// of the block, as of a hit; absent: nothing was ordered
	ID      string          `json:"id,omitempty" mask:"-"`
	BlockID string          `json:"block_id,omitempty" mask:"-"` // what a refused client is told
	Rule    string          `json:"rule" mask:"name"`            // by which the block is listed and released
	Subject traffic.Subject `json:"subject"`
	Back    string          `json:"holds_back" mask:"-"` // in words
	For     string          `json:"for" mask:"-"`
	Until   traffic.Time    `json:"until,omitzero"`
	// Done says that a block of the source stands until then, or for longer, at every gate within a second
	Done bool `json:"done"`
	// Outcome is written, unchanged: another order's block lasts as long; empty: ENFORCE has not acted
	Outcome string `json:"outcome" mask:"-"`
	DryRun  bool   `json:"dry_run,omitempty"`
	// Behind is who is behind the source; null where history could not be asked, and Unknown says why.
	Behind  *explore.Behind `json:"behind"`
	Unknown string          `json:"behind_unknown,omitempty" mask:"line"`
	Problem string          `json:"problem,omitempty" mask:"line"` // why it is not known whether the block stands
	Publication
}

// NeverBlockedError says that a list of addresses that are never blocked keeps a source from being blocked. Nothing was
// ordered.
type NeverBlockedError struct {
	Subject traffic.Subject
	Entry   netip.Prefix // of the list
	List    string       // which list, in words
}

func (e *NeverBlockedError) Error() string {
	return fmt.Sprintf("%s is never blocked: %s is in %s; nothing was blocked", e.Subject, e.Entry, e.List)
}

// RefusedBlockError says that ENFORCE does not write a block that was ordered.
type RefusedBlockError struct{ ID, Outcome string }

func (e *RefusedBlockError) Error() string {
	words := map[string]string{
		blocklist.ReasonNeverBlock: "the source is never blocked (never_block)",
		blocklist.ReasonExpired:    "its time was over before ENFORCE came to it",
		blocklist.ReasonReleased:   "the source was released in the same moment",
	}[e.Outcome]
	if words == "" {
		words = e.Outcome
	}
	return fmt.Sprintf("the block %s was ordered, and does not stand: %s", e.ID[:16], words)
}

// ordering is one block by hand.
type ordering struct {
	*Service
	BlockRequest
	length time.Duration
	mode   rules.ModeState // of its rule
	report BlockDone
}

// Block blocks a source now, for a time. The order is stored with its entry of the audit trail, and ENFORCE carries it
// out. *UnfinishedError: it is stored, and ENFORCE has not acted; *RefusedBlockError: nor will it.
func (s *Service) Block(ctx context.Context, actor access.Actor, r BlockRequest) (BlockDone, error) {
	if err := CheckReason(r.Reason); err != nil && !r.DryRun {
		return BlockDone{}, err
	}
	if err := access.May(actor, access.Block, ""); err != nil {
		return BlockDone{}, err
	}
	o, err := s.newOrdering(r)
	if err != nil {
		return BlockDone{}, err
	}
	if err := s.neverBlocked(ctx, o.report.Subject); err != nil {
		return o.report, err
	}
	o.report.lookBehind(ctx, s)
	if r.DryRun {
		return o.report, nil
	}
	return o.report, o.run(ctx, actor)
}

// newOrdering reads what is asked.
func (s *Service) newOrdering(r BlockRequest) (*ordering, error) {
	if r.Wait < 0 || r.Wait > MaxReleaseWait {
		return nil, &Invalid{Field: "wait", Got: r.Wait.String(), Allowed: "0 to " + MaxReleaseWait.String()}
	}
	r.Subject = keyedSubject(r.Subject)
	o := &ordering{Service: s, BlockRequest: r}
	if err := checkBlocked(r.Subject); err != nil {
		return nil, err
	}
	var err error
	if o.length, err = duration.ParseWhole(r.For); err != nil || o.length < rules.MinTTL || o.length > MaxBlock {
		return nil, &Invalid{Field: "for", Got: r.For, Allowed: duration.Format(rules.MinTTL) + " to " +
			duration.Format(MaxBlock) + ", such as 1h or 2d"}
	}
	match, err := r.reach()
	if err != nil {
		return nil, err
	}
	if o.mode, err = rules.ByHandOf(match); err != nil {
		return nil, err
	}
	o.report = BlockDone{Rule: o.mode.Rule, Subject: r.Subject.Stored(), Back: match.String(),
		For: duration.Format(o.length), DryRun: r.DryRun}
	return o, nil
}

// reach is which requests are to be held.
func (r *BlockRequest) reach() (rules.Match, error) {
	const both = "match or everything, one of the two"
	switch {
	case r.Everything && r.Match != "":
		return rules.Match{}, &Invalid{Field: "match", Got: r.Match, Allowed: both}
	case r.Everything:
		return rules.Match{}, nil
	case strings.TrimSpace(r.Match) == "":
		return rules.Match{}, &Invalid{Field: "match", Got: r.Match, Allowed: both +
			": {method: POST, path: /v1/login} as in rules"}
	}
	m, err := rules.ParseReach(r.Match)
	if err != nil {
		return m, &Invalid{Field: "match", Got: r.Match, Allowed: "a match of requests, as in rules: " + err.Error()}
	}
	if state, err := rules.ByHandOf(m); err == nil && state.Rule == rules.ByHand {
		return m, &Invalid{Field: "match", Got: r.Match,
			Allowed: "a match that names something; everything, where all requests are to be held"}
	}
	return m, nil
}

// keyedSubject is a source that somebody has typed, as gates read it; what is no subject comes back as it is.
func keyedSubject(s traffic.Subject) traffic.Subject {
	if keyed, err := rules.KeyedSubject(s); err == nil {
		return keyed
	}
	return s
}

// checkBlocked refuses what no gate could hold, and prefixes that hold too many.
func checkBlocked(s traffic.Subject) error {
	const allowed = "a canonical subject of ip, device, user, api_key, session, like ip=192.0.2.1%2F32&device=tv-7"
	name := blocklist.Name{Subject: s.Stored(), Rule: rules.ByHand}
	if err := name.Check(); err != nil {
		return &Invalid{Field: "subject", Got: string(s), Allowed: allowed}
	}
	parsed, err := blocklist.ParseSubject(name.Subject)
	if err != nil {
		return &Invalid{Field: "subject", Got: string(s), Allowed: allowed}
	}
	least := LeastBlocked6
	if parsed.Prefix.Addr().Is4() {
		least = LeastBlocked4
	}
	if parsed.Prefix.IsValid() && parsed.Prefix.Bits() < least {
		return &Invalid{Field: "subject", Got: string(s),
			Allowed: fmt.Sprintf("an address, or a prefix of /%d or longer, of IPv6 /%d or longer", LeastBlocked4,
				LeastBlocked6)}
	}
	return nil
}

// neverBlocked refuses a source that a list keeps from being blocked, and says which entry does.
func (s *Service) neverBlocked(ctx context.Context, subject traffic.Subject) error {
	if entry, special, held := s.o.NeverBlock.Entry(subject); held {
		list := "never_block of the configuration"
		if special {
			list = "the addresses that are nobody's in particular"
		}
		return &NeverBlockedError{Subject: subject, Entry: entry, List: list}
	}
	return s.entered(ctx, subject)
}

// run stores the order, tells gates which requests its rule holds, and waits for ENFORCE.
func (o *ordering) run(ctx context.Context, actor access.Actor) error {
	order, err := o.o.Orders.Add(ctx, orders.Order{
		Rule: o.mode.Rule, Subject: o.report.Subject, Match: o.mode.Match, By: actor.Name, Via: actor.Via,
		Reason: o.Reason,
	}, o.length)
	if err != nil {
		return err
	}
	o.log(actor, access.Block, fmt.Sprintf("block %s %s", order.Rule, order.Subject))
	o.report.ID, o.report.BlockID, o.report.Until = order.ID, order.ID[:16], order.Until
	o.report.Publication = o.publishMode(ctx, &o.mode)
	if o.Wait <= 0 {
		return nil
	}
	return o.await(ctx)
}

// publishMode makes the rule of an order known to gates: they hold no block of a rule that they do not know. weir run
// does, too.
func (s *Service) publishMode(ctx context.Context, mode *rules.ModeState) Publication {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	p := Publication{}
	var err error
	if p.News, p.At, err = s.o.Gates.Publish(ctx, []rules.ModeState{*mode}); err != nil {
		p.Unpublished = err.Error()
	}
	p.Published = err == nil
	return p
}

// orderPoll is how often an order is looked at that ENFORCE is to carry out.
const orderPoll = 100 * time.Millisecond

// await waits until ENFORCE has acted.
func (o *ordering) await(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	for {
		found, err := o.o.Orders.Find(bounded, o.report.ID, 1)
		if err == nil && len(found) == 1 {
			o.report.Outcome = found[0].Outcome
			if found[0].Done {
				return o.ended()
			}
		}
		if retry.Sleep(bounded, orderPoll) != nil {
			unfinished := &UnfinishedError{Done: "the order is stored, and ENFORCE will carry it out",
				Undone: "whether it has is not known", Cause: errors.Join(err, bounded.Err())}
			switch {
			case !o.report.Published:
				unfinished.Undone = "it cannot yet, and gates are not told: " + o.report.Unpublished
			case o.report.Outcome != "":
				unfinished.Undone = "it cannot yet, and tries on: " + o.report.Outcome
			case errors.Is(bounded.Err(), context.DeadlineExceeded):
				unfinished.Undone = fmt.Sprintf("it has not within %s: is weir run --stages enforce running?", o.Wait)
			}
			o.report.Problem = unfinished.Error()
			return unfinished
		}
	}
}

// ended judges the last word of ENFORCE.
func (o *ordering) ended() error {
	switch o.report.Outcome {
	case orderWritten, orderUnchanged:
		o.report.Done = true
		return nil
	}
	return &RefusedBlockError{ID: o.report.ID, Outcome: o.report.Outcome}
}

// The outcomes with which a block stands: enforce.OrderWritten and OrderUnchanged, of a package that who acts need not
// build.
const (
	orderWritten   = "written"
	orderUnchanged = "unchanged"
)

// behindPeriod is how far back is looked for who is behind a source.
const behindPeriod = 7 * 24 * time.Hour

func (d *BlockDone) lookBehind(ctx context.Context, s *Service) {
	b, err := Behind(ctx, s.o.Knows, d.Subject, s.o.Clock())
	if err != nil {
		d.Unknown = err.Error()
		return
	}
	d.Behind = &b
}

// Behind tells who is behind a source that is to be blocked, or released: what it was over in the last seven days, with
// whom it was seen, and whether it is known to be good.
func Behind(ctx context.Context, k Knows, subject traffic.Subject, now traffic.Time) (explore.Behind, error) {
	source := string(subject)
	if values, err := subject.Values(); err == nil && len(values) == 1 && !values[0].Digest {
		source = values[0].Field + "=" + values[0].Value // within other sources, too
		if p, err := netip.ParsePrefix(values[0].Value); err == nil && p.IsSingleIP() &&
			values[0].Field == traffic.FieldIP.String() {
			source = values[0].Field + "=" + p.Addr().String()
		}
	}
	return k.Behind(ctx, source, now.Add(-behindPeriod))
}
