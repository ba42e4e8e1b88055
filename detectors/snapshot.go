package detectors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// SnapshotFormat is the format of snapshots that this build writes. It reads SnapshotFormat and the one before it.
const SnapshotFormat = 1

// ErrSnapshot is wrapped by every error of Restore: the bytes are damaged, or not a snapshot.
var ErrSnapshot = errors.New("snapshot")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot appends the whole state to dst: windows, episodes, late sums, fences, progress, ticks, stall clock,
// watermark. It is one unit: the last four bytes are a CRC-32C of all before. Equal states give equal bytes.
func (p *Partition) Snapshot(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, SnapshotFormat)
	dst = binary.AppendUvarint(dst, uint64(p.cfg.Keyed))
	dst = binary.AppendUvarint(dst, uint64(p.generation))
	for _, t := range []traffic.Time{p.clock, p.appended, p.newest, p.watermark} {
		dst = binary.AppendVarint(dst, int64(t))
	}
	dst = binary.AppendUvarint(dst, uint64(p.events))
	dst = binary.AppendUvarint(dst, uint64(len(p.sources)))
	for i := range p.sources {
		dst = p.sources[i].append(dst)
	}
	lineages := p.usedLineages()
	dst = binary.AppendUvarint(dst, uint64(len(lineages)))
	index := make(map[*lineage]int, len(lineages))
	for i, l := range lineages {
		index[l] = i
		dst = appendText(dst, l.rule)
		dst = binary.AppendUvarint(dst, uint64(l.number))
		dst = binary.AppendVarint(dst, int64(l.window))
	}
	dst = p.appendLate(dst, index)
	keys := slices.SortedFunc(maps.Keys(p.windows), func(a, b Fingerprint) int {
		if a.less(b) {
			return -1
		}
		return 1
	})
	dst = binary.AppendUvarint(dst, uint64(len(keys)))
	for _, key := range keys {
		dst = p.windows[key].append(dst, index)
	}
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

func (s *source) append(dst []byte) []byte {
	flags := byte(0)
	if s.rebase {
		flags |= 1
	}
	if s.stalled {
		flags |= 2
	}
	dst = append(dst, flags)
	dst = binary.AppendVarint(dst, s.fence)
	dst = binary.AppendVarint(dst, int64(s.progress))
	return binary.AppendVarint(dst, int64(s.ticked))
}

func (p *Partition) usedLineages() []*lineage {
	used := map[*lineage]bool{}
	for _, w := range p.windows {
		used[w.rule] = true
	}
	for key := range p.late {
		used[key.lineage] = true
	}
	return slices.SortedFunc(maps.Keys(used), func(a, b *lineage) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
}

func (p *Partition) appendLate(dst []byte, index map[*lineage]int) []byte {
	keys := slices.SortedFunc(maps.Keys(p.late), compareLate)
	dst = binary.AppendUvarint(dst, uint64(len(keys)))
	for _, key := range keys {
		sum := p.late[key]
		dst = binary.AppendUvarint(dst, uint64(index[key.lineage]))
		dst = binary.AppendUvarint(dst, uint64(key.source))
		dst = binary.AppendVarint(dst, int64(key.minute))
		dst = binary.AppendUvarint(dst, uint64(sum.version))
		dst = binary.AppendUvarint(dst, uint64(sum.count))
		dst = binary.AppendVarint(dst, int64(sum.latest))
		dst = binary.AppendUvarint(dst, uint64(sum.offset))
	}
	return dst
}

// Restore makes a partition from what Snapshot wrote. The whole of b is checked before any of it is believed: a torn or
// flipped snapshot gives an error that wraps ErrSnapshot, one of a newer build *UnknownFormatError.
func Restore(cfg Config, b []byte) (*Partition, error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("%w: %d bytes", ErrSnapshot, len(b))
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, fmt.Errorf("%w: CRC %08x, its bytes give %08x", ErrSnapshot, sum, got)
	}
	if body[0] != SnapshotFormat {
		return nil, &UnknownFormatError{What: "snapshot", Got: fmt.Sprint(body[0]), Known: fmt.Sprint(SnapshotFormat)}
	}
	p := NewPartition(cfg)
	r := &reader{b: body[1:]}
	if keyed := r.count(); r.err == nil && keyed != int64(cfg.Keyed) {
		return nil, fmt.Errorf("%w: of keyed partition %d, wanted %d", ErrSnapshot, keyed, cfg.Keyed)
	}
	p.generation = r.count()
	for _, t := range []*traffic.Time{&p.clock, &p.appended, &p.newest, &p.watermark} {
		*t = traffic.Time(r.varint())
	}
	p.events = r.count()
	p.restoreSources(r)
	lineages := p.restoreLineages(r)
	p.restoreLate(r, lineages)
	p.restoreWindows(r, lineages)
	if err := r.done(ErrSnapshot); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Partition) restoreSources(r *reader) {
	n := r.length(4, "source partitions")
	// A snapshot of an earlier generation may have had fewer or more source partitions: its own are kept until the
	// first record of the new generation starts them anew.
	p.sources = make([]source, max(n, p.cfg.Sources))
	for i := range p.sources {
		s := &p.sources[i]
		if i >= n {
			*s = source{fence: NoOffset, progress: traffic.BeforeTime, ticked: p.clock}
			continue
		}
		flags := r.upTo(3, "source flags")
		s.rebase, s.stalled = flags&1 != 0, flags&2 != 0
		s.fence = r.varint()
		s.progress = traffic.Time(r.varint())
		s.ticked = traffic.Time(r.varint())
	}
}

func (p *Partition) restoreLineages(r *reader) []*lineage {
	lineages := make([]*lineage, r.length(3, "lineages"))
	for i := range lineages {
		rule := string(r.bytes())
		number := int(r.upTo(1<<31, "lineage number"))
		lineages[i] = p.lineage(rule, number, traffic.Time(r.varint()))
	}
	return lineages
}

func (p *Partition) restoreLate(r *reader, lineages []*lineage) {
	for n := r.length(7, "late sums"); n > 0 && r.err == nil; n-- {
		key := lateKey{lineage: pick(r, lineages), source: int(r.upTo(1<<20, "source partition"))}
		key.minute = traffic.Time(r.varint())
		p.late[key] = &lateSum{
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

func (p *Partition) restoreWindows(r *reader, lineages []*lineage) {
	n := r.length(20, "windows")
	p.windows = make(map[Fingerprint]*window, n)
	for ; n > 0 && r.err == nil; n-- {
		w := restoreWindow(r, lineages)
		if r.err != nil {
			return
		}
		p.windows[w.key] = w
		p.timers.set(w, w.next())
	}
}
