package route

import (
	"fmt"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// uncounted says why an event that has a rule's key is not counted by it. The first ones are traffic.UnitsFault.
type uncounted uint8

const (
	counted         = uncounted(traffic.UnitsFine)
	distinctMissing = uncounted(traffic.NumUnitsFaults) // no value of the field whose distinct values are counted
	numUncounted    = distinctMissing + 1
)

// String is the reason as a counter's label.
func (u uncounted) String() string {
	if u == distinctMissing {
		return "distinct_missing"
	}
	return traffic.UnitsFault(u).String()
}

// amount is what routing needs of a rule's count.
type amount struct {
	distinct bool
	field    traffic.Field // with distinct
	sum      bool
	path     traffic.AttrPath // with sum
}

func compileAmount(c rules.Count) (amount, error) {
	switch c.Kind() {
	case rules.CountDistinct:
		return amount{distinct: true, field: c.Distinct.Field}, nil
	case rules.CountSum:
		path, err := traffic.ParseAttrPath(c.Sum)
		if err != nil {
			return amount{}, fmt.Errorf("count.sum: %w", err)
		}
		return amount{sum: true, path: path}, nil
	}
	return amount{}, nil
}

// of is what the event adds to the rule's windows, or why it is not counted. Distinct values are read from the identity
// where windows are: only whether there is one is asked here.
func (a *amount) of(r *traffic.Request, missing *traffic.Missing) (units int64, why uncounted) {
	switch {
	case a.distinct && missing[a.field] != traffic.Present:
		return 0, distinctMissing
	case a.sum:
		units, fault := a.path.Units(r.Attrs)
		return units, uncounted(fault)
	}
	return 1, counted
}
