package history

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// RuleNames are the ids of the rules that a stream has or had, ascending: those that were removed are among them, since their
// history stays. A replay has the rules of its routing versions.
func (s *Store) RuleNames(ctx context.Context, stream string) ([]string, error) {
	const doing = "listing the names of rules"
	if stream == Live {
		rows, err := s.pool.Query(ctx, "SELECT rule FROM rule_modes ORDER BY rule")
		if err != nil {
			return nil, s.fail(doing, err)
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, s.fail(doing, err)
		}
		return names, nil
	}
	routing, err := newestRouting(ctx, s.pool, stream)
	if err != nil {
		return nil, s.fail(doing, err)
	}
	var names []string
	if routing != nil {
		for i := range routing.Rules {
			names = append(names, routing.Rules[i].ID)
		}
	}
	slices.Sort(names)
	return names, nil
}
