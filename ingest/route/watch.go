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
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

const (
	fastLook    = 200 * time.Millisecond // how soon a failed look is repeated
	lookTimeout = 10 * time.Second       // bounds each part of a look
	firstLook   = 2 * time.Second        // bounds the wait of a process that starts for the newest routing version
)

// watcher does a session's slow work beside it: it looks at the commits and logs of partitions that are not routed,
// watches for routing versions, reports, and reads what operators accepted. While a store hangs, routing goes on.
type watcher struct {
	r       *Router
	commits ingest.Commits
	wake    chan<- struct{}
	asked   chan struct{} // there are partitions to look at

	mu      sync.Mutex
	idle    map[int]int // partitions to look at; the value is told with each observation, see session.drop
	states  []ingest.PartitionStatus
	stopped bool // one of states is not running
	seen    watcherNews

	reported traffic.Time
	troubles troubles
}

// observation is what a look at one partition saw.
type observation struct {
	partition int
	number    int
	commit    ingest.Commit
	has       bool // there is a commit
	log       ingest.Bounds
	version   *routingVersion // of the commit; nil when it names none
	away      error           // why log is not known: its leader does not answer
}

func newWatcher(r *Router, commits ingest.Commits, wake chan<- struct{}) *watcher {
	return &watcher{
		r: r, commits: commits, wake: wake, asked: make(chan struct{}, 1), idle: map[int]int{},
		reported: traffic.BeforeTime, troubles: troubles{},
	}
}

// run looks until ctx is done, every LookEvery and whenever there are new partitions to look at.
func (l *watcher) run(ctx context.Context) {
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
func (l *watcher) look(ctx context.Context) bool {
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
func (l *watcher) attempt(ctx context.Context, limit time.Duration, what string, part func(context.Context) error) bool {
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

func (l *watcher) lookAtPartitions(ctx context.Context) error {
	l.mu.Lock()
	numbers := maps.Clone(l.idle)
	l.mu.Unlock()
	if len(numbers) == 0 {
		return nil
	}
	partitions := slices.Sorted(maps.Keys(numbers))
	commits, err := l.commits.Fetch(ctx, partitions)
	if err != nil {
		return err
	}
	bounds, away := ingest.BoundsOfEach(ctx, l.r.opt.Log, partitions)
	var found []observation
	var troubled []error
	for _, p := range partitions {
		f := observation{partition: p, number: numbers[p], log: bounds[p], away: away[p]}
		f.commit, f.has = commits[p]
		if f.away != nil {
			found, troubled = append(found, f), append(troubled, f.away)
			continue
		}
		if f.version, err = l.versionOf(ctx, f.commit); err != nil {
			l.tell(func() { l.seen.unfit = err })
			return nil
		}
		found = append(found, f)
	}
	l.tell(func() { l.seen.found = append(l.seen.found, found...) })
	return errors.Join(troubled...)
}

// versionOf loads the routing version that a commit announces a chunk under. A version that cannot be had ends the
// membership: another process may know it, and this one must not guess.
func (l *watcher) versionOf(ctx context.Context, c ingest.Commit) (*routingVersion, error) {
	a, err := ingest.DecodeAnnouncement(c.Metadata)
	if err != nil || a.Version == 0 || a.Generation != l.r.opt.Generation {
		return nil, nil // nothing will be routed by it; session.adopt says why
	}
	return l.r.versions.get(ctx, a.Version)
}

func (l *watcher) lookAtVersions(ctx context.Context) error {
	number, err := l.r.opt.Routings.Newest(ctx, l.r.opt.Stream)
	if err != nil {
		return err
	}
	if newest := l.r.versions.newest(); number == 0 || newest != nil && number <= newest.number {
		return nil
	}
	v, err := l.r.versions.get(ctx, number)
	if unfit := (*unfitError)(nil); errors.As(err, &unfit) {
		l.tell(func() { l.seen.unfit = err })
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
func (l *watcher) report(ctx context.Context) error {
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
	l.tell(func() { l.seen.granted, l.seen.fresh = granted, true })
	return nil
}

// watcherNews is what was found since the session asked last.
type watcherNews struct {
	found   []observation
	granted []ingest.Acceptance // what operators have accepted, as read last
	fresh   bool                // granted was read since
	unfit   error               // a routing version that this process cannot route by: it must leave
}

// lookAt sets the partitions that are not routed.
func (l *watcher) lookAt(idle map[int]*idlePartition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.idle)
	for p, rest := range idle {
		l.idle[p] = rest.number
	}
}

// show sets what the next report says. stopped: one of states is not running.
func (l *watcher) show(states []ingest.PartitionStatus, stopped bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states, l.stopped = states, stopped
}

// news takes what was found since it was called last.
func (l *watcher) news() watcherNews {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.seen
	l.seen.found, l.seen.fresh = nil, false
	return news
}

// tell changes what the session will read, and wakes it.
func (l *watcher) tell(change func()) {
	l.mu.Lock()
	change()
	l.mu.Unlock()
	ingest.Wake(l.wake)
}

// troubles are the failures that repeat, by what failed.
type troubles map[string]*retry.Trouble

func (t troubles) note(log *slog.Logger, what string, err error) {
	if t[what] == nil {
		t[what] = &retry.Trouble{}
	}
	if err != nil {
		t[what].Failed(log, "route: "+what+" failed, trying again", err)
	} else {
		t[what].Over(log, "route: "+what+" works again")
	}
}
