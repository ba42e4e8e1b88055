package history

import "context"

// CountCap is where the counting of a query's rows stops: a table may hold more than anybody waits for.
const CountCap = 100_001

// CountHits is how many episodes q selects without its limit, CountCap at most.
func (s *Store) CountHits(ctx context.Context, q HitQuery) (int64, error) {
	return s.count(ctx, "hits", q.where())
}

// CountLate is how many sums q selects without its limit, CountCap at most.
func (s *Store) CountLate(ctx context.Context, q LateQuery) (int64, error) {
	return s.count(ctx, "late_sums", q.where())
}

// CountUncounted is how many sums q selects without its limit, CountCap at most.
func (s *Store) CountUncounted(ctx context.Context, q UncountedQuery) (int64, error) {
	return s.count(ctx, "uncounted_v", q.where())
}

// CountDecisions is how many decisions q selects without its limit, CountCap at most.
func (s *Store) CountDecisions(ctx context.Context, q DecisionQuery) (int64, error) {
	return s.count(ctx, "block_decisions", q.where())
}

func (s *Store) count(ctx context.Context, table string, w *where) (n int64, err error) {
	err = s.pool.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM "+table+w.String()+" LIMIT "+w.arg(CountCap)+") found", w.args...).Scan(&n)
	if err != nil {
		return 0, s.fail("counting rows of "+table, err)
	}
	return n, nil
}
