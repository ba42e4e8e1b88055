package main

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// lateness is how old an event may be when it comes into a live stream that is read as it comes: older ones are late for every
// rule of it. Where another event of its source partition is newer than the clock allows for, it may be late sooner.
type lateness struct {
	rules    int
	greatest time.Duration // of the rules
}

func latenessOf(all []rules.Version) lateness {
	l := lateness{rules: len(all)}
	for i := range all {
		l.greatest = max(l.greatest, all[i].Lateness)
	}
	return l
}

func (l lateness) late(event, came traffic.Time) bool { return came.Sub(event) > l.allowed() }

func (l lateness) allowed() time.Duration { return l.greatest + detectors.IdleMargin }

// String says where the allowance comes from.
func (l lateness) String() string {
	return fmt.Sprintf("more than %s: the greatest lateness of %s, %s, and a margin of %s", rules.FormatDuration(l.allowed()),
		terminal.Plural(l.rules, "rule"), rules.FormatDuration(l.greatest), rules.FormatDuration(detectors.IdleMargin))
}
