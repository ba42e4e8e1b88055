package detectors

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// Restore makes a partition from a snapshot that is there as a whole.
func Restore(cfg Config, b []byte) (*Partition, error) {
	return RestoreFrom(cfg, int64(len(b)), func() ([]byte, error) { return b, nil })
}

// Snapshot appends the whole state to dst.
func (p *Partition) Snapshot(dst []byte) []byte {
	e := p.BeginSnapshot()
	for !e.Next(1 << 30) {
		continue
	}
	return append(dst, e.Take(nil)...)
}

// Reported counts, by looking at each, the episodes of which a hit was sent.
func (p *Partition) Reported() (n int64) {
	for _, l := range p.keys.ordered {
		for _, o := range l.offenders {
			if o == nil {
				continue // its index is free
			}
			for _, ep := range o.episodes {
				if slices.ContainsFunc(ep.targets, func(t *blockTarget) bool { return t.sent != traffic.BeforeTime }) {
					n++
				}
			}
		}
	}
	return n
}

// Ways is how many events of keys on their way to a limit are kept, and how long their queue is.
func (p *Partition) Ways() (live, queue int) {
	return p.keys.approaches.live, len(p.keys.approaches.queue)
}

// Holds are the blocks of a rule's trial at its own limit, since and until, by the fingerprints of their subjects.
func (p *Partition) Holds(rule string) map[string][2]traffic.Time {
	out := map[string][2]traffic.Time{}
	for _, l := range p.keys.ordered {
		if l.rule != rule || l.trial == nil {
			continue
		}
		for print, x := range l.trial.blocks {
			if len(x.holds) > 0 && x.holds[0] != (hold{}) {
				out[fmt.Sprint(print)] = [2]traffic.Time{x.holds[0].since, x.holds[0].until}
			}
		}
	}
	return out
}
