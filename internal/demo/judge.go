package demo

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/traffic"
)

// JudgeOptions say what was to be.
type JudgeOptions struct {
	// Promoted: the rules were to block after the promotion. Else nobody was to be refused at all.
	Promoted bool
	// Allowance is the most that may lie between the request that was too many and its block, stalls of the machine
	// left out; default and most the constant Allowance. Within it, a request of that source may be answered either
	// way.
	Allowance time.Duration
}

// Judge compares what the clients saw, and what history says, with the truth. The error is about the input; the verdict
// is in the report.
func Judge(l Ledger, a Answers, r Recorded, o JudgeOptions) (Report, error) {
	if o.Allowance == 0 {
		o.Allowance = Allowance
	}
	if o.Allowance < 0 || o.Allowance > Allowance {
		return Report{}, fmt.Errorf("judge: allowance %s, allowed: up to %s", o.Allowance, Allowance)
	}
	if o.Promoted != (a.Promoted != 0) {
		return Report{}, fmt.Errorf("judge: promoted is %t, but the run's promotion took place: %t", o.Promoted, a.Promoted != 0)
	}
	if len(a.Cast) == 0 {
		return Report{}, fmt.Errorf("judge: answers without a cast")
	}
	j := &judge{
		ledger: l, answers: &a, recorded: r, o: o, rules: truthRules(), over: episodes(l, &a, o.Allowance),
		clients: map[source][]*Client{},
	}
	for i := range a.Cast {
		c := &a.Cast[i]
		for _, rule := range j.rules {
			s := source{rule.ID, rule.Subject(c.Network.Addr(), c.Device)}
			j.clients[s] = append(j.clients[s], c)
		}
	}
	j.judge()
	return j.report(), nil
}

// judge is one judgement under way.
type judge struct {
	ledger   Ledger
	answers  *Answers
	recorded Recorded
	o        JudgeOptions
	rules    []oracle.Rule

	over    map[source][]*episode
	clients map[source][]*Client // of the cast; another source is somebody's own curl
	seen    []*seen              // in the order of the stamps
	checks  []*Check
}

func (j *judge) judge() {
	j.complete()
	j.joined()
	j.decidable()
	j.held()
	j.ordinary()
	j.blocks()
	j.overLimit()
	j.parts()
}

// check begins one.
func (j *judge) check(name string) *Check {
	c := &Check{Name: name}
	j.checks = append(j.checks, c)
	return c
}

// complete asks whether weir was told everything: what it was not told, it cannot know.
func (j *judge) complete() {
	c := j.check("every event went to Kafka, every request into the ledger")
	c.Looked = len(j.ledger.Stamps)
	for _, n := range []struct {
		what  string
		count int
	}{
		{"events found the queue full", j.ledger.Dropped}, {"events were not taken by Kafka", j.ledger.Failed},
		{"requests found no room in the ledger", j.ledger.Unrecorded},
	} {
		if n.count > 0 {
			c.failf("%d %s", n.count, n.what)
		}
	}
}

// joined puts answers and stamps together, one to one.
func (j *judge) joined() {
	c := j.check("every answer matches the gateway's stamp")
	stamps := map[string]*Stamp{}
	for i := range j.ledger.Stamps {
		s := &j.ledger.Stamps[i]
		if stamps[s.ID] != nil {
			c.failf("request %s is in the ledger twice", s.ID)
		}
		stamps[s.ID] = s
	}
	for i := range j.answers.Requests {
		a := &j.answers.Requests[i]
		client := &j.answers.Cast[a.Client]
		s := stamps[a.ID]
		c.Looked++
		switch {
		case a.Status == 0 && j.givenUp(a):
			c.unsuref("%s: request %s was given up: %s", client.Name, a.ID, a.Err)
			continue
		case a.Status == 0:
			c.failf("%s: request %s has no answer: %s", client.Name, a.ID, a.Err)
		case s == nil:
			c.failf("%s: request %s is not in the ledger", client.Name, a.ID)
		case s.Status != a.Status || s.Rule != a.Rule || s.Block != a.Block || s.Refused() != a.Refused():
			c.failf("%s: request %s was answered %d %s %s, the ledger has %d %s %s", client.Name, a.ID, a.Status, a.Rule, a.Block,
				s.Status, s.Rule, s.Block)
		case !a.Refused() && a.Status != wanted(a):
			c.failf("%s: request %s was answered %d instead of %d", client.Name, a.ID, a.Status, wanted(a))
		}
		if s != nil {
			j.seen = append(j.seen, &seen{answer: a, stamp: s, client: client})
		}
	}
	slices.SortFunc(j.seen, func(a, b *seen) int { return int(a.stamp.Time - b.stamp.Time) })
}

// givenUp reports whether a client has waited for an answer for as long as it does, and the machine has not let anybody
// give it in that time.
func (j *judge) givenUp(a *Answer) bool {
	return a.Received.Sub(a.Sent) >= requestTimeout && a.Received < ran(j.answers.Stalls, a.Sent, requestTimeout)
}

// wanted is the API's own answer.
func wanted(a *Answer) int {
	if a.Fault {
		return 503
	}
	return 200
}

// decidable asks whether the clients stuck to their scripts: an ordinary viewer over a limit, or an abuser at work
// during the promotion, would make the run worthless.
func (j *judge) decidable() {
	c := j.check("the truth is decided for every client")
	for s, list := range j.over {
		for _, client := range j.clients[s] {
			c.Looked++
			if !client.Kind.Abuses() {
				c.failf("%s is ordinary and went over %s at %s: the script is wrong", client.Name, s.rule, list[0].First)
			}
		}
		for _, e := range list {
			if e.phase == between && len(j.clients[s]) > 0 {
				c.failf("%s went over %s at %s, too close to the promotion at %s", s.subject, s.rule, e.First, j.answers.Promotion)
			}
		}
	}
}

// held goes through all requests in the order of time: who had to be refused, and who must not have been?
func (j *judge) held() {
	lifts := j.check(fmt.Sprintf("over-limit sources are refused, from %s after the request too many at most until the block ends", j.o.Allowance))
	wrong := j.check("nobody else is refused, and nobody for longer")
	rule := j.check("a refusal names the rule, and Retry-After the end of the block")
	for _, s := range j.seen {
		var must, may *episode
		for i := range j.rules {
			r := &j.rules[i]
			if !r.Watches(s.stamp.Method, s.stamp.Path) {
				continue
			}
			for _, e := range j.over[source{r.ID, r.Subject(s.stamp.Client, s.stamp.Device)}] {
				if e.must(s) {
					must = e
				}
				if e.may(s) {
					may = e
				}
			}
		}
		switch {
		case !s.answer.Refused() && must != nil:
			lifts.failf("%s passed at %s; over %s since %s, blocked until %s", s.client.Name, s.stamp.Time, must.Rule, must.First, must.until)
		case s.answer.Refused() && may == nil:
			wrong.failf("%s was refused at %s by %s; it had to pass", s.client.Name, s.stamp.Time, s.answer.Rule)
		case s.answer.Refused():
			may.refused = append(may.refused, s)
			rule.Looked++
			if s.answer.Rule != may.Rule {
				rule.failf("%s was refused at %s by %s; it was over %s", s.client.Name, s.stamp.Time, s.answer.Rule, may.Rule)
			}
			if least, most := retryAfter(may.until-s.stamp.Checked), retryAfter(may.until-s.stamp.Arrived); s.answer.RetryAfter < least || s.answer.RetryAfter > most {
				rule.failf("%s was told at %s to wait %d s; the block ended %s later", s.client.Name, s.stamp.Time, s.answer.RetryAfter,
					may.until.Sub(s.stamp.Time))
			}
		}
		if must != nil {
			lifts.Looked++
		}
		if may == nil {
			wrong.Looked++
		}
	}
}

// retryAfter is what Retry-After says about a block that lasts so much longer.
func retryAfter(left traffic.Time) int {
	const second = traffic.Time(1_000_000)
	return int(max(1, (left+second-1)/second))
}
