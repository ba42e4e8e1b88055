package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// Standing counts the blocks that stand in the partitions which a process was assigned.
type Standing interface {
	// Asked is another number when it has partitions whose blocks it does not know.
	Asked() int
	// BeginReading comes before all that a reading tells. EndReading comes after it, where the reading is complete.
	BeginReading()
	EndReading()
	// Stands tells of a block that should be in force, of any partition; it may do so more than once in a reading.
	Stands(h blocklist.Name, b *blocklist.Block)
}

// When a Reader reads.
const (
	readDelay = 2 * time.Second  // after it was asked; who asks meanwhile is served by the same reading
	readPause = 15 * time.Second // after a reading: processes that are deployed one after the other move partitions each time
	// readAgain is how long after it was asked it reads once more. The process that had the partitions before may have decided
	// something to the last, and RECORD stores that later. What is stored later than this stays unknown until the block ends.
	readAgain = time.Minute

	readBackoffMost = time.Minute // between two readings that fail; the first pause is readDelay
)

// readMost bounds the decisions of a reading: about twice as many as blocks are counted, 2000 pages.
const readMost = 2_000_000

// ReaderOptions configure a Reader. All but NeverBlock and Never are required.
type ReaderOptions struct {
	Modes      Modes
	Active     ActiveBlocks
	NeverBlock []netip.Prefix
	// Never is instead of NeverBlock where entries are made at run time; nil: NeverBlock alone.
	Never      *blocklist.NeverList
	Standing   Standing
	Clock      func() traffic.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *ReaderOptions) validate() error {
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Modes", o.Modes != nil}, {"Active", o.Active != nil}, {"Standing", o.Standing != nil}, {"Clock", o.Clock != nil},
		{"Logger", o.Logger != nil}, {"Registerer", o.Registerer != nil},
	} {
		if !p.given {
			return fmt.Errorf("reader of standing blocks: %s is missing", p.name)
		}
	}
	return nil
}

// Reader reads from history what stands, for Standing, soon after that asks and once more when RECORD has had time to store the
// last decisions of others. It asks Redis nothing. Each process has its own.
type Reader struct {
	o        ReaderOptions
	never    *blocklist.NeverList
	readings *prometheus.CounterVec // outcome
	most     int                    // readMost; tests set less

	asked     int       // what Standing last said
	due       time.Time // when to read; zero: nobody waits
	again     time.Time // when to read once more; zero: that was done
	notBefore time.Time // the end of a pause
	trouble   retry.Trouble
	backoff   *retry.Backoff
}

// Outcomes of a reading.
const (
	readComplete = "complete"
	readCut      = "cut"
	readFailed   = "failed"
)

// NewReader makes a Reader; Run does its work.
func NewReader(o ReaderOptions) (*Reader, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Reader{
		o: o, never: cmp.Or(o.Never, blocklist.NewNeverList(o.NeverBlock, o.Clock)), most: readMost,
		backoff: retry.NewBackoff(readDelay, readBackoffMost),
		readings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_blocks_readings_total",
			Help: "Readings of history for weir_blocks, after this process was given partitions of the hits topic, by outcome: complete, cut (2,000,000 " +
				"decisions were read, and there are more), failed (it is tried again).",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{readComplete, readCut, readFailed} {
		r.readings.WithLabelValues(outcome)
	}
	if err := register(o.Registerer, r.readings); err != nil {
		return nil, fmt.Errorf("reader of standing blocks: %w", err)
	}
	return r, nil
}

// Run works until ctx is done, and then returns nil. Failures are logged, and tried again.
func (r *Reader) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		r.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look reads if it is time to.
func (r *Reader) look(ctx context.Context) {
	now := time.Now()
	if asked := r.o.Standing.Asked(); asked != r.asked {
		if r.asked = asked; r.due.IsZero() {
			r.due = now.Add(readDelay)
		}
		r.again = now.Add(readAgain)
	}
	if passed := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }; now.Before(r.notBefore) || !passed(r.due) && !passed(r.again) {
		return
	}
	err := r.read(ctx)
	if ctx.Err() != nil {
		return
	}
	r.note(err)
	if err != nil && !errors.Is(err, errCut) {
		r.notBefore = time.Now().Add(r.backoff.Step())
		return
	}
	r.backoff.Reset()
	r.notBefore = time.Now().Add(readPause)
	if r.due = (time.Time{}); !now.Before(r.again) {
		r.again = time.Time{}
	}
}

func (r *Reader) note(err error) {
	switch {
	case errors.Is(err, errCut):
		r.readings.WithLabelValues(readCut).Inc()
		r.o.Logger.Warn("history has more decisions in force than are read; weir_blocks lacks blocks from before this process had their partitions", "read", r.most)
	case err != nil:
		r.readings.WithLabelValues(readFailed).Inc()
		r.trouble.Failed(r.o.Logger, "cannot read from history what stands, weir_blocks lacks blocks from before this process had their partitions; trying again", err)
		return
	default:
		r.readings.WithLabelValues(readComplete).Inc()
	}
	r.trouble.Over(r.o.Logger, "reading from history what stands works again")
}

// errCut ends a reading that has read enough.
var errCut = errors.New("too many decisions")

// read tells Standing what history has. Pages come in descending order of expiry: what a cut leaves out ends first.
func (r *Reader) read(ctx context.Context) error {
	modes, err := bounded(ctx, r.o.Modes.Modes)
	if err != nil {
		return fmt.Errorf("modes of rules: %w", err)
	}
	s, now, left := newSelection(modes, *r.never.Now()), r.o.Clock(), r.most
	r.o.Standing.BeginReading()
	for _, released := range []bool{true, false} {
		err := eachPage(ctx, r.o.Active, released, func(page []blocklist.Decision) error {
			if left -= len(page); left < 0 {
				return errCut
			}
			s.release(page, now)
			for i := range page {
				if key, b, ok := s.block(&page[i], now); ok {
					r.o.Standing.Stands(key, &b)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	r.o.Standing.EndReading()
	return nil
}
