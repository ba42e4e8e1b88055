package backtest

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// peakSources is how many sources of a rule one keyed partition follows, at most. Where there are more it follows every
// second one, every fourth, and so on, chosen by their hash.
const peakSources = 512

// maxPeakShare ends that: no honest log has more sources, only one with sources that somebody made for their hashes.
const maxPeakShare = 1 << 20

// peakSlices is into how many slices a window is cut. Counts are over that many and the one under way: of a window or up to
// an eighth more, so they are never too low.
const peakSlices = 8

// peaks tells how much each source of one keyed partition did at most within a window.
type peaks struct {
	plan  *plan
	rules []peakRule // as given
	given []int      // index into rules, by index into the plan's counted rules

	scratch []byte
}

// peakRule is a rule of which sources are followed.
type peakRule struct {
	counters []*peakCounter // for each window that is tried; none: the rule counts distinct values
	lateness time.Duration
	key      []traffic.KeyField
	beside   bool // key has fields beside the identity
}

// peakCounter counts for one rule and window.
type peakCounter struct {
	slice   traffic.Time
	begin   traffic.Time // of slice 0, see timesBegin
	sources followedSources
	share   uint64 // sources are followed whose hash is a multiple of it
}

func newPeaks(p *plan) *peaks {
	out := &peaks{plan: p}
	for i := range p.counted.Rules {
		out.given = append(out.given, i/p.values)
	}
	for i := range p.Rules {
		v := &p.Rules[i]
		rule := peakRule{lateness: v.Lateness, key: v.Key, beside: !traffic.IdentityKey(v.Key)}
		if v.Count.Kind() != rules.CountDistinct {
			for _, w := range p.windows(i) {
				rule.counters = append(rule.counters, newPeakCounter(w))
			}
		}
		out.rules = append(out.rules, rule)
	}
	return out
}

func newPeakCounter(window time.Duration) *peakCounter {
	slice := max(1, traffic.Time(window/time.Microsecond+peakSlices-1)/peakSlices)
	return &peakCounter{slice: slice, begin: timesBegin / slice * slice, share: 1}
}

// windows are those that are tried of a rule, each once.
func (p *plan) windows(rule int) []time.Duration {
	if p.Sweep.Field == SweepWindow {
		return p.Sweep.Windows
	}
	return []time.Duration{p.Rules[rule].Window}
}

// add counts an event for the rules of a target.
func (p *peaks) add(e *event, t *target) {
	last := -1
	for at := range t.rules {
		rule := p.given[t.rules[at]]
		if rule == last {
			continue
		}
		last = rule
		r := &p.rules[rule]
		if len(r.counters) == 0 || e.time < e.progress.Add(-r.lateness) {
			continue
		}
		told, units := t.told(), int64(1)
		if told.units != nil {
			units = told.units[at]
		}
		var key uint64
		if r.beside {
			extra := detectors.Extra{Values: told.extra, Uses: p.plan.extras.ByRule[rule]}
			p.scratch, _ = traffic.AppendSubjectOf(p.scratch[:0], &e.identity, &extra, r.key)
			key = hashText(1, p.scratch)
		} else {
			key = e.key(r.key)
		}
		for _, c := range r.counters {
			c.add(key, e.time, units)
		}
	}
}

// key is a hash of the event's source under a key. It is the same in every run: which sources are followed depends on it. Whoever
// makes sources for their hashes can distort the distribution, and nothing else.
func (e *event) key(key []traffic.KeyField) uint64 {
	h := uint64(len(key))
	for _, k := range key {
		if k.Field != traffic.FieldIP {
			value, _ := e.identity.Value(k)
			h = hashText(h, value)
			continue
		}
		ip := e.identity.IP
		if !ip.Is6() {
			raw := ip.As16() // of none it is zeros
			h = mix(h ^ uint64(binary.BigEndian.Uint32(raw[12:]))&^(math.MaxUint32>>k.V4))
			continue
		}
		if prefix, err := ip.Prefix(int(k.V6)); err == nil {
			raw := prefix.Addr().As16()
			h = mix(mix(h^binary.LittleEndian.Uint64(raw[:8])) ^ binary.LittleEndian.Uint64(raw[8:]))
		}
	}
	return h
}

// hashText goes on with h over a text. What is left of a text beyond whole words is read with bytes before it, as one word.
func hashText[T string | []byte](h uint64, value T) uint64 {
	n := len(value)
	rest := value
	for ; len(rest) > 8; rest = rest[8:] {
		h = mix(h ^ word(rest))
	}
	if n >= 8 {
		return mix(h ^ word(value[n-8:]) ^ uint64(n+1)<<56)
	}
	return mix(h ^ tail(rest) ^ uint64(n+1)<<56)
}

// word is the first eight bytes as a number.
func word[T string | []byte](s T) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// tail is less than eight bytes as a number.
func tail[T string | []byte](s T) uint64 {
	h := uint64(0)
	for i := len(s) - 1; i >= 0; i-- {
		h = h<<8 | uint64(s[i])
	}
	return h
}

// mix is the finalizer of MurmurHash3 (Appleby, 2011).
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// timesBegin is further from the epoch than any time that a decoder gives, the years 0 to 9999: counted from there, slices have no
// negative numbers.
const timesBegin traffic.Time = 1 << 56

func (c *peakCounter) add(key uint64, at traffic.Time, units int64) {
	if key&(c.share-1) != 0 {
		return
	}
	slice := (at + c.begin) / c.slice
	src := c.sources.find(key)
	if !src.taken {
		if c.share >= maxPeakShare && c.sources.n >= peakSources {
			return
		}
		src = c.sources.take(key, slice)
	}
	src.add(slice, uint32(min(units, 1<<30)))
	if c.sources.n > peakSources && c.share < maxPeakShare {
		c.share *= 2
		c.sources.keep(func(src *peakSource) bool { return src.key&(c.share-1) == 0 })
	}
}

// add counts units in a slice, and forgets the slices that are too old then.
func (s *peakSource) add(slice traffic.Time, units uint32) {
	const n = traffic.Time(len(s.counts))
	if slice <= s.newest-n {
		return
	}
	if slice >= s.newest+n {
		s.counts, s.sum, s.newest = [peakSlices + 1]uint32{}, 0, slice
	}
	for s.newest < slice {
		s.newest++
		old := &s.counts[s.newest%n]
		s.sum -= *old
		*old = 0
	}
	units = min(units, 1<<31-s.sum) // a sum of units stops there
	s.counts[slice%n] += units
	s.sum += units
	s.peak = max(s.peak, s.sum)
}

// followed is the peak of a source that was followed, and how many sources it stands for.
type followed struct {
	peak    int
	sources int64
}

// distribute writes down how many sources had which peak. exact says for each limit that was tried how many sources were over
// it; between those limits the numbers follow the estimates.
func distribute(found []followed, exact map[int]int64) []PeakBucket {
	if len(found) == 0 {
		return nil
	}
	slices.SortFunc(found, func(a, b followed) int { return cmp.Compare(a.peak, b.peak) })
	behind := make([]int64, len(found)+1) // sources that found[i:] stands for
	for i := len(found) - 1; i >= 0; i-- {
		behind[i] = behind[i+1] + found[i].sources
	}
	total, greatest := behind[0], found[len(found)-1].peak
	var ends, limits []int
	for limit := range exact {
		if limit > 0 {
			ends, limits = append(ends, limit), append(limits, limit)
		}
	}
	for step := 1; len(ends) == len(limits) || step/10 < greatest; step *= 10 {
		ends = append(ends, step, 2*step, 5*step)
	}
	slices.Sort(ends)
	slices.Sort(limits)
	ends = slices.Compact(ends)
	above := func(end int) int64 {
		at, _ := slices.BinarySearchFunc(found, end+1, func(f followed, peak int) int { return cmp.Compare(f.peak, peak) })
		n := behind[at]
		i, tried := slices.BinarySearch(limits, end)
		switch {
		case tried:
			return min(exact[end], total)
		case i > 0:
			n = min(n, exact[limits[i-1]])
		}
		if i < len(limits) {
			n = max(n, exact[limits[i]])
		}
		return min(n, total)
	}
	var out []PeakBucket
	from, left := 1, total
	for _, end := range ends {
		if left == 0 && (len(limits) == 0 || end > limits[len(limits)-1]) {
			break
		}
		n := above(end)
		out = append(out, PeakBucket{From: from, To: end, Sources: left - n})
		from, left = end+1, n
	}
	return out
}

// peaksInto writes the distributions down, once all rules have their sources.
func (r *run) peaksInto(all []RuleResult) {
	p := r.plan
	for i := range p.Rules {
		values := all[i*p.values : (i+1)*p.values]
		for v := range values {
			window, exact := 0, map[int]int64{values[v].Version.Limit: values[v].Sources}
			switch p.Sweep.Field {
			case SweepWindow:
				window = v
			case SweepLimit:
				for j := range values {
					exact[values[j].Version.Limit] = values[j].Sources
				}
			}
			var found []followed
			for _, s := range r.shards {
				if len(s.peaks.rules[i].counters) == 0 {
					continue
				}
				c := s.peaks.rules[i].counters[window]
				values[v].PeaksShare = max(values[v].PeaksShare, int(c.share))
				c.sources.all(func(src *peakSource) {
					found = append(found, followed{int(src.peak), int64(c.share)}) //nolint:gosec // at most maxPeakShare
				})
			}
			values[v].Peaks = distribute(found, exact)
		}
	}
}
