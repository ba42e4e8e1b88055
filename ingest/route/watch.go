package route

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

const (
	fastLook    = 200 * time.Millisecond // how soon a failed look is repeated
	lookTimeout = 10 * time.Second       // bounds each part of a look
	firstLook   = 2 * time.Second        // bounds the wait of a process that starts for the newest routing version
)

// lookout does a session's slow work beside it: it looks at the commits and logs of partitions that are not routed,
// watches for routing versions, reports, and reads what operators accepted. While a store hangs, routing goes on.
type lookout struct {
	r       *Router
	commits ingest.Commits
	wake    chan<- struct{}
	asked   chan struct{} // there are partitions to look at

	mu      sync.Mutex
	idle    map[int]int // partitions to look at; the value is told with each finding, see routeSession.retire
	states  []ingest.PartitionStatus
	stopped bool // one of states is not running
	found   []finding
	granted []ingest.Acceptance
	fresh   bool // granted was read since the session looked
	unfit   error

	reported traffic.Time
	troubles troubles
}

// finding is what a look at one partition saw.
type finding struct {
	partition int
	ticket    int
	commit    ingest.Commit
	has       bool // there is a commit
	log       ingest.Bounds
	version   *routingVersion // of the commit; nil when it names none
	away      error           // why log is not known: its leader does not answer
}

func newLookout(r *Router, commits ingest.Commits, wake chan<- struct{}) *lookout {
	return &lookout{
		r: r, commits: commits, wake: wake, asked: make(chan struct{}, 1), idle: map[int]int{},
		reported: traffic.BeforeTime, troubles: troubles{},
	}
}

// run looks until ctx is done, every LookEvery and whenever there are new partitions to look at.
func (l *lookout) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-l.asked: // is what this look is for
		default:
		}
		wait := l.r.opt.LookEvery
		if !l.look(ctx) {
			wait = min(wait, fastLook)
		}
		t := time.NewTimer(wait)
		select {
		case <-l.asked:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// look does one round. Kafka comes before the stores: a partition may wait for the former only. But a process that has
// just started asks for the newest version first, for a short while, so that events which come after the rules were
// applied are routed by them, and not by the version that the last commit names.
func (l *lookout) look(ctx context.Context) bool {
	if l.r.versions.newest() == nil {
		l.attempt(ctx, firstLook, "routing versions", l.lookAtVersions)
	}
	ok := l.attempt(ctx, lookTimeout, "commits and log bounds", l.lookAtPartitions)
	ok = l.attempt(ctx, lookTimeout, "routing versions", l.lookAtVersions) && ok
	l.attempt(ctx, lookTimeout, "reports", l.report)
	l.attempt(ctx, lookTimeout, "reports of what was left out", l.r.figures.due)
	return ok
}

// attempt runs one part of a look, for limit at most. A failure is counted, told once, and tried again with the next look.
func (l *lookout) attempt(ctx context.Context, limit time.Duration, what string, part func(context.Context) error) bool {
	bounded, cancel := context.WithTimeout(ctx, limit)
	err := part(bounded)
	cancel()
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		l.r.tally.bump(func(st *Stats) {
			if strings.HasPrefix(what, "reports") {
				st.ReportFailures++
			} else {
				st.LookFailures++
			}
		})
	}
	l.troubles.note(l.r.opt.Logger, what, err)
	return err == nil
}

func (l *lookout) lookAtPartitions(ctx context.Context) error {
	l.mu.Lock()
	tickets := maps.Clone(l.idle)
	l.mu.Unlock()
	if len(tickets) == 0 {
		return nil
	}
	partitions := slices.Sorted(maps.Keys(tickets))
	commits, err := l.commits.Fetch(ctx, partitions)
	if err != nil {
		return err
	}
	bounds, away := ingest.BoundsOfEach(ctx, l.r.opt.Log, partitions)
	var found []finding
	var troubled []error
	for _, p := range partitions {
		f := finding{partition: p, ticket: tickets[p], log: bounds[p], away: away[p]}
		f.commit, f.has = commits[p]
		if f.away != nil {
			found, troubled = append(found, f), append(troubled, f.away)
			continue
		}
		if f.version, err = l.versionOf(ctx, f.commit); err != nil {
			l.tell(func() { l.unfit = err })
			return nil
		}
		found = append(found, f)
	}
	l.tell(func() { l.found = append(l.found, found...) })
	return errors.Join(troubled...)
}

// versionOf loads the routing version that a commit announces a chunk under. A version that cannot be had ends the
// membership: another process may know it, and this one must not guess.
func (l *lookout) versionOf(ctx context.Context, c ingest.Commit) (*routingVersion, error) {
	a, err := ingest.DecodeAnnouncement(c.Metadata)
	if err != nil || a.Version == 0 || a.Generation != l.r.opt.Generation {
		return nil, nil // nothing will be routed by it; routeSession.adopt says why
	}
	return l.r.versions.get(ctx, a.Version)
}

func (l *lookout) lookAtVersions(ctx context.Context) error {
	number, err := l.r.opt.Routings.Newest(ctx, l.r.opt.Stream)
	if err != nil {
		return err
	}
	if newest := l.r.versions.newest(); number == 0 || newest != nil && number <= newest.number {
		return nil
	}
	v, err := l.r.versions.get(ctx, number)
	if unfit := (*unfitError)(nil); errors.As(err, &unfit) {
		l.tell(func() { l.unfit = err })
		return nil
	}
	if err != nil {
		return err
	}
	l.r.tally.bump(func(st *Stats) { st.NewestVersion = v.number })
	l.r.opt.Logger.Info("routing version loaded", "version", v.number, "rules", len(v.rules))
	l.r.versions.advance(v)
	ingest.Wake(l.wake)
	return nil
}

// report tells the store how the partitions are, and reads what operators accepted while one of them has stopped.
func (l *lookout) report(ctx context.Context) error {
	l.mu.Lock()
	states, stopped := slices.Clone(l.states), l.stopped
	l.mu.Unlock()
	now := l.r.opt.Clock()
	since := now.Sub(l.reported)
	if len(states) == 0 || l.reported != traffic.BeforeTime && since >= 0 && since < l.r.opt.ReportEvery {
		return nil
	}
	if err := l.r.opt.Partitions.Report(ctx, l.r.opt.Stream, states); err != nil {
		return err
	}
	l.reported = now
	if !stopped {
		return nil
	}
	granted, err := l.r.opt.Partitions.Accepted(ctx, l.r.opt.Stream)
	if err != nil {
		return err
	}
	l.tell(func() { l.granted, l.fresh = granted, true })
	return nil
}

// tell changes what the session will read, and wakes it.
func (l *lookout) tell(change func()) {
	l.mu.Lock()
	change()
	l.mu.Unlock()
	ingest.Wake(l.wake)
}

// troubles tells an operator once when something begins to fail and once when it works again.
type troubles map[string]bool

func (t troubles) note(log *slog.Logger, what string, err error) {
	switch {
	case err != nil && !t[what]:
		log.Warn("route: "+what+" failed, trying again", "error", err)
	case err == nil && t[what]:
		log.Info("route: " + what + " works again")
	default:
		return
	}
	t[what] = err != nil
}
