package detectors

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// SnapshotFormat is the newest format of snapshots that this build writes. It reads all from oldestSnapshotFormat on.
const (
	SnapshotFormat           = 9
	updatesSnapshotFormat    = 8
	approachesSnapshotFormat = 7
	trialsSnapshotFormat     = 6
	resetsSnapshotFormat     = 5
	languageSnapshotFormat   = 4
	oldestSnapshotFormat     = 2
)

// ErrSnapshot is wrapped by every error of RestoreFrom: the bytes are damaged, or not a snapshot.
var ErrSnapshot = errors.New("snapshot")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The layout of a snapshot, format 9. Numbers are varints (unsigned unless marked ±), texts carry their length.
//
//	byte format, keyed partition, generation, ±stall clock, ±last append, ±greatest append, ±watermark, events,
//	  newest routing version of which resets were applied
//	source partitions: number; each: byte flags, ±fence, ±progress, ±ticked
//	sweep: lineage id, fingerprint (16 bytes); eviction: upper word of a fingerprint (8 bytes)
//	lineages: number; each: rule, number, byte role, byte algorithm, byte count, byte form of keys, window, lateness, limit,
//	  burst, greatest limit, ±newest event evicted; of warnings: ±newest minute of event time that has any, openings in it + 128
//	  times the number of other minutes; each of those, newest first: minutes that it comes before, openings
//	sums of events left out: number; each: lineage, source, byte reason, ±minute, version, count, ±latest, offset
//	trials of blocks: see trials.append
//	sums of refused requests: ±minute of append time, number; each: rule, block, ±minute, count, of known-good ones, source, offset, ±latest
//	for each lineage, keys: number; each: fingerprint, byte events before its eviction, state as its algorithm writes it,
//	  episodes: number, and where there are any, the newest event given up, then each
//	buckets of evicted keys: number; each: byte number of keys, tag of each (2 bytes), events of each (4 bits)
//	events of keys on their way to a limit: ±until when those dropped would have been of use; number; each: fingerprint, hashes of its
//	  lineage and its rule (8 bytes each), ±time, ±until, evidence as keyed records have it
//	CRC-32C of all before, 4 bytes
//
// Format 2 has no reasons: all of its sums are of late events. Formats 2 and 3 have no roles, and no kinds of episodes: all
// lineages are of limits, and all episodes over them. Formats 2 to 4 say nothing of resets: none was applied, and the first one has
// format 5 written from then on. Formats 2 to 5 say nothing of trials of blocks, nor when targets were opened and what was told of running
// episodes. Formats 2 to 6 say nothing of what came before a limit, 2 to 7 not how old closing hits may
// be, and 2 to 8 nothing of refused requests.

// snapshotFormat is the format that every process can read which knows records of a format. An older one leaves out newer
// state: a process that takes over from format 2 knows less of late events. What an older build would take for something else
// has come with a record format, and a partition that has seen a record of it never writes an older snapshot again.
func snapshotFormat(records int) int {
	switch {
	case records >= rules.EvidenceRecordFormat:
		return approachesSnapshotFormat
	case records >= rules.LanguageRecordFormat:
		return languageSnapshotFormat
	case records >= rules.UncountedRecordFormat:
		return 3
	}
	return oldestSnapshotFormat
}

// formatNow is the format of a snapshot that is taken now. Formats 8 and 9 are for what 7 cannot say: another cooldown
// than the default one of a rule whose blocks are narrower than its windows, and sums of refused requests. Without them
// a build before reads what this one writes.
func formatNow(p *Partition) int {
	if p.format != approachesSnapshotFormat {
		return p.format
	}
	if p.refusals.some() {
		return SnapshotFormat
	}
	for _, l := range p.keys.ordered {
		if r := l.trial; r != nil && r.block.update != r.block.updateBefore() {
			return updatesSnapshotFormat
		}
	}
	return p.format
}

// head is all of a snapshot before the keys.
func (e *SnapshotEncoder) head(lineages []*lineage) []byte {
	p, format := e.p, e.format
	dst := []byte{byte(format)}
	dst = binary.AppendUvarint(dst, uint64(p.cfg.Keyed))
	dst = binary.AppendUvarint(dst, uint64(p.fence.generation))
	w := &p.watermark
	for _, t := range []traffic.Time{w.clock, w.appended, p.uncounted.newest, w.at} {
		dst = binary.AppendVarint(dst, int64(t))
	}
	dst = binary.AppendUvarint(dst, uint64(p.events))
	if format > languageSnapshotFormat {
		dst = binary.AppendUvarint(dst, uint64(p.resets))
	}
	dst = binary.AppendUvarint(dst, uint64(len(w.sources)))
	for i := range w.sources {
		dst = appendSource(dst, p.fence.sources[i], &w.sources[i])
	}
	dst = p.keys.sweep.from.append(appendText(dst, p.keys.sweep.lineage))
	if format < 3 { // eviction goes by lineage there
		dst = appendText(dst, "")
	}
	dst = binary.BigEndian.AppendUint64(dst, p.keys.evictor.from)
	if format < 3 {
		dst = binary.BigEndian.AppendUint64(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(lineages)))
	index := make(map[*lineage]int, len(lineages))
	for i, l := range lineages {
		index[l] = i
		dst = l.append(dst, format)
	}
	dst = p.uncounted.append(dst, index, format)
	if format > resetsSnapshotFormat {
		dst = p.trials.append(dst, lineages, format)
	}
	if format > updatesSnapshotFormat {
		dst = p.refusals.append(dst)
	}
	return dst
}

func (l *lineage) append(dst []byte, format int) []byte {
	dst = appendText(dst, l.rule)
	dst = binary.AppendUvarint(dst, uint64(l.number))
	if format > 3 {
		dst = append(dst, byte(l.role))
	}
	dst = l.appendCounting(dst, min(format, 3))
	if format > 3 && l.role == roleNear {
		dst = l.openings.append(dst)
	}
	return dst
}

// appendCounting writes what the windows of the lineage count, and how, in format 2 or 3.
func (l *lineage) appendCounting(dst []byte, format int) []byte {
	tried := l.trial != nil && len(l.trial.keys)+len(l.trial.blocks) > 0
	if l.cells.n == 0 && (l.window == 0 || !tried) { // named by sums only: what it counts will be settled anew
		return append(dst, []byte{0, 0, byte(keyBinary), 1, 0, 0, 0, 0, 0}[:2*format+3]...)
	}
	algorithm := l.kind.algorithm
	if format < 3 && algorithm == kindSlices {
		algorithm = kindSlidingCounter
	}
	dst = append(dst, algorithm, l.kind.count, byte(l.form))
	for _, n := range []int64{int64(l.window), int64(l.lateness), l.limit, l.burst, l.greatest}[:format+2] {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	if format < 3 {
		return dst
	}
	return binary.AppendVarint(dst, int64(l.evicted))
}

func (f Fingerprint) append(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, f.Hi), f.Lo)
}

func appendSource(dst []byte, f offsetFence, s *progress) []byte {
	dst = append(dst, byte(bit(f.rebase)|bit(s.stalled)<<1))
	dst = binary.AppendVarint(dst, f.offset)
	dst = binary.AppendVarint(dst, int64(s.time))
	return binary.AppendVarint(dst, int64(s.ticked))
}

// lineagesOf are the lineages with keys, sums of events left out or warnings to be bounded, by id.
func lineagesOf(keys *keyspace, uncounted *uncountedSums, watermark traffic.Time) []*lineage {
	summed := uncounted.lineages()
	var used []*lineage
	for _, l := range keys.ordered {
		if l.cells.n > 0 || summed[l] || l.openings.matter(watermark) || l.trial != nil {
			used = append(used, l)
		}
	}
	return used
}

func (u *uncountedSums) append(dst []byte, index map[*lineage]int, format int) []byte {
	keys := u.ordered()
	if format < 3 {
		keys = slices.DeleteFunc(keys, func(key uncountedKey) bool { return key.reason != UncountedLate })
	}
	dst = binary.AppendUvarint(dst, uint64(len(keys)))
	for _, key := range keys {
		sum := u.sums[key]
		dst = binary.AppendUvarint(dst, uint64(index[key.lineage]))
		dst = binary.AppendUvarint(dst, uint64(key.source))
		if format > 2 {
			dst = append(dst, byte(key.reason))
		}
		dst = binary.AppendVarint(dst, int64(u.minute))
		dst = binary.AppendUvarint(dst, uint64(sum.version))
		dst = binary.AppendUvarint(dst, uint64(sum.count))
		dst = binary.AppendVarint(dst, int64(sum.latest))
		dst = binary.AppendUvarint(dst, uint64(sum.offset))
	}
	return dst
}

func appendText(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// appendSlots writes the keys of a sub-table.
func (l *lineage) appendSlots(dst []byte, sub *subtable, format int) []byte {
	for i := range sub.slots {
		if sub.slots[i].b != 0 {
			dst = l.appendSlot(dst, &sub.slots[i], sub.past[i], format)
		}
	}
	return dst
}

// appendSlot writes one key: fingerprint, events before its eviction, state, episodes.
func (l *lineage) appendSlot(dst []byte, s *slot, past uint8, format int) []byte {
	dst = s.key().append(dst)
	if format > 2 {
		dst = append(dst, past)
	}
	c, k := l.contents(s)
	dst = l.algorithm.append(dst, c, format)
	if k == nil {
		return append(dst, 0)
	}
	episodes := k.episodes
	if format < 3 { // what is not certain is not known of there
		episodes = slices.DeleteFunc(slices.Clone(episodes), func(ep *episode) bool { return !ep.certain() })
	}
	dst = binary.AppendUvarint(dst, uint64(len(episodes)))
	if format > 2 {
		dst = k.trimmed.append(dst, format)
	}
	for _, ep := range episodes {
		dst = ep.append(dst, format)
	}
	return dst
}

// kindCode is how a snapshot writes the kind of an episode: its place among snapshotKinds.
func kindCode(k Kind) byte { return byte(max(0, slices.Index(snapshotKinds(), k))) }

// snapshotKinds are the kinds of episodes that a snapshot holds.
func snapshotKinds() []Kind { return append(episodeKinds(), kindTrial) }

func (a place) append(dst []byte, format int) []byte {
	dst = binary.AppendUvarint(binary.AppendVarint(dst, int64(a.time)), uint64(a.limit))
	if format < 3 {
		return dst
	}
	return binary.AppendUvarint(dst, uint64(a.nth))
}

func (ep *episode) append(dst []byte, format int) []byte {
	dst = appendText(dst, string(ep.subject))
	grouped := byte(0)
	if ep.grouped {
		grouped = 1
	}
	dst = append(dst, grouped)
	if format > 3 {
		dst = append(dst, kindCode(ep.kind), byte(bit(ep.muted)))
	}
	if format > resetsSnapshotFormat {
		dst = binary.AppendVarint(append(dst, byte(bit(ep.waits))), ep.running)
	}
	dst = ep.last.append(ep.first.append(dst, format), format)
	if format > 2 {
		dst = append(binary.AppendVarint(dst, int64(ep.settles)), byte(bit(ep.atLeast)))
	}
	for _, n := range []int64{
		int64(ep.limit), ep.count, ep.pending, ep.peak, ep.seen, int64(ep.lateness),
	} {
		dst = binary.AppendVarint(dst, n)
	}
	dst = binary.AppendUvarint(dst, uint64(len(ep.targets)))
	for _, t := range ep.targets {
		dst = appendText(appendText(dst, t.id), string(t.block))
		for _, n := range []int64{int64(t.version), t.generation, int64(t.source), t.offset, int64(t.last), int64(t.sent)} {
			dst = binary.AppendVarint(dst, n)
		}
		if format > resetsSnapshotFormat {
			dst = append(binary.AppendVarint(dst, int64(t.opened)), byte(t.good))
		}
	}
	for _, d := range []*distinct{&ep.users, &ep.devices} {
		dst = binary.AppendUvarint(dst, uint64(len(d.seen)))
		for _, h := range d.seen {
			dst = binary.BigEndian.AppendUint64(dst, h)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(ep.samples)))
	for _, s := range ep.samples {
		dst = appendBytes(dst, s)
	}
	if format > trialsSnapshotFormat {
		dst = append(binary.AppendUvarint(dst, uint64(ep.before)), byte(ep.earlier))
	}
	return dst
}
