package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirhq/weir/internal/retry"
)

// Reasons of reloads.
const (
	reloadGap      = "gap"      // an entry does not follow the one before it
	reloadBackward = "backward" // the newest number lies below one that was seen
	reloadMissing  = "missing"  // an entry that must be there is not delivered
	reloadAsked    = "asked"    // the stream says so
	reloadDue      = "due"      // it was time
)

// Rounds of one load, and loads that follow each other at once, keep this distance: what breaks again and again must not
// keep Redis busy with nothing else.
const (
	loadApart     = time.Second
	loadApartMost = 5 * time.Second
)

// loader reads all blocks and tombstones in Redis into the table that gates ask, beside the follower, who puts every
// change into the same table meanwhile. That is one order of many: blocks, tombstones and modes are only raised, so the
// table ends up the same whichever of the two tells of a key first.
//
// It reads in rounds, until each slot has been read from a node that had it to itself from before the first key was read
// until after the last one. So a node that is away costs its own slots only, until it answers, and slots that move while
// they are read are read once more where they went.
type loader struct {
	r    *Replica
	wake chan struct{} // holds one: there may be something to read

	mu      sync.Mutex
	mark    uint32  // rises with each reason to read everything anew; the table's mark
	unread  slotSet // not read since then
	missing slotSet // not read since the start, or since changes were missed
	whole   bool    // everything has been read, and was there; what mark has not seen is still to be dropped
}

func newLoader(r *Replica) *loader {
	l := &loader{r: r, wake: make(chan struct{}, 1), unread: allSlots(), missing: allSlots()}
	l.mark = r.table.renew()
	return l
}

// again marks everything as unread, the slots that the present round has read included: a change that was missed may have come
// after they were read. It reports whether everything had been read.
func (l *loader) again(reason string) bool {
	l.r.metrics.reloads.WithLabelValues(reason).Inc()
	l.mu.Lock()
	defer l.mu.Unlock()
	idle := l.unread.size() == 0
	l.mark, l.unread, l.whole = l.r.table.renew(), allSlots(), false
	if reason != reloadDue {
		l.missing = allSlots()
	}
	return idle
}

// start makes run read what is unread.
func (l *loader) start() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *loader) owed() (mark uint32, unread slotSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark, l.unread
}

func (l *loader) owes() bool {
	_, unread := l.owed()
	return unread.size() > 0
}

func (l *loader) missingSlots() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.missing.size()
}

// ended reports whether a load has read everything that mark is to be compared with.
func (l *loader) ended() (mark uint32, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark, l.whole
}

// drop takes out of the table what has not been seen since mark began, unless there was a reason to load again since.
func (l *loader) drop(mark uint32) {
	l.mu.Lock()
	current := l.mark == mark && l.whole
	if current {
		l.whole = false
	}
	l.mu.Unlock()
	if current {
		l.r.table.forget(mark)
	}
}

// run reads whenever something is unread, once the follower has begun: what changes from there on reaches it.
func (l *loader) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-l.wake:
	}
	for ctx.Err() == nil {
		l.load(ctx)
		l.await(ctx)
	}
}

// await waits for a reason to read again.
func (l *loader) await(ctx context.Context) {
	due, ask := time.NewTimer(l.r.o.Reload), time.NewTicker(loadApart)
	defer due.Stop()
	defer ask.Stop()
	for marked := l.end(ctx); ; {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			return
		case <-due.C:
			l.again(reloadDue)
			return
		case <-ask.C:
			if !marked {
				marked = l.end(ctx)
			}
		}
	}
}

// load goes on until nothing is unread.
func (l *loader) load(ctx context.Context) {
	backoff := retry.NewBackoff(loadApart, loadApartMost)
	var trouble retry.Trouble
	for l.owes() {
		err := l.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.r.metrics.failures.Inc()
			trouble.Failed(l.r.o.Logger, "blocklist cannot be read whole from Redis; it is tried again", err, "missing_slots", l.missingSlots())
		}
		if l.owes() && backoff.Wait(ctx) != nil {
			return
		}
	}
	trouble.Over(l.r.o.Logger, "blocklist has been read whole")
}

// end looks, after everything has been read, for the reconciler's marker. Without the marker Redis was flushed, and blocks that
// it lacks are kept until all has been put back.
func (l *loader) end(ctx context.Context) (marked bool) {
	mark, _ := l.owed()
	marked, err := l.r.from.HasMarker(ctx)
	if err != nil && ctx.Err() == nil {
		l.r.metrics.failures.Inc()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole = marked && l.mark == mark && l.unread.size() == 0
	return marked
}

// round reads every node that has unread slots, all at the same time.
func (l *loader) round(ctx context.Context) error {
	if err := l.r.Foreign(); err != nil {
		return err
	}
	mark, owed := l.owed()
	var mu sync.Mutex
	var read slotSet
	var errs []error
	err := l.r.from.EachNode(ctx, func(ctx context.Context, n node) {
		got, err := l.readNode(ctx, n, owed)
		mu.Lock()
		defer mu.Unlock()
		read.unite(&got)
		errs = append(errs, err)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mark == mark {
		l.unread.subtract(&read)
		l.missing.subtract(&read)
	}
	if read.size() > 0 {
		l.r.loaded.Store(true)
	}
	return errors.Join(append(errs, err)...)
}

// readNode reads all keys of a node, and returns those of the owed slots that are thereby known.
func (l *loader) readNode(ctx context.Context, n node, owed slotSet) (slotSet, error) {
	had, err := n.slots(ctx)
	if err != nil {
		return slotSet{}, err
	}
	owed.intersect(&had)
	if owed.size() == 0 {
		return slotSet{}, nil
	}
	if err := n.Scan(ctx, l.r.takeValue, l.r.takeUnreadable); err != nil {
		return slotSet{}, err
	}
	has, err := n.slots(ctx)
	if err != nil {
		return slotSet{}, err
	}
	owed.intersect(&has)
	return owed, nil
}
