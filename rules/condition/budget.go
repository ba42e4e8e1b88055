package condition

import (
	"cmp"
	"slices"
)

// Share is what the conditions of one rule cost for an event.
type Share struct {
	Rule, Owner int // each from 0 up
	Cost        int64
}

// Budget divides MaxEventCost among owners of rules: who writes an event chooses how long its texts are, and each
// owner how many rules he has. It has memory that is used again, and is not safe for concurrent use.
//
// Owners share by max-min fairness: each gets what he needs up to a level at which all of it is given away, so that
// no owner's rules withhold another's. Within an owner's share the cheapest rules come first, of equal ones the
// first. So what is judged is a function of the costs alone. See Bertsekas and Gallager, Data Networks, section
// 6.5.2.
type Budget struct {
	owners []int64 // by owner: what his rules cost
	levels []int64 // of the owners, ascending
}

// Divide returns those of shares that the budget has room for, in the same memory and in any order, and appends the
// rules of the others to over. Each Share.Owner is below owners.
func (b *Budget) Divide(shares []Share, owners int, over []int) (within []Share, beyond []int) {
	total := int64(0)
	for i := range shares {
		total += shares[i].Cost
	}
	if total <= MaxEventCost {
		return shares, over
	}
	level := b.level(shares, owners)
	slices.SortFunc(shares, func(x, y Share) int {
		return cmp.Or(cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.Cost, y.Cost), cmp.Compare(x.Rule, y.Rule))
	})
	within = shares[:0]
	owner, left := -1, int64(0)
	for _, s := range shares {
		if s.Owner != owner {
			owner, left = s.Owner, level
		}
		if left -= s.Cost; left >= 0 {
			within = append(within, s)
		} else {
			over = append(over, s.Rule)
		}
	}
	return within, over
}

// level is the most that an owner may use, so that all of the budget is given away.
func (b *Budget) level(shares []Share, owners int) int64 {
	b.owners = append(b.owners[:0], make([]int64, owners)...)
	for i := range shares {
		b.owners[shares[i].Owner] += shares[i].Cost
	}
	b.levels = b.levels[:0]
	for _, cost := range b.owners {
		if cost > 0 {
			b.levels = append(b.levels, cost)
		}
	}
	slices.Sort(b.levels)
	left := int64(MaxEventCost)
	for i, needs := range b.levels {
		if fair := left / int64(len(b.levels)-i); needs > fair {
			return fair
		}
		left -= needs
	}
	return MaxEventCost
}
