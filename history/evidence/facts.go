package evidence

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// facts are what has been counted as a version counts it: they belong to that, and not to a number. An edit of what is
// done about sources over the limit, of who answers for the rule or of whom it allows leaves them as they are; one of
// match, key, window, count or limit begins anew.
type facts struct {
	acting   []rulestore.StoredVersion // all that acted, in order; of a version that never did, it alone
	versions []int64                   // that count so, the version itself among them
	// keyed are those whose blocks hold sources by the same key: their hits name whom the block would hold
	keyed []int64
	// tried are, of versions, those whose blocks are the same: what they would have refused is what this one would have
	tried []int64
	// spans are when versions acted, ascending and apart; of a version that never did, from its beginning on
	spans []interval
}

// factsOf finds what counts as v does among the versions of r.
func factsOf(r *rulestore.Rule, v *rulestore.StoredVersion, role Role) (f facts) {
	acted := slices.DeleteFunc(slices.Clone(r.Versions),
		func(o rulestore.StoredVersion) bool { return o.Acted.IsZero() })
	slices.SortFunc(acted, func(a, b rulestore.StoredVersion) int {
		return cmp.Or(a.Acted.Compare(b.Acted), cmp.Compare(a.Version.Number, b.Version.Number))
	})
	if v.Acted.IsZero() || v.Version.Pending {
		acted = []rulestore.StoredVersion{*v}
		acted[0].Acted = v.Created
	}
	f.acting = acted
	d := &v.Version.Document
	for i := range acted {
		o := &acted[i].Version
		if o.Block != nil && d.Block != nil && slices.Equal(o.Block.Key, d.Block.Key) {
			f.keyed = append(f.keyed, int64(o.Number))
		}
		if o.Lineage != v.Version.Lineage || !rules.SameCount(&o.Document, d) || role == Candidate &&
			(o.Candidate == nil || *o.Candidate != *d.Candidate) {
			continue
		}
		number := int64(o.Number)
		f.versions = append(f.versions, number)
		if rules.SameBlock(&o.Document, d) {
			f.tried = append(f.tried, number)
		}
		span := interval{traffic.At(acted[i].Acted), traffic.EndOfTime}
		if i+1 < len(acted) {
			span.until = traffic.At(acted[i+1].Acted)
		}
		if n := len(f.spans); n > 0 && f.spans[n-1].until == span.since {
			f.spans[n-1].until = span.until
		} else {
			f.spans = append(f.spans, span)
		}
	}
	return f
}

// roleOf is the role of a version as such.
func roleOf(v *rulestore.StoredVersion) Role {
	if v.Version.Pending {
		return Pending
	}
	return Acting
}

// acted are the numbers of acting.
func (f *facts) acted() []int64 {
	out := make([]int64, len(f.acting))
	for i := range f.acting {
		out[i] = int64(f.acting[i].Version.Number)
	}
	return out
}

// mixed reports whether episodes may have been opened under versions whose blocks hold others, so that rows do not all
// name whom this one would. An episode is cut after a day.
func (a *asked) mixed() bool {
	const day = 24 * time.Hour
	return a.version.Block != nil && slices.ContainsFunc(a.acting, func(v rulestore.StoredVersion) bool {
		return v.Version.Lineage == a.version.Lineage && !slices.Contains(a.keyed, int64(v.Version.Number)) &&
			traffic.At(v.Acted) < a.Until && a.over(&v) > a.Since.Add(-day)
	})
}

// over is when a version that acted did so no more.
func (a *asked) over(v *rulestore.StoredVersion) traffic.Time {
	for i := range a.acting {
		if a.acting[i].Version.Number == v.Version.Number && i+1 < len(a.acting) {
			return traffic.At(a.acting[i+1].Acted)
		}
	}
	return traffic.EndOfTime
}
