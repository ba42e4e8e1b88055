package detectors

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// MaxRulesPerRecord bounds Keyed.Rules when a record is read.
const MaxRulesPerRecord = rules.MaxRules

// ErrRecord is wrapped by every error of DecodeKeyed.
var ErrRecord = errors.New("keyed record")

// UnknownFormatError says that a record was written by a newer build. Its reader must leave it for a process of that
// build: neither go past it nor call it damaged.
type UnknownFormatError struct{ What, Got, Known string }

func (e *UnknownFormatError) Error() string {
	return fmt.Sprintf("%s has format %s, this build reads %s: upgrade this process", e.What, e.Got, e.Known)
}

// maxExtraValues bounds Keyed.Extra when a record is read.
const maxExtraValues = 1 << 16

// formatsAhead is by how much the format or kind of a record may exceed those known here and still be a newer build's.
// What is further away, as all text is, was not written by weir.
const formatsAhead = 16

// DecodeKeyed reads one record into k, overwriting all of it but reusing the capacity of its slices. k.Sample and the texts
// of k.Identity and k.Extra alias b, which must stay as it is while k is used.
// A record of an unknown format gives *UnknownFormatError, a damaged one an error that wraps ErrRecord.
func DecodeKeyed(b []byte, k *Keyed) error {
	if len(b) < 2 {
		return fmt.Errorf("%w: %d bytes, at least 2 are needed", ErrRecord, len(b))
	}
	switch format := int(b[0]); {
	case KnowsRecordFormat(format):
	case format == 0 || format > RecordFormat+formatsAhead:
		return fmt.Errorf("%w: it begins with byte %#x, which no format of weir's is near to", ErrRecord, b[0])
	default:
		return &UnknownFormatError{What: "keyed record", Got: fmt.Sprint(b[0]), Known: KnownRecordFormats()}
	}
	// Field by field: a whole record would be built beside, and copied with its pointers.
	k.Format, k.Kind, k.Rules, k.Units = int(b[0]), KeyedKind(b[1]), k.Rules[:0], k.Units[:0]
	k.Tiers, k.Extra, k.Reached, k.Beyond, k.Good = k.Tiers[:0], k.Extra[:0], k.Reached[:0], k.Beyond[:0], NotJudged
	k.Verdict = traffic.Verdict{}
	k.Progress, k.Version, k.Idle, k.Clock = 0, 0, false, 0
	k.Identity, k.Sample = traffic.Identity{}, nil
	r := reader{b: b[2:]}
	k.Generation = r.count()
	k.Source = int(r.upTo(1<<20, "source partition"))
	k.Offset = r.count()
	back := r.count()
	k.Prev = NoOffset
	if back != 0 {
		k.Prev = k.Offset - back
	}
	k.Time = traffic.Time(r.varint())
	switch k.Kind {
	case KeyedEvent:
		readEvent(&r, k)
	case KeyedTick:
		k.Idle = r.upTo(1, "idle flag") == 1
		k.Clock = traffic.Time(r.varint())
	case KeyedLoss:
	default:
		if k.Kind == 0 || k.Kind > KeyedLoss+formatsAhead {
			return fmt.Errorf("%w: kind %d", ErrRecord, k.Kind)
		}
		return &UnknownFormatError{What: "keyed record", Got: fmt.Sprintf("%d kind %d", k.Format, k.Kind), Known: "kinds 1 to 3"}
	}
	if r.err == nil && k.Prev < NoOffset {
		r.fail("previous offset %d is negative", k.Prev)
	}
	return r.done(ErrRecord)
}

func readEvent(r *reader, k *Keyed) {
	k.Progress = traffic.Time(r.varint())
	k.Version = r.count()
	n := int(r.upTo(MaxRulesPerRecord, "rule count"))
	last := 0
	for i := 0; i < n && r.err == nil; i++ {
		last += int(r.upTo(MaxRulesPerRecord, "rule index"))
		k.Rules = append(k.Rules, last)
	}
	if k.Format >= rules.CountingRecordFormat && r.upTo(1, "units flag") == 1 {
		for i := 0; i < n && r.err == nil; i++ {
			k.Units = append(k.Units, r.count())
		}
	}
	if k.Format >= rules.LanguageRecordFormat {
		readTiers(r, k, n)
		readExtra(r, k)
	}
	if k.Format >= rules.EvidenceRecordFormat {
		readReached(r, k)
	}
	readIdentity(r, &k.Identity)
	k.Sample = r.bytes()
}

func readTiers(r *reader, k *Keyed, n int) {
	if r.upTo(1, "tiers flag") == 0 {
		return
	}
	for i := 0; i < n && r.err == nil; i++ {
		k.Tiers = append(k.Tiers, int(r.upTo(rules.MaxTiers, "tier")))
	}
}

func readExtra(r *reader, k *Keyed) {
	n := int(r.upTo(maxExtraValues, "extra value count"))
	last := 0
	for i := 0; i < n && r.err == nil; i++ {
		last += int(r.upTo(maxExtraValues, "extra value index"))
		k.Extra = append(k.Extra, ExtraValue{Index: last, Text: r.text()})
	}
}

func readReached(r *reader, k *Keyed) {
	most := someBeyond + someReached + uint64(KnownGood)
	if k.Format >= rules.RefusalRecordFormat {
		most += someVerdict
	}
	told := r.upTo(most, "good")
	k.Good = Good(told % someReached)
	if k.Good > KnownGood {
		r.fail("good %d, allowed: up to %d", k.Good, KnownGood)
	}
	if told&someVerdict != 0 {
		k.Verdict = traffic.Verdict{Rule: r.text(), Block: r.text()}
		if !k.Verdict.Refused() || told&(someReached|someBeyond) != 0 || len(k.Rules) > 0 {
			r.fail("a verdict of rule %q and block %q on a request that rules count or blocks reach", k.Verdict.Rule,
				k.Verdict.Block)
		}
		return
	}
	if told&someReached != 0 {
		k.Reached = readIndexes(r, k.Reached, k.Rules, false)
	} else if len(k.Rules) == 0 && k.Good != KnownGood {
		r.fail("good %d in a record without rules, allowed: %d", k.Good, KnownGood)
	}
	if told&someBeyond != 0 {
		k.Beyond = readIndexes(r, k.Beyond, k.Rules, true)
	}
}

// readIndexes reads a list of rules, ascending, all or none of which count the event.
func readIndexes(r *reader, dst, counted []int, all bool) []int {
	n := int(r.upTo(MaxRulesPerRecord, "number of rules"))
	if n == 0 {
		r.fail("a list of 0 rules, allowed: 1 to %d", MaxRulesPerRecord)
	}
	last := 0
	for i := 0; i < n && r.err == nil; i++ {
		step := int(r.upTo(MaxRulesPerRecord, "rule index"))
		last += step
		for len(counted) > 0 && counted[0] < last {
			counted = counted[1:]
		}
		if counts := len(counted) > 0 && counted[0] == last; i > 0 && step == 0 || counts != all {
			r.fail("rule index %d, allowed: ascending, reached ones not among those that count the event, ones beyond among them", last)
		}
		dst = append(dst, last)
	}
	return dst
}

func readIdentity(r *reader, id *traffic.Identity) {
	mask := r.upTo(1<<traffic.NumFields-1, "identity mask")
	if mask&(1<<traffic.FieldIP) != 0 {
		raw := r.bytes()
		ip, ok := netip.AddrFromSlice(raw)
		if r.err == nil && !ok {
			r.fail("an address of %d bytes, allowed: 4 or 16", len(raw))
		}
		id.IP = ip
	}
	for i, s := range [...]*string{&id.Device, &id.User, &id.APIKey, &id.Session} {
		if mask&(1<<(int(traffic.FieldDevice)+i)) != 0 {
			*s = r.text()
		}
	}
}
