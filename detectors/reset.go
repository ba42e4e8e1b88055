package detectors

import (
	"slices"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A reset travels with the routing versions, so that it has a place in the log without a record of its own: a partition applies it
// before it counts the first event of its version or of a later one. Source partitions are routed at their own pace, and their records
// of neighbouring versions stand mixed; what is of an older version and comes after that is counted after the reset. Partition.resets
// says up to where this is done: it only rises, and it is part of the state.

// keyReset is a reset as a partition applies it.
type keyReset struct {
	rule    string
	since   int64
	subject traffic.Subject
	print   Fingerprint // of form keyBinary
}

// newResets gives the resets of a routing version that are still to be applied. One whose subject no key has, which Validate refuses,
// resets nothing.
func (p *Partition) newResets(r *rules.Routing) (out []keyReset) {
	for i := range r.Resets {
		x := &r.Resets[i]
		if x.Since <= p.resets {
			continue
		}
		print, err := p.cfg.Secret.named(x.Subject, x.Key)
		if err != nil {
			continue
		}
		out = append(out, keyReset{rule: x.Rule, since: x.Since, subject: x.Subject, print: print})
	}
	return out
}

// named is the fingerprint, in form keyBinary, of a key's values as a subject names them.
func (s *Secret) named(subject traffic.Subject, key []traffic.KeyField) (f Fingerprint, err error) {
	n, err := subject.Named(key)
	switch {
	case err != nil:
		return Fingerprint{}, err
	case traffic.IdentityKey(key):
		f, _, _ = s.binaryKey(nil, &n.Identity, key)
	default:
		f, _, _ = s.extraKey(nil, &n.Identity, n, slices.SortedFunc(slices.Values(key), traffic.KeyField.Compare))
	}
	return f, nil
}

// applyResets forgets what has been counted of each key in resets that is newer than those applied. Where it has episodes they are
// closed.
func (p *Partition) applyResets(resets []keyReset, out []Hit) []Hit {
	applied := p.resets
	for i := range resets {
		x := &resets[i]
		if x.since <= applied {
			continue
		}
		p.resets = x.since
		for _, l := range p.keys.ordered {
			if l.rule == x.rule {
				out = p.resetKey(l, p.keyIn(l, x), out)
			}
		}
	}
	p.format = max(p.format, resetSnapshotFormat(p.resets))
	return out
}

// keyIn is where the windows of a reset's key lie in a lineage.
func (p *Partition) keyIn(l *lineage, x *keyReset) Fingerprint {
	if l.form != keyText {
		return x.print
	}
	f, _ := p.cfg.Secret.textKey(nil, l.id, []byte(x.subject))
	return f
}

// resetKey forgets a key of a lineage as if it had never come.
func (p *Partition) resetKey(l *lineage, key Fingerprint, out []Hit) []Hit {
	if l.cells.get(key) == nil {
		return out
	}
	if held := l.offenderOf(key); held != nil {
		res := p.outcome.empty()
		held.end(res)
		for i := range res.ended {
			res.ended[i].reason = ReasonReset
		}
		out = p.reportEpisodes(held, 0, out)
	}
	l.restart(key)
	p.counts.Reset++
	return out
}

// resetSnapshotFormat is the oldest format of snapshots that tells of the resets applied.
func resetSnapshotFormat(applied int64) int {
	if applied > 0 {
		return SnapshotFormat
	}
	return oldestSnapshotFormat
}
