package blocklist

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Containing asks for the blocks that hold whoever has all the values of a subject, whatever else they are keyed on.
type Containing struct {
	Rule string // empty: any
	// Subject names at least one field. An address is also contained in the prefixes that it lies in, and a prefix
	// contains what lies in it. Values may be given whole or as their digest.
	Subject traffic.Subject
	Limit   int // at most so many; 0: DefaultContaining
}

// DefaultContaining is how many blocks Containing finds when it is not told.
const DefaultContaining = 100

// Containing finds blocks by a part of their identity, by subject and rule. It walks over the keys of every server and ends
// with the context's time or with ask.Limit blocks; then the listing says that it is Cut. It takes a second or so for
// each million keys, so the context should have a deadline.
func (s *Store) Containing(ctx context.Context, now traffic.Time, ask Containing) (Listing, error) {
	named, err := parseWho(ask.Subject.Stored())
	if err != nil {
		return Listing{}, fmt.Errorf("blocks that contain a source: %w", err)
	}
	modes, err := s.modesByRule(ctx)
	if err != nil {
		return Listing{}, err
	}
	w := &walk{
		store: s, now: now, modes: modes, limit: cmp.Or(ask.Limit, DefaultContaining), found: map[held]Listed{},
		wants: func(h held, who *who) bool { return (ask.Rule == "" || ask.Rule == h.rule) && who.contains(&named) },
	}
	inner, stop := context.WithCancel(ctx)
	defer stop()
	w.stop = stop
	err = s.eachMaster(inner, w.node)
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

// contains reports whether w has all of part's fields with the same values, an address in the same prefix or one around or
// inside it.
func (w *who) contains(part *who) bool {
	if w.fields&part.fields != part.fields {
		return false
	}
	for f := traffic.Field(0); f < traffic.NumFields; f++ {
		switch {
		case part.fields&(1<<f) == 0:
		case f == traffic.FieldIP:
			if !w.prefix.Overlaps(part.prefix) {
				return false
			}
		case w.values[f] != part.values[f]:
			return false
		}
	}
	return true
}

// walk looks for blocks at all masters at the same time, until it has enough.
type walk struct {
	store *Store
	now   traffic.Time
	modes map[string]rules.ModeState
	limit int
	wants func(h held, w *who) bool
	stop  context.CancelFunc // ends the walk at every master

	mu         sync.Mutex
	found      map[held]Listed // a SCAN may return a key twice
	full       bool            // there were more than limit
	unreadable int
}

func (w *walk) node(ctx context.Context, node *redis.Client) error {
	return w.store.eachKey(ctx, node, w.store.keys.blockPattern(), func(keys []string) error {
		wanted := slices.DeleteFunc(keys, func(key string) bool {
			h, _, ok := w.store.keys.parse(key)
			if !ok {
				return true
			}
			who, err := parseWho(h.subject)
			return err != nil || !w.wants(h, &who)
		})
		return w.store.values(ctx, wanted, w.take, w.skip)
	})
}

func (w *walk) take(h held, tombstone bool, value string) {
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
