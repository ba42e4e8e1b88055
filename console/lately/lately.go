// Package lately shares one bounded reading of the blocks in Redis among all who ask a console for them: however many
// ask, and whatever for, one walk over the keys is under way at a time, and so many blocks are in memory at most.
package lately

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/traffic"
)

// Bounds of a reading.
const (
	Most         = 100_000 // blocks that are kept of those in Redis
	MostReleased = 20_000  // likewise releases
)

const (
	// keep is for how long a reading is given to whoever asks, at least; keepShare is for how many times as long as it
	// took.
	keep      = time.Second
	keepShare = 4
	keepMost  = 15 * time.Second
	// within bounds a reading. It is longer than anybody waits: what is there then is given to who asks next.
	within = 30 * time.Second
)

// Source is where blocks are; a blocklist.Store is one.
type Source interface {
	// Each gives what it visits away: nobody else has its block or release.
	Each(ctx context.Context, now traffic.Time, wanted blocklist.Wanted,
		take func(blocklist.Listed) (more bool)) (unreadable int, err error)
	// List is asked for one subject only.
	List(ctx context.Context, now traffic.Time, filter blocklist.Filter) (blocklist.Listing, error)
}

var _ Source = (*blocklist.Store)(nil)

// Options are what Blocks are made of. Source, Clock and Registerer are required; a number that is 0 has its default.
type Options struct {
	Source             Source
	Clock              func() traffic.Time
	Registerer         prometheus.Registerer
	Most, MostReleased int
}

// Blocks gives listings from the newest reading. It is safe for concurrent use.
type Blocks struct {
	o        Options
	readings *prometheus.CounterVec
	base     context.Context // of readings: whoever asked first may go away
	stop     context.CancelFunc
	walking  sync.WaitGroup

	mu      sync.Mutex
	newest  *reading // nil: none is to be given to anybody any more
	running *reading // the one that is under way
	stale   bool     // something was changed since running began
}

// reading is what Redis held at one time. But for done, it is written before done is closed, and never after.
type reading struct {
	done        chan struct{}
	blocks, all blocklist.Listing // without and with releases
	err         error
	until       time.Time // it is given to who asks before
}

// What came of a reading.
const (
	outcomeWhole  = "whole"
	outcomeCut    = "cut" // Redis held more than is kept
	outcomeFailed = "failed"
)

// New makes Blocks. Close must be called.
func New(o Options) (*Blocks, error) {
	if o.Source == nil || o.Clock == nil || o.Registerer == nil {
		return nil, errors.New("lately: Source, Clock or Registerer is missing")
	}
	if o.Most == 0 {
		o.Most = Most
	}
	if o.MostReleased == 0 {
		o.MostReleased = MostReleased
	}
	b := &Blocks{o: o, readings: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_console_block_readings_total",
		Help: "Walks over the blocks in Redis for all who ask for listings.",
	}, []string{"outcome"})}
	for _, outcome := range []string{outcomeWhole, outcomeCut, outcomeFailed} {
		b.readings.WithLabelValues(outcome)
	}
	if err := o.Registerer.Register(b.readings); err != nil {
		return nil, fmt.Errorf("lately: %w", err)
	}
	b.base, b.stop = context.WithCancel(context.Background())
	return b, nil
}

// Close ends a reading that is under way.
func (b *Blocks) Close() {
	b.stop()
	b.walking.Wait()
}

// Forget has who asks from now on get a reading that begins from now on, because something was changed. That Redis does
// not answer is not forgotten.
func (b *Blocks) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stale = true
	if b.newest != nil && b.newest.err == nil {
		b.newest = nil
	}
}

// List is a listing from the newest reading, by subject and rule, whose items nobody may change: others have them, too.
// Cut says that Redis holds more than was read, so that the filter may let pass more. What a subject has is asked of
// Redis itself.
func (b *Blocks) List(ctx context.Context, now traffic.Time, filter blocklist.Filter) (blocklist.Listing, error) {
	if filter.Subject != "" {
		return b.o.Source.List(ctx, now, filter)
	}
	r, err := b.read(ctx)
	if err != nil {
		return blocklist.Listing{}, err
	}
	out := r.blocks
	if filter.Tombstones {
		out = r.all
	}
	if filter.Rule == "" && filter.Hit == "" {
		return out, nil
	}
	all := out.Items
	out.Items = nil
	for i := range all {
		if filter.Holds(&all[i]) {
			out.Items = append(out.Items, all[i])
		}
	}
	return out, nil
}

// read waits for the reading that whoever asks now is given.
func (b *Blocks) read(ctx context.Context) (*reading, error) {
	r, stale := b.join()
	if stale {
		if err := r.wait(ctx); err != nil {
			return nil, err
		}
		r, _ = b.join() // it began after this question, whatever was changed since
	}
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	return r, r.err
}

func (r *reading) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join finds the reading to wait for, and begins one where there is none; stale: something was changed after it began,
// so that another one is to be asked for when it is over.
func (b *Blocks) join() (r *reading, stale bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running != nil {
		return b.running, b.stale
	}
	if b.newest != nil && time.Now().Before(b.newest.until) {
		return b.newest, false
	}
	r = &reading{done: make(chan struct{})}
	b.newest, b.running, b.stale = nil, r, false
	b.walking.Go(func() { b.walk(r) })
	return r, false
}

// walk carries out a reading.
func (b *Blocks) walk(r *reading) {
	ctx, cancel := context.WithTimeout(b.base, within)
	defer cancel()
	begun := time.Now()
	outcome := b.fill(ctx, r)
	b.readings.WithLabelValues(outcome).Inc()
	b.mu.Lock()
	defer b.mu.Unlock()
	r.until = time.Now().Add(keep)
	if r.err == nil {
		r.until = time.Now().Add(min(keepMost, max(keep, keepShare*time.Since(begun))))
	}
	if b.running = nil; !b.stale || r.err != nil {
		b.newest = r
	}
	close(r.done)
}

// fill reads Redis.
func (b *Blocks) fill(ctx context.Context, r *reading) (outcome string) {
	now, words := b.o.Clock(), words{}
	blocks, released := keeper{words: words, most: b.o.Most}, keeper{words: words, most: b.o.MostReleased}
	var of, ofReleased int
	if of, r.err = b.o.Source.Each(ctx, now, blocklist.Wanted{}, blocks.take); r.err == nil {
		ofReleased, r.err = b.o.Source.Each(ctx, now, blocklist.Wanted{Released: true}, released.take)
	}
	if r.err != nil {
		r.err = fmt.Errorf("read the blocks in Redis: %w", r.err)
		return outcomeFailed
	}
	r.blocks = blocklist.Listing{Items: blocks.items, Unreadable: of, Cut: blocks.cut}
	r.blocks.Sort()
	r.blocks.Items = slices.Clip(r.blocks.Items)
	r.all = r.blocks
	r.all.Unreadable += ofReleased
	if r.all.Cut = blocks.cut || released.cut; len(released.items) > 0 {
		r.all.Items = slices.Concat(r.blocks.Items, released.items)
		r.all.Sort()
		r.all.Items = slices.Clip(r.all.Items)
	}
	if r.all.Cut {
		return outcomeCut
	}
	return outcomeWhole
}

// words are texts that many blocks have, each in memory once.
type words map[string]string

func (w words) one(text *string) {
	if *text == "" {
		return
	}
	known, ok := w[*text]
	if !ok {
		known = *text
		w[known] = known
	}
	*text = known
}

// keeper takes what is read, up to a bound.
type keeper struct {
	words words
	most  int
	items []blocklist.Listed
	cut   bool // there was more
}

func (k *keeper) take(l blocklist.Listed) (more bool) {
	if len(k.items) >= k.most {
		k.cut = true
		return false
	}
	l.Subject = traffic.Subject(strings.Clone(string(l.Subject))) // without the key that it is a part of
	k.words.one(&l.Rule)
	if b := l.Block; b != nil {
		for _, text := range []*string{&b.Rule, &b.Action, &b.Scope, &b.By, &b.Reason} {
			k.words.one(text)
		}
	}
	if t := l.Tombstone; t != nil {
		for _, text := range []*string{&t.Rule, &t.Action, &t.By} {
			k.words.one(text)
		}
	}
	k.items = append(k.items, l)
	return true
}
