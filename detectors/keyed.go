package detectors

import (
	"encoding/binary"
	"fmt"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Formats of keyed records. A stream's routing version names the one that its routers write, so that every process of a
// rolling upgrade can read it; this build writes and reads all from OldestRecordFormat to RecordFormat. Format 2 brought
// units and packed samples. Formats 3 and 4 have the layout of format 2; what they allow, rules.UncountedRecordFormat and
// rules.ReadingRecordFormat say. Format 5 brought tiers and extra values, format 6 what blocks reach and who is known
// to be good, format 7 what gates refused; format 8 has its layout, see rules.BudgetRecordFormat.
const (
	OldestRecordFormat = 1
	RecordFormat       = 8
)

// KnownRecordFormats names, for messages, the formats that this build writes and reads.
func KnownRecordFormats() string { return fmt.Sprintf("%d to %d", OldestRecordFormat, RecordFormat) }

// KnowsRecordFormat reports whether this build writes and reads a format of keyed records.
func KnowsRecordFormat(format int) bool {
	return OldestRecordFormat <= format && format <= RecordFormat
}

// KeyedKind is the kind of a keyed record. 4 is reserved for counts that a router has summed over a chunk.
type KeyedKind uint8

const (
	KeyedEvent KeyedKind = 1 // one event, for the rules that this partition owns a window of
	KeyedTick  KeyedKind = 2 // progress of a source partition that has shown nothing here
	KeyedLoss  KeyedKind = 3 // an operator accepted a gap in a source partition
)

// NoOffset stands for "none before" in Prev and in fences.
const NoOffset int64 = -1

// Keyed is one record of the keyed log. There is at most one per (event, keyed partition), however many rules and
// dimensions of the event meet there: that is why an equal offset means a duplicate.
type Keyed struct {
	// Format is the format to write: the one that the routing version names; 0 means RecordFormat. Reading sets it.
	Format     int
	Kind       KeyedKind
	Generation int64        // g: which life of the requests topic
	Source     int          // p: partition in requests
	Offset     int64        // o: event: its offset in requests; tick: all before it is acknowledged; loss: first offset after the gap
	Prev       int64        // the previous event offset of p sent to this keyed partition, or NoOffset
	Time       traffic.Time // event: its time, decided once by ROUTE; tick: the greatest event time of p so far
	Progress   traffic.Time // event: the greatest event time of p so far, this event included

	// Event only.
	Version int64 // routing version
	Rules   []int // indexes into that version's rules, ascending
	// Units is what the event adds to the windows of rules that count a sum: nil for one each, else one number for each of
	// Rules, from 0 up (0 adds nothing; rules that do not sum ignore theirs). Format 1 cannot hold it.
	Units []int64
	// Tiers says by which limit the event is judged under each of Rules: nil for each rule's own, else 0 for that and n for the
	// n-th of its tiers. Formats before 5 cannot hold it.
	Tiers []int
	// Extra are the values beside the identity that keys and distinct counts of Rules use, ascending by index; one that is not
	// there is missing. Formats before 5 cannot hold them.
	Extra []ExtraValue
	// Reached are the rules, by index as Rules, ascending and none of Rules, that do not count the event and whose block would
	// refuse its request: the block's scope takes it, and the event has the fields of the rule's key. Formats before 6 cannot hold them.
	Reached []int
	// Beyond are those of Rules, ascending, whose block would not refuse the event's request: the block's scope does not take it. It is
	// empty of rules without a block. Formats before 6 cannot hold it.
	Beyond []int
	// Good is what the deployment's known_good says of the event. Formats before 6 cannot hold it.
	Good Good
	// Verdict is that with which a gate refused the request: it feeds no window, and has neither Rules nor Reached,
	// identity nor sample. Formats before 7 cannot hold it.
	Verdict  traffic.Verdict
	Identity traffic.Identity
	Sample   []byte // JSON of traffic.Sample, for evidence

	// Tick only. Idle says that the router had read p to its end; Clock is its own clock from before the fetch that
	// found the end.
	Idle  bool
	Clock traffic.Time
}

// Hint reports whether k tells nothing but that its source is known to be good: no rule counts the event, and no block reaches it.
// Routers send a hint when they do not remember having sent the like, so it may come any number of times, and it is no link of the chain
// of Prev: it passes by the fence, as a tick does. It has NoOffset as its Prev.
func (k *Keyed) Hint() bool {
	return k.Kind == KeyedEvent && k.Good == KnownGood && len(k.Rules)+len(k.Reached) == 0 && !k.Verdict.Refused()
}

// Good says of an event whether the deployment knows its source to be good.
type Good uint8

// What known_good says.
const (
	NotJudged Good = 0 // there is no known_good, or the event lacks a value that it reads
	NotGood   Good = 1 // it does not hold
	KnownGood Good = 2 // it holds
)

// String is g as a metric's label.
func (g Good) String() string {
	if names := [...]string{"not_judged", "not_good", "good"}; int(g) < len(names) {
		return names[g]
	}
	return fmt.Sprintf("good(%d)", uint8(g))
}

// ExtraValue is the event's value of a field that is no part of an identity.
type ExtraValue struct {
	Index int    // into the routing version's extra fields
	Text  string // not empty
}

// Extra finds the values of a record by the fields that one rule uses.
type Extra struct {
	Values []ExtraValue
	Uses   []rules.ExtraUse // of the rule
}

var _ traffic.Extra = (*Extra)(nil)

// ExtraValue is the record's value of a field, false where it has none.
func (e *Extra) ExtraValue(k traffic.KeyField) (string, bool) {
	for _, u := range e.Uses {
		if u.Field != k {
			continue
		}
		for i := range e.Values {
			if e.Values[i].Index == u.Index {
				return e.Values[i].Text, e.Values[i].Text != ""
			}
		}
	}
	return "", false
}

// format is Format with its default: of a record that was read, the format under which its routing version lets all that
// it causes be written.
func (k *Keyed) format() int {
	if k.Format == 0 {
		return RecordFormat
	}
	return k.Format
}

// Record is one record of the keyed log and when it was appended.
type Record struct {
	Appended traffic.Time
	Place    int64 // in the keyed log: its offset + 1; 0: not known
	Keyed    Keyed
}

// The layout of a keyed record, format 7; format 6 is the same without verdicts, format 5 also without what is known of
// blocks, formats 2 to 4 also without tiers and extra values, format 1 also without units. Numbers are varints
// (unsigned unless marked ±), strings carry their length.
//
//	byte format, byte kind, g, p, o, o-prev (0: none), ±time
//	event: ±progress, version, rule count, rules (first, then differences), byte units (0: one each; 1: a number per rule),
//	       byte tiers (0: none; 1: a number per rule), extra count, extra values (index: first, then differences; string),
//	       byte good + 4 where rules are reached + 8 where some are beyond + 16 where a gate refused it; with 16: rule and block
//	       of the verdict (strings); with 4: reached count, reached (first, then differences);
//	       with 8: beyond count, beyond (likewise),
//	       mask of present identities (bit = Field), ip: 4 or 16 bytes with length, others: strings in Field order, sample
//	tick:  byte idle, ±clock
//	loss:  nothing more

// AppendKeyed appends the encoding of k to dst, in the format that k.Format names.
func AppendKeyed(dst []byte, k *Keyed) []byte {
	dst = appendNumbers(dst, k)
	if k.Kind == KeyedEvent {
		return AppendEvidence(dst, k)
	}
	return dst
}

// AppendEvidence appends what all records of one event, to whatever keyed partition, have in common at their end: its
// identity and its sample.
func AppendEvidence(dst []byte, k *Keyed) []byte {
	return appendBytes(appendIdentity(dst, &k.Identity), k.Sample)
}

// AppendKeyedWith is AppendKeyed for an event of which AppendEvidence gave the evidence.
func AppendKeyedWith(dst []byte, k *Keyed, evidence []byte) []byte {
	return append(appendNumbers(dst, k), evidence...)
}

func appendNumbers(dst []byte, k *Keyed) []byte {
	dst = append(dst, byte(k.format()), byte(k.Kind))
	dst = binary.AppendUvarint(dst, uint64(k.Generation))
	dst = binary.AppendUvarint(dst, uint64(k.Source))
	dst = binary.AppendUvarint(dst, uint64(k.Offset))
	back := uint64(0)
	if k.Prev >= 0 {
		back = uint64(k.Offset - k.Prev)
	}
	dst = binary.AppendUvarint(dst, back)
	dst = binary.AppendVarint(dst, int64(k.Time))
	switch k.Kind {
	case KeyedEvent:
		dst = appendEvent(dst, k)
	case KeyedTick:
		idle := byte(0)
		if k.Idle {
			idle = 1
		}
		dst = append(dst, idle)
		dst = binary.AppendVarint(dst, int64(k.Clock))
	}
	return dst
}

func appendEvent(dst []byte, k *Keyed) []byte {
	dst = binary.AppendVarint(dst, int64(k.Progress))
	dst = binary.AppendUvarint(dst, uint64(k.Version))
	dst = binary.AppendUvarint(dst, uint64(len(k.Rules)))
	last := 0
	for _, r := range k.Rules {
		dst = binary.AppendUvarint(dst, uint64(r-last))
		last = r
	}
	if k.format() >= rules.CountingRecordFormat {
		dst = appendUnits(dst, k)
	}
	if k.format() >= rules.LanguageRecordFormat {
		dst = appendExtra(appendTiers(dst, k), k)
	}
	if k.format() >= rules.EvidenceRecordFormat {
		dst = appendReached(dst, k)
	}
	return dst
}

// Beside Keyed.Good stands whether a record has Reached, Beyond, and a Verdict.
const (
	someReached = 4
	someBeyond  = 8
	someVerdict = 16
)

func appendReached(dst []byte, k *Keyed) []byte {
	said := byte(k.Good)
	if len(k.Reached) > 0 {
		said += someReached
	}
	if len(k.Beyond) > 0 {
		said += someBeyond
	}
	refused := k.Verdict.Refused() && k.format() >= rules.RefusalRecordFormat
	if refused {
		said += someVerdict
	}
	dst = append(dst, said)
	if refused {
		dst = appendText(appendText(dst, k.Verdict.Rule), k.Verdict.Block)
	}
	for _, list := range [...][]int{k.Reached, k.Beyond} {
		if len(list) == 0 {
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(len(list)))
		last := 0
		for _, r := range list {
			dst = binary.AppendUvarint(dst, uint64(r-last))
			last = r
		}
	}
	return dst
}

func appendTiers(dst []byte, k *Keyed) []byte {
	if len(k.Tiers) != len(k.Rules) || len(k.Tiers) == 0 {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	for _, n := range k.Tiers {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

func appendExtra(dst []byte, k *Keyed) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(k.Extra)))
	last := 0
	for i := range k.Extra {
		x := &k.Extra[i]
		dst = binary.AppendUvarint(dst, uint64(x.Index-last))
		dst = binary.AppendUvarint(dst, uint64(len(x.Text)))
		dst = append(dst, x.Text...)
		last = x.Index
	}
	return dst
}

func appendUnits(dst []byte, k *Keyed) []byte {
	if len(k.Units) != len(k.Rules) || len(k.Units) == 0 {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	for _, n := range k.Units {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

func appendIdentity(dst []byte, id *traffic.Identity) []byte {
	at := len(dst)
	mask := byte(0)
	dst = append(dst, mask)
	if id.IP.IsValid() {
		mask |= 1 << traffic.FieldIP
		dst = appendBytes(dst, id.IP.AsSlice())
	}
	dst, mask = appendPresent(dst, mask, traffic.FieldDevice, id.Device)
	dst, mask = appendPresent(dst, mask, traffic.FieldUser, id.User)
	dst, mask = appendPresent(dst, mask, traffic.FieldAPIKey, id.APIKey)
	dst, mask = appendPresent(dst, mask, traffic.FieldSession, id.Session)
	dst[at] = mask
	return dst
}

// appendPresent appends a text and marks its field, unless it is empty.
func appendPresent(dst []byte, mask byte, f traffic.Field, s string) ([]byte, byte) {
	if s == "" {
		return dst, mask
	}
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...), mask | 1<<f
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}
