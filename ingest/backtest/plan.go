package backtest

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// keyedPartitions are as many as those of a replay. They do not follow the number of workers: what is evicted depends on them.
const keyedPartitions = 8

const defaultTop = 10

// plan is Options with defaults, and what follows from them.
type plan struct {
	Options
	routing rules.Routing // by which events are read: rules as given
	counted rules.Routing // by which they are counted: each rule once for each value
	// blocking is counted without what stands beside limits, of which no block comes.
	blocking rules.Routing
	swept    []string // of each value, its name; one empty one without a sweep
	values   int      // len(swept)
	index    map[string]int
	// Rules that a sweep makes of one, and that share windows, stand on a ladder: its first stands for all in records.
	ladders [][]int // by index into counted
	first   []int   // by index into counted: the first of its ladder, itself where it stands alone
	named   [][]int // of each rule as given, the firsts
	// whole says of a rule as given that its block is simulated in one place, since the block's subjects do not keep to
	// the partitions of its windows.
	whole      []bool
	apart      []bool        // of a rule as given: its block holds other requests than it watches
	extras     *rules.Extras // of routing, and by the rules' values alike of counted
	began      traffic.Time
	idleMargin time.Duration // of a live topic; else 0, the default
}

func newPlan(o Options) (*plan, error) {
	p := &plan{Options: o, index: map[string]int{}}
	p.Partitions = max(p.Partitions, 1)
	if p.Workers <= 0 {
		p.Workers = runtime.GOMAXPROCS(0)
	}
	if p.Budget <= 0 {
		p.Budget = detectors.DefaultBudget
	}
	if p.Top <= 0 {
		p.Top = defaultTop
	}
	if p.MaxEventBytes == 0 {
		p.MaxEventBytes = format.DefaultMaxEventBytes
	}
	if p.Generation == 0 {
		p.Generation = 1
	}
	if p.Now == nil {
		p.Now = func() traffic.Time { return traffic.Time(time.Now().UnixMicro()) }
	}
	if len(p.Rules) == 0 {
		return nil, errors.New("backtest: no rules; at least one is needed")
	}
	p.began = p.Now()
	p.routing = rules.Routing{
		Stream: "backtest", Number: 1, RecordFormat: detectors.RecordFormat, SecretID: "backtest", Rules: p.Rules, Identity: p.Identity, KnownGood: p.KnownGood,
		Format: rules.Format{Name: p.Format, Map: p.Fields, MaxEventBytes: p.MaxEventBytes},
	}
	p.routing.WithAllow(p.Allow)
	p.extras = p.routing.Extras()
	p.counted = p.routing
	if err := p.sweep(); err != nil {
		return nil, err
	}
	for i := range p.counted.Rules {
		p.index[p.counted.Rules[i].ID] = i
	}
	if len(p.index) < len(p.counted.Rules) {
		return nil, errors.New("backtest: two rules have one id")
	}
	p.climb()
	p.blocking = p.counted
	p.blocking.Rules = slices.Clone(p.counted.Rules)
	for i := range p.blocking.Rules {
		p.blocking.Rules[i].Near, p.blocking.Rules[i].Candidate = 0, nil
	}
	for i := range p.Rules {
		p.whole = append(p.whole, !keeps(&p.Rules[i]))
		p.apart = append(p.apart, p.Rules[i].HoldsApart())
	}
	return p, nil
}

// keeps reports whether all events that a block of the rule may hold are of one keyed partition of the rule.
func keeps(v *rules.Version) bool {
	return v.Block != nil && len(v.Key) > 0 && slices.Contains(v.Block.Key, v.Key[0])
}

// sweep makes the rules that are counted: one for each value, with an id of its own, which no document can have.
func (p *plan) sweep() error {
	changes, err := p.Sweep.changes()
	if err != nil {
		return err
	}
	p.values = len(changes)
	p.counted.Rules = nil
	for i := range changes {
		p.swept = append(p.swept, changes[i].name)
	}
	var errs []error
	for i := range p.Rules {
		for c, change := range changes {
			v := p.Rules[i]
			if change.apply != nil {
				v.Near, v.Candidate, v.Raised = 0, nil, nil // a sweep tries other limits itself
				change.apply(&v)
				if err := v.Validate(rules.Environment{Identity: p.Identity}); err != nil {
					errs = append(errs, fmt.Errorf("rule %s with %s: %w", v.ID, change.name, err))
				}
				v.ID = fmt.Sprintf("%s\x00%03d", v.ID, c)
			}
			p.counted.Rules = append(p.counted.Rules, v)
		}
	}
	return errors.Join(errs...)
}

// climb finds the rules that share windows.
func (p *plan) climb() {
	p.first, p.named = make([]int, len(p.counted.Rules)), make([][]int, len(p.Rules))
	for base := range p.Rules {
		order := make([]int, p.values)
		for v := range order {
			order[v] = base*p.values + v
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.counted.Rules[a].Limit, p.counted.Rules[b].Limit) })
		var ladders [][]int
		for _, i := range order {
			at := slices.IndexFunc(ladders, func(l []int) bool { return detectors.Shares(&p.counted.Rules[l[0]], &p.counted.Rules[i]) })
			if at < 0 {
				at, ladders = len(ladders), append(ladders, nil)
				p.named[base] = append(p.named[base], i)
			}
			ladders[at] = append(ladders[at], i)
			p.first[i] = ladders[at][0]
		}
		slices.Sort(p.named[base])
		p.ladders = append(p.ladders, ladders...)
	}
}

// change is one value of a sweep.
type change struct {
	name  string
	apply func(*rules.Version) // nil: as it is
}

// changes are one for each value, or one that changes nothing.
func (s *Sweep) changes() ([]change, error) {
	var out []change
	switch s.Field {
	case "":
		return []change{{}}, nil
	case SweepLimit:
		for _, n := range s.Limits {
			out = append(out, change{fmt.Sprintf("limit=%d", n), func(v *rules.Version) { v.Limit = n }})
		}
	case SweepWindow:
		for _, w := range s.Windows {
			out = append(out, change{"window=" + duration.Format(w), func(v *rules.Version) { v.Window = w }})
		}
	default:
		return nil, fmt.Errorf("sweep: got %q, allowed: %s, %s", s.Field, SweepLimit, SweepWindow)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("sweep: no value of %s", s.Field)
	}
	return out, nil
}

// tierOf is the tier of an event under a rule as counted, where tier is that under the rule as given, and may are the limits that
// it may have if that could not be judged: which of them is the greatest depends on the limit that a sweep tries.
func (p *plan) tierOf(counted, tier int, may rules.TierSet) int {
	if may == 0 {
		return tier
	}
	return p.counted.Rules[counted].Greatest(may)
}

// budget is what one set of windows of one keyed partition may take: of two sets, where a block is tried too, half each.
func (p *plan) budget() int64 {
	sets := int64(1)
	if slices.ContainsFunc(p.Rules, func(v rules.Version) bool { return v.Block != nil }) {
		sets = 2
	}
	return max(p.Budget/keyedPartitions/sets, 1)
}
