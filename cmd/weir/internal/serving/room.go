package serving

import (
	"iter"
	"net/netip"
	"slices"
	"time"
)

// owedFor is how long a server waits for what a sender owes before any other connection may have its place. One that
// sends a request sends it at once.
const owedFor = time.Second

// room says whether there is room for one more, which connection has to go for it, or why there is none.
func (l *listener) room(of netip.Prefix, from netip.Addr) (drop *conn, reason string) {
	most := l.b.All
	if !from.IsLoopback() {
		most -= l.b.Kept
	}
	many := l.many(from)
	if !many && len(l.open[of]) >= l.b.Each {
		if drop = spare(slices.Values(l.open[of])); drop == nil {
			return nil, reasonAddress
		}
		return drop, ""
	}
	if l.all < most {
		return nil, ""
	}
	// Who opens one connection after the other and sends nothing takes the places of his own first.
	if drop = owing(slices.Values(l.open[of])); drop == nil {
		drop = owing(l.each())
	}
	if drop == nil {
		drop = l.ofMost(of, many)
	}
	if drop == nil {
		return nil, reasonAll
	}
	return drop, ""
}

// many says whether an address is a proxy's, which comes for many.
func (l *listener) many(a netip.Addr) bool {
	return slices.ContainsFunc(l.b.Many, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ofMost is the connection that goes for one more of somebody who has few: of the address that has the most, and more
// than he has, the longest idle, or else, where it has more than twice as many, the one whose sender has owed the
// longest, were it for a moment. So whoever opens connections faster than they grow old takes places from himself
// alone, and two of that kind do not drop each other's all the time. A proxy comes for many, each of whom has one.
func (l *listener) ofMost(of netip.Prefix, many bool) (drop *conn) {
	has, most := len(l.open[of]), 0
	if many {
		has = 0
	}
	for from, those := range l.open {
		n := len(those)
		if l.many(from.Addr()) {
			n = 1
		}
		if n <= has || n < most {
			continue
		}
		c := longest(slices.Values(those), (*conn).idleSince)
		if c == nil && n > 2*has+1 {
			c = longest(slices.Values(those), (*conn).owedSince)
		}
		if c != nil {
			drop, most = c, n
		}
	}
	return drop
}

// each is all connections.
func (l *listener) each() iter.Seq[*conn] {
	return func(yield func(*conn) bool) {
		for _, those := range l.open {
			for _, c := range those {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// spare is the connection that may go for another one: one whose sender owes, else the longest idle; nil: none may.
func spare(of iter.Seq[*conn]) *conn {
	if c := owing(of); c != nil {
		return c
	}
	return longest(of, (*conn).idleSince)
}

// owing is the connection whose sender has owed the longest; nil: none has for owedFor.
func owing(of iter.Seq[*conn]) *conn {
	c := longest(of, (*conn).owedSince)
	if c == nil || time.Since(c.owedSince()) < owedFor {
		return nil
	}
	return c
}

func (c *conn) idleSince() time.Time { return c.idle }

func (c *conn) owedSince() (since time.Time) {
	for _, s := range c.owed {
		if since.IsZero() || s.Before(since) {
			since = s
		}
	}
	return since
}

// longest is the connection of which something is so since the longest; nil: of none it is.
func longest(of iter.Seq[*conn], since func(*conn) time.Time) (found *conn) {
	for c := range of {
		if s := since(c); !s.IsZero() && (found == nil || s.Before(since(found))) {
			found = c
		}
	}
	return found
}
