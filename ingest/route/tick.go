package route

import (
	"context"
	"slices"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// tickIfDue appends a tick of every source that speaks to every keyed partition, once per TickEvery. Ticks say what is acknowledged
// and nothing more, so that one which is lost costs nothing and one which is late does no harm: while a chunk is stuck
// they repeat the old offset, and the watermark waits.
func (s *session) tickIfDue(ctx context.Context) {
	now := s.r.opt.Clock()
	// A clock that was set back must not stop the ticks.
	if wait := s.nextTick.Sub(now); wait > 0 && wait <= s.r.opt.TickEvery || len(s.sources) == 0 {
		return
	}
	s.nextTick = now.Add(s.r.opt.TickEvery)
	speaking := speaking(s.sources)
	if len(speaking) == 0 {
		s.showSources()
		return
	}
	err := s.r.opt.Keyed.Append(ctx, s.ticks(speaking))
	if ctx.Err() != nil {
		return
	}
	s.r.tally.bump(func(st *Stats) {
		if err != nil {
			st.FailedTickRounds++
		} else {
			st.TickRounds++
		}
	})
	s.troubles.note(s.r.opt.Logger, "ticks", err)
	s.showSources()
}

// ticks makes one round: a batch per keyed partition, a record per source. Its memory is its own, since a round that
// was not acknowledged may still be on its way.
func (s *session) ticks(sources []*source) []ingest.Batch {
	batches := make([]ingest.Batch, s.r.opt.KeyedPartitions)
	var buf []byte
	for q := range batches {
		batches[q].Partition = q
		for _, src := range sources {
			k := detectors.Keyed{
				Format: s.r.versions.format(src.version), Kind: detectors.KeyedTick, Generation: src.at.Generation, Source: src.partition, Offset: src.at.Offset,
				Prev: src.at.Prev[q], Time: src.at.Progress,
			}
			k.Clock, k.Idle = s.idleSince(src)
			start := len(buf)
			buf = detectors.AppendKeyed(buf, &k)
			batches[q].Values = append(batches[q].Values, buf[start:len(buf):len(buf)])
		}
	}
	return batches
}

// idleSince is the clock from before the fetch that found the end of the source's log, if everything up to that end is
// acknowledged: no event that was appended before that clock is still to come. A replay is never idle; it has an end
// mark instead.
func (s *session) idleSince(src *source) (traffic.Time, bool) {
	if !s.r.opt.Live || src.at.Offset < src.at.End {
		return 0, false
	}
	end := s.prefetcher.tail(src.partition)
	if !end.empty || end.next != src.at.Offset {
		return 0, false
	}
	return end.asked, true
}

// speaking returns the sources that tick: all but the blocked ones. A tick of a blocked source would say that nothing of it
// is missing; the watermark would wait for it, and with the watermark every expiry of every rule.
func speaking(sources []*source) []*source {
	return slices.DeleteFunc(slices.Clone(sources), func(src *source) bool { return src.blocked != nil })
}
