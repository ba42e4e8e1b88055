package traffic

import (
	"math"
	"time"
)

// Time is an instant in microseconds since the Unix epoch, UTC. It is PostgreSQL's precision, so an event's time is
// the same number in the log, in a window, in a hit and in history.
type Time int64

// EndOfTime is later than every event. A replay's end mark carries it, so that the watermark passes every deadline.
const EndOfTime Time = math.MaxInt64

// BeforeTime is earlier than every event: the progress of a source partition that has shown nothing yet.
const BeforeTime Time = math.MinInt64

// timeLayout is RFC 3339 in UTC with microseconds, always the same length, so that texts sort as times do.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// At converts t, dropping what is finer than a microsecond.
func At(t time.Time) Time { return Time(t.UnixMicro()) }

// Std converts t to the standard library's form, in UTC.
func (t Time) Std() time.Time { return time.UnixMicro(int64(t)).UTC() }

// Add moves t by d; EndOfTime and BeforeTime stay where they are, and a sum beyond them stops at them.
func (t Time) Add(d time.Duration) Time {
	if t == EndOfTime || t == BeforeTime {
		return t
	}
	us := d.Microseconds()
	switch {
	case us > 0 && int64(t) > math.MaxInt64-us:
		return EndOfTime
	case us < 0 && int64(t) < math.MinInt64-us:
		return BeforeTime
	}
	return t + Time(us)
}

// Sub is the distance t-u, to the microsecond; the result saturates as time.Time.Sub does.
func (t Time) Sub(u Time) time.Duration { return t.Std().Sub(u.Std()) }

// String writes t as RFC 3339 in UTC with microseconds.
func (t Time) String() string {
	switch t {
	case EndOfTime:
		return "end-of-time"
	case BeforeTime:
		return "before-time"
	}
	return t.Std().Format(timeLayout)
}

// MarshalText writes t as String does.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote, and any RFC 3339 time.
func (t *Time) UnmarshalText(b []byte) error {
	switch string(b) {
	case "end-of-time":
		*t = EndOfTime
		return nil
	case "before-time":
		*t = BeforeTime
		return nil
	}
	std, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil {
		return err
	}
	*t = At(std)
	return nil
}

// AppendTo appends what String returns.
func (t Time) AppendTo(dst []byte) []byte {
	if t == EndOfTime || t == BeforeTime {
		return append(dst, t.String()...)
	}
	return t.Std().AppendFormat(dst, timeLayout)
}
