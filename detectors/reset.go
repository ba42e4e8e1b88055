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

// newResets gives the resets of a routing version that are newer than those applied. One whose subject no key has, which Validate
// refuses, resets nothing.
func newResets(resets []rules.Reset, secret *Secret, applied int64) (out []keyReset) {
	for i := range resets {
		x := &resets[i]
		if x.Since <= applied {
			continue
		}
		print, err := secret.named(x.Subject, x.Key)
		if err != nil {
			continue
		}
		out = append(out, keyReset{rule: x.Rule, since: x.Since, subject: x.Subject, print: print})
	}
	return out
}

// in is where the windows of the key lie in a lineage.
func (x *keyReset) in(l *lineage, secret *Secret) Fingerprint {
	if l.form != keyText {
		return x.print
	}
	f, _ := secret.textKey(nil, l.id, []byte(x.subject))
	return f
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
	end := func(held *offender) {
		res := p.outcome.empty()
		held.end(res)
		for i := range res.ended {
			res.ended[i].reason = ReasonReset
		}
		out = p.reportEpisodes(held, 0, false, out)
	}
	applied := p.resets
	for i := range resets {
		if x := &resets[i]; x.since > applied {
			p.resets = x.since
			p.counts.Reset += p.keys.reset(x, &p.cfg.Secret, end)
		}
	}
	p.format = max(p.format, resetSnapshotFormat(p.resets))
	return out
}

// reset forgets a key in all lineages of its rule, as if it had never come, and returns in how many it was. Before, its episodes are
// given to end.
func (s *keyspace) reset(x *keyReset, secret *Secret, end func(*offender)) (forgotten int64) {
	s.approaches.reset(x.rule, x.print)
	for _, l := range s.ordered {
		if l.rule != x.rule {
			continue
		}
		key := x.in(l, secret)
		l.trial.forget(key)
		if l.cells.get(key) == nil {
			continue
		}
		if held := l.offenderOf(key); held != nil {
			end(held)
		}
		l.restart(key)
		forgotten++
	}
	return forgotten
}

// resetSnapshotFormat is the oldest format of snapshots that tells of the resets applied.
func resetSnapshotFormat(applied int64) int {
	if applied > 0 {
		return resetsSnapshotFormat
	}
	return oldestSnapshotFormat
}
