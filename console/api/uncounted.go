package api

import (
	"strconv"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
)

// notCounted is the part of a list of sums that is asked for, and of which.
func (c *call) notCounted() (f explore.UncountedFilter, p explore.Page, err error) {
	if p, err = c.page(); err != nil {
		return f, p, err
	}
	which, err := c.filter()
	return explore.UncountedFilter{Stream: which.Stream, Rule: which.Rule, Reason: c.values["reason"], Since: which.Since, Until: which.Until}, p, err
}

func historyLate(c *call) (any, error) {
	f, p, err := c.notCounted()
	if err != nil {
		return nil, err
	}
	found, err := c.o.Reader.Explorer.Late(c.r.Context(), f, p)
	if err != nil {
		return nil, err
	}
	head := []string{"stream", "rule", "lineage", "source_partition", "keyed_partition", "minute", "latest", "events"}
	return listed(c, counted(found.Sums, found.Total, found.Next), "late", head, func(s *history.LateSum) []string {
		return []string{s.Stream, s.Rule, strconv.Itoa(s.Lineage), strconv.Itoa(s.Source), strconv.Itoa(s.Keyed), s.Minute.String(), s.Latest.String(), number(s.Events)}
	})
}

func historyUncounted(c *call) (any, error) {
	f, p, err := c.notCounted()
	if err != nil {
		return nil, err
	}
	found, err := c.o.Reader.Explorer.Uncounted(c.r.Context(), f, p)
	if err != nil {
		return nil, err
	}
	head := []string{"stream", "rule", "reason", "lineage", "source_partition", "keyed_partition", "minute", "events"}
	return listed(c, counted(found.Sums, found.Total, found.Next), "uncounted", head,
		func(s *history.UncountedSum) []string {
			return []string{s.Stream, s.Rule, s.Reason, known(s.Lineage), known(s.Source), known(s.Keyed),
				s.Minute.String(), number(s.Events)}
		})
}

func historyRefused(c *call) (any, error) {
	f, p, err := c.notCounted()
	if err != nil {
		return nil, err
	}
	found, err := c.o.Reader.Explorer.Refused(c.r.Context(), f, p)
	if err != nil {
		return nil, err
	}
	head := []string{"stream", "rule", "block", "hit", "subject", "minute", "latest", "events", "known_good"}
	return listed(c, counted(found.Sums, found.Total, found.Next), "refused", head,
		func(s *history.RefusedSum) []string {
			return []string{s.Stream, s.Rule, s.Block, s.Hit, string(s.Subject), s.Minute.String(), s.Latest.String(),
				number(s.Events), number(s.Known)}
		})
}

// known is a number, or nothing where it is not known.
func known(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
