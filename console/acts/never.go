package acts

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/traffic"
)

// NeverRequest asks to keep addresses from being blocked, or to end that.
type NeverRequest struct {
	Remove bool `json:"remove,omitempty"`
	// Entries are addresses and prefixes. What is removed is found by its prefix.
	Entries []string `json:"entries"`
	// For is how long added entries last, and Until when they end: one of them, or neither for no end.
	For    string `json:"for,omitempty"`
	Until  End    `json:"until,omitzero"`
	Reason string `json:"reason"`
}

// NeverDone is what a change has done.
type NeverDone struct {
	Entries []string `json:"entries" mask:"text"` // as the list has them
	Removed bool     `json:"removed,omitempty"`
	// Released are the blocks that the entries lift; ReleasedCut: there are more, which hold nobody either. Unknown
	// says why they are not known.
	Released    []AllowBlock `json:"released"`
	ReleasedCut bool         `json:"released_cut,omitempty"`
	Unknown     string       `json:"blocks_unknown,omitempty" mask:"line"`
}

// NeverListed is an entry of the never-block list: of the configuration, or one that somebody made.
type NeverListed struct {
	Prefix netip.Prefix `json:"prefix"`
	From   string       `json:"from" mask:"-"` // configuration, or entry
	Until  traffic.Time `json:"until,omitzero"`
	By     string       `json:"by,omitempty" mask:"name"`
	Reason string       `json:"reason,omitempty" mask:"text,By"`
	Added  traffic.Time `json:"added,omitzero"`
}

// Where an entry of the never-block list is from.
const (
	NeverConfigured = "configuration"
	NeverEntered    = "entry"
)

// Bounds of a change of the never-block list. A shorter prefix would be a way to switch all blocking off.
const (
	LeastNever4 = 8
	LeastNever6 = 16
	maxNever    = 1000 // entries of one request
	maxLifted   = 1000 // blocks that one change releases
)

// NeverBlockList is the never-block list, by prefix: what the configuration of this process says, and what people have
// entered.
func (s *Service) NeverBlockList(ctx context.Context, actor access.Actor) ([]NeverListed, error) {
	if err := access.May(actor, access.View, ""); err != nil {
		return nil, err
	}
	entered, err := s.o.Orders.NeverList(ctx)
	if err != nil {
		return nil, err
	}
	all := []NeverListed{}
	for _, p := range s.o.NeverBlock.Configured() {
		all = append(all, NeverListed{Prefix: p, From: NeverConfigured})
	}
	for _, n := range entered {
		all = append(all, NeverListed{Prefix: n.Prefix, From: NeverEntered, Until: n.Until, By: n.By, Reason: n.Reason,
			Added: n.Added})
	}
	slices.SortStableFunc(all, func(a, b NeverListed) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	return all, nil
}

// ChangeNeverBlock adds entries to the never-block list, and lifts the blocks that they cover; or removes entries.
// *UnfinishedError: the entries are stored, and not all of those blocks are lifted.
func (s *Service) ChangeNeverBlock(ctx context.Context, actor access.Actor, r NeverRequest) (NeverDone, error) {
	if err := CheckReason(r.Reason); err != nil {
		return NeverDone{}, err
	}
	if err := access.May(actor, access.NeverBlock, ""); err != nil {
		return NeverDone{}, err
	}
	prefixes, err := r.prefixes()
	if err != nil {
		return NeverDone{}, err
	}
	lasts, err := readLasting(r.For, r.Until)
	if err != nil {
		return NeverDone{}, err
	}
	change := orders.NeverChange{Prefixes: prefixes, Remove: r.Remove, By: actor.Name, Via: actor.Via,
		Reason: r.Reason, End: lasts.end}
	if err := s.o.Orders.ChangeNever(ctx, change); err != nil {
		return NeverDone{}, err
	}
	done := NeverDone{Entries: []string{}, Removed: r.Remove, Released: []AllowBlock{}}
	for _, p := range prefixes {
		s.log(actor, access.NeverBlock, "never-block "+p.String())
		done.Entries = append(done.Entries, p.String())
	}
	if !r.Remove {
		if err := s.lift(ctx, actor, &r, prefixes, &done); err != nil {
			done.Unknown = err.Error()
			return done, &UnfinishedError{
				Done:   "the entry is stored, and gates that know of it pass its addresses",
				Undone: "the blocks that hold them are not all released: enter it again to release them",
				Cause:  err,
			}
		}
	}
	return done, nil
}

// prefixes are the entries of a request.
func (r *NeverRequest) prefixes() ([]netip.Prefix, error) {
	if len(r.Entries) == 0 || len(r.Entries) > maxNever {
		return nil, &Invalid{Field: "entries", Got: fmt.Sprint(len(r.Entries)),
			Allowed: fmt.Sprintf("1 to %d addresses or prefixes", maxNever)}
	}
	out := make([]netip.Prefix, len(r.Entries))
	for i, text := range r.Entries {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			address, aerr := netip.ParseAddr(text)
			if aerr != nil || address.Zone() != "" {
				return nil, &Invalid{Field: fmt.Sprintf("entries[%d]", i), Got: text,
					Allowed: "an address or a prefix, like 192.0.2.1 or 2001:db8::/48"}
			}
			p = netip.PrefixFrom(address, address.BitLen())
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		least := LeastNever6
		if p.Addr().Is4() {
			least = LeastNever4
		}
		if p.Bits() < least {
			return nil, &Invalid{Field: fmt.Sprintf("entries[%d]", i), Got: text,
				Allowed: fmt.Sprintf("a prefix of /%d or longer, of IPv6 /%d or longer", LeastNever4, LeastNever6)}
		}
		out[i] = p.Masked()
	}
	return out, nil
}

// lift releases the blocks that hold an address of the entries. Gates that know of entries hold nobody by them by now.
func (s *Service) lift(ctx context.Context, actor access.Actor, r *NeverRequest, prefixes []netip.Prefix,
	done *NeverDone) error {
	if err := s.o.Blocks.Ready(ctx); err != nil {
		return err
	}
	list, found := blocklist.NewNeverBlock(prefixes), map[blocklist.Name]*blocklist.Block{}
	wanted := blocklist.Wanted{Named: func(h blocklist.Name) bool {
		_, special, held := list.Entry(h.Subject)
		return held && !special
	}}
	_, err := s.o.Blocks.Each(ctx, s.o.Clock(), wanted, func(b blocklist.Listed) bool {
		name := blocklist.Name{Subject: b.Subject, Rule: b.Rule}
		if found[name] == nil && len(found) == maxLifted {
			done.ReleasedCut = true
			return false
		}
		found[name] = b.Block
		return true
	})
	if err != nil {
		return err
	}
	for _, name := range slices.SortedFunc(maps.Keys(found), func(a, b blocklist.Name) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Rule, b.Rule))
	}) {
		h, err := blocklist.NewRelease(name.Subject, name.Rule, actor.Name, "never-block "+
			strings.Join(done.Entries[:min(3, len(done.Entries))], ", ")+": "+r.Reason, s.o.Clock())
		if err != nil {
			return err
		}
		h.Via = actor.Via
		if err := s.o.Releases.Append(ctx, &h); err != nil {
			return err
		}
		done.Released = append(done.Released, AllowBlock{Rule: name.Rule, Subject: name.Subject,
			Until: found[name].Until})
	}
	return nil
}

// entered refuses a source that an entry of the list keeps from being blocked.
func (s *Service) entered(ctx context.Context, subject traffic.Subject) error {
	all, err := s.o.Orders.NeverList(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		list := blocklist.NewNeverBlock([]netip.Prefix{all[i].Prefix})
		if entry, special, held := list.Entry(subject); held && !special {
			return &NeverBlockedError{Subject: subject, Entry: entry, List: "the never-block list, since " +
				strings.TrimSpace(all[i].Reason) + " (" + all[i].By + ")"}
		}
	}
	return nil
}
