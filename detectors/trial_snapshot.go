package detectors

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/traffic"
)

// append writes the trials of lineages. Numbers are as in the rest of a snapshot.
//
//	byte used, ±second and ±minute of append time when running counts and sums were told last, keys and blocks so far
//	good subjects: number; each: fingerprint, ±day
//	trials: number; each: lineage, newest version, limits (number, each), block (keys of block and rule: number, 3 bytes each;
//	  ttl, max_lag and, since format 8, how much older than its episode's end a closing hit may be in nanoseconds, byte flags), byte algorithm, byte count, window, byte evicted
//	  rungs: number; each: lateness, greatest limit; greatest limits of the two windows above the limit
//	  minutes: number; each: byte kind, version, ±minute, limit, byte flags, four figures, refused at each limit
//	    (number, each), ±latest, source, generation, offset
//	  keys, in the order of making: number; each: place in that order, fingerprint, byte windows above the limit are kept and the two,
//	    each step: byte there is a stand, and where there is one: ±newest refused, window, newest event given up, episodes
//	  blocks, likewise: number; each: place, fingerprint, holds (number, each ±since, ±until), hit, and where there is one: subject,
//	    version, ±opened, byte closed, refused, told
func (t *trials) append(dst []byte, lineages []*lineage, format int) []byte {
	dst = append(dst, byte(bit(t.used)))
	for _, n := range []int64{int64(t.running.second), int64(t.minute), t.made} {
		dst = binary.AppendVarint(dst, n)
	}
	dst = binary.AppendUvarint(dst, uint64(len(t.good.days)))
	for _, print := range t.good.ordered() {
		dst = binary.AppendVarint(print.append(dst), t.good.days[print])
	}
	n := 0
	for _, l := range lineages {
		n += int(bit(l.trial != nil))
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	for i, l := range lineages {
		if l.trial != nil {
			dst = l.trial.append(binary.AppendUvarint(dst, uint64(i)), format)
		}
	}
	return dst
}

func (r *ruleTrial) append(dst []byte, format int) []byte {
	dst = binary.AppendUvarint(dst, uint64(r.version))
	dst = binary.AppendUvarint(dst, uint64(len(r.limits)))
	for _, limit := range r.limits {
		dst = binary.AppendUvarint(dst, uint64(limit))
	}
	dst = r.block.append(dst, format)
	dst = append(dst, r.kind.algorithm, r.kind.count)
	dst = append(binary.AppendUvarint(dst, uint64(r.window)), byte(bit(r.evicted)))
	dst = binary.AppendUvarint(dst, uint64(len(r.rungs)))
	for _, g := range r.rungs {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(g.lineage.lateness)), uint64(g.lineage.greatest))
	}
	if len(r.rungs) > 0 && r.logs() {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(r.tall.greatest)), uint64(r.slices.greatest))
	}
	dst = r.appendMinutes(dst)
	dst = binary.AppendUvarint(dst, uint64(len(r.keys)))
	for _, x := range r.all.kept {
		if x.key != nil && x.trial == r {
			dst = x.key.append(binary.AppendUvarint(dst, uint64(x.made)), r)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.blocks)))
	for _, x := range r.all.kept {
		if x.block != nil && x.trial == r {
			dst = x.block.append(binary.AppendUvarint(dst, uint64(x.made)))
		}
	}
	return dst
}

func (x *trialBlock) append(dst []byte, format int) []byte {
	for _, key := range [...][]traffic.KeyField{x.key, x.ruleKey} {
		dst = binary.AppendUvarint(dst, uint64(len(key)))
		for _, k := range key {
			dst = append(dst, byte(k.Field), k.V4, k.V6)
		}
	}
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(x.terms.TTL)), uint64(x.terms.MaxLag))
	if format > approachesSnapshotFormat {
		dst = binary.AppendUvarint(dst, uint64(x.update))
	}
	return append(dst, byte(bit(x.terms.OnHit)|bit(x.same)<<1))
}

func (r *ruleTrial) appendMinutes(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(r.minutes)))
	for _, key := range r.ordered() {
		s := r.minutes[key]
		dst = append(dst, kindCode(key.of))
		dst = binary.AppendVarint(binary.AppendUvarint(dst, uint64(key.version)), int64(key.minute))
		dst = append(binary.AppendUvarint(dst, uint64(s.limit)), byte(bit(s.silent)))
		dst = binary.AppendUvarint(dst, uint64(len(s.limits))) // those of the sum's version, which may not be those that are tried now
		for _, limit := range s.limits {
			dst = binary.AppendUvarint(dst, uint64(limit))
		}
		for _, n := range []int64{s.count, s.reached, s.refused, s.refusedGood} {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
		dst = binary.AppendUvarint(dst, uint64(len(s.refusedAt)))
		for _, n := range s.refusedAt {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
		dst = binary.AppendVarint(dst, int64(s.latest))
		for _, n := range []int64{int64(s.source), s.generation, s.offset} {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
	}
	return dst
}

// ordered are the sums by minute, version and kind.
func (r *ruleTrial) ordered() []minuteKey {
	return slices.SortedFunc(maps.Keys(r.minutes), func(a, b minuteKey) int {
		return cmp.Or(cmp.Compare(a.minute, b.minute), cmp.Compare(a.version, b.version), cmp.Compare(a.of, b.of))
	})
}

func appendWindow(dst []byte, l *lineage, c *cell) []byte {
	if c.b == 0 {
		return append(dst, 0)
	}
	return l.algorithm.append(append(dst, 1), c, SnapshotFormat)
}

func (x *tried) append(dst []byte, r *ruleTrial) []byte {
	dst = append(x.key.append(dst), byte(bit(x.tall)))
	if x.tall {
		dst = appendWindow(appendWindow(dst, r.tall, &x.log), r.slices, &x.slices)
	}
	for _, s := range x.stands {
		dst = append(dst, byte(bit(s != nil)))
		if s == nil {
			continue
		}
		dst = appendWindow(binary.AppendVarint(dst, int64(s.refused)), s.held.lineage, &s.held.cell)
		dst = s.held.trimmed.append(dst, SnapshotFormat)
		dst = binary.AppendUvarint(dst, uint64(len(s.held.episodes)))
		for _, ep := range s.held.episodes {
			dst = ep.append(dst, SnapshotFormat)
		}
	}
	return dst
}

func (x *blocked) append(dst []byte) []byte {
	dst = binary.AppendUvarint(x.print.append(dst), uint64(len(x.holds)))
	for _, h := range x.holds {
		dst = binary.AppendVarint(binary.AppendVarint(dst, int64(h.since)), int64(h.until))
	}
	if dst = appendText(dst, x.hit); x.hit == "" {
		return dst
	}
	dst = binary.AppendUvarint(appendText(dst, string(x.subject)), uint64(x.version))
	dst = append(binary.AppendVarint(dst, int64(x.opened)), byte(bit(x.closed)))
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(x.refused)), uint64(x.told))
}

// mostSteps bounds the limits of a trial when a snapshot is read.
const mostSteps = 32

func (t *trials) restore(r *reader, lineages []*lineage) {
	t.used = r.upTo(1, "trials flag") == 1
	t.running.second, t.minute, t.made = traffic.Time(r.varint()), traffic.Time(r.varint()), r.varint()
	for n := r.length(17, "good subjects"); n > 0 && r.err == nil; n-- {
		print, on := Fingerprint{r.fixed64(), r.fixed64()}, r.varint()
		t.good.days[print] = on
		t.good.perDay[on]++
	}
	for n := r.length(16, "trials"); n > 0 && r.err == nil; n-- {
		l := pick(r, lineages)
		if r.err != nil {
			return
		}
		x := newRuleTrial(t, l)
		l.trial = x
		x.restore(r)
	}
	slices.SortFunc(t.kept, func(a, b *kept) int { return cmp.Compare(a.made, b.made) })
}

func (r *ruleTrial) restore(in *reader) {
	r.version = int(in.upTo(1<<31, "rule version"))
	n := in.length(1, "limits of a trial")
	if in.err == nil && (n == 0 || n > mostSteps) {
		in.fail("%d limits of a trial, allowed: 1 to %d", n, mostSteps)
	}
	for ; n > 0 && in.err == nil; n-- {
		r.limits = append(r.limits, int(in.upTo(mostLimit, "limit")))
	}
	r.block.restore(in)
	r.kind = kind{uint8(in.upTo(numAlgorithms-1, "algorithm")), uint8(in.upTo(numCounts-1, "count"))}
	r.window = traffic.Time(in.upTo(uint64(mostWindow), "window"))
	r.evicted = in.upTo(1, "flag of an eviction") == 1
	rungs := in.length(2, "rungs")
	if in.err == nil && rungs > len(r.limits) {
		in.fail("%d rungs of a trial of %d limits", rungs, len(r.limits))
	}
	if in.err == nil && rungs > 0 && r.window == 0 {
		in.fail("a trial with a window of 0")
	}
	for step := 0; step < rungs && in.err == nil; step++ {
		g := r.newRung(step)
		g.lineage.lateness, g.lineage.greatest = traffic.Time(in.upTo(uint64(mostWindow), "lateness")), int64(in.upTo(mostLimit, "greatest limit"))
		r.rungs = append(r.rungs, g)
	}
	if rungs > 0 && in.err == nil {
		r.startTall()
		if r.logs() {
			r.tall.greatest, r.slices.greatest = int64(in.upTo(mostLimit, "greatest limit")), int64(in.upTo(mostLimit, "greatest limit"))
		}
	}
	r.restoreMinutes(in)
	for n := in.length(18, "keys under trial"); n > 0 && in.err == nil; n-- {
		r.restoreKey(in)
	}
	for n := in.length(18, "blocks under trial"); n > 0 && in.err == nil; n-- {
		r.restoreBlock(in)
	}
}

func (x *trialBlock) restore(r *reader) {
	for _, key := range [...]*[]traffic.KeyField{&x.key, &x.ruleKey} {
		n := r.length(3, "fields of a key")
		for ; n > 0 && r.err == nil; n-- {
			*key = append(*key, traffic.KeyField{
				Field: traffic.Field(r.upTo(uint64(traffic.NumFields)-1, "field")), V4: uint8(r.upTo(32, "prefix length")), V6: uint8(r.upTo(128, "prefix length")),
			})
		}
	}
	x.terms.TTL, x.terms.MaxLag = time.Duration(r.count()), time.Duration(r.count())
	x.update = x.updateBefore()
	if r.format > approachesSnapshotFormat {
		x.update = time.Duration(r.count())
	}
	flags := r.upTo(3, "flags of a block")
	x.terms.OnHit, x.same = flags&1 != 0, flags&2 != 0
}

func (r *ruleTrial) restoreMinutes(in *reader) {
	for n := in.length(14, "minutes"); n > 0 && in.err == nil; n-- {
		key := minuteKey{of: snapshotKinds()[in.upTo(uint64(len(snapshotKinds())-1), "kind")], version: int(in.upTo(1<<31, "rule version")), minute: traffic.Time(in.varint())}
		s := &minuteSum{limit: int(in.upTo(mostLimit, "limit"))}
		s.silent = in.upTo(1, "flag of a sum") == 1
		for steps := in.length(1, "limits of a sum"); steps > 0 && in.err == nil; steps-- {
			s.limits = append(s.limits, int(in.upTo(mostLimit, "limit")))
		}
		if in.err == nil && len(s.limits) > mostSteps {
			in.fail("%d limits of a sum, allowed: %d at most", len(s.limits), mostSteps)
		}
		for _, to := range []*int64{&s.count, &s.reached, &s.refused, &s.refusedGood} {
			*to = in.count()
		}
		for steps := in.length(1, "refused at limits"); steps > 0 && in.err == nil; steps-- {
			s.refusedAt = append(s.refusedAt, in.count())
		}
		if in.err == nil && s.refusedAt != nil && len(s.refusedAt) != len(s.limits) {
			in.fail("figures of %d limits, of a sum of %d", len(s.refusedAt), len(s.limits))
		}
		s.latest, s.source = traffic.Time(in.varint()), int(in.upTo(MaxSources, "source partition"))
		s.generation, s.offset = in.count(), in.count()
		r.minutes[key] = s
	}
}

func restoreWindow(r *reader, l *lineage, c *cell) {
	if r.upTo(1, "flag of a window") == 1 && r.err == nil {
		l.algorithm.restore(c, r)
	}
}

func (r *ruleTrial) restoreKey(in *reader) {
	made, key := in.count(), Fingerprint{in.fixed64(), in.fixed64()}
	if in.err == nil && (r.keys[key] != nil || len(r.rungs) == 0) {
		in.fail("a key under trial twice, or without windows")
	}
	if in.err != nil {
		return
	}
	x := r.all.add(r, key)
	x.kept.made = made
	r.all.made--
	if x.tall = in.upTo(1, "flag of windows") == 1; x.tall && in.err == nil {
		if !r.logs() {
			in.fail("windows above a limit that needs none")
			return
		}
		restoreWindow(in, r.tall, &x.log)
		restoreWindow(in, r.slices, &x.slices)
	}
	for step := range x.stands {
		if in.upTo(1, "flag of a stand") == 0 || in.err != nil {
			continue
		}
		if step >= len(r.rungs) { // windows of limits that an edit has brought are made with the next event over the limit
			in.fail("a stand at step %d of a trial with windows at %d", step, len(r.rungs))
			return
		}
		s := r.newStand(x, step)
		s.refused = traffic.Time(in.varint())
		restoreWindow(in, s.held.lineage, &s.held.cell)
		s.held.trimmed = restorePlace(in)
		for n := in.length(20, "episodes"); n > 0 && in.err == nil; n-- {
			s.held.episodes = append(s.held.episodes, restoreEpisode(in, s.held.lineage))
		}
		if in.err == nil {
			for _, ep := range s.held.episodes {
				ep.restoreOpen()
			}
			r.all.p.keys.update(s.held)
		}
	}
}

func (r *ruleTrial) restoreBlock(in *reader) {
	made, print := in.count(), Fingerprint{in.fixed64(), in.fixed64()}
	n := in.length(2, "holds")
	if in.err == nil && (r.blocks[print] != nil || n > len(r.limits)) {
		in.fail("a block under trial twice, or with %d holds at %d limits", n, len(r.limits))
	}
	if in.err != nil {
		return
	}
	x := r.all.block(r, print)
	x.kept.made = made
	r.all.made--
	x.resize(r, n)
	for i := range x.holds {
		x.holds[i] = hold{traffic.Time(in.varint()), traffic.Time(in.varint())}
	}
	if x.hit = string(in.bytes()); x.hit == "" {
		return
	}
	x.subject, x.version, x.opened = traffic.Subject(in.bytes()), int(in.upTo(1<<31, "rule version")), traffic.Time(in.varint())
	x.closed = in.upTo(1, "closed flag") == 1
	x.refused, x.told = in.count(), in.count()
}

// restoreRunning finds the episodes of which the running count waits to be told.
func (t *trials) restoreRunning() {
	for _, l := range t.p.keys.ordered {
		for _, o := range l.offenders {
			if o == nil {
				continue
			}
			for _, ep := range o.episodes {
				if ep.waits {
					t.running.list = append(t.running.list, waiting{ep, o.key})
				}
			}
		}
	}
}
