package usage

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/internal/duration"
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
