package terminal

import (
	"bufio"
	"strings"

	"github.com/weirhq/weir/console/shown"
)

// CSV writes rows for programs and spreadsheets, with --output csv. Heads are names of columns: RULE VERSION is
// rule_version. Lines end as the tools of a shell have them.
func CSV[T any](o *Output, items []T, head []string, row func(T) []string) error {
	out := bufio.NewWriter(o.Stdout) // keeps its first error
	names := make([]string, len(head))
	for i, h := range head {
		names[i] = strings.ReplaceAll(strings.ToLower(h), " ", "_")
	}
	_, _ = out.WriteString(shown.Row(names) + "\n")
	for _, item := range items {
		_, _ = out.WriteString(shown.Row(row(item)) + "\n")
	}
	return out.Flush()
}
