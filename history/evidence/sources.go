package evidence

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// maxSources bounds the sources of which a dossier knows each by itself: beyond that the ones with the most refused requests are taken,
// and how many there are is known.
const maxSources = 200_000

// ranking is the sources over the limit, of which the first are known each by itself: those with the most refused requests, then events, then by subject.
type ranking struct {
	sources []sourceRow
	total   int64 // sources, with those that are too many
	most    int   // how many sources are kept
	full    bool  // the first so many go before all that were left out
	ordered int   // so many are in order, and go before the others
}

// sourceRow is one source over the limit.
type sourceRow struct {
	subject        traffic.Subject
	blockable      bool // there is a block subject
	episodes       int64
	events         int64
	peak           int64
	first, last    traffic.Time
	refused        int64
	good           int64 // as detectors.Good, the most of its episodes
	users, devices int64
	atLeast        bool
	asked          bool  // whether other rules held it
	lost           int64 // episodes of which it is not known how far they were
	// rows are the names that its rows have, where they name it otherwise: they were opened under versions with other
	// blocks.
	rows []traffic.Subject
}

// absorb takes other in, which is the same source under another name.
func (s *sourceRow) absorb(other *sourceRow) {
	s.episodes, s.events, s.refused, s.lost = s.episodes+other.episodes, s.events+other.events, s.refused+
		other.refused, s.lost+other.lost
	s.peak, s.first, s.last = max(s.peak, other.peak), min(s.first, other.first), max(s.last, other.last)
	s.good, s.users, s.devices = max(s.good, other.good), max(s.users, other.users), max(s.devices, other.devices)
	s.atLeast, s.rows = s.atLeast || other.atLeast, append(s.rows, other.rows...)
}

// half is a part of all sources: those whose name's hash is even, or odd.
type half int

const (
	whole half = iota - 1
	even
	odd
)

// readSources reads sources, in no order: PostgreSQL would take longer for putting them in order than for all else.
func (r *ranking) readSources(ctx context.Context, tx pgx.Tx, a *asked, part half) error {
	from, args := a.episodes()
	asks := fmt.Sprint("$", len(args)+1)
	rows, err := tx.Query(ctx, `SELECT who, blockable, unnamed, count(*), `+postgres.Sum("events")+
		`, max(peak), min(first), max(last), `+postgres.Sum("refused")+`,
			max(known_good), max(users), max(devices), bool_or(at_least), count(*) FILTER (WHERE lost)
		FROM (SELECT `+who+` AS who, NOT $8 AND block_subject <> '' AS blockable, unnamed, events, peak, first, last, refused, known_good, users, devices, at_least, lost`+from+`) e
		WHERE `+asks+` < 0 OR hashtext(who) & 1 = `+asks+` GROUP BY who, blockable, unnamed`, append(args, int(part))...)
	if err != nil {
		return fmt.Errorf("sources: %w", err)
	}
	var s sourceRow
	var unnamed bool
	mixed := map[traffic.Subject]*sourceRow{} // those that a block can hold, where rows may name them otherwise
	_, err = pgx.ForEachRow(rows, []any{
		&s.subject, &s.blockable, &unnamed, &s.episodes, &s.events, &s.peak, postgres.ScanTime(&s.first),
		postgres.ScanTime(&s.last), &s.refused,
		&s.good, &s.users, &s.devices, &s.atLeast, &s.lost,
	}, func() error {
		if !a.mixed() {
			r.total++
			r.add(&s)
			return nil
		}
		source := s
		if whom, ok := a.whom(s.subject); unnamed && ok {
			source.subject, source.blockable, source.rows = whom, true, []traffic.Subject{s.subject}
		}
		if !source.blockable {
			r.total++
			r.add(&source)
			return nil
		}
		if source.rows == nil {
			source.rows = []traffic.Subject{s.subject}
		}
		if known := mixed[source.subject]; known != nil {
			known.absorb(&source)
			return nil
		}
		mixed[source.subject] = &source
		return nil
	})
	for _, source := range mixed {
		r.total++
		r.add(source)
	}
	if err != nil {
		return fmt.Errorf("sources: %w", err)
	}
	r.keep()
	return nil
}

// add takes one more source, unless as many as are kept go before it.
func (r *ranking) add(s *sourceRow) {
	if r.full && compareSources(s, &r.sources[r.most-1]) > 0 {
		return
	}
	if r.sources = append(r.sources, *s); len(r.sources) == 2*r.most {
		r.keep()
	}
}

// keep leaves out the sources that are too many. The last one that stays is the last in order.
func (r *ranking) keep() {
	if len(r.sources) > r.most {
		first(r.sources, r.most)
		r.sources, r.full = r.sources[:r.most], true
	}
}

// order puts the first n in order, as far as they are not. Sources are far more than anybody looks at one by one.
func (r *ranking) order(n int) {
	if n = min(n, len(r.sources)); n > r.ordered {
		rest := r.sources[r.ordered:]
		first(rest, n-r.ordered)
		slices.SortFunc(rest[:n-r.ordered], func(a, b sourceRow) int { return compareSources(&a, &b) })
		r.ordered = n
	}
}

// ask returns the places of the first n sources that a block can hold, and marks them as asked about.
func (r *ranking) ask(n int) []int {
	var places []int
	for i := 0; i < len(r.sources) && len(places) < n; i++ {
		if i == r.ordered {
			r.order(i + n - len(places))
		}
		if s := &r.sources[i]; s.blockable {
			places, s.asked = append(places, i), true
		}
	}
	return places
}

// join takes the sources of another part.
func (r *ranking) join(other *ranking) {
	r.total += other.total
	for i := range other.sources {
		r.add(&other.sources[i])
	}
	r.keep()
}

// first puts the n sources that go before all others in front, the last of them at their end (Hoare, Algorithm 65: Find, 1961).
func first(rows []sourceRow, n int) {
	for low, high := 0, len(rows)-1; low < high; {
		pivot := rows[low+rand.IntN(high-low+1)]
		i, j := low, high
		for i <= j {
			for compareSources(&rows[i], &pivot) < 0 {
				i++
			}
			for compareSources(&rows[j], &pivot) > 0 {
				j--
			}
			if i <= j {
				rows[i], rows[j] = rows[j], rows[i]
				i, j = i+1, j-1
			}
		}
		switch last := n - 1; {
		case last <= j:
			high = j
		case last >= i:
			low = i
		default:
			return
		}
	}
}

// compareSources orders sources: most refused requests first, then events, then by subject.
func compareSources(a, b *sourceRow) int {
	if c := cmp.Compare(b.refused, a.refused); c != 0 {
		return c
	}
	if c := cmp.Compare(b.events, a.events); c != 0 {
		return c
	}
	if c := cmp.Compare(a.subject, b.subject); c != 0 || a.blockable == b.blockable {
		return c
	}
	if b.blockable {
		return -1
	}
	return 1
}

// beside reads half of the sources on a connection of its own; nil does not.
type beside struct {
	half ranking
	err  error
	stop context.CancelFunc
	done chan struct{}
}

// readBeside begins to read the even half of the sources as they are in tx, which must go on until the end. It returns nil where another dossier has
// the second connection: who waits for one and holds one could wait for ever.
func (s *Store) readBeside(ctx context.Context, tx pgx.Tx, a *asked) (*beside, error) {
	if a.mixed() || !s.second.TryLock() { // halves are told apart by the names that rows have
		return nil, nil
	}
	var snapshot string
	if err := tx.QueryRow(ctx, "SELECT pg_export_snapshot()").Scan(&snapshot); err != nil {
		s.second.Unlock()
		return nil, fmt.Errorf("sources: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	b := &beside{half: ranking{most: maxSources}, stop: stop, done: make(chan struct{})}
	go func() {
		defer s.second.Unlock()
		defer close(b.done)
		b.err = b.read(ctx, s.db, snapshot, a)
	}()
	return b, nil
}

func (b *beside) read(ctx context.Context, db *postgres.DB, snapshot string, a *asked) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("a second connection: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // it has only read
	if err := begin(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT '"+snapshot+"'"); err != nil {
		return fmt.Errorf("the moment of the first connection: %w", err)
	}
	return b.half.readSources(ctx, tx, a, even)
}

// left is the part that is not read here.
func (b *beside) left() half {
	if b == nil {
		return whole
	}
	return odd
}

// join waits for the sources and adds them to others.
func (b *beside) join(r *ranking) error {
	if b == nil {
		return nil
	}
	<-b.done
	if b.err == nil {
		r.join(&b.half)
	}
	return b.err
}

// end stops what goes on, and waits until it has.
func (b *beside) end() {
	if b != nil {
		b.stop()
		<-b.done
	}
}
