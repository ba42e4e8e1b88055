package gate

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/traffic"
)

// protocol is the way in which a gate was asked.
type protocol int

const (
	byCall        protocol = iota // Check
	byForwardAuth                 // ForwardAuth
	byAuthRequest                 // AuthRequest
	byHTTP                        // Middleware
	numProtocols
)

// String is a protocol's label.
func (p protocol) String() string {
	return [numProtocols]string{"call", "forward_auth", "auth_request", "http"}[p]
}

// What is decided on a request, as labels.
const (
	decidedPass        = "pass"
	decidedFailOpen    = "fail_open"
	decidedRefuse      = "refuse"
	decidedWouldRefuse = "would_refuse"
)

// decisions counts what a gate decides. A request that passes costs one addition: nothing is looked up for it.
type decisions struct {
	desc     *prometheus.Desc
	blocking func() []string // the rules that block
	clock    func() traffic.Time

	served   [numProtocols]atomic.Bool
	passed   [numProtocols]atomic.Uint64
	unjudged [numProtocols]atomic.Uint64

	refused, wouldRefuse atomic.Uint64 // of all rules, those included that are gone

	mu     sync.Mutex                           // of who changes rules
	byRule atomic.Pointer[map[string]*ruleHeld] // those that block or have held a request; the map is never changed
}

// ruleHeld counts the requests that one rule's blocks have held.
type ruleHeld struct {
	refused, wouldRefuse [numProtocols]atomic.Uint64
	gone                 traffic.Time // since when the rule is known not to block; 0: it blocks
}

var _ prometheus.Collector = (*decisions)(nil)

func newDecisions(blocking func() []string, clock func() traffic.Time) *decisions {
	d := &decisions{blocking: blocking, clock: clock, desc: prometheus.NewDesc("weir_gate_decisions_total",
		"Checks by protocol and decision: pass, refuse, would_refuse (the gate observes), "+
			"fail_open (passed unjudged, the blocklist is not loaded, or this Redis has none of the namespace); "+
			"by the rule of the block for refuse and would_refuse, from 0 on for each rule that blocks and protocol that the gate serves or was asked by.",
		[]string{"protocol", "decision", "rule"}, nil)}
	d.byRule.Store(&map[string]*ruleHeld{})
	return d
}

// serve notes that a gate may be asked by a protocol.
func (d *decisions) serve(by protocol) { d.served[by].Store(true) }

// held counts a request that a block of rule holds.
func (d *decisions) held(rule string, by protocol, observing bool) {
	c := (*d.byRule.Load())[rule]
	if c == nil {
		c = d.enter(rule)
	}
	if observing {
		c.wouldRefuse[by].Add(1)
		d.wouldRefuse.Add(1)
	} else {
		c.refused[by].Add(1)
		d.refused.Add(1)
	}
}

// sums are what a gate has decided since it was made, by all protocols and rules.
type sums struct{ passed, unjudged, refused, wouldRefuse uint64 }

func (d *decisions) sums() sums {
	n := sums{refused: d.refused.Load(), wouldRefuse: d.wouldRefuse.Load()}
	for by := range numProtocols {
		n.passed += d.passed[by].Load()
		n.unjudged += d.unjudged[by].Load()
	}
	return n
}

// enter makes the counters of a rule. One that does not block any more counts without a name.
func (d *decisions) enter(rule string) *ruleHeld {
	if !slices.Contains(d.blocking(), rule) {
		rule = ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := (*d.byRule.Load())[rule]; c != nil {
		return c
	}
	c := &ruleHeld{}
	next := maps.Clone(*d.byRule.Load())
	next[rule] = c
	d.byRule.Store(&next)
	return c
}

// Describe implements prometheus.Collector.
func (d *decisions) Describe(ch chan<- *prometheus.Desc) { ch <- d.desc }

// Collect implements prometheus.Collector.
func (d *decisions) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for by := range numProtocols {
		d.send(ch, by, decidedPass, "", d.passed[by].Load())
		d.send(ch, by, decidedFailOpen, "", d.unjudged[by].Load())
	}
	rules := maps.Clone(*d.byRule.Load())
	d.follow(rules)
	asked := d.asked(rules)
	for rule, c := range rules {
		for by := range numProtocols {
			refused, wouldRefuse := c.refused[by].Load(), c.wouldRefuse[by].Load()
			begun := rule != "" && asked[by]
			if begun || refused > 0 {
				d.send(ch, by, decidedRefuse, rule, refused)
			}
			if begun || wouldRefuse > 0 {
				d.send(ch, by, decidedWouldRefuse, rule, wouldRefuse)
			}
		}
	}
	d.byRule.Store(&rules)
}

// shownLonger is how long after its end a rule is shown, so that its last refusals are scraped, by several servers too.
const shownLonger = 2 * time.Minute

// follow adds the rules that block and drops those that have ceased to. The counters begin with the rule, and not with its first
// refusal: a rate needs the 0 before it. mu is held.
func (d *decisions) follow(rules map[string]*ruleHeld) {
	blocking, now := d.blocking(), d.clock()
	for _, rule := range blocking {
		if rules[rule] == nil {
			rules[rule] = &ruleHeld{}
		}
	}
	for rule, c := range rules {
		switch blocks := rule == "" || slices.Contains(blocking, rule); {
		case blocks:
			c.gone = 0
		case c.gone == 0:
			c.gone = now
		case now.Sub(c.gone) >= shownLonger:
			delete(rules, rule)
		}
	}
}

// asked says of each protocol whether a gate may be asked by it, or was. One that serves none is asked by Check.
func (d *decisions) asked(rules map[string]*ruleHeld) (asked [numProtocols]bool) {
	for by := range numProtocols {
		asked[by] = d.served[by].Load()
	}
	asked[byCall] = asked == [numProtocols]bool{}
	for by := range numProtocols {
		asked[by] = asked[by] || d.passed[by].Load() > 0 || d.unjudged[by].Load() > 0
		for _, c := range rules {
			asked[by] = asked[by] || c.refused[by].Load() > 0 || c.wouldRefuse[by].Load() > 0
		}
	}
	return asked
}

func (d *decisions) send(ch chan<- prometheus.Metric, by protocol, decision, rule string, n uint64) {
	ch <- prometheus.MustNewConstMetric(d.desc, prometheus.CounterValue, float64(n), by.String(), decision, rule)
}
