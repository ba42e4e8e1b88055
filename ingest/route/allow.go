package route

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sort"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// allowIndex is an allow list made for look-ups: what it costs to ask for an event grows with the logarithm of the list's
// addresses, and not at all with its other entries.
type allowIndex struct {
	id     string
	v4, v6 addressEnds
	values [traffic.NumFields]map[string]traffic.Time // by field: when the entry of a value ends; nil where there is none
	list   *rules.AllowList                           // for explanations
}

// addressEnds divides the addresses of a family into ranges: from[i] up to before from[i+1] is let pass up to end[i],
// traffic.BeforeTime for never. Where prefixes contain each other, the latest end counts.
type addressEnds struct {
	from []address
	end  []traffic.Time
}

type address struct{ hi, lo uint64 }

func addressOf(a netip.Addr) address {
	b := a.As16()
	return address{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (a address) less(b address) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// next is the address after a; false after the last one.
func (a address) next() (address, bool) {
	a.lo++
	if a.lo == 0 {
		a.hi++
	}
	return a, a != address{}
}

// last is the greatest address of p.
func last(p netip.Prefix) address {
	a := addressOf(p.Addr())
	host := p.Addr().BitLen() - p.Bits()
	if host >= 64 {
		a.lo = ^uint64(0)
		a.hi |= 1<<(host-64) - 1
	} else {
		a.lo |= 1<<host - 1
	}
	return a
}

// allowedPrefix is an entry's addresses, with its end.
type allowedPrefix struct {
	prefix netip.Prefix
	end    traffic.Time
}

func newAddressEnds(prefixes []allowedPrefix) (out addressEnds) {
	slices.SortFunc(prefixes, func(a, b allowedPrefix) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	say := func(from address, end traffic.Time) {
		if n := len(out.from); n > 0 && out.from[n-1] == from {
			out.end[n-1] = end
			return
		}
		out.from, out.end = append(out.from, from), append(out.end, end)
	}
	type open struct {
		last address
		end  traffic.Time // the latest of this prefix and those around it
	}
	var around []open
	closeOne := func() {
		top := around[len(around)-1]
		around = around[:len(around)-1]
		after, ok := top.last.next()
		if !ok {
			return
		}
		end := traffic.BeforeTime
		if n := len(around); n > 0 {
			end = around[n-1].end
		}
		say(after, end)
	}
	for _, p := range prefixes {
		first := addressOf(p.prefix.Addr())
		for len(around) > 0 && around[len(around)-1].last.less(first) {
			closeOne()
		}
		end := p.end
		if n := len(around); n > 0 {
			end = max(end, around[n-1].end)
		}
		around = append(around, open{last(p.prefix), end})
		say(first, end)
	}
	for len(around) > 0 {
		closeOne()
	}
	return out
}

// of is when a is let pass no longer, traffic.BeforeTime if it never is.
func (e *addressEnds) of(a address) traffic.Time {
	i := sort.Search(len(e.from), func(i int) bool { return a.less(e.from[i]) })
	if i == 0 {
		return traffic.BeforeTime
	}
	return e.end[i-1]
}

func newAllowIndex(l *rules.AllowList) (*allowIndex, error) {
	x := &allowIndex{id: l.ID, list: l}
	var v4, v6 []allowedPrefix
	for i := range l.Entries {
		e := &l.Entries[i]
		end := e.Until
		if end == 0 {
			end = traffic.EndOfTime
		}
		field, known := e.Kind.Field()
		p, isPrefix := e.Prefix()
		switch {
		case !known || e.Kind == rules.AllowCIDR && !isPrefix:
			return nil, fmt.Errorf("allow list %s: entry %d: %s %q", l.ID, i, e.Kind, e.Value)
		case !isPrefix:
			if x.values[field] == nil {
				x.values[field] = map[string]traffic.Time{}
			}
			x.values[field][e.Value] = max(end, x.values[field][e.Value])
		case p.Addr().Is4():
			v4 = append(v4, allowedPrefix{p, end})
		default:
			v6 = append(v6, allowedPrefix{p, end})
		}
	}
	x.v4, x.v6 = newAddressEnds(v4), newAddressEnds(v6)
	return x, nil
}

// allows reports whether the list lets an event of this identity and time pass. An entry's end is outside it.
func (x *allowIndex) allows(id *traffic.Identity, t traffic.Time) bool {
	if id.IP.IsValid() {
		a := id.IP.Unmap()
		ends := &x.v6
		if a.Is4() {
			ends = &x.v4
		}
		if len(ends.from) > 0 && t < ends.of(addressOf(a)) {
			return true
		}
	}
	for f := traffic.FieldDevice; f < traffic.NumFields; f++ {
		if x.values[f] == nil {
			continue
		}
		value, ok := id.Value(traffic.KeyField{Field: f})
		if !ok {
			continue
		}
		if end, listed := x.values[f][value]; listed && t < end {
			return true
		}
	}
	return false
}

// entry finds the entry by which allows lets an event pass, the one that ends last; nil where there is none. It looks at all
// entries: for explanations only.
func (x *allowIndex) entry(id *traffic.Identity, t traffic.Time) (found *rules.AllowEntry) {
	for i := range x.list.Entries {
		e := &x.list.Entries[i]
		if e.Ends(t) || found != nil && (found.Until == 0 || e.Until != 0 && e.Until <= found.Until) {
			continue
		}
		field, _ := e.Kind.Field()
		if p, ok := e.Prefix(); ok {
			if id.IP.IsValid() && p.Contains(id.IP.Unmap().WithZone("")) {
				found = e
			}
		} else if value, ok := id.Value(traffic.KeyField{Field: field}); ok && value == e.Value {
			found = e
		}
	}
	return found
}

// compileAllow makes a version's lists ready. A rule that names a list which is not there is refused: to read over the name
// would be to count whom its owner lets pass.
func (v *routingVersion) compileAllow(r *rules.Routing) error {
	index := map[string]int{}
	for i := range r.Allow {
		x, err := newAllowIndex(&r.Allow[i])
		if err != nil {
			return err
		}
		index[x.id] = i
		v.allow = append(v.allow, x)
	}
	for i := range r.Rules {
		for _, name := range r.Rules[i].Allow {
			at, ok := index[name]
			if !ok {
				return fmt.Errorf("rule %s: allow list %q is not among those of the version", r.Rules[i].ID, name)
			}
			v.rules[i].allow = append(v.rules[i].allow, at)
		}
	}
	return nil
}

// Verdicts of a list about the present event.
const (
	notAsked uint8 = iota
	notAllowed
	allowed
)

// allowedBy is the first of a rule's lists that lets the event pass; -1 for none. Each list is asked once for an event.
func (r *eventRouter) allowedBy(v *routingVersion, rule *routedRule) int32 {
	for _, at := range rule.allow {
		if r.judged[at] == notAsked {
			r.judged[at] = notAllowed
			if v.allow[at].allows(&r.out.identity, r.out.time) {
				r.judged[at] = allowed
			}
		}
		if r.judged[at] == allowed {
			return int32(at)
		}
	}
	return -1
}
