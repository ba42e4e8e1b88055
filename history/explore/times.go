package explore

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/traffic"
)

// TimesAllowed says what ParseTime reads.
const TimesAllowed = "a duration back from now like 90m, 24h or 7d, today, yesterday, a day like 2026-11-20, or a time like 2026-11-20T13:00:00Z"

// ParseTime reads a time as people write it: a duration back from now, today, yesterday, a day, a time to the minute, RFC 3339. Days and
// times without a zone are UTC, as all that weir shows. field names it in the error, a *BadFilterError. An empty text is 0, no time.
func ParseTime(field, text string, now time.Time) (traffic.Time, error) {
	now = now.UTC()
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	switch strings.ToLower(text) {
	case "":
		return 0, nil
	case "now":
		return traffic.At(now), nil
	case "today":
		return traffic.At(midnight), nil
	case "yesterday":
		return traffic.At(midnight.AddDate(0, 0, -1)), nil
	}
	if d, err := duration.Parse(text); err == nil {
		return traffic.At(now).Add(-d), nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04:05", time.RFC3339Nano} {
		if t, err := time.Parse(layout, text); err == nil && t.Year() > 0 && t.Year() < 10_000 {
			return traffic.At(t), nil
		}
	}
	return 0, &BadFilterError{Field: field, Got: text, Allowed: TimesAllowed}
}

// ParseSpan reads since and until. A since that lies ahead of now is refused: nothing can have happened yet.
func ParseSpan(since, until string, now time.Time) (from, to traffic.Time, err error) {
	if from, err = ParseTime("since", since, now); err != nil {
		return 0, 0, err
	}
	if to, err = ParseTime("until", until, now); err != nil {
		return 0, 0, err
	}
	if from > traffic.At(now) {
		return 0, 0, &BadFilterError{Field: "since", Got: since, Allowed: "a time before now, " + now.UTC().Format(time.RFC3339)}
	}
	if from != 0 && to != 0 && from >= to {
		return 0, 0, &BadFilterError{Field: "until", Got: until, Allowed: fmt.Sprintf("a time after since, %s", from)}
	}
	return from, to, nil
}
