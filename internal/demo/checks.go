package demo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/traffic"
)

// ordinary asks the one thing that counts most.
func (j *judge) ordinary() {
	c := j.check("no ordinary viewer is ever refused")
	for _, s := range j.seen {
		if s.client.Kind.Abuses() {
			continue
		}
		c.Looked++
		if s.answer.Refused() {
			c.failf("%s was refused at %s by %s", s.client.Name, s.stamp.Time, s.answer.Rule)
		}
	}
	if c.Looked == 0 {
		c.failf("no ordinary viewer sent anything")
	}
}

// blocks asks about block ids: one for each block, which support finds in history.
func (j *judge) blocks() {
	c := j.check("each block has one id, which history knows")
	ids := map[string]*episode{}
	recorded := map[Over]string{}
	for _, h := range j.recorded.Hits {
		recorded[Over{Rule: h.Rule, Subject: h.Subject, First: h.First}] = gate.BlockID(h.ID)
	}
	for _, list := range j.over {
		for _, e := range list {
			if len(e.refused) == 0 {
				continue
			}
			c.Looked++
			id := e.refused[0].answer.Block
			for _, s := range e.refused {
				if s.answer.Block != id || id == "" {
					c.failf("%s was told block %q and block %q", e.Subject, id, s.answer.Block)
					break
				}
			}
			if other := ids[id]; other != nil {
				c.failf("block %s is that of %s and of %s", id, e.Subject, other.Subject)
			}
			ids[id] = e
			if want := recorded[Over{Rule: e.Rule, Subject: e.Subject, First: e.First}]; want != id {
				c.failf("%s was told block %q; history has %q", e.Subject, id, want)
			}
		}
	}
}

// overLimit compares history with the truth, episode by episode.
func (j *judge) overLimit() {
	c := j.check("history has exactly the truth's sources, each over its limit at the very request")
	history := j.history()
	for _, s := range slices.SortedFunc(maps.Keys(history), source.compare) {
		c.Looked++
		j.compareSource(c, s, history[s])
	}
}

func (s source) compare(t source) int {
	return strings.Compare(s.rule+"\x00"+s.subject, t.rule+"\x00"+t.subject)
}

// history is what weir has recorded of the demo's rules since the ledger began, by source, and an empty list for each
// source that only the truth has.
func (j *judge) history() map[source][]RecordedHit {
	all := map[source][]RecordedHit{}
	for s := range j.over {
		all[s] = nil
	}
	if len(j.ledger.Stamps) == 0 {
		return all
	}
	for _, h := range j.recorded.Hits {
		if h.First >= j.ledger.Stamps[0].Time && slices.Contains(RuleIDs(), h.Rule) {
			s := source{h.Rule, h.Subject}
			all[s] = append(all[s], h)
		}
	}
	return all
}

func (j *judge) compareSource(c *Check, s source, recorded []RecordedHit) {
	truth := j.over[s]
	switch {
	case len(truth) == 0:
		c.failf("history has %s over %s at %s; it was not", s.subject, s.rule, recorded[0].First)
		return
	case len(recorded) == 0:
		c.failf("%s was over %s at %s; history does not know", s.subject, s.rule, truth[0].First)
		return
	case len(j.clients[s]) == 0:
		return // somebody else's requests may have been under way side by side, so that their order is not known
	}
	slices.SortFunc(recorded, func(a, b RecordedHit) int { return int(a.First - b.First) })
	if len(truth) != len(recorded) {
		c.failf("%s was over %s %d times; history has %d", s.subject, s.rule, len(truth), len(recorded))
		return
	}
	for i, e := range truth {
		h := recorded[i]
		if h.First != e.First {
			c.failf("%s was over %s at %s; history has %s", s.subject, s.rule, e.First, h.First)
		}
		// The last word on an episode comes with its closing, which may be later than the judge.
		if h.Last > e.Last || h.Count > e.Count {
			c.failf("%s was over %s until %s, %d requests; history has %s, %d", s.subject, s.rule, e.Last, e.Count, h.Last, h.Count)
		}
	}
}

// parts asks whether everybody played their part: a run in which nobody abused anything proves nothing.
func (j *judge) parts() {
	c := j.check("everybody played their part")
	sent := map[string]int{}
	for _, s := range j.seen {
		if s.client.Kind == KindExact && s.stamp.Path == pathTokens {
			sent[s.client.Name]++
		}
	}
	for i := range j.answers.Cast {
		client := &j.answers.Cast[i]
		c.Looked++
		switch {
		case client.Kind == KindExact && sent[client.Name] != limitTokens:
			c.failf("%s took %d tokens, its part was %d", client.Name, sent[client.Name], limitTokens)
		case client.Kind.Abuses():
			j.played(c, client)
		}
	}
}

// played asks for an abuser's episodes: in shadow, and after the promotion with a refusal; from one who comes back, two.
func (j *judge) played(c *Check, client *Client) {
	var watched, blocked, refused, untold int
	for i := range j.rules {
		r := &j.rules[i]
		for _, e := range j.over[source{r.ID, r.Subject(client.Network.Addr(), client.Device)}] {
			switch e.phase {
			case inShadow:
				watched++
			case blocking:
				blocked++
				refused += min(1, len(e.refused))
				if e.untold() {
					untold++
				}
			}
		}
	}
	want := 1
	if client.Kind == KindReturning {
		want = 2
	}
	tell := c.failf
	switch {
	case j.answers.CutShort,
		watched == 0 && j.tried(client, 0, j.promotion()),
		watched > 0 && blocked == 0 && j.tried(client, j.promotion(), traffic.EndOfTime),
		watched > 0 && blocked > 0 && refused+untold >= want:
		tell = c.unsuref
	}
	switch {
	case watched == 0:
		tell("%s never went over a limit in shadow", client.Name)
	case j.o.Promoted && (blocked < want || refused < want):
		tell("%s went over a limit %d times after the promotion and was refused %d times; its part is %d", client.Name,
			blocked, refused, want)
	}
}

// promotion is when the rules were to block, the end of time where they never were.
func (j *judge) promotion() traffic.Time {
	if j.answers.Promotion == 0 {
		return traffic.EndOfTime
	}
	return j.answers.Promotion
}

// tried reports whether an abuser has sent what is over its limit, from one instant to another, and it was within a
// window but for the stalls of the machine.
func (j *judge) tried(client *Client, from, until traffic.Time) bool {
	var of []*Answer
	for i := range j.answers.Requests {
		a := &j.answers.Requests[i]
		if &j.answers.Cast[a.Client] == client && a.Sent >= from && a.Received < until {
			of = append(of, a)
		}
	}
	volley := client.Kind.volley()
	for i := volley - 1; i < len(of); i++ {
		if first := of[i-volley+1].Sent; of[i].Received < ran(j.answers.Stalls, first, window) {
			return true
		}
	}
	return false
}

// latencies are the times from the request that was too many to the first refusal, of the clients that ask all the time.
func (j *judge) latencies() (all []time.Duration) {
	for _, list := range j.over {
		for _, e := range list {
			if len(e.refused) > 0 && e.refused[0].client.probes() {
				all = append(all, e.refused[0].stamp.Time.Sub(e.First))
			}
		}
	}
	slices.Sort(all)
	return all
}

// quantile is the smallest value that q of the sorted values do not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	at := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// unsuref notes what the machine has kept the demo from finding out.
func (c *Check) unsuref(format string, arguments ...any) {
	c.Unsure++
	if len(c.Doubts) < maxDetails {
		c.Doubts = append(c.Doubts, fmt.Sprintf(format, arguments...))
	}
}

func (c *Check) failf(format string, arguments ...any) {
	c.Failures++
	if len(c.Details) < maxDetails {
		c.Details = append(c.Details, fmt.Sprintf(format, arguments...))
	}
}
