package history

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// Caps bound what RECORD keeps of a rule's episodes that were opened in one minute, so that who makes up sources cannot fill the
// database.
type Caps struct {
	Rows    int // of one rule, kind and minute; 0: no bound, on samples either
	Samples int // of those, with samples; 0: all
	// Partitions are those of the hits topic: each may use its share, so that none waits for another.
	Partitions int
}

// share is what one partition may use of a bound.
func (c Caps) share(bound int) int {
	return (bound + max(c.Partitions, 1) - 1) / max(c.Partitions, 1)
}

// leftOut decides which rows of episodes stay. Of each rule, kind and minute those with the least ids do, whatever the order in which
// they come, so that replays, restarts and other sizes of batches give the same rows: an id is a hash, which nobody outside can choose. How many
// were left out is counted in the transaction that leaves them out, by the places of their records in the keyed log (detectors.Hit.Place): a
// record that comes again is behind its partition's place, and is not counted again.
type leftOut struct {
	caps    Caps
	stream  string
	days    Days
	metrics *leftOutMetrics

	mu    sync.Mutex
	lanes map[int]*laneCounts // by partition of the hits topic
}

// laneCounts is what is known of one partition of the hits topic. It holds as long as the database has the same token.
type laneCounts struct {
	mu     sync.Mutex
	token  int64
	at     []int64 // the place of each keyed partition's newest record
	nth    []int64
	newest traffic.Time // no row was opened in a later minute
	groups map[minuteKey]*minuteRows
	ids    int // in groups
	clock  int64
	news   leftOutNews
}

// minuteKey is what a bound holds for.
type minuteKey struct {
	kind   detectors.Kind
	rule   string
	minute traffic.Time
}

// compare orders keys, so that all writers lock in one order.
func (k minuteKey) compare(o minuteKey) int {
	return cmp.Or(cmp.Compare(k.rule, o.rule), cmp.Compare(k.kind, o.kind), cmp.Compare(k.minute, o.minute))
}

// minuteRows are the rows of one minuteKey in one partition.
type minuteRows struct {
	ids    []string // that stay, ascending
	beyond string   // no id from here on stays; empty: none was left out
	used   int64
	// without is how many of them have no samples, as far as this process has told.
	without int

	// What the present transaction changes.
	touched bool
	fresh   map[string]bool // ids that came with it
	sampled []string        // ids whose samples were kept before
	evicted []string        // ids that stayed before, and are left out now
	sums    leftOutSums
}

// leftOutNews is what was left out since the metrics heard of it.
type leftOutNews struct{ rows, samples int64 }

// leftOutSums tell of rows that were left out.
type leftOutSums struct{ rows, merged, ended, events, peak int64 }

func (s *leftOutSums) end(phase int16, events, peak int64) {
	switch phase {
	case rankClosed:
		s.ended++
		s.events += events
		s.peak = max(s.peak, peak)
	case rankMerged:
		s.merged++
	}
}

const (
	rankOpen   = 1
	rankClosed = 3
	rankMerged = 4

	// maxKnownIDs bounds the ids that a partition keeps in memory. A minute that is not known any more is read again when it is needed.
	maxKnownIDs = 50_000
	minute      = traffic.Time(60_000_000)
)

func newLeftOut(caps Caps, stream string, days Days, metrics *leftOutMetrics) *leftOut {
	return &leftOut{caps: caps, stream: stream, days: days, metrics: metrics, lanes: map[int]*laneCounts{}}
}

// bounded returns the key under which a record's row is bounded. One whose order is not known, because a build before wrote it, or
// without a day, is not.
func (l *leftOut) bounded(h *detectors.Hit) (minuteKey, bool) {
	if !h.Kind.Episode() || h.Place == 0 || h.Opened == 0 || h.Keyed < 0 {
		return minuteKey{}, false
	}
	if _, ok := l.days.Of(h.Opened); !ok {
		return minuteKey{}, false
	}
	return minuteKey{h.Kind, traffic.Printable(h.Rule), h.Opened - h.Opened%minute}, true
}

// choose decides about items in tx: it returns those whose rows stay, without the samples that do not, and takes away what others
// push out. All items of one partition are in order.
func (l *leftOut) choose(ctx context.Context, tx pgx.Tx, items []item[detectors.Hit]) ([]item[detectors.Hit], error) {
	lanes := map[int][]int{}
	for i := range items {
		if _, ok := l.bounded(&items[i].row); ok {
			lanes[items[i].message.Partition] = append(lanes[items[i].message.Partition], i)
		}
	}
	out := make(map[int]bool)
	for _, partition := range sortedKeys(lanes, cmp.Compare) {
		if err := l.chooseOf(ctx, tx, partition, items, lanes[partition], out); err != nil {
			return nil, fmt.Errorf("rows of a rule and minute: %w", err)
		}
	}
	if len(out) == 0 {
		return items, nil
	}
	stay := make([]item[detectors.Hit], 0, len(items)-len(out))
	for i := range items {
		if !out[i] {
			stay = append(stay, items[i])
		}
	}
	return stay, nil
}

// chooseOf is choose for the items with these indexes, of one partition; out gets those whose rows do not stay.
func (l *leftOut) chooseOf(ctx context.Context, tx pgx.Tx, partition int, items []item[detectors.Hit], indexes []int, out map[int]bool) error {
	lane := l.lane(partition)
	lane.mu.Lock()
	defer lane.mu.Unlock()
	if err := l.enter(ctx, tx, partition, lane); err != nil {
		return err
	}
	keys := make([]minuteKey, len(items))
	wanted := map[minuteKey]bool{}
	for _, i := range indexes {
		keys[i], _ = l.bounded(&items[i].row)
		wanted[keys[i]] = true
	}
	if err := l.know(ctx, tx, partition, lane, wanted); err != nil {
		return err
	}
	rows := l.caps.share(l.caps.Rows)
	for _, i := range indexes {
		lane.groups[keys[i]].offer(items[i].row.ID, rows, l.caps.share(l.caps.Samples))
	}
	for _, i := range indexes {
		h, g := &items[i].row, lane.groups[keys[i]]
		fresh := lane.passes(h)
		at, stays := slices.BinarySearch(g.ids, h.ID)
		if stays && l.caps.Samples > 0 && at >= l.caps.share(l.caps.Samples) {
			h.Samples = nil
		}
		if stays {
			continue
		}
		out[i] = true
		if fresh {
			g.touched = true
			g.sums.tell(h)
		}
	}
	return l.leave(ctx, tx, partition, lane, wanted)
}

// tell counts a record of a row that is left out, for the first time that it comes.
func (s *leftOutSums) tell(h *detectors.Hit) {
	rank, err := phaseRank(h.Phase)
	if err != nil {
		return // decodeHit lets none pass
	}
	if rank == rankOpen {
		s.rows++
	}
	s.end(rank, h.Count, int64(h.Peak))
}

func (l *leftOut) lane(partition int) *laneCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.lanes[partition]
	if lane == nil {
		lane = &laneCounts{}
		l.lanes[partition] = lane
	}
	return lane
}

// offer decides whether the row of an id stays among at most rows; 0: all do.
func (g *minuteRows) offer(id string, rows, samples int) {
	at, known := slices.BinarySearch(g.ids, id)
	if known || g.beyond != "" && id >= g.beyond {
		return
	}
	if g.fresh == nil {
		g.fresh, g.sampled = map[string]bool{}, slices.Clone(g.ids[:min(samples, len(g.ids))])
	}
	g.fresh[id] = true
	g.touched = g.touched || samples > 0 && len(g.ids) >= samples
	g.ids = slices.Insert(g.ids, at, id)
	for rows > 0 && len(g.ids) > rows {
		last := g.ids[len(g.ids)-1]
		g.ids, g.beyond, g.touched = g.ids[:len(g.ids)-1], last, true
		if !g.fresh[last] {
			g.evicted = append(g.evicted, last)
		}
	}
}

// passes reports whether a record comes for the first time, and notes that it has.
func (c *laneCounts) passes(h *detectors.Hit) bool {
	for len(c.at) <= h.Keyed {
		c.at, c.nth = append(c.at, 0), append(c.nth, 0)
	}
	c.newest = max(c.newest, h.Opened-h.Opened%minute)
	at, nth := &c.at[h.Keyed], &c.nth[h.Keyed]
	if h.Place < *at || h.Place == *at && int64(h.Nth) <= *nth {
		return false
	}
	*at, *nth = h.Place, int64(h.Nth)
	return true
}

// forget drops the minutes that were used least lately, until the others fit.
func (c *laneCounts) forget() {
	if c.ids <= maxKnownIDs {
		return
	}
	byUse := sortedKeys(c.groups, func(a, b minuteKey) int { return cmp.Compare(c.groups[a].used, c.groups[b].used) })
	for _, key := range byUse {
		if c.ids <= maxKnownIDs/2 {
			return
		}
		c.ids -= len(c.groups[key].ids)
		delete(c.groups, key)
	}
}

// tell tells the metrics what was left out by transactions that are committed, or are about to be told anew.
func (l *leftOut) tell() {
	l.mu.Lock()
	lanes := slices.Collect(maps.Values(l.lanes))
	l.mu.Unlock()
	for _, lane := range lanes {
		lane.mu.Lock()
		l.metrics.rows.Add(float64(lane.news.rows))
		l.metrics.samples.Add(float64(lane.news.samples))
		lane.news = leftOutNews{}
		lane.mu.Unlock()
	}
}

func sortedKeys[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	return keys
}
