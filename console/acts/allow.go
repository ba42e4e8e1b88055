package acts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// AllowRequest asks to add sources to an allow list, or to take them off it.
type AllowRequest struct {
	List   string `json:"list"`
	Remove bool   `json:"remove,omitempty"`
	// Entries are the sources. What is added gets the request's reason; what is removed is found by kind and value alone.
	Entries []AllowSource `json:"entries"`
	// For is how long added entries last, and Until when they end: one of them, or neither for no end.
	For    string `json:"for,omitempty"`
	Until  End    `json:"until,omitzero"`
	Reason string `json:"reason"`
}

// AllowSource is what an entry of an allow list names.
type AllowSource struct {
	Kind  rules.AllowKind `json:"kind"`
	Value string          `json:"value"`
}

// AllowDone is what a change has done, and the blocks that hold all the same.
type AllowDone struct {
	rulestore.AllowChange
	Blocks []AllowBlock `json:"blocks"`
	// BlocksCut says that there are more than are listed. Unknown says why blocks are not known.
	BlocksCut bool   `json:"blocks_cut,omitempty"`
	Unknown   string `json:"blocks_unknown,omitempty" mask:"line"`
}

// AllowBlock is a block that holds a source which its rule counts no longer.
type AllowBlock struct {
	Rule    string          `json:"rule" mask:"name"`
	Subject traffic.Subject `json:"subject"`
	Until   traffic.Time    `json:"until"`
}

// maxAllowBlocks bounds the blocks that are listed.
const maxAllowBlocks = 20

// ChangeAllow adds entries to an allow list, or removes them. It releases nobody.
func (s *Service) ChangeAllow(ctx context.Context, actor access.Actor, r AllowRequest) (AllowDone, error) {
	if err := CheckReason(r.Reason); err != nil {
		return AllowDone{}, err
	}
	entries, err := r.entries()
	if err != nil {
		return AllowDone{}, err
	}
	lasts, err := readLasting(r.For, r.Until)
	if err != nil {
		return AllowDone{}, err
	}
	if err := access.MayAny(actor, access.Allow); err != nil {
		return AllowDone{}, err
	}
	action := "add-entry"
	if r.Remove {
		action = "remove-entry"
	}
	within := bounded{s.o.Bounds, actor, access.Allow}
	by, err := within.naming(ctx, s.o.Rules, r.List)
	if err != nil {
		return AllowDone{}, err
	}
	entry := audit.Entry{Actor: actor.Name, Via: actor.Via, Action: action, Reason: r.Reason}
	done, err := s.o.Rules.ChangeAllowList(ctx, r.List, entry, func(l *rules.AllowList, now traffic.Time) error {
		if err := access.May(actor, access.Allow, l.Owner); err != nil {
			return err
		}
		if err := within.list(l.ID, l.Owner, by...); err != nil {
			return err
		}
		if r.Remove {
			return removeEntries(l, entries)
		}
		return addEntries(l, entries, lasts, now)
	})
	if err != nil {
		return AllowDone{}, s.misnamedList(ctx, r.List, s.o.Masking.unnamed(actor, err))
	}
	s.log(actor, access.Allow, "allow list "+r.List)
	out := AllowDone{AllowChange: done, Blocks: []AllowBlock{}}
	if !r.Remove {
		if err := out.look(ctx, s, entries); err != nil {
			out.Unknown = err.Error()
		}
	}
	return out, nil
}

// entries are those that the request names.
func (r *AllowRequest) entries() ([]rules.AllowEntry, error) {
	if len(r.Entries) == 0 {
		return nil, &Invalid{Field: "entries", Got: "none", Allowed: "at least one, with kind and value"}
	}
	out := make([]rules.AllowEntry, len(r.Entries))
	for i, e := range r.Entries {
		if _, known := e.Kind.Field(); !known {
			return nil, &Invalid{Field: fmt.Sprintf("entries[%d].kind", i), Got: string(e.Kind), Allowed: kinds()}
		}
		if e.Value == "" {
			return nil, &Invalid{Field: fmt.Sprintf("entries[%d].value", i), Got: "", Allowed: "an address prefix for cidr, else the value of the field"}
		}
		out[i] = rules.AllowEntry{Kind: e.Kind, Value: e.Value, Reason: r.Reason}
		if p, ok := out[i].Prefix(); ok {
			out[i].Value = p.String()
		}
	}
	return out, nil
}

func kinds() string {
	var names []string
	for _, k := range rules.AllowKinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// addEntries gives each entry its end, by the clock of the store.
func addEntries(l *rules.AllowList, entries []rules.AllowEntry, lasts lasting, now traffic.Time) error {
	until, err := lasts.end(now)
	if err != nil {
		return err
	}
	for _, e := range entries {
		e.Until = until
		if i := findEntry(l, &e); i >= 0 {
			l.Entries[i] = e
		} else {
			l.Entries = append(l.Entries, e)
		}
	}
	return nil
}

func removeEntries(l *rules.AllowList, entries []rules.AllowEntry) error {
	for _, e := range entries {
		i := findEntry(l, &e)
		if i < 0 {
			return absent(l, &e)
		}
		l.Entries = slices.Delete(l.Entries, i, i+1)
	}
	return nil
}

// findEntry is the place of e's source in l, -1 for none.
func findEntry(l *rules.AllowList, e *rules.AllowEntry) int {
	return slices.IndexFunc(l.Entries, func(o rules.AllowEntry) bool { return o.Kind == e.Kind && o.Value == e.Value })
}

// absent says that l has no such source, and which of its prefixes contain it.
func absent(l *rules.AllowList, e *rules.AllowEntry) error {
	hint := "weir allow show " + l.ID + " shows the list"
	if p, ok := e.Prefix(); ok {
		for i := range l.Entries {
			if q, ok := l.Entries[i].Prefix(); ok && q.Overlaps(p) {
				hint = fmt.Sprintf("it has %s", l.Entries[i].Source())
				break
			}
		}
	}
	return fmt.Errorf("SOURCE: got %s, which is not in allow list %s; %s", e.Source(), l.ID, hint)
}

// misnamedList says of what failed because no list has the name which there are; any other error stays.
func (s *Service) misnamedList(ctx context.Context, list string, err error) error {
	if !errors.Is(err, postgres.ErrNotFound) {
		return err
	}
	all, lerr := s.o.Rules.AllowLists(ctx)
	if lerr != nil {
		return errors.Join(err, lerr)
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].List.ID
	}
	return &UnknownName{Thing: "allow list", Name: list, Known: names}
}

// look finds the blocks in force, of the rules that name the list, whose source an entry names.
func (d *AllowDone) look(ctx context.Context, s *Service, entries []rules.AllowEntry) error {
	if len(d.Rules) == 0 {
		return nil
	}
	if err := s.o.Blocks.Ready(ctx); err != nil {
		return err
	}
	wanted := blocklist.Wanted{Named: func(h blocklist.Name) bool {
		return slices.Contains(d.Rules, h.Rule) && namesSource(entries, h.Subject)
	}}
	seen := map[blocklist.Name]bool{} // what is walked over may be met twice
	_, err := s.o.Blocks.Each(ctx, s.o.Clock(), wanted, func(b blocklist.Listed) bool {
		name := blocklist.Name{Subject: b.Subject, Rule: b.Rule}
		if !b.InForce || seen[name] {
			return true
		}
		if len(d.Blocks) == maxAllowBlocks {
			d.BlocksCut = true
			return false
		}
		seen[name] = true
		d.Blocks = append(d.Blocks, AllowBlock{Rule: b.Rule, Subject: b.Subject, Until: b.Block.Until})
		return true
	})
	slices.SortFunc(d.Blocks, func(a, b AllowBlock) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Rule, b.Rule))
	})
	return err
}

// namesSource reports whether one of entries has to do with the blocked source: it has the value, or addresses of it.
func namesSource(entries []rules.AllowEntry, blocked traffic.Subject) bool {
	values, err := blocked.Values()
	if err != nil {
		return false
	}
	for i := range entries {
		e := &entries[i]
		field, _ := e.Kind.Field()
		for _, v := range values {
			if v.Field != field.String() || v.Missing {
				continue
			}
			if p, ok := e.Prefix(); ok {
				if q, err := netip.ParsePrefix(v.Value); err == nil && p.Overlaps(q) {
					return true
				}
			} else if v.Value == e.Value || v.Digest && v.Value == string(traffic.AppendStoredValue(nil, e.Value)) {
				return true
			}
		}
	}
	return false
}

// ResetRequest asks that what a rule has counted of a source be set back to nothing.
type ResetRequest struct {
	Rule string `json:"rule"`
	// Subject is the source as the rule counts it (rules.KeyedSubject); empty for a rule with the empty key.
	Subject traffic.Subject `json:"subject"`
	Reason  string          `json:"reason"`
}

// ResetCount sets what a rule has counted of a source back to nothing.
func (s *Service) ResetCount(ctx context.Context, actor access.Actor, r ResetRequest) (rulestore.CounterResetDone, error) {
	if err := CheckReason(r.Reason); err != nil {
		return rulestore.CounterResetDone{}, err
	}
	if err := access.MayAny(actor, access.Reset); err != nil {
		return rulestore.CounterResetDone{}, err
	}
	done, err := s.o.Rules.ResetCounter(ctx, rulestore.CounterReset{
		Rule: r.Rule, Subject: r.Subject, By: actor.Name, Via: actor.Via, Reason: r.Reason,
		Check: s.o.checkWithin(actor, access.Reset, ""),
	})
	if err != nil {
		return rulestore.CounterResetDone{}, s.misnamed(ctx, r.Rule, err)
	}
	s.log(actor, access.Reset, "rule "+r.Rule)
	return done, nil
}

// Counts is nil for a rule that counts, else why it does not.
func Counts(rule *rulestore.Rule) error {
	id := rule.Newest.Version.ID
	switch {
	case rule.Removed:
		return fmt.Errorf("rule %s counts nothing: it is removed", id)
	case rule.Mode == rules.ModeOff:
		return fmt.Errorf("rule %s counts nothing: it is off", id)
	}
	return nil
}
