package blocklist

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// How the delta streams are read.
const (
	readBlock = 500 * time.Millisecond // a read waits this long, which bounds how long Run takes to stop
	readCount = 1000
	probe     = time.Second // how often the newest numbers are compared
)

// reloadError ends a session: the deltas do not tell everything any more.
type reloadError struct{ reason, detail string }

func (e *reloadError) Error() string { return "load the blocklist anew: " + e.reason + ": " + e.detail }

// Reasons of reloads.
const (
	reloadGap      = "gap"      // an entry does not follow the one before it
	reloadBackward = "backward" // the newest number lies below one that was seen
	reloadMissing  = "missing"  // an entry that must be there is not delivered
	reloadAsked    = "asked"    // the stream says so
	reloadDue      = "due"      // it was time
)

// session loads everything and then follows the deltas until an error. fresh is called each time the Replica is found up
// to date.
func (r *Replica) session(ctx context.Context, fresh func()) error {
	t, at, err := r.load(ctx)
	if err != nil {
		return err
	}
	r.table.Store(t)
	r.loaded.Store(true)
	fresh()
	f := newFollower(r, t, at)
	ctx, cancel := context.WithCancel(ctx)
	defer f.renewing.Wait()
	defer cancel()
	wait := retryFirst
	failing := false
	for ctx.Err() == nil {
		err := f.step(ctx)
		var again *reloadError
		switch {
		case err == nil:
			if failing {
				fresh()
			}
			failing, wait = false, retryFirst
		case errors.As(err, &again):
			return err
		case ctx.Err() != nil:
		default:
			if !failing {
				r.o.Logger.WarnContext(ctx, "blocklist cannot follow Redis; known blocks hold until they expire", "error", err)
				failing = true
			}
			r.metrics.failures.Inc()
			pause(ctx, wait)
			wait = min(2*wait, retryMost)
		}
	}
	return ctx.Err()
}

// follower reads the delta streams from a cursor on.
type follower struct {
	r      *Replica
	t      *table
	at     cursor
	behind cursor // streams of which the last probe knew newer entries, with the cursor of then
	probed time.Time
	due    time.Time

	renewal  chan renewal // of the load under way; nil: none
	renewing sync.WaitGroup
}

func newFollower(r *Replica, t *table, at cursor) *follower {
	return &follower{r: r, t: t, at: at, behind: cursor{}, due: time.Now().Add(r.o.Reload)}
}

// step probes the numbers when it is time, and reads what there is, waiting a little.
func (f *follower) step(ctx context.Context) error {
	now := time.Now()
	if err := f.renew(ctx, now); err != nil {
		return err
	}
	if now.Sub(f.probed) >= probe {
		if err := f.probe(ctx); err != nil {
			return err
		}
		f.probed = now
	}
	_, err := f.read(ctx, readBlock)
	return err
}

// read applies what the streams hold after the cursor, and waits up to patience if that is nothing.
func (f *follower) read(ctx context.Context, patience time.Duration) (some bool, err error) {
	streams, names := f.streams()
	// A server that swallows requests must not hold up the probe, or the end of Run.
	ctx, cancel := context.WithTimeout(ctx, patience+DefaultTimeout)
	defer cancel()
	answer, err := f.r.o.Store.client.XRead(ctx, &redis.XReadArgs{Streams: streams, Count: readCount, Block: patience}).Result()
	if errors.Is(err, redis.Nil) {
		f.r.touch()
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: read deltas: %w", f.r.o.Store.address, err)
	}
	f.r.touch()
	for _, s := range answer {
		if err := f.apply(names[s.Stream], s.Messages); err != nil {
			return false, err
		}
	}
	return len(answer) > 0, nil
}

// streams gives XREAD's arguments, the keys and then the ids to read after, and the name of each key's stream.
func (f *follower) streams() (args []string, names map[string]string) {
	names = make(map[string]string, len(f.at))
	ids := make([]string, 0, len(f.at))
	for name, id := range f.at {
		key := f.r.o.Store.keys.Stream(name)
		names[key] = name
		if id == "" {
			id = "0-0"
		}
		args, ids = append(args, key), append(ids, id)
	}
	return append(args, ids...), names
}

// apply applies entries of one stream, each of which must name the one before it.
func (f *follower) apply(stream string, entries []redis.XMessage) error {
	for _, x := range entries {
		prev, _ := x.Values["prev"].(string)
		if prev != f.at[stream] {
			return &reloadError{reason: reloadGap, detail: fmt.Sprintf("stream %s: entry %s follows %q, known is %q", stream, x.ID, prev, f.at[stream])}
		}
		c, err := decodeChange(x.Values)
		if err != nil {
			// A newer weir may say things that this build does not know. What it cannot read blocks nobody.
			f.r.metrics.rejected.WithLabelValues("unreadable").Inc()
		} else if err := f.change(&c, x.Values); err != nil {
			return err
		}
		f.at[stream] = x.ID
	}
	return nil
}

func (f *follower) change(c *change, fields map[string]any) error {
	f.r.metrics.deltas.WithLabelValues(c.op).Inc()
	switch c.op {
	case opBlock:
		f.r.takeBlock(f.t, held{subject: c.subject, rule: c.block.Rule}, &c.block, nil)
	case opRelease:
		f.r.takeTombstone(f.t, held{subject: c.subject, rule: c.tombstone.Rule}, c.tombstone, nil)
	case opMode:
		f.t.setModes(c.mode)
	case opStream:
		if name, _ := fields["value"].(string); name != "" {
			f.join(name)
		}
	case opReload:
		return &reloadError{reason: reloadAsked, detail: "a delta stream says so"}
	}
	return nil
}

// join follows a stream from its first entry.
func (f *follower) join(name string) {
	if _, known := f.at[name]; !known {
		f.at[name] = ""
	}
}

// probe compares the cursor with the newest numbers. Reading alone does not notice a stream that went back, as after a
// failover that lost the last writes, nor one whose entries are gone.
func (f *follower) probe(ctx context.Context) error {
	newest, err := f.r.o.Store.cursor(ctx)
	if err != nil {
		return err
	}
	f.r.touch()
	for name := range f.at {
		if _, known := newest[name]; !known {
			newest[name] = ""
		}
	}
	behind := cursor{}
	for name, id := range newest {
		f.join(name)
		mine := f.at[name]
		switch {
		case id == mine:
		case number(id) <= number(mine):
			return &reloadError{reason: reloadBackward, detail: fmt.Sprintf("stream %s: newest is %q, known is %q", name, id, mine)}
		default:
			if before, ok := f.behind[name]; ok && before == mine {
				return &reloadError{reason: reloadMissing, detail: fmt.Sprintf("stream %s: newest is %q, nothing comes after %q", name, id, mine)}
			}
			behind[name] = mine
		}
	}
	f.behind = behind
	return nil
}

// number is the first part of an entry's id; 0 for "".
func number(id string) uint64 {
	text, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
