package boardtest

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"
)

// blockBuckets are the bounds of the histogram of how long blocks took, in seconds.
var blockBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// inTime is what the objective gives a block, in seconds.
const inTime = 5

// block is a decision to block: how long after the last over event Redis said that it had the block, in seconds. That was after ENFORCE had decided,
// and before Kafka had the decision.
type block struct {
	at          time.Time
	least, most float64
}

// everyBlock is all of them, those before the load too.
func (f *facts) everyBlock() (all []block) {
	appended := map[string]time.Time{}
	for i := range f.decisions {
		if d := &f.decisions[i]; appended[d.ID].IsZero() { // repeated, it is the same
			appended[d.ID] = d.at
		}
	}
	for _, row := range f.sql(`SELECT d.id, d.at, d.until - r.block_ttl FROM {}.block_decisions_v d JOIN {}.rules_v r USING (rule)
		WHERE d.action IN ('written', 'extended')`) {
		at, evidence := row[1].(time.Time), row[2].(time.Time)
		known, ok := appended[row[0].(string)]
		if !ok {
			f.g.prometheus.t.Errorf("PostgreSQL has a decision that Kafka has not: %v", row)
		}
		all = append(all, block{at, max(0, at.Sub(evidence).Seconds()), max(0, known.Sub(evidence).Seconds())})
	}
	return all
}

// tookToBlock is the blocks of the span.
func (f *facts) tookToBlock() []block {
	return slices.DeleteFunc(f.everyBlock(), func(b block) bool { return !f.within(b.at) })
}

// quantileOfBlocks is where the histogram may put a quantile: in the bucket of that block by when it was decided, or in one up to that by
// when it was told.
func (f *facts) quantileOfBlocks(q float64) value {
	took := f.tookToBlock()
	if len(took) == 0 {
		return is(math.NaN())
	}
	at := int(math.Ceil(q*float64(len(took)))) - 1
	slices.SortFunc(took, func(a, b block) int { return cmp.Compare(a.least, b.least) })
	least := took[at].least
	slices.SortFunc(took, func(a, b block) int { return cmp.Compare(a.most, b.most) })
	most := took[at].most
	v := between(0, blockBuckets[0])
	for i, bound := range blockBuckets[1:] {
		if least > blockBuckets[i] {
			v.low = blockBuckets[i]
		}
		if most > blockBuckets[i] {
			v.high = bound
		}
	}
	return v
}

// cameLate is the share of blocks that were not in time, or withheld for that, as the mean over rates of five minutes has it: see failedOpen.
// Where it is not known of a block whether it was, it is between two numbers.
func (f *facts) cameLate() (least, most float64) {
	all := 0.0
	add := func(at time.Time, surely, maybe bool) {
		passed := max(0, f.s.to.Sub(at).Seconds())
		all += passed
		if surely {
			least += passed
		}
		if maybe {
			most += passed
		}
	}
	for _, b := range f.everyBlock() {
		add(b.at, b.least > inTime, b.most > inTime)
	}
	for _, row := range f.sql(`SELECT at FROM {}.block_decisions_v WHERE action = 'withheld' AND reason IN ('max_lag', 'expired')`) {
		add(row[0].(time.Time), true, true)
	}
	return least / all, most / all
}

func leText(le float64) string {
	if math.IsInf(le, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(le, 'g', -1, 64)
}
