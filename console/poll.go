package console

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/traffic"
)

// The stores, as problems and metrics name them.
const (
	partHistory = "PostgreSQL"
	partBlocks  = "Redis"
)

const (
	recent      = time.Hour // how far back over-limit sources are shown
	hitsPerRule = 200       // episodes of a rule that are read: a busy rule hides no other one
)

// readings is what the stores said last. Console.mu guards it.
type readings struct {
	rules  []rulestore.Rule
	hits   map[string][]history.RecordedHit // by rule, newest last over event first
	listed blocklist.Listing
	parts  map[string]part
}

// part is how a store answers.
type part struct {
	answered traffic.Time // when it did last; 0: never
	failing  bool
}

// follow reads a store while somebody watches, until ctx is done. A slow store is read less often.
func (c *Console) follow(ctx context.Context, name string, read func(ctx context.Context) error) {
	wake := c.hub.waker()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake: // viewers that come and go do not make the store busier
			timer.Reset(time.Until(next))
			continue
		case <-timer.C:
		}
		if !c.hub.watched() {
			continue // until somebody comes
		}
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, pollTimeout)
		err := read(bounded)
		cancel()
		if ctx.Err() != nil {
			return
		}
		c.heard(name, err)
		c.publish()
		pause := max(PollEvery, pollShare*time.Since(began))
		next = time.Now().Add(pause)
		timer.Reset(pause)
	}
}

// heard remembers whether a store answered, and logs it where it did not.
func (c *Console) heard(name string, err error) {
	c.metrics.read(name, err)
	c.mu.Lock()
	last := part{answered: c.o.Clock(), failing: err != nil}
	if err != nil {
		last.answered = c.readings.parts[name].answered
	}
	if c.readings.parts == nil {
		c.readings.parts = map[string]part{}
	}
	c.readings.parts[name] = last
	c.mu.Unlock()
	if err != nil {
		c.troubles[name].Failed(c.o.Logger, "console: a store does not answer; the page shows what it said last", err, "store", name)
		return
	}
	c.troubles[name].Over(c.o.Logger, "console: the store answers again", "store", name)
}

func (c *Console) readHistory(ctx context.Context) error {
	all, err := c.o.Rules.List(ctx)
	if err != nil {
		return err
	}
	since := c.o.Clock().Add(-recent)
	hits := make(map[string][]history.RecordedHit, len(all))
	for _, r := range all {
		id := r.Newest.Version.ID
		if hits[id], err = c.o.History.Hits(ctx, history.HitQuery{Stream: history.Live, Rule: id, Since: since, Limit: hitsPerRule}); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readings.rules, c.readings.hits = all, hits
	return nil
}

func (c *Console) readBlocks(ctx context.Context) error {
	found, err := c.o.Blocks.List(ctx, c.o.Clock(), blocklist.Filter{Tombstones: true})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readings.listed = found
	return nil
}

// publish builds the sections of both stores: each says something about the other.
func (c *Console) publish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := newPicture(&c.readings, c.o.Clock(), c.o.Command)
	// Until both have been asked there is nothing to say: an empty list would be taken for good news.
	if len(c.readings.parts) < 2 {
		return
	}
	c.send(sectionRules, p.rulesView())
	c.send(sectionHits, p.hitsView())
	c.send(sectionBlocks, p.blocksView())
}

// beat takes the pulse and publishes it.
func (c *Console) beat() {
	p := c.o.Pulse()
	now := c.o.Clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meter.add(&p, now)
	v := c.meter.view(&p, now)
	v.Problems = append(v.Problems, c.readings.problems(v.Problems)...)
	c.send(sectionPulse, v)
}

// problems words what is wrong with the stores, unless it has been told.
func (s *readings) problems(told []Problem) []Problem {
	means := map[string]string{partHistory: "rules and over-limit sources", partBlocks: "blocks"}
	var out []Problem
	for _, name := range slices.Sorted(maps.Keys(s.parts)) {
		at := s.parts[name]
		if !at.failing || slices.ContainsFunc(told, func(p Problem) bool { return p.Part == name }) {
			continue
		}
		detail := fmt.Sprintf("does not answer: %s cannot be shown", means[name])
		if at.answered != 0 {
			detail = fmt.Sprintf("does not answer: %s are those of %s UTC", means[name], at.answered.Std().Format(time.TimeOnly))
		}
		out = append(out, Problem{Part: name, Detail: detail})
	}
	return out
}

// send publishes a section. The views hold only numbers, texts and times, which always encode; a failure all the same leaves
// the section as it was, and is logged.
func (c *Console) send(section string, view any) {
	frame, err := json.Marshal(view)
	if err != nil {
		c.o.Logger.Error("console: a section cannot be encoded", "section", section, "error", err)
		return
	}
	c.hub.publish(section, frame)
}
