package usage

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// Flags take durations as rules and the configuration do, and --help shows their defaults.
func TestDurationFlag(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "1d12h": 36 * time.Hour, "250ms": 250 * time.Millisecond, "0": 0} {
		var d time.Duration
		c := &cobra.Command{}
		DurationFlag(c, &d, "wait", 10*time.Second, "how long")
		if d != 10*time.Second || !strings.Contains(c.Flags().FlagUsages(), "--wait duration   how long (default 10s)") {
			t.Errorf("without it: %s, and --help says %s", d, c.Flags().FlagUsages())
		}
		if err := c.ParseFlags([]string{"--wait", text}); err != nil || d != want {
			t.Errorf("%s: got %s, %v; want %s", text, d, err, want)
		}
	}
	c, d := &cobra.Command{}, time.Duration(0)
	DurationFlag(c, &d, "wait", time.Second, "how long")
	if err := c.ParseFlags([]string{"--wait", "5 days"}); err == nil || !strings.Contains(err.Error(), `got "5 days"; allowed: a duration like 90s, 15m, 24h or 7d`) {
		t.Errorf("got %v, want what is allowed", err)
	}
}

// Whoever names a time means it: none is taken for never, whose number the Unix epoch has.
func TestATimeThatIsNamedIsNeverNever(t *testing.T) {
	for _, text := range []string{"1970-01-01T00:00:00Z", "1970-01-01T01:00:00+01:00", "1969-12-31T23:59:59.9Z",
		"2027-01-31T12:00:00Z"} {
		if length, until, err := End("until", text); err != nil || length != "" || until == 0 {
			t.Errorf("%s: %q, %d, %v", text, length, until, err)
		}
	}
	if length, until, err := End("until", ""); length != "" || until != 0 || err != nil {
		t.Errorf("no text: %q, %d, %v", length, until, err)
	}
}
