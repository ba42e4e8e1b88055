package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// phaseRank orders phases as an episode goes through them. The number is the hits table's own.
func phaseRank(p detectors.Phase) (int16, error) {
	if i := slices.Index(phases(), p); i >= 0 {
		return int16(i + 1), nil
	}
	return 0, fmt.Errorf("phase %q: known are %v", p, phases())
}

func phases() []detectors.Phase {
	return []detectors.Phase{detectors.PhaseOpen, detectors.PhaseUpdate, detectors.PhaseClosed, detectors.PhaseMerged}
}

// hitRow is what the records of one episode, seen in any order and any number of times, amount to.
type hitRow struct {
	hit       detectors.Hit // Seen is the greatest
	phase     int16
	seenFirst traffic.Time
	rank      int64 // how good the record was that the samples came from, see samplesRank
}

func newHitRow(h detectors.Hit) (hitRow, error) {
	phase, err := phaseRank(h.Phase)
	if err != nil {
		return hitRow{}, err
	}
	h.Rule = traffic.Printable(h.Rule)
	h.Subject = traffic.Subject(traffic.Printable(string(h.Subject)))
	h.BlockSubject = traffic.Subject(traffic.Printable(string(h.BlockSubject)))
	samples := make([]string, len(h.Samples)) // not nil, which would be NULL
	for i, s := range h.Samples {
		samples[i] = traffic.Printable(s)
	}
	h.Samples = samples
	return hitRow{hit: h, phase: phase, seenFirst: h.Seen, rank: samplesRank(&h, phase)}, nil
}

// samplesRank prefers the samples of the record with the greater count, then of the later phase; none at all come last.
func samplesRank(h *detectors.Hit, phase int16) int64 {
	const phaseBits = 3
	if len(h.Samples) == 0 {
		return 0
	}
	return min(max(h.Count, 1), 1<<(62-phaseBits))<<phaseBits | int64(phase)
}

// merge joins two records of one episode. It says in Go what updateHit says in SQL: each part only moves one way, so the
// order of records and their number do not matter.
func (r *hitRow) merge(o *hitRow) {
	a, b := &r.hit, &o.hit
	r.phase = max(r.phase, o.phase)
	r.seenFirst = min(r.seenFirst, o.seenFirst)
	a.RuleVersion = max(a.RuleVersion, b.RuleVersion)
	a.Limit = max(a.Limit, b.Limit)
	a.Count = max(a.Count, b.Count)
	a.Peak = max(a.Peak, b.Peak)
	a.First = min(a.First, b.First)
	a.Last = max(a.Last, b.Last)
	a.Seen = max(a.Seen, b.Seen)
	a.AtLeast = a.AtLeast || b.AtLeast
	a.Cut = a.Cut || b.Cut
	a.IntoID = max(a.IntoID, b.IntoID)
	a.Users = max(a.Users, b.Users)
	a.Devices = max(a.Devices, b.Devices)
	if cmp.Or(cmp.Compare(o.rank, r.rank), slices.Compare(b.Samples, a.Samples)) > 0 {
		r.rank, a.Samples = o.rank, b.Samples
	}
}

// values are in the order of the columns of hitsTable.
func (r *hitRow) values(stream string) []any {
	h := &r.hit
	d := decodeSubject(h.Subject)
	return []any{stream, h.ID, h.Rule, h.RuleVersion, h.Lineage, r.phase, string(h.Subject), string(h.BlockSubject),
		d.ip, d.device, d.user, d.apiKey, d.session, h.Grouped, h.Limit, h.WindowMS, h.Count, h.Peak,
		stamp(h.First), stamp(h.Last), stamp(r.seenFirst), stamp(h.Seen), h.Cut, h.Generation, h.Source, h.Offset, h.Keyed,
		h.IntoID, h.Users, h.Devices, h.Samples, r.rank, h.AtLeast}
}

const hitColumns = `stream id rule rule_version lineage phase subject block_subject
	ip device user_id api_key session grouped rule_limit window_ms events peak
	first last seen_first seen_last cut generation source_partition source_offset keyed_partition
	into_id users devices samples samples_rank at_least`

// updateHit touches a row only where the record adds to it: most records that are read twice cost no write.
const updateHit = `DO UPDATE SET
		phase        = greatest(h.phase, excluded.phase),
		rule_version = greatest(h.rule_version, excluded.rule_version),
		rule_limit   = greatest(h.rule_limit, excluded.rule_limit),
		events       = greatest(h.events, excluded.events),
		peak         = greatest(h.peak, excluded.peak),
		first        = least(h.first, excluded.first),
		last         = greatest(h.last, excluded.last),
		seen_first   = least(h.seen_first, excluded.seen_first),
		seen_last    = greatest(h.seen_last, excluded.seen_last),
		cut          = h.cut OR excluded.cut,
		into_id      = greatest(h.into_id, excluded.into_id),
		users        = greatest(h.users, excluded.users),
		devices      = greatest(h.devices, excluded.devices),
		samples      = CASE WHEN (excluded.samples_rank, excluded.samples) > (h.samples_rank, h.samples)
			THEN excluded.samples ELSE h.samples END,
		samples_rank = greatest(h.samples_rank, excluded.samples_rank),
		at_least     = h.at_least OR excluded.at_least
	WHERE excluded.phase > h.phase OR excluded.rule_version > h.rule_version OR excluded.rule_limit > h.rule_limit
		OR excluded.events > h.events OR excluded.peak > h.peak OR excluded.first < h.first OR excluded.last > h.last
		OR excluded.seen_first < h.seen_first OR excluded.seen_last > h.seen_last OR excluded.cut > h.cut
		OR excluded.into_id > h.into_id OR excluded.users > h.users OR excluded.devices > h.devices OR excluded.at_least > h.at_least
		OR (excluded.samples_rank, excluded.samples) > (h.samples_rank, h.samples)`

func hitsTable() *upsert {
	return &upsert{table: "hits", columns: strings.Fields(hitColumns), update: updateHit}
}

// lateRow is a sum of late events.
type lateRow struct{ hit detectors.Hit }

func (r *lateRow) merge(o *lateRow) {
	a, b := &r.hit, &o.hit
	a.First = min(a.First, b.First)
	a.Last = max(a.Last, b.Last)
	a.Seen = max(a.Seen, b.Seen)
	a.Count = max(a.Count, b.Count)
}

func (r *lateRow) values(stream string) []any {
	h := &r.hit
	return []any{stream, h.ID, traffic.Printable(h.Rule), h.Lineage, h.Generation, h.Source, h.Keyed,
		stamp(h.First), stamp(h.Last), stamp(h.Seen), h.Count}
}

const updateLate = `DO UPDATE SET
		minute = least(h.minute, excluded.minute),
		latest = greatest(h.latest, excluded.latest),
		seen   = greatest(h.seen, excluded.seen),
		events = greatest(h.events, excluded.events)
	WHERE excluded.minute < h.minute OR excluded.latest > h.latest OR excluded.seen > h.seen OR excluded.events > h.events`

func lateTable() *upsert {
	return &upsert{
		table:   "late_sums",
		columns: strings.Fields("stream id rule lineage generation source_partition keyed_partition minute latest seen events"),
		update:  updateLate,
	}
}
