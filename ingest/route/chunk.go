package route

import (
	"cmp"
	"slices"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// maxBatchBytes bounds what a chunk appends to one keyed partition, below the 1,048,588 bytes that Kafka takes as one
// batch by default. A single record is far smaller: a sample and five bounded identity values.
const maxBatchBytes = 1_000_000

// recordOverhead is more than a record takes in a batch beside its value.
const recordOverhead = 32

// chunk is a stretch of every source partition, ready to be appended. It is built once and may be appended many times,
// the same bytes each time.
type chunk struct {
	batches []ingest.Batch
	letters []traffic.DeadLetter
	next    []ingest.Announcement // per source: where it stands once the chunk is acknowledged; nothing new announced yet
	stats   EventStats
	hints   []uint64 // what is known of good sources once the chunk is acknowledged
}

// chunkBuilder builds chunks. Their bytes live in its memory until the next build, so a chunk must be acknowledged or given
// up together with its builder by then.
type chunkBuilder struct {
	opt      *Options
	reader   eventRouter
	keyed    []keyedPart
	touched  []int  // keyed partitions of the present chunk, in the order of their first record
	evidence []byte // of the present event, as its records end
	sample   []byte
	counts   map[*routingVersion]*ruleCounts
}

// keyedPart is what goes to one keyed partition.
type keyedPart struct {
	buf    []byte
	values [][]byte
	size   int // as maxBatchBytes counts
}

func newBuilder(opt *Options, memory *hintMemory) *chunkBuilder {
	told := &hints{memory: memory, fresh: map[uint64]bool{}}
	return &chunkBuilder{
		opt: opt, keyed: make([]keyedPart, opt.KeyedPartitions), counts: map[*routingVersion]*ruleCounts{},
		reader: eventRouter{live: opt.Live, targets: newTargeter(opt.Secret, opt.KeyedPartitions), hints: told},
	}
}

// stretch is a source partition's part of the chunk that is being built.
type stretch struct {
	version  *routingVersion
	messages []traffic.Message    // not yet taken
	end      int64                // where the stretch stands once they are
	at       *ingest.Announcement // as of the messages taken
	counts   *ruleCounts
}

// build makes a chunk of what is queued within the announced ends. The records of the sources are interleaved by append
// time, each source's in the order of its offsets. The chunk may end short of an announced end: the end stays.
func (b *chunkBuilder) build(sources []*source, in *prefetcher) *chunk {
	b.reset()
	c := &chunk{next: make([]ingest.Announcement, len(sources)), stats: newEventStats()}
	open := make([]*stretch, len(sources))
	for i, src := range sources {
		c.next[i] = src.at
		c.next[i].Prev = slices.Clone(src.at.Prev)
		open[i] = b.open(src, &c.next[i], in)
	}
	room := chunkRoom{b.opt.MaxChunkEvents, b.opt.MaxChunkBytes}
	for fits := true; fits && !room.full(); {
		s, until := earliest(open)
		if s == nil {
			break
		}
		for fits && !room.full() && len(s.messages) > 0 && s.messages[0].Appended <= until {
			if fits = b.take(c, s); fits {
				room.take(&s.messages[0])
				s.messages = s.messages[1:]
			}
		}
	}
	for _, s := range open {
		s.close()
	}
	b.sumRules(&c.stats)
	for _, q := range b.touched {
		c.batches = append(c.batches, ingest.Batch{Partition: q, Values: b.keyed[q].values})
	}
	return c
}

func (b *chunkBuilder) reset() {
	for _, q := range b.touched {
		k := &b.keyed[q]
		k.buf, k.values, k.size = k.buf[:0], k.values[:0], 0
	}
	b.touched = b.touched[:0]
	clear(b.reader.hints.fresh)
}

func (b *chunkBuilder) open(src *source, at *ingest.Announcement, in *prefetcher) *stretch {
	messages, read := in.peek(src.partition)
	stop := max(at.End, at.Offset) // no chunk crosses an announced end
	n, _ := slices.BinarySearchFunc(messages, stop, func(m traffic.Message, offset int64) int {
		return cmp.Compare(m.Offset, offset)
	})
	s := &stretch{version: src.version, messages: ingest.MessagesFrom(messages[:n], at.Offset), end: max(min(stop, read), at.Offset), at: at}
	s.counts = b.countsOf(src.version)
	return s
}

// close fixes where the stretch ends.
func (s *stretch) close() {
	s.at.Offset = s.end
	if len(s.messages) > 0 {
		s.at.Offset = s.messages[0].Offset
	}
	s.at.End = max(s.at.End, s.at.Offset)
}

// earliest is the stretch whose next message was appended first, up to the time at which another one's turn comes.
func earliest(open []*stretch) (first *stretch, until traffic.Time) {
	least, until := traffic.EndOfTime, traffic.EndOfTime
	for _, s := range open {
		if len(s.messages) == 0 {
			continue
		}
		if at := s.messages[0].Appended; first == nil || at < least {
			first, least, until = s, at, least
		} else {
			until = min(until, at)
		}
	}
	return first, until
}

// take routes the first message of s, or reports that a batch would grow too large.
func (b *chunkBuilder) take(c *chunk, s *stretch) bool {
	m := &s.messages[0]
	got := b.reader.read(s.version, m, s.at.Progress)
	if len(got.targets) > 0 && !b.put(s, m, got) {
		return false
	}
	for i := range got.targets {
		if key := got.targets[i].hint; key != 0 {
			b.reader.hints.fresh[key] = true
			c.hints = append(c.hints, key)
		}
	}
	if got.fate == FateDead {
		c.letters = append(c.letters, traffic.NewDeadLetter(ingest.StageRoute, got.reason, got.detail, b.opt.Topic, *m))
	}
	s.at.Progress = got.progress
	c.stats.count(s.counts, got)
	return true
}

// put writes one record per target. prev chains them: a detector that misses one finds out by the next. Hints are no links.
func (b *chunkBuilder) put(s *stretch, m *traffic.Message, got *reading) bool {
	if s.version.format >= rules.CountingRecordFormat {
		b.sample = traffic.AppendPackedSample(b.sample[:0], &b.reader.request, &got.identity)
	} else {
		b.sample = traffic.AppendSample(b.sample[:0], &b.reader.request, &got.identity)
	}
	k := detectors.Keyed{
		Format: s.version.format, Kind: detectors.KeyedEvent, Generation: s.at.Generation, Source: m.Partition, Offset: m.Offset,
		Time: got.time, Progress: got.progress, Version: s.version.number, Identity: got.identity, Sample: b.sample, Good: got.good,
	}
	if got.fate == FateRefusal {
		k.Verdict, k.Identity, k.Sample = got.verdict, traffic.Identity{}, nil
	}
	b.evidence = detectors.AppendEvidence(b.evidence[:0], &k)
	for i := range got.targets {
		t := &got.targets[i]
		if part := &b.keyed[t.partition]; part.size > 0 && part.size+boundOf(b.evidence, t)+len(k.Verdict.Rule)+
			len(k.Verdict.Block) > maxBatchBytes {
			return false
		}
	}
	for i := range got.targets {
		t := &got.targets[i]
		part := &b.keyed[t.partition]
		if part.size == 0 {
			b.touched = append(b.touched, t.partition)
		}
		k.Rules, k.Units, k.Tiers, k.Extra, k.Prev = t.rules, nil, nil, t.extra, s.at.Prev[t.partition]
		k.Reached, k.Beyond = t.reached, t.beyond
		if t.hint != 0 {
			k.Prev = detectors.NoOffset
		} else {
			s.at.Prev[t.partition] = m.Offset
		}
		if t.tiered {
			k.Tiers = t.tiers
		}
		if t.summed {
			k.Units = t.units
		}
		start := len(part.buf)
		part.buf = detectors.AppendKeyedWith(part.buf, &k, b.evidence)
		// When buf grows it moves; values that were cut from it before stay where they were, whole.
		part.values = append(part.values, part.buf[start:len(part.buf):len(part.buf)])
		part.size += len(part.buf) - start + recordOverhead
	}
	return true
}

// boundOf is an upper bound of the bytes that an event's record takes in a batch.
func boundOf(evidence []byte, t *eventTarget) int {
	const numbers = 100        // all numbers but those of rules and extra values
	const eachRule = 3 + 5 + 1 // its index, units up to format.MaxUnits, and a tier up to rules.MaxTiers
	const eachExtra = 3 + 3    // its index, and the length of its text
	const eachIndex = 3        // of a rule that is reached, or beyond
	n := recordOverhead + numbers + len(evidence) + eachRule*len(t.rules) + eachIndex*(len(t.reached)+len(t.beyond))
	for i := range t.extra {
		n += eachExtra + len(t.extra[i].Text)
	}
	return n
}
