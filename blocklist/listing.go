package blocklist

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Filter narrows a listing. Its zero value lists every block and no tombstone.
type Filter struct {
	Rule       string
	Subject    traffic.Subject
	Tombstones bool // list releases too
}

// Listed is one block or one tombstone in Redis; exactly one of the two is set.
type Listed struct {
	Subject   traffic.Subject `json:"subject"`
	Rule      string          `json:"rule" mask:"name"`
	Block     *Block          `json:"block,omitempty"`
	Tombstone *Tombstone      `json:"tombstone,omitempty"`
	Remaining time.Duration   `json:"remaining"` // nanoseconds until it expires
	// InForce says whether gates refuse requests for the block: its rule blocks and has not been promoted anew since, and no
	// never-block list has its address.
	InForce bool `json:"in_force"`
}

// Listing is what List found.
type Listing struct {
	Items      []Listed
	Unreadable int  // keys that this build cannot read
	Cut        bool // the search ended early: there may be more (Containing only)
}

// List reads the blocks of the namespace, by subject and rule. It walks over all keys and takes a second or so for
// each million.
func (s *Store) List(ctx context.Context, now traffic.Time, filter Filter) (Listing, error) {
	modes, err := modesByRule(ctx, s)
	if err != nil {
		return Listing{}, err
	}
	filter.Subject = filter.Subject.Stored()
	var mu sync.Mutex
	var out Listing
	unreadable := func() {
		mu.Lock()
		defer mu.Unlock()
		out.Unreadable++
	}
	err = s.scan(ctx, func(h Name, tombstone bool, value string) {
		if filter.Rule != "" && filter.Rule != h.Rule || filter.Subject != "" && filter.Subject != h.Subject || tombstone && !filter.Tombstones {
			return
		}
		item, err := s.listed(h, tombstone, value, modes, now)
		if err != nil {
			unreadable()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		out.Items = append(out.Items, item)
	}, unreadable)
	if err != nil {
		return Listing{}, err
	}
	slices.SortFunc(out.Items, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.order(), b.order()))
	})
	out.Items = slices.CompactFunc(out.Items, func(a, b Listed) bool { // a SCAN may return a key twice
		return a.Subject == b.Subject && a.Rule == b.Rule && a.order() == b.order()
	})
	return out, nil
}

// scan visits every block and tombstone of the namespace, one call of visit or unreadable at a time per master.
func (s *Store) scan(ctx context.Context, visit func(h Name, tombstone bool, value string), unreadable func()) error {
	return s.redis.eachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		return (&Node{s, client}).Scan(ctx, visit, unreadable)
	})
}

func (l *Listed) order() int {
	if l.Tombstone != nil {
		return 1
	}
	return 0
}

func (s *Store) listed(h Name, tombstone bool, value string, modes map[string]rules.ModeState, now traffic.Time) (Listed, error) {
	item := Listed{Subject: h.Subject, Rule: h.Rule}
	if tombstone {
		t, err := DecodeTombstone([]byte(value))
		item.Tombstone, item.Remaining = &t, t.Until.Sub(now)
		return item, err
	}
	b, err := DecodeBlock([]byte(value))
	item.Block, item.Remaining = &b, b.Until.Sub(now)
	var mode *rules.ModeState
	if m, ok := modes[h.Rule]; ok {
		mode = &m
	}
	item.InForce = s.Unheld(h.Subject, &b, mode, now) == ""
	return item, err
}

// Unheld is the reason why gates refuse nobody for a block of subject, and "" if they refuse. mode is the one that Redis has
// for the block's rule, nil for none.
func (s *Store) Unheld(subject traffic.Subject, b *Block, mode *rules.ModeState, now traffic.Time) string {
	switch {
	case s.never.Now().Holds(subject):
		return "its address is one that is never blocked (never_block, or nobody's in particular)"
	case b.Until <= now:
		return "it has ended"
	case mode == nil:
		return "Redis has no mode for its rule: weir run publishes it"
	case !mode.Mode.Blocks():
		return "its rule is in mode " + string(mode.Mode)
	case !b.InForce(mode):
		return "its rule was promoted anew since"
	}
	return ""
}

// Containing asks for the blocks that hold whoever has all the values of a subject, whatever else they are keyed on.
type Containing struct {
	Rule string // empty: any
	// Subject names at least one field. An address is also contained in the prefixes that it lies in, and a prefix
	// contains what lies in it. Values may be given whole or as their digest.
	Subject traffic.Subject
	Limit   int // at most so many; 0: defaultContaining
}

// defaultContaining is how many blocks Containing finds when it is not told.
const defaultContaining = 100

// Containing finds blocks by a part of their identity, by subject and rule. It walks over the keys of every server and ends
// with the context's time or with q.Limit blocks; then the listing says that it is Cut. It takes a second or so for
// each million keys, so the context should have a deadline.
func (s *Store) Containing(ctx context.Context, now traffic.Time, q Containing) (Listing, error) {
	named, err := ParseSubject(q.Subject.Stored())
	if err != nil {
		return Listing{}, fmt.Errorf("blocks that contain a source: %w", err)
	}
	modes, err := modesByRule(ctx, s)
	if err != nil {
		return Listing{}, err
	}
	w := &walk{
		store: s, now: now, modes: modes, limit: cmp.Or(q.Limit, defaultContaining), found: map[Name]Listed{},
		wants: func(h Name, parsed *ParsedSubject) bool {
			return (q.Rule == "" || q.Rule == h.Rule) && parsed.contains(&named)
		},
	}
	inner, stop := context.WithCancel(ctx)
	defer stop()
	w.stop = stop
	err = s.redis.eachMaster(inner, w.node)
	out := Listing{Cut: w.full || ctx.Err() != nil, Unreadable: w.unreadable}
	if err != nil && !out.Cut {
		return Listing{}, fmt.Errorf("blocks that contain a source: %w", err)
	}
	for _, item := range w.found {
		out.Items = append(out.Items, item)
	}
	slices.SortFunc(out.Items, func(a, b Listed) int { return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Rule, b.Rule)) })
	return out, nil
}

// walk looks for blocks at all masters at the same time, until it has enough.
type walk struct {
	store *Store
	now   traffic.Time
	modes map[string]rules.ModeState
	limit int
	wants func(h Name, p *ParsedSubject) bool
	stop  context.CancelFunc // ends the walk at every master

	mu         sync.Mutex
	found      map[Name]Listed // a SCAN may return a key twice
	full       bool            // there were more than limit
	unreadable int
}

func (w *walk) node(ctx context.Context, node *redis.Client) error {
	return w.store.redis.eachKey(ctx, node, w.store.keys.blockPattern(), func(keys []string) error {
		wanted := slices.DeleteFunc(keys, func(key string) bool {
			h, _, ok := w.store.keys.parse(key)
			if !ok {
				return true
			}
			parsed, err := ParseSubject(h.Subject)
			return err != nil || !w.wants(h, &parsed)
		})
		return w.store.values(ctx, wanted, w.take, w.skip)
	})
}

func (w *walk) take(h Name, tombstone bool, value string) {
	item, err := w.store.listed(h, tombstone, value, w.modes, w.now)
	if err != nil {
		w.skip()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.found[h]; !known && len(w.found) >= w.limit {
		w.full = true
		w.stop()
		return
	}
	w.found[h] = item
}

func (w *walk) skip() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unreadable++
}

// Get reads the block and the tombstone of one subject and rule; nil for what is not there. A subject with long values may
// be given whole, and is then also looked for as an older weir wrote it.
func (s *Store) Get(ctx context.Context, subject traffic.Subject, rule string) (*Block, *Tombstone, error) {
	if err := (Name{Subject: subject, Rule: rule}).Check(); err != nil {
		return nil, nil, err
	}
	block, tombstone, err := s.get(ctx, Name{Subject: subject.Stored(), Rule: rule})
	if err != nil || subject == subject.Stored() {
		return block, tombstone, err
	}
	legacyBlock, legacyTombstone, err := s.get(ctx, Name{Subject: subject, Rule: rule})
	if tombstone == nil || legacyTombstone != nil && legacyTombstone.Request == tombstone.Request && legacyTombstone.Stood() {
		tombstone = legacyTombstone // of the two halves of one release, the one that found something
	}
	return cmp.Or(block, legacyBlock), tombstone, err
}

func (s *Store) get(ctx context.Context, h Name) (block *Block, tombstone *Tombstone, err error) {
	// Both keys lie in one slot, so one command reads them at one moment.
	values, err := s.redis.client.MGet(ctx, s.keys.Block(h.Subject, h.Rule), s.keys.Tombstone(h.Subject, h.Rule)).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.redis.address, err)
	}
	if text, ok := values[0].(string); ok {
		b, err := DecodeBlock([]byte(text))
		if err != nil {
			return nil, nil, err
		}
		block = &b
	}
	if text, ok := values[1].(string); ok {
		t, err := DecodeTombstone([]byte(text))
		if err != nil {
			return nil, nil, err
		}
		tombstone = &t
	}
	return block, tombstone, nil
}
