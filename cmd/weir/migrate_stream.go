package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
)

// makeStream finds the live stream or makes it.
func (m *migration) makeStream(ctx context.Context) error {
	st, err := m.store.Stream(ctx, history.Live)
	keyed := m.conf.Kafka.Partitions.Keyed
	switch {
	case errors.Is(err, history.ErrNotFound) && m.topics.keyedHolds:
		return fmt.Errorf("topic %s holds records, but schema %s knows no stream that wrote them: they are of an installation whose "+
			"database is gone; delete the topics %s.*, or use another namespace", m.names.Keyed, m.store.Schema(), m.conf.Namespace)
	case errors.Is(err, history.ErrNotFound):
		counts := history.PartitionCounts{Requests: m.topics.requests, Keyed: keyed, Hits: m.topics.hits, Budget: int64(m.conf.Detect.BudgetPerPartition)}
		if st, err = m.store.CreateStream(ctx, history.Live, counts); err != nil {
			return err
		}
		m.isNew = true
		m.say("stream live made, generation %d", st.Generation)
	case err != nil:
		return err
	case st.Partitions.Keyed != keyed:
		return fmt.Errorf("stream live was made with %d keyed partitions, the configuration says %d: "+
			"the number is fixed, correct kafka.partitions.keyed or use another namespace", st.Partitions.Keyed, keyed)
	}
	m.stream = st
	return m.setBudget(ctx)
}

// setBudget stores what one keyed partition may hold, where the configuration says another number than before.
func (m *migration) setBudget(ctx context.Context) error {
	before, now := m.stream.Partitions.Budget, m.conf.Detect.BudgetPerPartition
	if before == int64(now) {
		return nil
	}
	if err := m.store.SetBudget(ctx, history.Live, int64(now), m.by); err != nil {
		return err
	}
	m.stream.Partitions.Budget = int64(now)
	m.say("budget of a keyed partition is %s now, before %s; restart the processes that detect", now, config.Size(before))
	return nil
}

// routeGroup is the consumer group whose commits say where routing stands.
func (m *migration) routeGroup() string {
	return ingest.Live.Group(m.conf.Namespace, service.StageRoute)
}

// readCommits reads where routing stands. A commit that cannot be read as weir's is left to its stage, which refuses the
// partition and says why.
func (m *migration) readCommits(ctx context.Context) error {
	m.commits = map[int]*ingest.Announcement{}
	if m.isNew {
		return nil // a commit that is there all the same is of an installation whose database is gone
	}
	stored, err := m.kafka.FetchCommits(ctx, m.routeGroup(), m.names.Requests, upTo(m.topics.requests))
	if err != nil {
		return err
	}
	for p, c := range stored {
		a, err := ingest.DecodeAnnouncement(c.Metadata)
		if err != nil {
			m.say("partition requests/%d: its commit is not weir's (%v); weir partitions list says more", p, err)
			a = nil
		}
		m.commits[p] = a
	}
	return nil
}

// renew begins a new generation of the stream where the requests topic is not the one that was routed so far.
func (m *migration) renew(ctx context.Context) error {
	why := ""
	switch {
	case m.isNew:
	case m.opt.recreated:
		why = "the operator says that requests was made anew"
	case m.topics.made:
		why = "requests was missing and was made anew"
	case shorterThanRouted(m.topics.log, m.commits):
		why = "requests ends before what was routed, in every partition: it was made anew"
	}
	if why == "" {
		return nil
	}
	g, err := m.store.RecreateGeneration(ctx, history.Live, m.topics.requests, m.by, why)
	if err != nil {
		return err
	}
	m.say("stream live begins generation %d: %s", g, why)
	m.stream.Generation, m.stream.Partitions.Requests, m.renewed = g, m.topics.requests, true
	return nil
}

// shorterThanRouted reports whether no partition's log reaches what was routed of it, and all begin at 0: a topic that
// was deleted and made anew. A log that only lost its end in a few partitions is another matter, for an operator.
func shorterThanRouted(log map[int]ingest.Bounds, commits map[int]*ingest.Announcement) bool {
	routed := 0
	for p, a := range commits {
		if a == nil || a.Offset == 0 {
			continue
		}
		if log[p].Start > 0 || log[p].End >= a.Offset {
			return false
		}
		routed++
	}
	return routed > 0
}

// publish makes the routing version that holds the configuration's identity map and event format, with the rules that
// count.
func (m *migration) publish(ctx context.Context) error {
	secretID, _, err := m.store.Secret(ctx)
	if err != nil {
		return err
	}
	modes, err := m.store.Modes(ctx)
	if err != nil {
		return err
	}
	format := 0
	number, changed, err := m.store.PublishRouting(ctx, history.Live, func(prev *rules.Routing) (rules.Routing, error) {
		format = m.recordFormat(prev)
		made := rules.Routing{
			// The number is set where it is stored; the check wants one.
			Stream: history.Live, Number: 1, RecordFormat: format, SecretID: secretID,
			Identity: m.conf.Identity, Format: m.conf.EventFormat(),
		}
		if prev != nil {
			made.Rules = prev.Rules
			if err := safeFormat(prev.Format, made.Format, modes); err != nil {
				return made, err
			}
		}
		return made, made.Validate()
	})
	if err != nil {
		return err
	}
	m.version = number
	if changed {
		m.say("routing version %d published, record format %d", number, format)
	} else {
		m.say("routing version %d: nothing to do", number)
	}
	if format < detectors.RecordFormat {
		m.say("record format %d is kept; when all processes are of this build: weir migrate --record-format %d", format, detectors.RecordFormat)
	}
	return nil
}

// recordFormat is the format of the next routing version. Without an order it is the one before: processes that run may
// know no newer one. Where there is none before, none runs.
func (m *migration) recordFormat(prev *rules.Routing) int {
	switch {
	case m.opt.recordFormat != 0:
		return m.opt.recordFormat
	case prev != nil:
		return prev.RecordFormat
	}
	return detectors.RecordFormat
}

// safeFormat refuses to change how events are read under a rule that blocks: promotion made sure that the format carries
// weir's own verdicts, and must do so again.
func safeFormat(before, after rules.Format, modes []rules.ModeState) error {
	if before.Name == after.Name && config.JoinMap(before.Map) == config.JoinMap(after.Map) {
		return nil
	}
	for _, m := range modes {
		if m.Mode == rules.ModeBlock {
			return fmt.Errorf("events: the format changes while rule %s blocks: demote it (weir rules demote %s), run weir migrate, promote it again",
				m.Rule, m.Rule)
		}
	}
	return nil
}

// writeFirstCommits writes the first announcing commit of each partition that has none of this generation. A partition
// that lost its commit after it had been routed is not given another: what that would double or lose is an operator's to
// accept.
func (m *migration) writeFirstCommits(ctx context.Context) error {
	first := map[int]ingest.Commit{}
	for p, b := range m.topics.log {
		switch a, has := m.commits[p]; {
		case has && a == nil: // reported
		case has && a.Generation == m.stream.Generation: // in use
		case has, m.isNew, m.renewed, m.topics.unused, p >= m.stream.Partitions.Requests:
			first[p] = ingest.InitialCommit(m.stream.Generation, b.Start, m.version, m.conf.Kafka.Partitions.Keyed)
		default:
			m.say("partition requests/%d has lost its commit: weir partitions resume --requests %d accepts that; "+
				"if the topic was deleted and made anew, weir migrate --recreated", p, p)
		}
	}
	if len(first) == 0 {
		m.say("first commits: nothing to do")
		return nil
	}
	if err := m.kafka.CommitInitial(ctx, m.routeGroup(), m.names.Requests, first); err != nil {
		return err
	}
	m.say("first commits written for %s of requests", terminal.Plural(len(first), "partition"))
	return nil
}
