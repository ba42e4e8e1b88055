package evidence

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// overlap tells how much of what the version would have held other rules held already.
func (b *builder) overlap() {
	o := &b.d.Overlap
	o.Rules = []OverlapOne{}
	if _, known := b.d.Held.Sources.Known(); !known {
		o.Sources, o.Requests = unknownShare(b.d.Held.Sources.Reason), unknownShare(b.d.Held.Sources.Reason)
		return
	}
	holders := b.holders()
	byRule := map[string]int64{}
	var sources, requests, all, unasked int64
	whole := true
	for i := range b.held {
		s := &b.held[i]
		all += s.refused
		by := holders[s.subject]
		if len(by) > 0 {
			sources++
			requests += s.refused
		} else if !s.asked {
			whole = false
			unasked += s.refused
		}
		for _, rule := range by {
			byRule[rule]++
		}
	}
	const empty = "no source would have been held"
	part := b.withLeft(sources, b.left)
	if !whole {
		part = atLeast(sources, fmt.Sprintf("of the sources the %d with the most refused requests were looked at", maxAsked))
	}
	o.Sources = shareOf(part, int64(len(b.held)), empty)
	o.Requests = shareOf(atMost(requests+unasked, "all requests of such sources, while another rule held them or not"), all, "no request would have been refused")
	for rule, n := range byRule {
		o.Rules = append(o.Rules, OverlapOne{rule, n})
	}
	slices.SortFunc(o.Rules, func(x, y OverlapOne) int {
		return cmp.Or(cmp.Compare(y.Sources, x.Sources), cmp.Compare(x.Rule, y.Rule))
	})
}

// holders are the other rules that held a source.
func (b *builder) holders() map[traffic.Subject][]string {
	out := map[traffic.Subject][]string{}
	for _, h := range b.found.held {
		s := b.found.sources[h.source].subject
		out[s] = append(out[s], h.rule)
	}
	return out
}

// ladder writes down what tells of other limits.
func (b *builder) ladder() {
	l := &b.d.Ladder
	l.Steps = append([]Step{}, b.steps...)
	rows := b.held
	if b.version.Block == nil {
		rows = b.found.sources
	}
	peaks := make([]int64, len(rows))
	for i := range rows {
		peaks[i] = rows[i].peak
	}
	l.Peaks = distribute(peaks)
	l.Exact, l.Reason = exactPeaks(&b.version.Document)
}

// exactPeaks is up to which height the peaks of a rule are exact, and why they cannot tell of other limits.
func exactPeaks(d *rules.Document) (exact int64, reason string) {
	switch counting := d.Counting(); {
	case counting == rules.AlgorithmTokenBucket || counting == rules.AlgorithmLeakyBucket:
		return 0, "with another limit the bucket would drain at another rate: try it in a backtest"
	case len(d.Tiers) > 0:
		return 0, "sources have limits by tier, and their peaks do not say which: try it in a backtest"
	case counting == rules.AlgorithmSliding || counting == rules.AlgorithmSlidingLog:
		if d.Count.Kind() != rules.CountEvents {
			return 0, "of a source that is over, no more is kept than its limit needs: try it in a backtest"
		}
		return rules.SlidingExact, ""
	case d.Count.Kind() == rules.CountDistinct:
		return exactDistinct, ""
	}
	return rules.MaxLimit, ""
}

// exactDistinct is how many distinct values of a window are counted exactly (docs/windows.md).
const exactDistinct = 256

// top writes down the sources that are shown.
func (b *builder) top() {
	holders := b.holders()
	for i := range b.found.sources[:min(len(b.found.sources), TopSources)] {
		s := &b.found.sources[i]
		t := b.tops[s.subject]
		b.d.Top = append(b.d.Top, Source{
			Subject: s.subject, Refused: s.refused, Episodes: s.episodes, Events: s.events, Peak: s.peak, First: s.first, Last: s.last,
			Users: s.users, Devices: s.devices, KnownGood: goodText(s.good), HeldBy: append([]string{}, holders[s.subject]...),
			Hit: t.hit, Samples: append([]string{}, t.samples...),
		})
	}
}

func goodText(good int64) string {
	switch detectors.Good(good) {
	case detectors.KnownGood:
		return "yes"
	case detectors.NotGood:
		return "no"
	}
	return "not judged"
}
