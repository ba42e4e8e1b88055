package explore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/traffic"
)

// Behind is who is behind a source, as far as history knows: whom a block of it would hold, and whom a release lets go.
type Behind struct {
	Since    traffic.Time `json:"since"`    // looked at is what was over a limit since then
	Episodes int          `json:"episodes"` // that were looked at, the newest ones
	More     bool         `json:"more"`     // there are older ones since then
	Events   int64        `json:"events"`   // of those episodes
	Running  int          `json:"running"`  // of those episodes
	Last     traffic.Time `json:"last,omitzero"`
	Rules    []string     `json:"rules" mask:"name"` // whose limits it was over, ascending
	// Good are the episodes of sources that are known to be good, Judged those of which that is known at all.
	Good   int      `json:"known_good"`
	Judged int      `json:"judged"`
	With   []SeenAs `json:"with"` // by field, in the order of Fields; fields without a value are left out
}

// SeenAs is the values of one field with which a source was seen.
type SeenAs struct {
	Field  string   `json:"field" mask:"-"`
	Values int      `json:"values"`                 // different ones, mostValues at most
	Top    []string `json:"top" mask:"value,Field"` // those of the most episodes
}

// mostTop is how many values of a field Behind names.
const mostTop = 5

// Behind tells who is behind a source: what it was over since a time, with whom it was seen, and whether it is known to
// be good.
func (x *Explorer) Behind(ctx context.Context, source string, since traffic.Time) (Behind, error) {
	f := Filter{Source: source, Since: since}
	if source == "" {
		return Behind{}, &BadFilterError{Field: "source",
			Allowed: "an address, a prefix, field=value, a value of any field, or a canonical subject"}
	}
	q, err := x.hitQuery(ctx, &f)
	if err != nil {
		return Behind{}, err
	}
	q.Limit = mostPivoted + 1
	hits, err := x.store.Hits(ctx, q)
	if err != nil {
		return Behind{}, err
	}
	b := Behind{Since: since, Episodes: min(len(hits), mostPivoted), More: len(hits) > mostPivoted, Rules: []string{},
		With: []SeenAs{}}
	met := map[identity]*Pivot{}
	for i := range hits[:b.Episodes] {
		h := &hits[i]
		b.add(h)
		for _, id := range identitiesOf(h) {
			if !q.Source.Names(id.field, id.value) {
				meet(met, id, h)
			}
		}
	}
	slices.Sort(b.Rules)
	for _, p := range mostMet(met) {
		n := len(b.With)
		if n == 0 || b.With[n-1].Field != p.Field {
			b.With, n = append(b.With, SeenAs{Field: p.Field}), n+1
		}
		as := &b.With[n-1]
		if as.Values++; len(as.Top) < mostTop {
			as.Top = append(as.Top, p.Value)
		}
	}
	return b, nil
}

func (b *Behind) add(h *history.RecordedHit) {
	b.Events, b.Last = b.Events+h.Count, max(b.Last, h.Last)
	if h.Phase != detectors.PhaseClosed {
		b.Running++
	}
	if h.Good > detectors.NotJudged {
		b.Judged++
	}
	if h.Good == detectors.KnownGood {
		b.Good++
	}
	if !slices.Contains(b.Rules, h.Rule) {
		b.Rules = append(b.Rules, h.Rule)
	}
}

// Lines says in words who is behind a source. show writes a value as whoever reads it may see it.
func (b *Behind) Lines(show func(field, value string) string) []string {
	at := func(t traffic.Time) string { return t.Std().UTC().Format(time.RFC3339) }
	if b.Episodes == 0 {
		return []string{"history knows nothing of it since " + at(b.Since)}
	}
	newest := ""
	if b.More {
		newest = "the newest "
	}
	lines := []string{
		fmt.Sprintf("%s%s with %s over the limit since %s, the last at %s; running: %d", newest, plural.Of(b.Episodes,
			"episode"), plural.Of(b.Events, "event"),
			at(b.Since), at(b.Last), b.Running),
		"over the limit of " + strings.Join(b.Rules, ", "),
	}
	if b.Judged > 0 {
		lines = append(lines, fmt.Sprintf("known good in %d of %s", b.Good, plural.Of(b.Judged, "episode")))
	} else {
		lines = append(lines, "whether it is known to be good was not judged (known_good)")
	}
	for i := range b.With {
		as := &b.With[i]
		values := make([]string, len(as.Top))
		for n, value := range as.Top {
			values[n] = show(as.Field, value)
		}
		if as.Values > len(values) {
			values = append(values, "…")
		}
		lines = append(lines, fmt.Sprintf("seen with %s: %s", plural.Of(as.Values, as.Field), strings.Join(values,
			", ")))
	}
	return lines
}
