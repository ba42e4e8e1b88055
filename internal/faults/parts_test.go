package faults

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// parts are what the time from a kill to the first hit consists of, for a process that its supervisor has back at once: each begins where the one
// before ends. What the log of the new process does not tell is 0, and the next part is longer by it.
type parts struct {
	at     time.Time // when it was killed
	again  time.Time // when it was started
	serves time.Time // when it answered probes, before it asks any server
	joined time.Time // when the group had given it its partitions
	taken  time.Time // when their state was read from snapshots, for a detector
}

// line finds what a process logs on its way to work, with the time.
var line = regexp.MustCompile(`(?m)^time=(\S+) .*msg="?(serving metrics and health|consumer group generation|keyed partitions taken)`)

// read fills in what the process has logged since it was started.
func (p *parts) read(said string) error {
	for _, m := range line.FindAllStringSubmatch(said, -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			return err
		}
		for msg, into := range map[string]*time.Time{"serving metrics and health": &p.serves, "consumer group generation": &p.joined, "keyed partitions taken": &p.taken} {
			if m[2] == msg && into.IsZero() {
				*into = at
			}
		}
	}
	if p.joined.IsZero() {
		return fmt.Errorf("the process has not logged that it was given partitions:\n%s", said)
	}
	return nil
}

// text tells the parts of a recovery that took first.
func (p *parts) text(first time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%.1f s", first.Seconds())
	before, sign := p.at, " ="
	for _, part := range []struct {
		what string
		end  time.Time
	}{{"away", p.again}, {"start", p.serves}, {"servers and group", p.joined}, {"read snapshots", p.taken}, {"first hit of each partition", p.at.Add(first)}} {
		if !part.end.IsZero() {
			fmt.Fprintf(&b, "%s %s %.2f", sign, part.what, part.end.Sub(before).Seconds())
			before, sign = part.end, " +"
		}
	}
	return b.String()
}
