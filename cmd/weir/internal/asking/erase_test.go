package asking_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/asking"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/traffic"
)

// TestEraseSaysWhoWasRead: who types a source sees whom weir took it for, and how the other one is typed that it may
// mean.
func TestEraseSaysWhoWasRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typed string
		read  traffic.Subject
		want  string
	}{
		{"user=alice", "user=alice", "about user \"alice\"\nwould erase nothing"},
		{"user=p;q", "user=p%3Bq", "about user \"p;q\"\nwould erase nothing"},
		{"user=p%3Bq", "user=p%3Bq", "about user \"p;q\"\n" +
			"  as %XX stands for a byte in a source; for user \"p%3Bq\" itself type 'user=p%253Bq'\n"},
		{"user=100%", "user=100%25", "about user \"100%\"\nwould erase nothing"},
		{"user=a\nb", "user=a%EF%BF%BDb", "about user \"a\ufffdb\"\nwould erase nothing"},
		{"user=\x1b[2J\u202e", "user=%EF%BF%BD%5B2J%E2%80%AE", `about user "` + "\ufffd" + `[2J\u202e"` + "\n"},
	} {
		var out bytes.Buffer
		p := &asking.Program{
			Output: &terminal.Output{Stdout: &out, Stderr: &out, Format: "table"},
			Does: func(_ []string, work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
				return work
			},
			Acts: func(*cobra.Command) func() (by, reason string) {
				return func() (by, reason string) { return "ann", "asked" }
			},
			Erase: func(_ *cobra.Command, e asking.Erasure) (erasure.Done, error) {
				return erasure.Done{Subject: c.read, Pseudonym: "user:erased-1", DryRun: e.DryRun}, nil
			},
		}
		for _, command := range asking.History(p) {
			if command.Name() != "erase" {
				continue
			}
			command.SetArgs([]string{c.typed, "--dry-run"})
			if err := command.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.HasPrefix(out.String(), c.want) {
			t.Errorf("%q says %q, want %q", c.typed, out.String(), c.want)
		}
	}
}
