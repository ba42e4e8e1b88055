package route

import (
	"context"
	"errors"
	"fmt"
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
	// holderTimeout bounds how long a report waits for the names of those who hold partitions.
	holderTimeout = 2 * time.Second
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
	stopped bool          // one of states is not running
	held    map[int]int64 // partitions that an open transaction holds, and at which offset
	moving  map[int]int64 // those that one after the other holds up, and where they are
	seen    watcherNews

	reported traffic.Time
	told     map[int]holder // of held, whose transactions they are; only report uses it
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
	lost      int64           // the version of the commit where the rule store has lost it; 0: it has not
}

func newWatcher(r *Router, commits ingest.Commits, wake chan<- struct{}) *watcher {
	return &watcher{
		r: r, commits: commits, wake: wake, asked: make(chan struct{}, 1), idle: map[int]int{},
		reported: traffic.BeforeTime, told: map[int]holder{}, troubles: troubles{},
	}
}

// run looks until ctx is done, every LookEvery and whenever there are new partitions to look at.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-w.asked: // is what this look is for
		default:
		}
		select {
		case <-w.r.heard:
		default:
		}
		wait := w.r.opt.LookEvery
		if !w.look(ctx) {
			wait = min(wait, fastLook)
		}
		t := time.NewTimer(wait)
		select {
		case <-w.asked:
		case <-w.r.heard:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// look does one round. Kafka comes before the stores: a partition may wait for the former only. But a process that has
// just started waits for the newest version first, so that events which come after the rules were applied are routed by
// them, and not by the version that the last commit names: that one is in the same store, so nothing waits for longer.
func (w *watcher) look(ctx context.Context) bool {
	if w.r.versions.newest() == nil && !w.attempt(ctx, "routing versions", w.lookAtVersions) {
		return false
	}
	ok := w.attempt(ctx, "commits and log bounds", w.lookAtPartitions)
	ok = w.attempt(ctx, "routing versions", w.lookAtVersions) && ok
	w.attempt(ctx, "reports", w.report)
	w.attempt(ctx, "reports of what was left out", w.r.figures.due)
	w.attempt(ctx, "reports of what was seen", w.r.minutes.due)
	return ok
}

// attempt runs one part of a look, for lookTimeout at most. A failure is counted, told once, and tried again with the
// next look.
func (w *watcher) attempt(ctx context.Context, what string, part func(context.Context) error) bool {
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	err := part(bounded)
	cancel()
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		w.r.tally.bump(func(st *Stats) {
			if strings.HasPrefix(what, "reports") {
				st.ReportFailures++
			} else {
				st.LookFailures++
			}
		})
	}
	w.troubles.note(w.r.opt.Logger, what, err)
	return err == nil
}

func (w *watcher) lookAtPartitions(ctx context.Context) error {
	w.mu.Lock()
	numbers := maps.Clone(w.idle)
	w.mu.Unlock()
	if len(numbers) == 0 {
		return nil
	}
	partitions := slices.Sorted(maps.Keys(numbers))
	commits, err := w.commits.Fetch(ctx, partitions)
	if err != nil {
		return err
	}
	bounds, away := ingest.BoundsOfEach(ctx, w.r.opt.Log, partitions)
	var found []observation
	var troubled []error
	for _, p := range partitions {
		f := observation{partition: p, number: numbers[p], log: bounds[p], away: away[p]}
		f.commit, f.has = commits[p]
		if f.away != nil {
			found, troubled = append(found, f), append(troubled, f.away)
			continue
		}
		if f.version, err = w.versionOf(ctx, f.commit); err != nil {
			w.tell(func() { w.seen.unfit = err })
			return nil
		}
		if f.version != nil && f.version.lost {
			f.version, f.lost = nil, f.version.number
		}
		found = append(found, f)
	}
	w.tell(func() { w.seen.found = append(w.seen.found, found...) })
	return errors.Join(troubled...)
}

// versionOf loads the routing version that a commit announces a chunk under. A version that cannot be had ends the
// membership: another process may know it, and this one must not guess.
func (w *watcher) versionOf(ctx context.Context, c ingest.Commit) (*routingVersion, error) {
	a, err := ingest.DecodeAnnouncement(c.Metadata)
	if err != nil || a.Version == 0 || a.Generation != w.r.opt.Generation {
		return nil, nil // nothing will be routed by it; session.adopt says why
	}
	return w.r.versions.get(ctx, a.Version)
}

func (w *watcher) lookAtVersions(ctx context.Context) error {
	number, err := w.r.opt.Routings.Newest(ctx, w.r.opt.Stream)
	if err != nil {
		return err
	}
	newest := w.r.versions.newest()
	w.troubles.note(w.r.opt.Logger, "comparing routing versions", behind(number, newest))
	if number == 0 || newest != nil && number <= newest.number {
		return nil
	}
	v, err := w.r.versions.get(ctx, number)
	if unfit := (*unfitError)(nil); errors.As(err, &unfit) {
		w.tell(func() { w.seen.unfit = err })
		return nil
	}
	if err != nil {
		return err
	}
	w.r.tally.bump(func(st *Stats) { st.NewestVersion = v.number })
	w.r.opt.Logger.Info("routing version loaded", "version", v.number, "rules", len(v.rules))
	w.r.versions.advance(v)
	ingest.Wake(w.wake)
	return nil
}

// behind says that the store has come back older than what this process routes by. The next version of the store is
// numbered above it.
func behind(stored int64, newest *routingVersion) error {
	if newest == nil || stored >= newest.number {
		return nil
	}
	return fmt.Errorf("the rule store's newest routing version is %d, and this process routes by %d, which the "+
		"store has lost: apply the rules that were lost again, see docs/operations.md", stored, newest.number)
}

// report tells the store how the partitions are, and reads what operators accepted while one of them has stopped.
func (w *watcher) report(ctx context.Context) error {
	w.mu.Lock()
	states, stopped, held, moving := slices.Clone(w.states), w.stopped, w.held, w.moving
	w.mu.Unlock()
	now := w.r.opt.Clock()
	since := now.Sub(w.reported)
	if len(states) == 0 || w.reported != traffic.BeforeTime && since >= 0 && since < w.r.opt.ReportEvery {
		return nil
	}
	w.nameHolders(ctx, states, held, moving)
	if err := w.r.opt.Partitions.Report(ctx, w.r.opt.Stream, states); err != nil {
		return err
	}
	w.reported = now
	if !stopped {
		return nil
	}
	granted, err := w.r.opt.Partitions.Accepted(ctx, w.r.opt.Stream)
	if err != nil {
		return err
	}
	w.tell(func() { w.seen.granted, w.seen.fresh = granted, true })
	return nil
}

// holder is whose transaction holds a partition at an offset.
type holder struct {
	offset   int64
	until    traffic.Time // of one that moves on: until when it is taken for the one that is there
	producer int64
	brief    string
	said     string
}

// holderFor is how long the name of one of many transactions stands for all: each report would ask Kafka for the next
// one.
const holderFor = 30 * time.Second

// holds reports whether h is still told as the one that holds a partition.
func (h *holder) holds(p int, held, moving map[int]int64) bool {
	if at, still := held[p]; still {
		return at == h.offset
	}
	_, still := moving[p]
	return still
}

// nameHolders completes the reasons of partitions that open transactions hold by whose these are. Kafka is asked once
// for each, and again with the next report where it does not answer: the report goes without it.
func (w *watcher) nameHolders(ctx context.Context, states []ingest.PartitionStatus, held, moving map[int]int64) {
	now := w.r.opt.Clock()
	maps.DeleteFunc(w.told, func(p int, h holder) bool { return !h.holds(p, held, moving) })
	if w.r.opt.Transactions == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	for i := range states {
		s := &states[i]
		offset, is := held[s.Partition]
		if next, moves := moving[s.Partition]; moves && !is {
			offset, is = next, true
		}
		if !is {
			continue
		}
		known, asked := w.told[s.Partition]
		if _, stands := held[s.Partition]; !asked || !stands && now >= known.until {
			t, err := w.r.opt.Transactions.Open(ctx, s.Partition)
			w.troubles.note(w.r.opt.Logger, "asking whose transaction is open", err)
			switch {
			case t.Start != ingest.NoOffset:
				known = w.tellHolder(s.Partition, offset, known.producer, t, err == nil)
			case !asked: // it has ended, or nothing is known
				continue
			}
		}
		s.Reason += "; " + known.said
		if known.brief != "" { // lists cut what is long
			s.Reason = known.brief + ": " + s.Reason
		}
	}
}

// tellHolder remembers and logs whose transaction holds a partition, where Kafka has told all of it. before is whose
// the one before was, of which was told.
func (w *watcher) tellHolder(partition int, offset, before int64, t ingest.Transaction, whole bool) holder {
	now := holder{offset, w.r.opt.Clock().Add(holderFor), t.Producer, t.Brief(), t.String()}
	if !whole {
		return now
	}
	if _, told := w.told[partition]; !told || before != t.Producer {
		w.r.opt.Logger.Error("an open transaction holds a partition of requests", "partition", partition,
			"offset", offset, "transactional_id", t.Name(), "producer", t.Producer)
	}
	w.told[partition] = now
	return now
}

// watcherNews is what was found since the session asked last.
type watcherNews struct {
	found   []observation
	granted []ingest.Acceptance // what operators have accepted, as read last
	fresh   bool                // granted was read since
	unfit   error               // a routing version that this process cannot route by: it must leave
}

// lookAt sets the partitions that are not routed.
func (w *watcher) lookAt(idle map[int]*idlePartition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.idle)
	for p, waiting := range idle {
		w.idle[p] = waiting.number
	}
}

// show sets what the next report says. stopped: one of states is not running. held are those of them that an open
// transaction holds, and at which offset; moving those that move on from one to the next.
func (w *watcher) show(states []ingest.PartitionStatus, stopped bool, held, moving map[int]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states, w.stopped, w.held, w.moving = states, stopped, held, moving
}

// news takes what was found since it was called last.
func (w *watcher) news() watcherNews {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := w.seen
	w.seen.found, w.seen.fresh = nil, false
	return news
}

// tell changes what the session will read, and wakes it.
func (w *watcher) tell(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	ingest.Wake(w.wake)
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
