package holding

import (
	"time"

	"github.com/weirhq/weir/traffic"
)

// ReleaseKept is how long a release is remembered unless the deployment says otherwise: as long as a log of hits that
// may be replayed.
const ReleaseKept = 7 * 24 * time.Hour

// Block is what is kept of one client's block by one rule: when it ends, and the newest release. The zero Block is of a
// client who was never blocked. In Redis the scripts of package blocklist keep it, by the same rule.
type Block struct {
	Until      traffic.Time
	Hit        string // whose hit has set Until
	Generation int64  // under which that was
	Release    Release
}

// Release is what an operator's release leaves behind. The zero Release forgives nobody.
type Release struct {
	At, Until traffic.Time // it is remembered until then
	Hit       string       // of the block that was there; empty: there was none
}

// Covers reports whether a release forgives an episode: it had begun by the time of the release, or the block that was
// released is its own, which another clock may have begun later.
func Covers(at traffic.Time, released, hit string, first traffic.Time) bool {
	return first <= at || hit != "" && hit == released
}

// Effect is what a hit did to a block.
type Effect uint8

// The effects.
const (
	Left Effect = iota
	Made
	Lengthened
)

// Stands reports whether the block holds its client at now.
func (b *Block) Stands(now traffic.Time) bool { return b.Until > now }

// Take gives the block a hit that comes to ENFORCE at now, under the terms of the version that the hit is of.
func (b *Block) Take(t *Terms, h *Hit, now traffic.Time) Effect {
	claim := t.Claim(h, now)
	if claim != Raise && claim != Lengthen {
		return Left
	}
	if r := &b.Release; r.Until > now && Covers(r.At, r.Hit, h.ID, h.First) {
		return Left
	}
	until, stands := t.Until(h.First, h.Last), b.Stands(now)
	switch {
	case stands && b.Generation > h.Generation: // the hit is of a mode that is over
		return Left
	case stands && b.Generation == h.Generation:
		if until <= b.Until {
			return Left
		}
		b.Until, b.Hit = until, h.ID
		return Lengthened
	case claim == Lengthen:
		return Left
	}
	// What was written before the rule's mode last changed holds nobody any more.
	b.Until, b.Hit, b.Generation = until, h.ID, h.Generation
	return Made
}

// Free releases the block at now, when an operator's wish to do so has come into the log; kept is how long that is
// remembered. It holds also where nobody is blocked.
func (b *Block) Free(at, now traffic.Time, kept time.Duration) {
	released := Release{At: at, Until: at.Add(kept)}
	if released.Until <= now || b.Release.Until > now && b.Release.At >= at {
		return // it is of long ago, or was done before: the log is read again
	}
	if b.Stands(now) {
		released.Hit = b.Hit
	}
	*b = Block{Release: released}
}
