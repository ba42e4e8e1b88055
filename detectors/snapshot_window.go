package detectors

import (
	"encoding/binary"

	"github.com/weirhq/weir/traffic"
)

func appendText(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// append writes one window: key, lineage, lateness, the log as differences of time, episodes.
func (w *window) append(dst []byte, index map[*lineage]int) []byte {
	dst = binary.BigEndian.AppendUint64(dst, w.key.Hi)
	dst = binary.BigEndian.AppendUint64(dst, w.key.Lo)
	dst = binary.AppendUvarint(dst, uint64(index[w.rule]))
	dst = binary.AppendVarint(dst, int64(w.lateness))
	dst = binary.AppendUvarint(dst, uint64(w.log.maxLimit))
	dst = binary.AppendUvarint(dst, uint64(len(w.log.entries)))
	last := traffic.Time(0)
	for i := range w.log.entries {
		e := &w.log.entries[i]
		dst = e.append(dst, last)
		last = e.time
	}
	dst = binary.AppendUvarint(dst, uint64(len(w.episodes)))
	for _, ep := range w.episodes {
		dst = ep.append(dst)
	}
	return dst
}

func (a *entry) append(dst []byte, last traffic.Time) []byte {
	dst = binary.AppendVarint(dst, int64(a.time-last))
	dst = binary.AppendUvarint(dst, uint64(a.source))
	dst = binary.AppendUvarint(dst, uint64(a.offset))
	return binary.AppendUvarint(dst, uint64(a.limit))
}

func (ep *episode) append(dst []byte) []byte {
	for _, s := range []string{ep.id, string(ep.subject), string(ep.block)} {
		dst = appendText(dst, s)
	}
	grouped := byte(0)
	if ep.grouped {
		grouped = 1
	}
	dst = append(dst, grouped)
	dst = ep.first.append(dst, 0)
	dst = ep.last.append(dst, 0)
	for _, n := range []int64{
		int64(ep.ruleVersion), int64(ep.limit), ep.count, int64(ep.peak), ep.generation, int64(ep.source), ep.offset, ep.seen,
		int64(ep.lateness), int64(ep.sent),
	} {
		dst = binary.AppendVarint(dst, n)
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
	return dst
}

func restoreWindow(r *reader, lineages []*lineage) *window {
	w := &window{key: Fingerprint{Hi: r.fixed64(), Lo: r.fixed64()}, rule: pick(r, lineages), heap: -1}
	w.lateness = traffic.Time(r.varint())
	w.log.maxLimit = int32(r.upTo(1<<31-1, "limit"))
	w.log.entries = make([]entry, r.length(4, "log entries"))
	last := traffic.Time(0)
	for i := range w.log.entries {
		w.log.entries[i] = restoreEntry(r, last)
		last = w.log.entries[i].time
	}
	for n := r.length(20, "episodes"); n > 0 && r.err == nil; n-- {
		w.episodes = append(w.episodes, restoreEpisode(r, w.rule))
	}
	if r.err == nil && len(w.log.entries) == 0 && len(w.episodes) == 0 {
		r.fail("an empty window")
	}
	return w
}

func restoreEntry(r *reader, last traffic.Time) entry {
	return entry{
		time: last + traffic.Time(r.varint()), source: int32(r.upTo(1<<20, "source partition")), offset: r.count(),
		limit: int32(r.upTo(1<<31-1, "limit")),
	}
}

func restoreEpisode(r *reader, rule *lineage) *episode {
	ep := &episode{rule: rule, id: string(r.bytes())}
	ep.subject, ep.block = traffic.Subject(r.bytes()), traffic.Subject(r.bytes())
	ep.grouped = r.upTo(1, "grouped flag") == 1
	ep.first, ep.last = restoreEntry(r, 0), restoreEntry(r, 0)
	ep.ruleVersion, ep.limit = int(r.varint()), int(r.varint())
	ep.count, ep.peak = r.varint(), int(r.varint())
	ep.generation, ep.source, ep.offset, ep.seen = r.varint(), int(r.varint()), r.varint(), r.varint()
	ep.lateness, ep.sent = traffic.Time(r.varint()), traffic.Time(r.varint())
	for _, d := range []*distinct{&ep.users, &ep.devices} {
		d.seen = make([]uint64, min(r.length(8, "distinct values"), MaxDistinct))
		for i := range d.seen {
			d.seen[i] = r.fixed64()
		}
	}
	for n := r.length(1, "samples"); n > 0 && r.err == nil; n-- {
		ep.samples = append(ep.samples, append([]byte(nil), r.bytes()...))
	}
	return ep
}
