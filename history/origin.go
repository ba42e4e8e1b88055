package history

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
)

// Origin names this making of the schema: a digest of its first deployment secret, which is drawn when it is made. It is ""
// where there is no schema, or an empty one, and "unknown" for a schema that holds other things.
func (s *Store) Origin(ctx context.Context) (string, error) {
	var relations int
	var secrets bool
	err := s.pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE c.relname = 'secrets') > 0
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1`, s.schema).Scan(&relations, &secrets)
	if err != nil {
		return "", s.fail("looking for schema "+s.schema, err)
	}
	if relations == 0 {
		return "", nil
	}
	var values [][]byte
	if secrets {
		if err := s.pool.QueryRow(ctx, "SELECT array_agg(value) FROM (SELECT value FROM secrets ORDER BY created_at, id LIMIT 1) first").Scan(&values); err != nil {
			return "", s.fail("finding the deployment secret", err)
		}
	}
	if len(values) == 0 {
		return "unknown", nil
	}
	digest := sha256.Sum256(append([]byte("weir schema "), values[0]...))
	return hex.EncodeToString(digest[:12]), nil
}
