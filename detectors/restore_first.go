package detectors

import (
	"slices"

	"github.com/weirhq/weir/traffic"
)

// restoreFirst reads what follows the source partitions in a snapshot of format 1: lineages of exact sliding logs, each
// window under a fingerprint of lineage and subject. Such lineages keep that form of keys until they are empty.
func (p *Partition) restoreFirst(r *reader) {
	lineages := make([]*lineage, r.length(3, "lineages"))
	for i := range lineages {
		rule := string(r.bytes())
		l := p.lineage(rule, int(r.upTo(1<<31, "lineage number")))
		window := traffic.Time(r.varint())
		if r.err == nil && (window <= 0 || window > mostWindow) {
			r.fail("window %d", window)
		}
		if r.err != nil {
			return
		}
		l.begin(kind{kindSlidingLog, countEvents}, window, keyText)
		lineages[i] = l
	}
	p.restoreUncounted(r, lineages, false)
	checkFirstKeys(r, lineages)
	for n := r.length(20, "windows"); n > 0 && r.err == nil; n-- {
		p.restoreFirstWindow(r, lineages)
	}
}

// checkFirstKeys reads ahead, and fails if a table of the keys that come would split without end.
func checkFirstKeys(r *reader, lineages []*lineage) {
	ahead := *r
	keys := map[*lineage][]Fingerprint{}
	for n := ahead.length(20, "windows"); n > 0 && ahead.err == nil; n-- {
		if w := readFirstWindow(&ahead, lineages); ahead.err == nil {
			keys[w.lineage] = append(keys[w.lineage], w.key)
		}
	}
	for _, l := range lineages {
		slices.SortFunc(keys[l], Fingerprint.compare)
		crowd := newCrowd(len(keys[l]))
		for _, key := range keys[l] {
			if crowd.admit(key); crowd.full {
				r.fail("%d windows within %d bits: these are no fingerprints", len(crowd.last)+1, crowd.bits)
				return
			}
		}
	}
}

type firstWindow struct {
	key      Fingerprint
	lineage  *lineage
	lateness traffic.Time
	log      []logEntry
	form     uint64
	episodes []*episode
}

func readFirstWindow(r *reader, lineages []*lineage) (w firstWindow) {
	w.key = Fingerprint{r.fixed64(), r.fixed64()}
	w.lineage = pick(r, lineages)
	w.lateness = traffic.Time(r.upLateness())
	r.upTo(1<<31-1, "limit")
	w.log, w.form = restoreFirstLog(r)
	for n := r.length(20, "episodes"); n > 0 && r.err == nil; n-- {
		w.episodes = append(w.episodes, restoreFirstEpisode(r, w.lineage))
	}
	if r.err == nil && len(w.log) == 0 && len(w.episodes) == 0 {
		r.fail("an empty window")
	}
	return w
}

func (p *Partition) restoreFirstWindow(r *reader, lineages []*lineage) {
	w := readFirstWindow(r, lineages)
	if r.err != nil {
		return
	}
	key, l, log, form, episodes := w.key, w.lineage, w.log, w.form, w.episodes
	l.lateness = max(l.lateness, w.lateness)
	if len(log) == 0 { // its entries were dead: the last over event stands for them
		last := episodes[len(episodes)-1].last
		log, form = []logEntry{{last, 1}}, logFar
	}
	l.limit = log[len(log)-1].limit
	c, held := l.cellOf(key, 0)
	if held != nil || c.b != 0 {
		r.fail("a window twice")
		return
	}
	l.algorithm.(*slidingLog).put(c, log, form)
	if len(episodes) > 0 {
		k := l.keep(key, c)
		k.episodes = episodes
		p.settle(k)
	}
}

// restoreFirstLog reads entries of (time, source, offset, limit), of which time and limit are of use.
func restoreFirstLog(r *reader) (log []logEntry, form uint64) {
	n := r.length(4, "log entries")
	last := traffic.Time(0)
	form = logPacked
	for range n {
		e := restoreFirstEntry(r, last)
		last = e.time
		if r.err != nil {
			return nil, form
		}
		if !packable(e, 1) || n > packedMost {
			form = logFar
		}
		log = append(log, logEntry{entry: e})
	}
	slices.SortStableFunc(log, func(a, b logEntry) int { return a.compare(b.entry) })
	for i := range log {
		log[i].sum = int64(i) + 1
	}
	return log, form
}

func restoreFirstEntry(r *reader, last traffic.Time) entry {
	e := entry{time: last + traffic.Time(r.varint())}
	r.upTo(1<<20, "source partition")
	r.count() // offset
	e.limit = int64(r.upTo(1<<31-1, "limit"))
	return e
}

func restoreFirstEpisode(r *reader, rule *lineage) *episode {
	y := &party{id: string(r.bytes())}
	ep := &episode{rule: rule, parties: []*party{y}}
	ep.subject, y.block = traffic.Subject(r.bytes()), traffic.Subject(r.bytes())
	ep.grouped = r.upTo(1, "grouped flag") == 1
	ep.first, ep.last = restoreFirstEntry(r, 0), restoreFirstEntry(r, 0)
	y.version, ep.limit = int(r.varint()), int(r.varint())
	ep.count, ep.peak = r.varint(), r.varint()
	y.generation, y.source, y.offset, ep.seen = r.varint(), int(r.varint()), r.varint(), r.varint()
	ep.lateness, y.sent = traffic.Time(r.upLateness()), traffic.Time(r.varint())
	y.last = ep.last.time
	restoreEvidence(r, ep)
	return ep
}
