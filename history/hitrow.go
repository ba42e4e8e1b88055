package history

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// hitRow is the merger of the records of one episode, given in any order and any number of times.
type hitRow struct {
	hit       detectors.Hit // Seen is the greatest
	phase     int16
	seenFirst traffic.Time
	rank      int64 // of the record that the samples came from, see samplesRank
}

func newHitRow(h detectors.Hit) (hitRow, error) {
	phase, err := phaseRank(h.Phase)
	if err != nil {
		return hitRow{}, err
	}
	h.Rule = traffic.Printable(h.Rule)
	h.Subject = traffic.Subject(traffic.Printable(string(h.Subject)))
	h.BlockSubject = traffic.Subject(traffic.Printable(string(h.BlockSubject)))
	h.Reason = traffic.Printable(h.Reason)
	samples := make([]string, len(h.Samples)) // not nil, which would be NULL
	for i, s := range h.Samples {
		samples[i] = traffic.Printable(s)
	}
	h.Samples = samples
	return hitRow{hit: h, phase: phase, seenFirst: h.Seen, rank: samplesRank(&h, phase)}, nil
}

// samplesRank orders records by whose samples are kept: the greater count first, then the later phase. 0: it has none.
func samplesRank(h *detectors.Hit, phase int16) int64 {
	const phaseBits = 3
	if len(h.Samples) == 0 {
		return 0
	}
	return min(max(h.Count, 1), 1<<(62-phaseBits))<<phaseBits | int64(phase)
}

// merge adds the record o of the same episode to r, as updateHit does in SQL: each member moves in one direction only, so the
// order and number of records do not matter.
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
	a.Reason = max(a.Reason, b.Reason)
	a.Users = max(a.Users, b.Users)
	a.Devices = max(a.Devices, b.Devices)
	a.Opened = max(a.Opened, b.Opened) // records of older builds lack it
	a.Good = max(a.Good, b.Good)
	a.Refused = max(a.Refused, b.Refused)
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
		postgres.Timestamp(h.First), postgres.Timestamp(h.Last), postgres.Timestamp(r.seenFirst), postgres.Timestamp(h.Seen), h.Cut, h.Generation, h.Source, h.Offset, h.Keyed,
		h.IntoID, h.Users, h.Devices, h.Samples, r.rank, h.AtLeast, h.Reason,
		postgres.TimestampOrNull(h.Opened), int16(h.Good), h.Refused}
}

const hitColumns = `stream id rule rule_version lineage phase subject block_subject
	ip device user_id api_key session grouped rule_limit window_ms events peak
	first last seen_first seen_last cut generation source_partition source_offset keyed_partition
	into_id users devices samples samples_rank at_least reason opened known_good refused`

// openedColumn is the index of opened among them.
const openedColumn = 34

// updateHit writes a row only where the record adds to it: a record that is read twice costs no write.
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
		at_least     = h.at_least OR excluded.at_least,
		reason       = greatest(h.reason, excluded.reason),
		known_good   = greatest(h.known_good, excluded.known_good),
		refused      = greatest(h.refused, excluded.refused)
	WHERE excluded.phase > h.phase OR excluded.rule_version > h.rule_version OR excluded.rule_limit > h.rule_limit
		OR excluded.events > h.events OR excluded.peak > h.peak OR excluded.first < h.first OR excluded.last > h.last
		OR excluded.seen_first < h.seen_first OR excluded.seen_last > h.seen_last OR excluded.cut > h.cut
		OR excluded.into_id > h.into_id OR excluded.users > h.users OR excluded.devices > h.devices OR excluded.at_least > h.at_least
		OR excluded.reason > h.reason OR excluded.known_good > h.known_good OR excluded.refused > h.refused
		OR (excluded.samples_rank, excluded.samples) > (h.samples_rank, h.samples)`

func hitsTable() *dayed {
	return &dayed{
		base: &upsert{table: "hits", columns: strings.Fields(hitColumns), update: updateHit}, days: "hits_by_day", opened: openedOrFirst,
	}
}

// openedOrFirst is what a row without opened has by day: one whose id stands there, so that it changes nothing.
const openedOrFirst = "coalesce(i.opened, i.first)"

// besideRow is a hitRow of an episode near a limit, or over one on trial.
type besideRow struct{ hitRow }

func (r *besideRow) merge(o *besideRow) { r.hitRow.merge(&o.hitRow) }

func (r *besideRow) values(stream string) []any {
	return append(r.hitRow.values(stream), string(r.hit.Kind))
}

func besideTable() *dayed {
	return &dayed{
		base: &upsert{table: tableBeside, columns: strings.Fields(hitColumns + " kind"), update: updateHit}, days: "hits_beside_by_day",
		opened: openedOrFirst,
	}
}
