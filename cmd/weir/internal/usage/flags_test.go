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
