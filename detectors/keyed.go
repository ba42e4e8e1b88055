package detectors

import (
	"fmt"

	"github.com/weirhq/weir/traffic"
)

// Formats of keyed records. A stream's routing version names the one that its routers write, so that every process of a
// rolling upgrade can read it; this build writes and reads all from OldestRecordFormat to RecordFormat. Format 2 brought
// units and packed samples. Formats 3 and 4 have the layout of format 2; what they allow, rules.UncountedRecordFormat and
// rules.ReadingRecordFormat say.
const (
	OldestRecordFormat = 1
	RecordFormat       = 4
)

// KnownRecordFormats names, for messages, the formats that this build writes and reads.
func KnownRecordFormats() string { return fmt.Sprintf("%d to %d", OldestRecordFormat, RecordFormat) }

// KnowsRecordFormat reports whether this build writes and reads a format of keyed records.
func KnowsRecordFormat(format int) bool {
	return OldestRecordFormat <= format && format <= RecordFormat
}

// KeyedKind is the kind of a keyed record.
type KeyedKind uint8

const (
	KeyedEvent   KeyedKind = 1 // one event, for the rules that this partition owns a window of
	KeyedTick    KeyedKind = 2 // progress of a source partition that has shown nothing here
	KeyedLoss    KeyedKind = 3 // an operator accepted a gap in a source partition
	KeyedPartial KeyedKind = 4 // reserved: pre-aggregated counts of a chunk
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
	Units    []int64
	Identity traffic.Identity
	Sample   []byte // JSON of traffic.Sample, for evidence

	// Tick only. Idle says that the router had read p to its end; Clock is its own clock from before the fetch that
	// found the end.
	Idle  bool
	Clock traffic.Time
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
	Keyed    Keyed
}
