package history

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weirhq/weir/traffic"
)

// stamp is a traffic.Time as a timestamptz, to the microsecond. EndOfTime is infinity and BeforeTime is -infinity, and
// so is every time that timestamptz cannot hold (before 4714 BC).
type stamp traffic.Time

var (
	_ pgtype.TimestamptzValuer  = stamp(0)
	_ pgtype.TimestamptzScanner = (*stamp)(nil)
)

// oldestStamp is the beginning of timestamptz: 4714-11-24 00:00:00 BC, in microseconds since the Unix epoch.
const oldestStamp = stamp(-210_866_803_200_000_000)

// TimestamptzValue implements pgtype.TimestamptzValuer.
func (s stamp) TimestamptzValue() (pgtype.Timestamptz, error) {
	switch {
	case traffic.Time(s) == traffic.EndOfTime:
		return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}, nil
	case s < oldestStamp:
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, nil
	}
	return pgtype.Timestamptz{Time: traffic.Time(s).Std(), Valid: true}, nil
}

// ScanTimestamptz implements pgtype.TimestamptzScanner. NULL is 0.
func (s *stamp) ScanTimestamptz(v pgtype.Timestamptz) error {
	switch {
	case !v.Valid:
		*s = 0
	case v.InfinityModifier == pgtype.Infinity:
		*s = stamp(traffic.EndOfTime)
	case v.InfinityModifier == pgtype.NegativeInfinity:
		*s = stamp(traffic.BeforeTime)
	default:
		*s = stamp(traffic.At(v.Time))
	}
	return nil
}

// stampOrNull is t as an argument, NULL where t is 0: a record leaves out a time that it does not have.
func stampOrNull(t traffic.Time) any {
	if t == 0 {
		return nil
	}
	return stamp(t)
}

// scanTime makes *t the target of a timestamptz column.
func scanTime(t *traffic.Time) *stamp { return (*stamp)(t) }

// timeOrZero reads a timestamptz that may be NULL.
func timeOrZero(v *time.Time) time.Time {
	if v == nil {
		return time.Time{}
	}
	return v.UTC()
}
