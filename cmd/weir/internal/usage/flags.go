package usage

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/traffic"
)

// DurationFlag gives c a flag whose value is a duration as it is written everywhere here: 90s, 1h30m, 7d, 1d12h. *to holds its
// default until then.
func DurationFlag(c *cobra.Command, to *time.Duration, name string, otherwise time.Duration, help string) {
	*to = otherwise
	c.Flags().Var((*durationValue)(to), name, help)
}

// durationValue is a duration as the library of flags sees it.
type durationValue time.Duration

// String is the form in which --help shows the default: 10s, 1d.
func (v *durationValue) String() string { return duration.Format(time.Duration(*v)) }

// Set reads what the command line says.
func (v *durationValue) Set(text string) error {
	d, err := duration.Parse(text)
	*v = durationValue(d)
	return err
}

// Type names the kind of value in --help.
func (v *durationValue) Type() string { return "duration" }

// End reads a flag that says when something ends: after a duration, which whoever does it counts from its own now on,
// or at a time, which it compares with that. Both are zero for no text: never.
func End(flag, text string) (length string, until traffic.Time, err error) {
	if text == "" {
		return "", 0, nil
	}
	if d, derr := duration.Parse(text); derr == nil && d > 0 {
		return duration.Format(d), 0, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return "", 0, Errorf("--%s: got %q; allowed: a duration like 90m, 24h or 30d, or a time like "+
			"2027-01-31T12:00:00Z", flag, text)
	}
	if until = traffic.At(t); until == 0 {
		until = -1 // the Unix epoch is over: zero would be never
	}
	return "", until, nil
}
