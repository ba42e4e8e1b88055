package postgres

import (
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weirhq/weir/traffic"
)

// Timestamp is a traffic.Time as a timestamptz, to the microsecond. EndOfTime is infinity. BeforeTime, and every time before
// 4714 BC, which timestamptz cannot hold, is -infinity.
type Timestamp traffic.Time

var (
	_ pgtype.TimestamptzValuer  = Timestamp(0)
	_ pgtype.TimestamptzScanner = (*Timestamp)(nil)
)

// oldestTimestamp is the beginning of timestamptz: 4714-11-24 00:00:00 BC, in microseconds since the Unix epoch.
const oldestTimestamp = Timestamp(-210_866_803_200_000_000)

// TimestamptzValue implements pgtype.TimestamptzValuer.
func (s Timestamp) TimestamptzValue() (pgtype.Timestamptz, error) {
	switch {
	case traffic.Time(s) == traffic.EndOfTime:
		return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}, nil
	case s < oldestTimestamp:
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, nil
	}
	return pgtype.Timestamptz{Time: traffic.Time(s).Std(), Valid: true}, nil
}

// ScanTimestamptz implements pgtype.TimestamptzScanner. NULL is 0.
func (s *Timestamp) ScanTimestamptz(v pgtype.Timestamptz) error {
	switch {
	case !v.Valid:
		*s = 0
	case v.InfinityModifier == pgtype.Infinity:
		*s = Timestamp(traffic.EndOfTime)
	case v.InfinityModifier == pgtype.NegativeInfinity:
		*s = Timestamp(traffic.BeforeTime)
	default:
		*s = Timestamp(traffic.At(v.Time))
	}
	return nil
}

// TimestampOrNull is t as an argument, NULL where t is 0, which stands for no time in records.
func TimestampOrNull(t traffic.Time) any {
	if t == 0 {
		return nil
	}
	return Timestamp(t)
}

// ScanTime makes *t the target of a timestamptz column.
func ScanTime(t *traffic.Time) *Timestamp { return (*Timestamp)(t) }
