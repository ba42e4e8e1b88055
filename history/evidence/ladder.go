package evidence

import (
	"fmt"
	"slices"
	"sort"
)

// Ladder says for any limit from the version's own upward what a block with that limit would have held.
type Ladder struct {
	// Steps are limits of which DETECT counted, too, what they would have refused; ascending, the version's own first.
	Steps []Step `json:"steps"`
	// Peaks is how many sources came how high: the greatest count within one window, beyond the limit. Ascending.
	Peaks []Bucket `json:"peaks"`
	// Exact is up to which peak the counts of windows are exact.
	Exact int64 `json:"exact"`
	// Reason says why Peaks cannot tell what another limit would hold; empty: they can.
	Reason string `json:"reason,omitempty" mask:"line"`
}

// Step is one limit with the requests that it would have refused.
type Step struct {
	Limit    int64 `json:"limit"`
	Requests int64 `json:"requests"`
}

// Would is what a limit would have held.
type Would struct {
	Limit    int64 `json:"limit"`
	Sources  Count `json:"sources"`
	Requests Count `json:"requests"`
}

// At is what a block with another limit would have held, all else being the same. Below the version's own limit nothing is known:
// nobody's episodes are recorded there.
func (d *Dossier) At(limit int64) Would {
	w := Would{Limit: limit, Sources: d.Held.Sources, Requests: d.Held.Requests}
	own := int64(d.Terms.Limit)
	switch {
	case limit < own:
		reason := fmt.Sprintf("below the limit of the version, %d, nothing is recorded: try it as its candidate, or in a backtest", own)
		w.Sources, w.Requests = unknown(reason), unknown(reason)
	case limit > own:
		w.Sources, w.Requests = d.sourcesAt(limit), d.requestsAt(limit)
	}
	return w
}

// sourcesAt counts the sources that came above a limit.
func (d *Dossier) sourcesAt(limit int64) Count {
	if _, known := d.Held.Sources.Known(); !known {
		return d.Held.Sources
	}
	if d.Ladder.Reason != "" {
		return unknown(d.Ladder.Reason)
	}
	var certain, perhaps int64
	for _, b := range d.Ladder.Peaks {
		switch {
		case b.From > limit:
			certain += b.Sources
		case b.To == 0 || b.To > limit:
			perhaps += b.Sources
		}
	}
	switch {
	case d.Held.Sources.State == Bounded:
		bound := d.Held.Sources
		bound.Value = certain
		if bound.Side == AtMost {
			bound.Value += perhaps
		}
		return bound
	case perhaps > 0:
		return Count{State: Bounded, Value: certain + perhaps, Side: Between, Least: certain, Reason: "peaks this high are kept to three digits"}
	case limit > d.Ladder.Exact:
		return atLeast(certain, fmt.Sprintf("above %d a window is counted in slices, and may be a 64th shorter", d.Ladder.Exact))
	}
	return measured(certain)
}

// requestsAt is exact at steps. Between two it lies between theirs, as far as a higher limit refuses less.
func (d *Dossier) requestsAt(limit int64) Count {
	own := d.Held.Requests
	if _, known := own.Known(); !known {
		return own
	}
	steps := d.Ladder.Steps
	if len(steps) == 0 && own.Value == 0 { // where nothing is refused no other limit is noted
		if own.Side == AtLeast {
			return own
		}
		return Count{State: Bounded, Side: Between, Reason: outside}
	}
	if len(steps) == 0 {
		return unknown("no other limit was counted beside the version's own")
	}
	at, found := slices.BinarySearchFunc(steps, limit, func(s Step, l int64) int { return int(s.Limit - l) })
	if found {
		own.Value = steps[at].Requests
		return own
	}
	high, low := steps[at-1].Requests, int64(0)
	if at < len(steps) {
		low = steps[at].Requests
	}
	if low > high {
		low, high = high, low
	}
	if own.Side == AtLeast {
		return atLeast(low, own.Reason)
	}
	return Count{State: Bounded, Value: high, Side: Between, Least: low, Reason: outside}
}

// outside is why a limit that was not counted may refuse more than both of its neighbours.
const outside = "between two limits that were counted; a block that begins later also ends later, so it may lie a little outside"

// coarsely is the bucket of a peak: its own up to 1,000, and beyond that of all with the same first three digits.
func coarsely(peak int64) (from, to int64) {
	step := int64(1)
	for peak/step >= 1000 {
		step *= 10
	}
	from = peak / step * step
	return from, from + step - 1
}

// distribute counts peaks by bucket.
func distribute(peaks []int64) []Bucket {
	byFrom := map[int64]*Bucket{}
	for _, p := range peaks {
		from, to := coarsely(p)
		b := byFrom[from]
		if b == nil {
			b = &Bucket{From: from, To: to}
			byFrom[from] = b
		}
		b.Sources++
	}
	out := make([]Bucket, 0, len(byFrom))
	for _, b := range byFrom {
		out = append(out, *b)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].From < out[j].From })
	return out
}
