package acceptance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/oracle"
)

const (
	backlogWindow = int64(time.Minute / time.Microsecond)
	slidingExact  = 128 // up to this limit, sliding is exact
)

// backlogRule is a rule that counts requests, or devices, of an address.
type backlogRule struct {
	id, algorithm string
	limit         int
	distinct      bool
}

func backlogRules() []backlogRule {
	var out []backlogRule
	for _, limit := range []int{100, 128, 129, 150} {
		for _, a := range []string{"fixed", "first-seen", "sliding-counter", "sliding-log", "token-bucket", "leaky-bucket", "sliding"} {
			out = append(out, backlogRule{fmt.Sprintf("%s-%d", a, limit), a, limit, false})
		}
		for _, a := range []string{"fixed", "first-seen", "leaky-bucket", "sliding"} {
			out = append(out, backlogRule{fmt.Sprintf("distinct-%s-%d", a, limit), a, limit, true})
		}
	}
	return out
}

func (r *backlogRule) document() string {
	count := "events"
	if r.distinct {
		count = "{distinct: device}"
	}
	return fmt.Sprintf("id: %s\nowner: tests\nmatch: {}\nkey: [ip]\ncount: %s\nlimit: %d\nwindow: 1m\nalgorithm: %s\nmax_lag: %s\nblock: {ttl: %s, extend: on-hit}\n",
		r.id, count, r.limit, r.algorithm, backlogMaxLag, backlogTTL)
}

// complete says that the order of events, within lateness, makes no difference to who is over the rule's limit.
func (r *backlogRule) complete() bool {
	switch r.algorithm {
	case "fixed", "sliding-log":
		return true
	case "sliding":
		return !r.distinct || r.limit <= slidingExact
	}
	return false
}

// steps are a source's events in the order of their time.
func (r *backlogRule) steps(events []backlogEvent) []oracle.Step {
	out := make([]oracle.Step, len(events))
	for i, e := range events {
		out[i] = oracle.Step{Time: e.at.UnixMicro(), Units: 1, Value: e.device, Limit: int64(r.limit)}
	}
	slices.SortStableFunc(out, func(a, b oracle.Step) int { return cmp.Compare(a.Time, b.Time) })
	return out
}

// over are the times at which a source was over, by the definition of the rule's algorithm.
func (r *backlogRule) over(events []backlogEvent) []int64 {
	steps := r.steps(events)
	var answers [][]oracle.Answer
	switch {
	case r.distinct && r.algorithm == "fixed":
		answers = append(answers, oracle.FixedDistinct(steps, backlogWindow))
	case r.distinct && r.algorithm == "first-seen":
		answers = append(answers, oracle.FirstSeenDistinct(steps, backlogWindow), oracle.LogDistinct(steps, backlogWindow))
	case r.distinct && r.algorithm == "leaky-bucket":
		answers = append(answers, oracle.BucketDistinct(steps, int64(r.limit), backlogWindow))
	case r.distinct:
		answers = append(answers, oracle.LogDistinct(steps, backlogWindow))
		if r.limit > slidingExact {
			answers = append(answers, oracle.RotatingDistinct(steps, backlogWindow))
		}
	case r.algorithm == "fixed":
		answers = append(answers, oracle.Fixed(steps, backlogWindow))
	case r.algorithm == "first-seen":
		// An event that was left out may be one that would have opened a window. The window that is opened instead is one
		// as long, so that who is over in it is over by the exact count.
		answers = append(answers, oracle.FirstSeen(steps, backlogWindow), slidingAnswers(steps, backlogWindow))
	case r.algorithm == "sliding-counter":
		answers = append(answers, oracle.SlidingCounter(steps, backlogWindow))
	case r.algorithm == "token-bucket" || r.algorithm == "leaky-bucket":
		answers = append(answers, oracle.Bucket(steps, int64(r.limit), backlogWindow))
	default:
		answers = append(answers, slidingAnswers(steps, backlogWindow))
	}
	var out []int64
	for i, s := range steps {
		if slices.ContainsFunc(answers, func(a []oracle.Answer) bool { return a[i].Over }) {
			out = append(out, s.Time)
		}
	}
	return out
}

// slidingAnswers counts, for each step, those in the window that ends at it.
func slidingAnswers(sorted []oracle.Step, window int64) []oracle.Answer {
	out := make([]oracle.Answer, len(sorted))
	oldest := 0
	for i, s := range sorted {
		for sorted[oldest].Time <= s.Time-window {
			oldest++
		}
		count := int64(i - oldest + 1)
		out[i] = oracle.Answer{Over: count > s.Limit, Count: count}
	}
	return out
}

// must reports whether a rule that does not depend on order has to find the source: sliding above its exact limit may
// miss who is over in a whole window, but not in one that is shorter by a slice of it.
func (r *backlogRule) must(events []backlogEvent) bool {
	if r.algorithm == "sliding" && r.limit > slidingExact {
		return slices.ContainsFunc(slidingAnswers(r.steps(events), backlogWindow-backlogWindow/64), func(a oracle.Answer) bool { return a.Over })
	}
	return len(r.over(events)) > 0
}

// flagged are the sources of which history has a hit, by rule and subject.
func (b *backlog) flagged() map[[2]string]bool {
	b.t.Helper()
	flagged := map[[2]string]bool{}
	b.in.query(`SELECT DISTINCT rule, subject FROM {ns}.hits_all WHERE stream = 'live'`, func(rows pgx.Rows) error {
		var k [2]string
		err := rows.Scan(&k[0], &k[1])
		flagged[k] = true
		return err
	})
	return flagged
}

// judgeHits compares who is flagged with who was over.
func (b *backlog) judgeHits(all []backlogRule) {
	b.t.Helper()
	flagged := b.flagged()
	for i := range all {
		r := &all[i]
		truly, found, missed := 0, 0, 0
		for ip, events := range b.events {
			was := len(events) > r.limit && len(r.over(events)) > 0
			is := flagged[[2]string{r.id, subjectOf(ip)}]
			switch {
			case is && !was:
				b.t.Errorf("%s: %s is flagged and was never over", r.id, ip)
			case was && !is && r.complete() && r.must(events):
				b.t.Errorf("%s: %s was over and is not flagged", r.id, ip)
			case was && !is:
				missed++
			}
			if was {
				truly++
			}
			if was && is {
				found++
			}
		}
		if truly < 8 || truly > 25 {
			b.t.Errorf("%s: %d sources are over: the backlog shows nothing", r.id, truly)
		}
		if missed > 0 {
			b.t.Logf("%s: %d of %d sources that were over are flagged", r.id, found, truly)
		}
	}
}

// offBy is how far an instant is from the nearest at which a source was over. Of two requests that come the wrong way
// round, the one that came last is the one that was too many.
func offBy(over []int64, at time.Time) time.Duration {
	nearest := time.Duration(1<<63 - 1)
	for _, t := range over {
		nearest = min(nearest, at.Sub(time.UnixMicro(t)).Abs())
	}
	return nearest
}

// judgeBlocks checks that every block rests on evidence of the present.
func (b *backlog) judgeBlocks(all []backlogRule) {
	b.t.Helper()
	rules := map[string]*backlogRule{}
	for i := range all {
		rules[all[i].id] = &all[i]
	}
	bySubject := map[string][]backlogEvent{}
	for ip, events := range b.events {
		bySubject[subjectOf(ip)] = events
	}
	written, withheld := 0, 0
	for _, d := range b.decisions() {
		if d.action == "withheld" {
			withheld++
			if d.reason != "max_lag" {
				b.t.Errorf("%s: %s is not blocked for %s", d.rule, d.subject, d.reason)
			}
			continue
		}
		written++
		evidence := d.until.Add(-backlogTTL) // extend: on-hit, from the last over event
		if age := d.at.Sub(evidence); age > backlogMaxLag || age < -time.Second {
			b.t.Errorf("%s: %s is blocked on evidence that is %v old", d.rule, d.subject, age)
		}
		r := rules[d.rule]
		if off := offBy(r.over(bySubject[d.subject]), evidence); off > backlogDisorder {
			b.t.Errorf("%s: %s is blocked since it was over at %v: that is %v from when it was", d.rule, d.subject, evidence, off)
		}
	}
	// Who was over when weir came back is blocked where it came back within max_lag; those of the present always are.
	if written < len(all) || withheld < 5*len(all) {
		b.t.Errorf("%d blocks and %d withheld, by %d rules: the backlog shows nothing", written, withheld, len(all))
	}
	b.t.Logf("%d blocks on evidence of the present, %d withheld for max_lag", written, withheld)
}
