package acts

import (
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/traffic"
)

// End is when something ends; the zero value: never. Whoever names a time never means that: the Unix epoch, which has
// the number of the zero value, is read as the moment before it.
type End traffic.Time

// MarshalText writes e as traffic.Time does.
func (e End) MarshalText() ([]byte, error) { return traffic.Time(e).MarshalText() }

// UnmarshalText reads what traffic.Time does.
func (e *End) UnmarshalText(b []byte) error {
	var t traffic.Time
	if err := t.UnmarshalText(b); err != nil {
		return err
	}
	if t == 0 {
		t = -1
	}
	*e = End(t)
	return nil
}

// lasting is how long something is to last: for a while, to a time, or, as the zero value, for good.
type lasting struct {
	length time.Duration
	until  traffic.Time
}

// readLasting reads the members for and until of a request, of which one may be given.
func readLasting(length string, until End) (l lasting, err error) {
	l.until = traffic.Time(until)
	if length == "" {
		return l, nil
	}
	if until != 0 {
		return l, &Invalid{Field: "for", Got: length, Allowed: "one of for and until"}
	}
	if l.length, err = duration.Parse(length); err != nil || l.length <= 0 {
		return l, &Invalid{Field: "for", Got: length, Allowed: "a time such as 90m, 24h or 30d"}
	}
	return l, nil
}

// end is when it ends, by the clock of the store that keeps it: who asks may have another, and the act may wait. 0:
// never. What has ended by now is refused.
func (l lasting) end(now traffic.Time) (traffic.Time, error) {
	switch {
	case l.length > 0:
		return now.Add(l.length), nil
	case l.until != 0 && l.until <= now:
		return 0, &Invalid{Field: "until", Got: l.until.String(), Allowed: "a time after now, " + now.String()}
	}
	return l.until, nil
}
