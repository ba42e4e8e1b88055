package acts

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
)

func TestAnEndIsOfTheStoresClock(t *testing.T) {
	t.Parallel()
	stores := traffic.At(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	for name, c := range map[string]struct {
		length  string
		until   End
		want    traffic.Time
		refused string // member
	}{
		"never":           {},
		"for a while":     {length: "90m", want: stores.Add(90 * time.Minute)},
		"for days":        {length: "1d12h", want: stores.Add(36 * time.Hour)},
		"ahead":           {until: End(stores.Add(time.Microsecond)), want: stores.Add(time.Microsecond)},
		"now":             {until: End(stores), refused: "until"},
		"past":            {until: End(stores.Add(-time.Hour)), refused: "until"},
		"the epoch":       {until: -1, refused: "until"},
		"both":            {length: "1h", until: End(stores.Add(time.Hour)), refused: "for"},
		"no time":         {length: "0s", refused: "for"},
		"backward":        {length: "-1h", refused: "for"},
		"no duration":     {length: "soon", refused: "for"},
		"without a unit":  {length: "90", refused: "for"},
		"below a second":  {length: "250ms", want: stores.Add(250 * time.Millisecond)},
		"longer than any": {length: "999999999d", refused: "for"},
	} {
		lasts, err := readLasting(c.length, c.until)
		var got traffic.Time
		if err == nil {
			got, err = lasts.end(stores)
		}
		var invalid *Invalid
		if refused := errors.As(err, &invalid); refused != (c.refused != "") || refused &&
			invalid.Field != c.refused || got != c.want {
			t.Errorf("%s: %s, %v; want %s, refused %q", name, got, err, c.want, c.refused)
		}
	}
}

func TestALimitIsRaisedForAWhileOrUntil(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		r       LimitRequest
		want    time.Duration
		refused string
	}{
		"for a while":           {LimitRequest{Limit: 9, For: "4s"}, 4 * time.Second, ""},
		"until":                 {LimitRequest{Limit: 9, Until: at}, 0, ""},
		"end it":                {LimitRequest{}, 0, ""},
		"neither":               {LimitRequest{Limit: 9}, 0, "until"},
		"both":                  {LimitRequest{Limit: 9, For: "4s", Until: at}, 0, "until"},
		"end it in a while":     {LimitRequest{For: "4s"}, 0, "for"},
		"end it at a time":      {LimitRequest{Until: at}, 0, "until"},
		"a limit below nothing": {LimitRequest{Limit: -1, For: "4s"}, 0, "limit"},
		"no duration":           {LimitRequest{Limit: 9, For: "long"}, 0, "for"},
	} {
		got, err := c.r.length()
		var invalid *Invalid
		if refused := errors.As(err, &invalid); refused != (c.refused != "") || refused &&
			invalid.Field != c.refused || got != c.want {
			t.Errorf("%s: %s, %v; want %s, refused %q", name, got, err, c.want, c.refused)
		}
	}
}
