// Package judge says what a simulated stream must have come to. It reads the logs that the stages wrote and the tables
// and keys that they left, works out by itself what each of them should hold, and names every difference. It shares no
// code with the stages: beside internal/oracle it imports nothing of weir, and what it knows it has from docs/DESIGN.md §2 to §4.
//
// All times are microseconds since the Unix epoch.
package judge

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dchest/siphash"
)

const (
	second = int64(1_000_000)
	minute = 60 * second

	futureTolerance = 5 * second  // an event later than its append time by more gets the append time
	idleMargin      = 60 * second // what the clock of an idle source partition stays behind
	maxSilence      = 10 * second // the most that one gap adds to the stall clock
	maxEpisode      = 24 * 60 * minute

	none     = int64(-1)
	before   = int64(math.MinInt64)
	eternity = int64(math.MaxInt64)
)

// What all refusals name.
const (
	RefusedRule  = "a"
	RefusedBlock = "b"
)

// Event is one record of the requests log.
type Event struct {
	Appended, Time   int64
	IP, Device, User string // IP is an IPv4 address; Device and User may be missing
	Malformed        bool   // it cannot be read: a dead letter, and nothing else
	Refused          bool   // weir itself refused the request: it feeds no window
	Control          bool   // a record of the broker's own, which nobody is given
}

// Rule is one rule of a routing version. It watches every request; an event without a field of its key feeds no window, or one
// that groups it with its like.
type Rule struct {
	ID               string
	Lineage          int
	Key              []string // ip, device, user in any order; empty: one window for all
	Group            bool     // an event without a field of Key is counted with others that lack it
	Limit            int
	Window, Lateness int64
}

// Record is a record of the keyed log.
type Record struct {
	Appended int64
	Value    []byte
}

// Stream is everything that the judge is told.
type Stream struct {
	Secret     []byte // of the deployment
	Generation uint64 // of the requests log
	Requests   [][]Event
	Versions   map[int64][]Rule // by routing version
	Keyed      [][]Record
	Stall      int64 // stall clock after which a silent source partition is not waited for
	// Tight says that more keys come than are held: what was evicted is forgotten, so less may be over than was, and for less
	// long, but nothing else and nothing more.
	Tight bool
}

// decided is the time that routing must give e, and the greatest event time of its partition after it.
func (e *Event) decided(progress int64) (at, after int64) {
	if e.Malformed || e.Control {
		return 0, progress
	}
	at = e.Time
	if at > e.Appended+futureTolerance {
		at = e.Appended
	}
	return at, max(progress, at)
}

// value is the text of a field as keys use it, "" where the event has none.
func (e *Event) value(field string) string {
	switch field {
	case "ip":
		return e.IP + "/32"
	case "device":
		return e.Device
	}
	return e.User
}

// subject names the window of r that e falls into; false where there is none, since a field of the key is missing.
func (e *Event) subject(r *Rule) (string, bool) {
	var parts []string
	for _, field := range []string{"ip", "device", "user"} {
		if !slices.Contains(r.Key, field) {
			continue
		}
		value := e.value(field)
		if value == "" && !r.Group {
			return "", false
		}
		if value == "" {
			parts = append(parts, field)
			continue
		}
		parts = append(parts, field+"="+strings.ReplaceAll(value, "/", "%2F"))
	}
	return strings.Join(parts, "&"), true
}

// targets says which keyed partitions need e under a version, and for which rules.
func (s *Stream) targets(e *Event, version int64) map[int][]int {
	if e.Malformed || e.Control {
		return nil
	}
	if e.Refused { // it goes where its block belongs, and feeds no rule
		return map[int][]int{s.target("\x03" + RefusedRule + "\x00" + RefusedBlock): nil}
	}
	out := map[int][]int{}
	rules := s.Versions[version]
	for i := range rules {
		r := &rules[i]
		if _, whole := e.subject(r); !whole {
			continue
		}
		message := "\x00" + r.ID
		if len(r.Key) > 0 {
			message = "\x01" + r.Key[0] + "\x00" + e.value(r.Key[0])
		}
		if len(r.Key) > 0 && e.value(r.Key[0]) == "" {
			message = "\x02" + r.Key[0] + "\x00\x00\x00" // and the prefix lengths, of which only an address has some
		}
		q := s.target(message)
		out[q] = append(out[q], i)
	}
	return out
}

// target is the published rule of where a dimension's value belongs.
func (s *Stream) target(message string) int {
	sum := sha256.Sum256(append([]byte("weir/target/1\x00"), s.Secret...))
	h := siphash.Hash(binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16]), []byte(message))
	return int(h % uint64(len(s.Keyed)))
}

// place names an event.
type place struct {
	source int
	offset int64
}

func (p place) String() string { return fmt.Sprintf("%d/%d", p.source, p.offset) }
