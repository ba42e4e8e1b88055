package explore

import (
	"cmp"
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/traffic"
)

// Pivot is another identity that a source was seen with: the other values of its subjects, and of the sample events of its episodes.
type Pivot struct {
	Field    string       `json:"field" mask:"-"` // ip, device, user, api_key, session
	Value    string       `json:"value" mask:"value,Field"`
	Episodes int64        `json:"episodes"` // in which it was seen
	Events   int64        `json:"events"`   // of those episodes
	First    traffic.Time `json:"first"`
	Last     traffic.Time `json:"last"`
	Rules    []string     `json:"rules" mask:"name"`
}

// Pivots are the identities that a source was seen with, most episodes first.
type Pivots struct {
	Of   []Pivot `json:"of"`
	Read int     `json:"read"` // newest episodes that were looked at
	All  bool    `json:"all"`  // these are all
}

// mostPivoted is how many episodes Pivots looks at, and mostValues how many values of one field it tells of.
const (
	mostPivoted = 2000
	mostValues  = 50
)

// Pivots tells with which other identities a source was seen, in its newest episodes.
func (x *Explorer) Pivots(ctx context.Context, source string, f Filter) (Pivots, error) {
	f.Source = source
	if source == "" {
		return Pivots{}, &BadFilterError{Field: "source", Allowed: "an address, a prefix, field=value, a value of any field, or a canonical subject"}
	}
	q, err := x.hitQuery(ctx, &f)
	if err != nil {
		return Pivots{}, err
	}
	q.Limit = mostPivoted + 1
	hits, err := x.store.Hits(ctx, q)
	if err != nil {
		return Pivots{}, err
	}
	found := Pivots{Read: min(len(hits), mostPivoted), All: len(hits) <= mostPivoted}
	met := map[identity]*Pivot{}
	for i := range hits[:found.Read] {
		for _, id := range identitiesOf(&hits[i]) {
			if !q.Source.Names(id.field, id.value) {
				meet(met, id, &hits[i])
			}
		}
	}
	found.Of = mostMet(met)
	return found, nil
}

// identity is one value of one field.
type identity struct {
	field traffic.Field
	value string
}

func meet(met map[identity]*Pivot, id identity, h *history.RecordedHit) {
	p := met[id]
	if p == nil {
		p = &Pivot{Field: id.field.String(), Value: id.value, First: h.First, Last: h.Last}
		met[id] = p
	}
	p.Episodes, p.Events, p.First, p.Last = p.Episodes+1, p.Events+h.Count, min(p.First, h.First), max(p.Last, h.Last)
	if !slices.Contains(p.Rules, h.Rule) {
		p.Rules = append(p.Rules, h.Rule)
	}
}

// mostMet lists the identities field by field, most episodes first.
func mostMet(met map[identity]*Pivot) []Pivot {
	all := []Pivot{}
	for _, p := range met {
		slices.Sort(p.Rules)
		all = append(all, *p)
	}
	order := func(field string) int { return slices.Index(Fields(), field) }
	slices.SortFunc(all, func(a, b Pivot) int {
		return cmp.Or(cmp.Compare(order(a.Field), order(b.Field)), cmp.Compare(b.Episodes, a.Episodes), cmp.Compare(b.Events, a.Events), cmp.Compare(a.Value, b.Value))
	})
	of := map[string]int{}
	return slices.DeleteFunc(all, func(p Pivot) bool { of[p.Field]++; return of[p.Field] > mostValues })
}

// identitiesOf are the identities that an episode's subject and samples name, each once.
func identitiesOf(h *history.RecordedHit) []identity {
	var out []identity
	add := func(field traffic.Field, value string) {
		if id := (identity{field, value}); value != "" && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	for _, s := range []traffic.Subject{h.Subject, h.BlockSubject} {
		values, err := s.Values()
		if err != nil {
			continue // no subject of ours
		}
		for _, v := range values {
			if field, known := traffic.ParseField(v.Field); known && !v.Missing {
				add(field, address(field, v.Value))
			}
		}
	}
	for _, text := range h.Samples {
		var sample struct{ IP, Device, User string }
		if json.Unmarshal([]byte(text), &sample) != nil {
			continue // written by something else: shown as a text, and not understood
		}
		add(traffic.FieldIP, address(traffic.FieldIP, sample.IP))
		add(traffic.FieldDevice, sample.Device)
		add(traffic.FieldUser, sample.User)
	}
	return out
}

// address writes a whole address without its prefix length, so that a subject's and a sample's are the same.
func address(field traffic.Field, value string) string {
	if field != traffic.FieldIP {
		return value
	}
	if p, err := netip.ParsePrefix(value); err == nil && p.IsSingleIP() {
		return p.Addr().String()
	}
	return strings.TrimSuffix(value, "/")
}
