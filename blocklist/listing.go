package blocklist

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	Hit        string // what its hit's id begins with: of a block, or of one that was released
	Tombstones bool   // list releases too
}

// Names reports whether the filter lets pass what is named h, Holds whether it lets pass an item. Of the subject both
// know the stored form only.
func (f *Filter) Names(h Name) bool {
	return (f.Rule == "" || f.Rule == h.Rule) && (f.Subject == "" || f.Subject == h.Subject)
}

// Holds reports whether the filter lets an item pass, see Names.
func (f *Filter) Holds(l *Listed) bool {
	return f.Names(Name{Subject: l.Subject, Rule: l.Rule}) && (l.Tombstone == nil || f.Tombstones) &&
		(f.Hit == "" || strings.HasPrefix(l.Hit(), f.Hit))
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

// Hit is the id of the hit that led to the block, or to the one that was released; empty where nothing was.
func (l *Listed) Hit() string {
	if l.Tombstone != nil {
		return l.Tombstone.Hit
	}
	return l.Block.Hit
}

// Compare orders items by subject and rule, and a block before its release.
func (l *Listed) Compare(other *Listed) int {
	return cmp.Or(cmp.Compare(l.Subject, other.Subject), cmp.Compare(l.Rule, other.Rule), cmp.Compare(l.order(),
		other.order()))
}

func (l *Listed) order() int {
	if l.Tombstone != nil {
		return 1
	}
	return 0
}

// Listing is what was found.
type Listing struct {
	Items      []Listed
	Unreadable int  // keys that this build cannot read
	Cut        bool // the search ended early: there may be more
	// Foreign says whose Redis is, where whoever made the listing knows it to be another installation's.
	Foreign string
}

// List reads the blocks of the namespace, by subject and rule. It walks over all keys and takes a second or so for
// each million, but for a subject: its keys are asked for, of the rules of which Redis has a mode, and of those by
// hand.
func (s *Store) List(ctx context.Context, now traffic.Time, filter Filter) (Listing, error) {
	if filter.Subject != "" {
		return listSubject(ctx, s, now, filter)
	}
	var out Listing
	take := func(l Listed) bool {
		if filter.Holds(&l) {
			out.Items = append(out.Items, l)
		}
		return true
	}
	wanted := Wanted{Named: filter.Names}
	unreadable, err := s.Each(ctx, now, wanted, take)
	out.Unreadable = unreadable
	if err == nil && filter.Tombstones {
		wanted.Released = true
		unreadable, err = s.Each(ctx, now, wanted, take)
		out.Unreadable += unreadable
	}
	if err != nil {
		return Listing{}, err
	}
	out.Sort()
	return out, nil
}

// Sort puts items in their order, and takes out what was found twice, as a SCAN may.
func (l *Listing) Sort() {
	slices.SortFunc(l.Items, func(a, b Listed) int { return a.Compare(&b) })
	l.Items = slices.CompactFunc(l.Items, func(a, b Listed) bool { return a.Compare(&b) == 0 })
}

// listSubject lists what one subject has.
func listSubject(ctx context.Context, s *Store, now traffic.Time, filter Filter) (Listing, error) {
	modes, err := modesByRule(ctx, s)
	if err != nil {
		return Listing{}, err
	}
	names := map[string]bool{filter.Rule: true}
	if filter.Rule == "" {
		names = map[string]bool{rules.ByHand: true}
		for rule := range modes {
			names[rule] = true
		}
	}
	forms := slices.Compact([]traffic.Subject{filter.Subject.Stored(),
		filter.Subject}) // older weirs wrote long values whole
	filter.Subject = forms[0]
	var out Listing
	for _, form := range forms {
		var keys []string
		for _, rule := range slices.Sorted(maps.Keys(names)) {
			if (Name{Subject: form, Rule: rule}).Check() != nil {
				continue // it can be in no key
			}
			if keys = append(keys, s.keys.Block(form, rule)); filter.Tombstones {
				keys = append(keys, s.keys.Tombstone(form, rule))
			}
		}
		for part := range slices.Chunk(keys, scanSize) {
			err := s.values(ctx, part, func(h Name, tombstone bool, value string) {
				switch item, err := s.listed(h, tombstone, value, modes, now); {
				case err != nil:
					out.Unreadable++
				case filter.Holds(&item):
					out.Items = append(out.Items, item)
				}
			}, func() { out.Unreadable++ })
			if err != nil {
				return Listing{}, err
			}
		}
	}
	out.Sort()
	return out, nil
}

// Wanted says what Each visits.
type Wanted struct {
	Released bool              // releases instead of blocks
	Named    func(h Name) bool // what is named so; nil: all. It is asked before a value is read
}

// Each visits the blocks of the namespace, or the releases, in no order, one at a time, until take returns false. It
// may visit one twice. unreadable is how many keys this build cannot read, of those that it came to.
func (s *Store) Each(ctx context.Context, now traffic.Time, wanted Wanted,
	take func(Listed) (more bool)) (unreadable int, err error) {
	modes, err := modesByRule(ctx, s)
	if err != nil {
		return 0, err
	}
	inner, stop := context.WithCancel(ctx)
	defer stop()
	w := &walk{store: s, now: now, modes: modes, wanted: wanted, take: take, stop: stop}
	err = s.redis.eachMaster(inner, w.node)
	if w.over && ctx.Err() == nil {
		err = nil // what a master answers to a walk that was ended tells nothing
	}
	return w.unreadable, err
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
	limit := cmp.Or(q.Limit, defaultContaining)
	found := map[Name]Listed{} // a SCAN may return a key twice
	var out Listing
	wanted := Wanted{Named: func(h Name) bool {
		parsed, err := ParseSubject(h.Subject)
		return err == nil && (q.Rule == "" || q.Rule == h.Rule) && parsed.contains(&named)
	}}
	out.Unreadable, err = s.Each(ctx, now, wanted, func(l Listed) bool {
		h := Name{Subject: l.Subject, Rule: l.Rule}
		if _, known := found[h]; !known && len(found) >= limit {
			out.Cut = true
			return false
		}
		found[h] = l
		return true
	})
	out.Cut = out.Cut || ctx.Err() != nil
	if err != nil && !out.Cut {
		return Listing{}, fmt.Errorf("blocks that contain a source: %w", err)
	}
	for _, item := range found {
		out.Items = append(out.Items, item)
	}
	out.Sort()
	return out, nil
}

// walk visits what is wanted at all masters at the same time, until it has enough.
type walk struct {
	store  *Store
	now    traffic.Time
	modes  map[string]rules.ModeState
	wanted Wanted
	stop   context.CancelFunc // ends the walk at every master

	mu         sync.Mutex
	take       func(Listed) bool
	over       bool // take wants no more
	unreadable int
}

func (w *walk) node(ctx context.Context, node *redis.Client) error {
	pattern := w.store.keys.blockPattern()
	if w.wanted.Released {
		pattern = w.store.keys.tombstonePattern()
	}
	return w.store.redis.eachKey(ctx, node, pattern, func(keys []string) error {
		if w.wanted.Named != nil {
			keys = slices.DeleteFunc(keys, func(key string) bool {
				h, _, ok := w.store.keys.parse(key)
				return ok && !w.wanted.Named(h)
			})
		}
		return w.store.values(ctx, keys, w.visit, w.skip)
	})
}

func (w *walk) visit(h Name, tombstone bool, value string) {
	item, err := w.store.listed(h, tombstone, value, w.modes, w.now)
	if err != nil {
		w.skip()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over && !w.take(item) {
		w.over = true
		w.stop()
	}
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
