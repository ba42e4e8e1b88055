package api

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func listBlocks(c *call) (any, error) {
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	after, err := c.cursor()
	if err != nil {
		return nil, err
	}
	filter, err := c.blocks()
	if err != nil {
		return nil, err
	}
	// Rule and hit are looked for here, in what all are given: its order is known.
	asked := blocklist.Filter{Rule: filter.Rule, Subject: filter.Subject, Tombstones: filter.Tombstones}
	if filter.Subject == "" {
		asked.Rule = ""
	}
	found, err := c.o.Reader.Blocklist(c.r.Context(), asked)
	if err != nil {
		return nil, &acts.AwayError{Store: "Redis", Consequence: "which blocks stand is not known", Cause: err}
	}
	now := c.o.Reader.Clock()
	page := BlockPage{Page: Page[Block]{Items: []Block{}}, Unreadable: found.Unreadable, Cut: found.Cut,
		Foreign: c.o.Health().Foreign}
	sorted := c.orders.of(c.mask, found.Items, filter.Subject == "")
	from, last := sorted.behind(after), ""
	for i := range sorted.len() {
		item := sorted.at(i)
		if !filter.Holds(item) {
			continue
		}
		page.Total++
		if i < from || page.Next != "" {
			continue
		}
		if len(page.Items) == limit {
			page.Next = cursorAt(last)
			continue
		}
		last = sorted.place(i)
		page.Items = append(page.Items, Block{since(*item, now)})
	}
	return page, nil
}

// blocks reads the parameters that select blocks.
func (c *call) blocks() (f blocklist.Filter, err error) {
	f = blocklist.Filter{Rule: c.values["rule"], Tombstones: c.flag("released")}
	if text := c.values["id"]; text != "" {
		if f.Hit, err = explore.ParseID(text); err != nil {
			return f, &acts.Invalid{Field: "id", Got: text, Allowed: "8 to 32 hex digits of a block id"}
		}
	}
	text := c.values["subject"]
	if text == "" {
		return f, nil
	}
	subject, err := c.mask.ResolveSubject(traffic.Subject(text))
	if err == nil {
		subject, err = rules.KeyedSubject(subject)
	}
	if err == nil {
		err = checkSubject(subject)
	}
	if err != nil {
		return f, &acts.Invalid{Field: "subject", Got: text,
			Allowed: "a canonical subject like ip=192.0.2.1%2F32&device=tv-7: " + err.Error()}
	}
	f.Subject = subject.Stored()
	return f, nil
}

// since is a block as it is a little after it was read.
func since(l blocklist.Listed, now traffic.Time) blocklist.Listed {
	if l.Tombstone != nil {
		l.Remaining = l.Tombstone.Until.Sub(now)
		return l
	}
	l.Remaining = l.Block.Until.Sub(now)
	l.InForce = l.InForce && l.Remaining > 0
	return l
}

// inOrder are blocks in the order of what is shown of them: by the order of values somebody who may become a source
// could tell between which others another one stands.
type inOrder struct {
	items  []blocklist.Listed // by subject and rule, as they were found
	mask   *access.Mask
	places []placed // ascending; nil: the order is that of items, whose subjects are shown
}

type placed struct {
	place string
	item  int
}

// placeOf is where an item stands among others.
func placeOf(mask *access.Mask, l *blocklist.Listed) string {
	kind := "block"
	if l.Tombstone != nil {
		kind = "release"
	}
	return mask.Order(l.Subject) + "\n" + l.Rule + "\n" + kind
}

func (o *inOrder) len() int { return len(o.items) }

func (o *inOrder) at(i int) *blocklist.Listed {
	if o.places != nil {
		i = o.places[i].item
	}
	return &o.items[i]
}

func (o *inOrder) place(i int) string {
	if o.places != nil {
		return o.places[i].place
	}
	return placeOf(o.mask, &o.items[i])
}

// behind is the first item behind a place.
func (o *inOrder) behind(place string) int {
	if place == "" {
		return 0
	}
	low, high := 0, o.len()
	for low < high {
		middle := (low + high) / 2
		if o.place(middle) <= place {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// orders knows the order of pseudonyms in the listing that was asked about last: many ask for pages of the same one.
type orders struct {
	mu     sync.Mutex
	first  *blocklist.Listed // of the listing
	count  int
	places []placed
}

// of puts items in the order of what is shown of them. shared: others are given the same items, again and again.
func (o *orders) of(mask *access.Mask, items []blocklist.Listed, shared bool) *inOrder {
	out := &inOrder{items: items, mask: mask}
	if !mask.Any() || len(items) == 0 {
		return out
	}
	if shared { // who is shown pseudonyms is shown the same ones as others who are
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.first == &items[0] && o.count == len(items) {
			out.places = o.places
			return out
		}
	}
	out.places = make([]placed, len(items))
	for i := range items {
		out.places[i] = placed{placeOf(mask, &items[i]), i}
	}
	slices.SortFunc(out.places, func(a, b placed) int { return strings.Compare(a.place, b.place) })
	if shared {
		o.first, o.count, o.places = &items[0], len(items), out.places
	}
	return out
}

// checkSubject refuses what names nobody: a text without fields, or with one that no key has.
func checkSubject(s traffic.Subject) error {
	values, err := s.Values()
	if err != nil {
		return err
	}
	for _, v := range values {
		if _, known := traffic.ParseKeyField(v.Field); !known {
			return fmt.Errorf("there is no field %q", v.Field)
		}
	}
	return nil
}
