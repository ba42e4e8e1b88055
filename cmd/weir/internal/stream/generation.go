package stream

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/plural"
)

// renew begins a new generation of the stream where the requests topic is not the one that was routed so far.
func (m *Migration) renew(ctx context.Context) error {
	why := ""
	switch {
	case m.isNew:
	case m.opt.Recreated:
		why = "the operator says that requests was made anew"
	case m.topics.made:
		why = "requests was missing and was made anew"
	case shorterThanRouted(m.topics.log, m.commits):
		why = "requests ends before what was routed, in every partition: it was made anew"
	}
	if why == "" {
		return nil
	}
	if err := m.allStopped(ctx); err != nil {
		return fmt.Errorf("%s, but no new generation has begun: %w", why, err)
	}
	if m.opt.Recreated && !m.opt.CountAgain && mayCountTwice(m.topics.log, m.commits) {
		return ingest.Advise(fmt.Errorf("%s, but no new generation has begun: a partition reaches as far as it was "+
			"routed, or nothing says how far that was, so it may be the one that it was, and all that it holds would "+
			"be counted a second time: who was never over a limit would be, and blocked", why),
			"if it was made anew and has grown as far since, weir migrate --recreated --count-again; else partitions "+
				"that stopped go on by weir partitions resume")
	}
	g, err := m.store.Streams.RecreateGeneration(ctx, history.Live, m.topics.requests, m.by, why)
	if err != nil {
		return err
	}
	m.say("stream live begins generation %d: %s", g, why)
	m.stream.Generation, m.stream.Partitions.Requests, m.renewed = g, m.topics.requests, true
	return nil
}

// allStopped refuses while a process routes or detects: only members of a group may commit to it, and who runs knows
// the old generation.
func (m *Migration) allStopped(ctx context.Context) error {
	for _, stage := range []string{ingest.StageRoute, ingest.StageDetect} {
		group, err := m.kafka.InspectGroup(ctx, ingest.Live.Group(m.conf.Namespace, stage))
		if err != nil {
			return err
		}
		if group.Members > 0 {
			return ingest.Advise(fmt.Errorf("stage %s runs, with %s", stage, plural.Of(group.Members, "member")),
				"stop all processes of weir run (killed ones are members for 10 s more), run weir migrate "+
					"--recreated, start them again")
		}
	}
	return nil
}

// mayCountTwice reports whether a partition holds records that were routed, or may have been, as its commit is lost.
// That another one ends before what was routed of it says nothing of this one: it may have lost its end.
func mayCountTwice(log map[int]ingest.Bounds, commits map[int]*ingest.Announcement) bool {
	for p, b := range log {
		a := commits[p]
		if b.Start < b.End && (a == nil || b.Start < a.Offset && a.Offset <= b.End) {
			return true
		}
	}
	return false
}

// shorterThanRouted reports whether no partition's log reaches what was routed of it, and all begin at 0: a topic that
// was deleted and made anew. A log that only lost its end in a few partitions is another matter, for an operator, and
// so is one that holds records of which nothing says how far they were routed.
func shorterThanRouted(log map[int]ingest.Bounds, commits map[int]*ingest.Announcement) bool {
	for p, b := range log {
		if commits[p] == nil && b.Start < b.End {
			return false
		}
	}
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
