package detectors

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/weirhq/weir/traffic"
)

// sumBytes is the length of a snapshot's checksum, which ends it.
const sumBytes = crc32.Size

// RestoreFrom makes a partition from a snapshot of size bytes, which next gives piece by piece, in order; a piece
// may not be written over. Nothing of it is believed before all of it is checked: a torn or flipped snapshot gives an
// error that wraps ErrSnapshot, one of a newer build *UnknownFormatError. An error of next is wrapped, and says nothing
// about the snapshot unless it wraps ErrSnapshot itself.
func RestoreFrom(cfg Config, size int64, next func() ([]byte, error)) (*Partition, error) {
	if size <= sumBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrSnapshot, size)
	}
	r := &reader{rest: &pieces{next: next, left: int(size) - sumBytes}}
	p, err := restore(cfg, r)
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, errPieces), errors.As(err, new(*UnknownFormatError)):
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
}

func restore(cfg Config, r *reader) (*Partition, error) {
	if !r.need(1) {
		return nil, r.err
	}
	format := int(r.b[0])
	r.b = r.b[1:]
	if format < languageSnapshotFormat || format > SnapshotFormat {
		for r.grow() { // the checksum comes first: the byte may be damaged
			continue
		}
	}
	if r.err == nil && (format < oldestSnapshotFormat || format > SnapshotFormat) {
		return nil, &UnknownFormatError{
			What: "snapshot", Got: fmt.Sprint(format), Known: fmt.Sprintf("%d to %d", oldestSnapshotFormat, SnapshotFormat),
		}
	}
	p := NewPartition(cfg)
	r.format, p.format = format, min(format, approachesSnapshotFormat) // formatNow says when more is needed
	if keyed := r.count(); r.err == nil && keyed != int64(cfg.Keyed) {
		return nil, fmt.Errorf("of keyed partition %d, wanted %d", keyed, cfg.Keyed)
	}
	p.fence.generation = r.count()
	w := &p.watermark
	for _, t := range []*traffic.Time{&w.clock, &w.appended, &p.uncounted.newest, &w.at} {
		*t = traffic.Time(r.varint())
	}
	p.events = r.count()
	if format > languageSnapshotFormat {
		p.resets = r.count()
	}
	restoreSources(r, &p.fence, w)
	lineages := p.keys.restore(r)
	p.uncounted.restore(r, lineages)
	if format > resetsSnapshotFormat {
		p.trials.restore(r, lineages)
	}
	if format > updatesSnapshotFormat {
		p.refusals.restore(r)
	}
	p.keys.restoreKeys(r, lineages)
	if format > trialsSnapshotFormat {
		p.keys.approaches.restore(r)
	}
	p.trials.restoreRunning()
	return p, r.end()
}

func restoreSources(r *reader, f *fence, w *watermark) {
	n := r.length(4, "source partitions")
	if n > MaxSources {
		r.fail("%d source partitions, allowed: up to %d", n, MaxSources)
		return
	}
	// A snapshot of an earlier generation may have had fewer or more source partitions: its own are kept until the
	// first record of the new generation starts them anew. One of this generation has more once some were added.
	f.sources, w.sources = make([]offsetFence, n), make([]progress, n)
	for i := range n {
		flags := r.upTo(3, "source flags")
		f.sources[i] = offsetFence{rebase: flags&1 != 0, offset: r.varint()}
		w.sources[i] = progress{stalled: flags&2 != 0, time: traffic.Time(r.varint()), ticked: traffic.Time(r.varint())}
	}
	f.grow(f.initial - 1)
	w.grow(w.initial - 1)
}

// restore reads where the walks stand, and the lineages, without their keys.
func (s *keyspace) restore(r *reader) []*lineage {
	s.sweep = sweep{string(r.bytes()), Fingerprint{r.fixed64(), r.fixed64()}}
	if r.format == 2 { // eviction went by lineage, too
		r.bytes()
	}
	s.evictor.from = r.fixed64()
	if r.format == 2 {
		r.fixed64()
	}
	lineages := make([]*lineage, r.length(9, "lineages"))
	for i := range lineages {
		lineages[i] = s.restoreLineage(r)
		if r.err == nil && i > 0 && lineages[i].id <= lineages[i-1].id {
			r.fail("lineages are not ascending")
		}
	}
	return lineages
}

// Bounds of what a snapshot may say about a rule: those of rules.Document, with room.
const (
	mostWindow = traffic.Time(1) << 42 // 50 days
	mostLimit  = 1 << 20
)

func (s *keyspace) restoreLineage(r *reader) *lineage {
	rule := string(r.bytes())
	number, purpose := int(r.upTo(1<<31, "lineage number")), roleMain
	if r.format > 3 {
		purpose = role(r.upTo(uint64(numRoles)-1, "role of a lineage"))
	}
	l := s.lineage(rule, number, purpose)
	k := kind{uint8(r.upTo(numAlgorithms-1, "algorithm")), uint8(r.upTo(numCounts-1, "count"))}
	form := keyForm(r.upTo(uint64(keyBinary), "form of keys"))
	window := traffic.Time(r.upTo(uint64(mostWindow), "window"))
	if r.err == nil && (window == 0 || form == 0) {
		r.fail("window %d, form of keys %d, neither may be 0", window, form)
	}
	lateness, limit, burst := r.upTo(uint64(mostWindow), "lateness"), r.upTo(mostLimit, "limit"), r.upTo(mostLimit, "burst")
	greatest, evicted := limit, traffic.BeforeTime
	if r.format > 2 {
		greatest, evicted = r.upTo(mostLimit, "greatest limit"), traffic.Time(r.varint())
	}
	if r.format > 3 && purpose == roleNear {
		l.openings = restoreOpenings(r)
	}
	if r.err != nil {
		return l
	}
	l.begin(k, window, form)
	l.lateness, l.limit, l.burst, l.greatest, l.evicted = traffic.Time(lateness), int64(limit), int64(burst), int64(greatest), evicted
	return l
}

// restore reads sums of events that were left out. In format 2 all of them were late.
func (u *uncountedSums) restore(r *reader, lineages []*lineage) {
	for first, n := true, r.length(7, "sums of events left out"); n > 0 && r.err == nil; n-- {
		key := uncountedKey{lineage: pick(r, lineages), source: int(r.upTo(MaxSources, "source partition"))}
		if r.format > 2 {
			key.reason = Uncounted(r.upTo(uint64(NumUncounted-1), "reason"))
		}
		minute := traffic.Time(r.varint())
		if r.err == nil && !first && minute != u.minute {
			r.fail("sums of two minutes, %d and %d", u.minute, minute)
		}
		u.minute, first = minute, false
		u.sums[key] = &uncountedSum{
			version: int(r.upTo(1<<31, "rule version")), count: r.count(), latest: traffic.Time(r.varint()), offset: r.count(),
		}
	}
}

// pick reads an index into lineages.
func pick(r *reader, lineages []*lineage) *lineage {
	i := r.uvarint()
	if i >= uint64(len(lineages)) {
		r.fail("lineage %d of %d", i, len(lineages))
		return nil
	}
	return lineages[i]
}

// restoreKeys reads the keys of each lineage, and those that were evicted.
func (s *keyspace) restoreKeys(r *reader, lineages []*lineage) {
	for _, l := range lineages {
		if r.err != nil {
			return
		}
		s.restoreLineageKeys(r, l)
	}
	if r.format > 2 {
		s.ledger.gone.restore(r)
	}
}

func (s *keyspace) restoreLineageKeys(r *reader, l *lineage) {
	last := Fingerprint{}
	n := r.length(19, "keys")
	density, cells := newDensityCheck(n), newTableLoader(&l.cells, n)
	for ; n > 0 && r.err == nil; n-- {
		key := Fingerprint{r.fixed64(), r.fixed64()}
		if cells.n > 0 && !last.less(key) {
			r.fail("keys are not ascending")
			return
		}
		if density.admit(key); density.full {
			r.fail("%d keys within %d bits: these are no fingerprints", len(density.last)+1, density.bits)
			return
		}
		past := uint8(0)
		if r.format > 2 {
			past = uint8(r.upTo(mostPast, "events before an eviction"))
		}
		c := cells.add(key, past)
		l.ledger.keys++
		l.ledger.bytes += keyBytes
		l.algorithm.restore(c, r)
		if r.err != nil {
			return
		}
		s.restoreEpisodes(r, l, key, c)
		last = key
	}
	cells.finish()
}

func (s *keyspace) restoreEpisodes(r *reader, l *lineage, key Fingerprint, c *cell) {
	n := r.length(20, "episodes")
	if n == 0 {
		return
	}
	k := l.addOffender(key, c)
	if r.format > 2 {
		k.trimmed = restorePlace(r)
	}
	for ; n > 0 && r.err == nil; n-- {
		k.episodes = append(k.episodes, restoreEpisode(r, l))
	}
	if r.err == nil {
		for _, ep := range k.episodes {
			ep.restoreOpen()
		}
		s.update(k)
	}
}

func restorePlace(r *reader) place {
	at := place{entry: entry{traffic.Time(r.varint()), int64(r.upTo(1<<31-1, "limit"))}}
	if r.format > 2 {
		at.nth = int(r.count())
	}
	return at
}

func restoreEpisode(r *reader, rule *lineage) *episode {
	ep := &episode{rule: rule, kind: KindHit, subject: traffic.Subject(r.bytes()), grouped: r.upTo(1, "grouped flag") == 1}
	if r.format > 3 {
		kinds := snapshotKinds()
		ep.kind, ep.muted = kinds[r.upTo(uint64(len(kinds)-1), "kind of an episode")], r.upTo(1, "muted flag") == 1
	}
	if r.format > resetsSnapshotFormat {
		ep.waits, ep.running = r.upTo(1, "flag of a running count") == 1, r.varint()
	}
	ep.first, ep.last, ep.settles = restorePlace(r), restorePlace(r), traffic.BeforeTime
	if r.format > 2 {
		ep.settles, ep.atLeast = traffic.Time(r.varint()), r.upTo(1, "lower bound flag") == 1
	}
	ep.limit = int(r.varint())
	ep.count, ep.pending, ep.peak, ep.seen = r.varint(), r.varint(), r.varint(), r.varint()
	ep.lateness = traffic.Time(r.upLateness())
	n := r.length(7, "block targets of an episode")
	if r.err == nil && (n == 0 || n > MaxTuples+1) {
		r.fail("%d block targets of an episode, allowed: 1 to %d", n, MaxTuples+1)
	}
	for ; n > 0 && r.err == nil; n-- {
		t := &blockTarget{
			id: string(r.bytes()), block: traffic.Subject(r.bytes()), version: int(r.varint()), generation: r.varint(), source: int(r.varint()), offset: r.varint(),
			last: traffic.Time(r.varint()), sent: traffic.Time(r.varint()),
		}
		if r.format > resetsSnapshotFormat {
			t.opened, t.good = traffic.Time(r.varint()), Good(r.upTo(uint64(KnownGood), "known good"))
		}
		ep.targets = append(ep.targets, t)
	}
	restoreEvidence(r, ep)
	return ep
}

// upLateness reads a lateness.
func (r *reader) upLateness() int64 {
	v := r.varint()
	if v < 0 || v > int64(mostWindow) {
		r.fail("lateness %d, allowed: 0 to %d", v, mostWindow)
		return 0
	}
	return v
}

func restoreEvidence(r *reader, ep *episode) {
	for _, d := range []*distinct{&ep.users, &ep.devices} {
		d.seen = make([]uint64, min(r.length(8, "distinct values"), MaxDistinct))
		for i := range d.seen {
			d.seen[i] = r.fixed64()
		}
	}
	for n := r.length(1, "samples"); n > 0 && r.err == nil; n-- {
		ep.samples = append(ep.samples, append([]byte(nil), r.bytes()...))
	}
	if r.format > trialsSnapshotFormat {
		ep.before = int(r.upTo(uint64(min(len(ep.samples), maxApproach)), "samples from before the limit"))
		ep.earlier = earlierWhy(r.upTo(uint64(numEarlier)-1, "reason for none of them"))
	}
}
