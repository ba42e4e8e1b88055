package ruletry

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// mostCounted is for how many events the count within the window is found. Whether an event is over is known of all.
const mostCounted = 200

// countAll gives the events to the rule's windows in their order, and tells which are over and how many there were.
func countAll(v *rules.Version, all []explained) error {
	var fed []*explained
	for i := range all {
		if all[i].record != nil {
			fed = append(fed, &all[i])
		}
	}
	over, left, err := run([]rules.Version{*v}, fed)
	if err != nil {
		return err
	}
	for i, x := range fed {
		x.Over = over[i][0]
		if why := left[i]; why != "" {
			x.Counts, x.Why = false, why
		}
	}
	if err := counts(v, fed[:min(len(fed), mostCounted)]); err != nil {
		return err
	}
	for i := range all {
		all[i].Verdict = verdict(v, &all[i])
	}
	return nil
}

// counts finds the count of each event within its window as the least limit at which the event is not over: so it is the
// windows' own, with any algorithm whose count does not depend on the limit. Each round halves what is left for all events.
func counts(v *rules.Version, fed []*explained) error {
	bare := *v
	bare.Near, bare.Candidate, bare.Tiers, bare.Block = 0, nil, nil, nil
	switch a := v.Counting(); {
	case a == rules.AlgorithmTokenBucket || a == rules.AlgorithmLeakyBucket || len(fed) == 0:
		return nil // there the limit is the rate
	case a == rules.AlgorithmSliding && v.Count.Kind() != rules.CountDistinct:
		bare.Algorithm = rules.AlgorithmSlidingLog // of which sliding is an approximation above SlidingExact
	}
	low, high := make([]int, len(fed)), make([]int, len(fed))
	sum := int64(0)
	for i, x := range fed {
		sum = min(sum+x.Units, rules.MaxLimit)
		high[i] = int(sum)
	}
	for {
		var tried []int
		for i := range fed {
			if low[i] < high[i] {
				tried = append(tried, (low[i]+high[i])/2)
			}
		}
		if len(tried) == 0 {
			break
		}
		slices.Sort(tried)
		tried = slices.Compact(tried)
		versions := make([]rules.Version, len(tried))
		for i, limit := range tried {
			versions[i] = bare
			versions[i].ID, versions[i].Limit = fmt.Sprintf("%06d", i), limit
		}
		over, _, err := run(versions, fed)
		if err != nil {
			return err
		}
		for i := range fed {
			middle := (low[i] + high[i]) / 2
			switch at, _ := slices.BinarySearch(tried, middle); {
			case low[i] >= high[i]:
			case over[i][at]:
				low[i] = middle + 1
			default:
				high[i] = middle
			}
		}
	}
	for i, x := range fed {
		if x.Counts {
			n := low[i]
			x.Count = &n
		}
	}
	return nil
}

// run folds the events into windows of these versions, and tells for each event under which of them it was over, and why the
// first one left it out.
func run(versions []rules.Version, fed []*explained) (over [][]bool, left []string, err error) {
	r := rules.Routing{Stream: "explain", Number: 1, RecordFormat: detectors.RecordFormat, SecretID: "explain", Rules: versions}
	p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Secret: detectors.Secret{1}})
	p.Learn(detectors.NewPlan(&r))
	index := map[string]int{}
	every := make([]int, len(versions))
	for i := range versions {
		index[versions[i].ID], every[i] = i, i
	}
	over, left = make([][]bool, len(fed)), make([]string, len(fed))
	newest, prev := traffic.BeforeTime, detectors.NoOffset
	var hits []detectors.Hit
	for i, x := range fed {
		over[i] = make([]bool, len(versions))
		k := *x.record
		newest = max(newest, k.Time)
		k.Offset, k.Prev, k.Progress, k.Rules = int64(i), prev, newest, every
		k.Units = slices.Repeat([]int64{x.Units}, len(versions))
		k.Tiers = slices.Repeat(k.Tiers, len(versions))
		if len(versions[0].Tiers) == 0 {
			k.Tiers = nil
		}
		prev = k.Offset
		if hits, err = p.Fold(newest, &k, hits[:0]); err != nil {
			return nil, nil, err
		}
		p.TakeRuleEvents(func(rule string, e *detectors.RuleEvents) {
			at := index[rule]
			over[i][at] = e.Over > 0
			for why, n := range e.Uncounted {
				if n > 0 && at == 0 {
					left[i] = detectors.Uncounted(why).String()
				}
			}
		})
	}
	return over, left, nil
}
