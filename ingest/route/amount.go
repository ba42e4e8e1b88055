package route

import (
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// uncounted says why an event that has a rule's key is not counted by it. The first ones are traffic.UnitsFault.
type uncounted uint8

const (
	counted         = uncounted(format.UnitsFine)
	distinctMissing = uncounted(format.NumUnitsFaults) // no value of a field whose distinct values are counted
	numUncounted    = distinctMissing + 1
)

// String is the reason as a counter's label.
func (u uncounted) String() string {
	if u == distinctMissing {
		return "distinct_missing"
	}
	return format.UnitsFault(u).String()
}

// amount is what routing needs of a rule's count.
type amount struct {
	distinct []traffic.KeyField // the fields whose values, or combinations, are counted
	sum      bool
	summand  rules.Summand // with sum
}

func compileAmount(c rules.Count) (amount, error) {
	switch {
	case c.Distinct != nil:
		return amount{distinct: []traffic.KeyField{*c.Distinct}}, nil
	case c.Kind() == rules.CountDistinct:
		return amount{distinct: c.Tuple}, nil
	case c.Kind() == rules.CountSum:
		s, err := c.Summand()
		return amount{sum: true, summand: s}, err
	}
	return amount{}, nil
}

// lacks reports whether an event may be left out of the rule for this reason.
func (a *amount) lacks(why uncounted) bool {
	switch {
	case len(a.distinct) > 0:
		return why == distinctMissing
	case a.sum && a.summand.OfAttrs():
		return why != counted && why != distinctMissing
	case a.sum:
		return why == uncounted(format.UnitsAbsent) || why == uncounted(format.UnitsNegative)
	}
	return false
}

// amount is the event's units for a rule's windows, or the reason why it is not counted. For a distinct count it only checks
// that there is a value: DETECT reads the value itself from the record.
func (r *eventRouter) amount(a *amount) (units int64, why uncounted) {
	for _, k := range a.distinct {
		if !r.has(k) {
			return 0, distinctMissing
		}
	}
	if a.sum {
		units, fault := a.summand.Units(&r.request, r.event.Attrs())
		return units, uncounted(fault)
	}
	return 1, counted
}
