package condition

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestBudgetIsShared holds the division to its definition, for owners and costs of any kind.
func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		owners := rapid.IntRange(1, 6).Draw(rt, "owners")
		n := rapid.IntRange(0, 40).Draw(rt, "rules")
		var all []Share
		needs := make([]int64, owners)
		for i := range n {
			s := Share{
				Rule: i, Owner: rapid.IntRange(0, owners-1).Draw(rt, "owner"),
				Cost: rapid.OneOf(rapid.Int64Range(1, 50), rapid.Int64Range(1, MaxEventCost/4),
					rapid.Just(int64(MaxEventCost+1))).Draw(rt, "cost"),
			}
			needs[s.Owner] += s.Cost
			all = append(all, s)
		}
		within, over := new(Budget).Divide(slices.Clone(all), owners, nil)
		// The greatest level at which what owners get, each no more than he needs, is within the budget: found by
		// trying.
		level := int64(0)
		for step := int64(1 << 20); step > 0; step /= 2 {
			sum := int64(0)
			for _, need := range needs {
				sum += min(need, level+step)
			}
			if sum <= MaxEventCost {
				level += step
			}
		}
		used := int64(0)
		for owner := range owners {
			var mine []Share
			for _, s := range all {
				if s.Owner == owner {
					mine = append(mine, s)
				}
			}
			left := level
			for len(mine) > 0 {
				least := 0
				for i := range mine {
					if mine[i].Cost < mine[least].Cost {
						least = i
					}
				}
				fits := mine[least].Cost <= left
				if left -= mine[least].Cost; fits {
					used += mine[least].Cost
				}
				if beyond := slices.Contains(over, mine[least].Rule); beyond == fits {
					rt.Fatalf("rule %+v of needs %v at level %d: beyond: %t", mine[least], needs, level, beyond)
				}
				mine = slices.Delete(mine, least, least+1)
			}
		}
		if used > MaxEventCost || len(within)+len(over) != n {
			rt.Fatalf("%d units are used, %d rules within, %d beyond", used, len(within), len(over))
		}
	})
}
