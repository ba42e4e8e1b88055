package replica

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/rules"
)

// How the delta streams are read.
const (
	readBlock = 500 * time.Millisecond // a read waits this long, which bounds how long Run takes to stop
	probe     = time.Second            // how often the newest numbers are compared
)

// follower applies the delta streams to the table from their newest entries on, from the moment when Redis first answers
// and without end. When it has missed something, it says so to the loader and goes on with what comes after: no change
// ever waits for a load.
type follower struct {
	r      *Replica
	at     blocklist.Cursor // nil before the first answer
	behind blocklist.Cursor // streams of which the last probe knew newer entries, with the cursor of then
	probed time.Time
	owned  time.Time // when Redis was last found to be no other installation's

	modesOwed bool             // modes, or never-block entries, may have been missed
	loaded    blocklist.Cursor // the newest ids when a load had read everything; nil: there is none to end
	mark      uint32           // of that load
}

// step reads what there is, waiting a little, and does first what must come before.
func (f *follower) step(ctx context.Context) error {
	if now := time.Now(); now.Sub(f.owned) >= probe {
		if err := f.r.refuseForeign(ctx); err != nil {
			return err
		}
		f.owned = now
	}
	if f.at == nil {
		at, err := f.r.from.Cursor(ctx)
		if err != nil {
			return err
		}
		f.at, f.modesOwed = at, true
		f.r.noteWritten(at)
	}
	if f.modesOwed {
		if err := f.readModes(ctx); err != nil {
			return err
		}
		never, err := f.r.from.Never(ctx)
		if err != nil {
			return err
		}
		f.r.never.Set(never)
		f.modesOwed = false
		f.r.loads.start()
	}
	if now := time.Now(); now.Sub(f.probed) >= probe {
		if err := f.probe(ctx); err != nil {
			return err
		}
		f.probed = now
	}
	return f.read(ctx, readBlock)
}

func (f *follower) setModes(modes ...rules.ModeState) {
	f.r.table.setModes(modes...)
	if len(modes) > 0 {
		f.r.written.Store(true)
	}
}

// lost says that the deltas do not tell everything any more. The modes, which are few, are read at once.
func (f *follower) lost(ctx context.Context, reason, detail string) {
	f.modesOwed, f.loaded = true, nil
	if f.r.loads.again(reason) {
		f.r.o.Logger.InfoContext(ctx, "loading the whole blocklist", "reason", reason, "detail", detail)
	}
}

// read applies what the streams hold after the cursor, and waits up to timeout if that is nothing.
func (f *follower) read(ctx context.Context, timeout time.Duration) error {
	asked := f.r.o.Clock()
	answer, err := f.r.from.Deltas(ctx, f.at, timeout)
	if err != nil {
		f.behind = nil // what was not read is not missing
		return err
	}
	f.r.touch()
	level := true
	for _, s := range answer {
		f.apply(ctx, s)
		level = level && len(s.Entries) < blocklist.DeltasPerRead
	}
	if level {
		f.r.level.Store(int64(asked))
	}
	f.endLoad()
	return nil
}

// apply applies entries of one stream, each of which should name the one before it.
func (f *follower) apply(ctx context.Context, s blocklist.Streamed) {
	for _, x := range s.Entries {
		if prev, _ := x.Values["prev"].(string); prev != f.at[s.Stream] {
			f.lost(ctx, reloadGap, fmt.Sprintf("stream %s: entry %s follows %q, known is %q", s.Stream, x.ID, prev, f.at[s.Stream]))
		}
		f.at[s.Stream] = x.ID
		c, err := blocklist.DecodeChange(x.Values)
		if err != nil {
			// A newer weir may say things that this build does not know. What it cannot read blocks nobody.
			f.r.takeUnreadable()
			continue
		}
		f.change(ctx, &c)
	}
}

func (f *follower) change(ctx context.Context, c *blocklist.Change) {
	f.r.metrics.deltas.WithLabelValues(c.Op).Inc()
	switch c.Op {
	case blocklist.OpBlock:
		f.r.takeBlock(blocklist.Name{Subject: c.Subject, Rule: c.Block.Rule}, &c.Block, nil)
	case blocklist.OpRelease:
		f.r.takeTombstone(blocklist.Name{Subject: c.Subject, Rule: c.Tombstone.Rule}, c.Tombstone, nil)
	case blocklist.OpMode:
		f.takeMode(ctx, &c.Mode, c.ModeText)
	case blocklist.OpNever:
		f.r.never.Set(c.Never)
	case blocklist.OpStream:
		if c.Stream != "" {
			f.join(c.Stream)
		}
	case blocklist.OpReload:
		f.lost(ctx, reloadAsked, "a delta stream says so")
	}
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
	mark, whole := f.r.loads.ended() // before the numbers are asked for: see endLoad
	newest, err := f.r.from.Cursor(ctx)
	if err != nil {
		return err
	}
	f.r.touch()
	f.r.noteWritten(newest)
	for name := range f.at {
		if _, known := newest[name]; !known {
			newest[name] = ""
		}
	}
	behind := blocklist.Cursor{}
	for name, id := range newest {
		f.join(name)
		mine := f.at[name]
		before, slow := f.behind[name]
		switch {
		case id == mine:
		case number(id) <= number(mine):
			f.lost(ctx, reloadBackward, fmt.Sprintf("stream %s: newest is %q, known is %q", name, id, mine))
			f.at[name] = id
		case slow && before == mine:
			f.lost(ctx, reloadMissing, fmt.Sprintf("stream %s: newest is %q, nothing comes after %q", name, id, mine))
			f.at[name] = id
		default:
			behind[name] = mine
		}
	}
	f.behind = behind
	if whole && f.loaded == nil {
		f.loaded, f.mark = maps.Clone(newest), mark
	}
	return nil
}

// endLoad drops the blocks that a load did not see, once all changes that were written during the load have been applied. Only
// then is it certain that Redis held everything during the load: after a flush and a rebuild, the streams would have gone back,
// or would have asked for another load before the marker was there, and the mark would be outdated. An uncertain load drops
// nothing; blocks end by themselves.
func (f *follower) endLoad() {
	if f.loaded == nil || !f.reached(f.loaded) {
		return
	}
	f.r.loads.drop(f.mark)
	f.loaded = nil
}

// reached reports whether every stream has been read as far as in at.
func (f *follower) reached(at blocklist.Cursor) bool {
	for name, id := range at {
		if number(f.at[name]) < number(id) {
			return false
		}
	}
	return true
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
