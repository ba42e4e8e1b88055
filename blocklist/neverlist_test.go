package blocklist_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/traffic"
)

// TestEntriesThatWereLost: only where Redis has heard of a later change than the store has are the store's entries
// those of before; what has ended since is nobody's loss.
func TestEntriesThatWereLost(t *testing.T) {
	now := traffic.At(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	entry := func(prefix string, until traffic.Time) blocklist.NeverEntry {
		return blocklist.NeverEntry{Prefix: netip.MustParsePrefix(prefix), Until: until}
	}
	kept, added, ended := entry("192.0.2.0/24", 0), entry("198.51.100.0/24",
		now.Add(time.Hour)), entry("203.0.113.7/32", now)
	longer := entry("2001:db8::/48", now.Add(2*time.Hour))
	redis := blocklist.NeverEntries{Revision: 9, Entries: []blocklist.NeverEntry{kept, added, ended, longer}}
	for name, c := range map[string]struct {
		revision int64
		has      []blocklist.NeverEntry
		want     []string
	}{
		"older": {3, []blocklist.NeverEntry{kept, entry("2001:db8::/48", now.Add(time.Hour))}, []string{
			`weir never-block add 198.51.100.0/24 --until 2026-03-01T13:00:00Z --reason "…"`,
			`weir never-block add 2001:db8::/48 --until 2026-03-01T14:00:00Z --reason "…"`}},
		"as new, and removed since": {9, []blocklist.NeverEntry{kept}, nil},
		"newer":                     {10, nil, nil},
		"empty": {0, nil, []string{`weir never-block add 192.0.2.0/24 --reason "…"`,
			`weir never-block add 198.51.100.0/24 --until 2026-03-01T13:00:00Z --reason "…"`,
			`weir never-block add 2001:db8::/48 --until 2026-03-01T14:00:00Z --reason "…"`}},
	} {
		var got []string
		for _, e := range redis.Lost(&blocklist.NeverEntries{Revision: c.revision, Entries: c.has}, now) {
			got = append(got, e.Command())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
