package judge

import (
	"fmt"
	"slices"
)

// Verdict is what the judge found.
type Verdict struct {
	Wrong []string
	Seen  Seen
}

// Seen counts what a run held, so that a caller can tell a run that proves something from one that does not.
type Seen struct {
	Events     int // accepted event records
	Duplicates int // dropped by the fence
	Stalled    int // keyed partitions that did not wait for a source partition at some time
	Holes      int // keyed partitions that a hole stopped
	Versions   int // routing versions that events were routed under
	Shared     int // event records that serve rules of two dimensions or more
	Episodes   int // judged to the count
	Disordered int // sources judged by whether they were over only, since their events came out of order
	Late       int // (event, rule) pairs too late
	Grouped    int // (event, rule) pairs that were counted without a field of the key
	Blocks     int // changes of block keys
	Tombstones int
}

func (v *Verdict) say(format string, args ...any) {
	v.Wrong = append(v.Wrong, fmt.Sprintf(format, args...))
}

// Log judges the keyed log: after the fence it must be an independent routing of the requests log, event by event, each
// event under one version, versions going forward only.
//
// lossy says that the keyed log itself has lost acknowledged records. Then a partition may lack them, if a hole stops it.
func (s *Stream) Log(lossy bool) (Verdict, []Reading) {
	var v Verdict
	readings := make([]Reading, len(s.Keyed))
	for q := range s.Keyed {
		r := s.fold(q)
		readings[q] = r
		v.Wrong = append(v.Wrong, r.wrong...)
		v.Seen.Events += len(r.accepted)
		v.Seen.Duplicates += r.duplicates
		if r.stalled {
			v.Seen.Stalled++
		}
		if r.Hole != "" {
			v.Seen.Holes++
			if !lossy {
				v.say("keyed %d: hole: %s", q, r.Hole)
			}
		}
	}
	if len(v.Wrong) == 0 {
		s.events(&v, readings)
	}
	return v, readings
}

func (s *Stream) events(v *Verdict, readings []Reading) {
	records := map[place]map[int]*counted{}
	for q := range readings {
		for i := range readings[q].accepted {
			c := &readings[q].accepted[i]
			at := place{c.Source, c.Offset}
			if records[at] == nil {
				records[at] = map[int]*counted{}
			}
			records[at][q] = c
		}
	}
	stopped := func(q int) bool { return readings[q].Hole != "" }
	versions := map[int64]bool{}
	for p, events := range s.Requests {
		progress, newest := before, int64(0)
		for o := range events {
			var at int64
			at, progress = events[o].decided(progress)
			where := place{p, int64(o)}
			version := s.versionOf(v, where, records[where])
			if version == 0 {
				if v.Seen.Holes > 0 {
					continue // what told its version may be lost
				}
				version = max(newest, 1) // every version routes an event that can be routed at all to somewhere
			} else if version < newest {
				v.say("event %s was routed under version %d, one before it under %d", where, version, newest)
			}
			newest = max(newest, version)
			versions[version] = true
			s.event(v, where, version, [2]int64{at, progress}, records[where], stopped)
		}
	}
	v.Seen.Versions = len(versions)
}

// versionOf is the version that an event was routed under, 0 where nothing tells.
func (s *Stream) versionOf(v *Verdict, where place, records map[int]*counted) int64 {
	version := int64(0)
	for _, k := range records {
		if version != 0 && k.Version != version {
			v.say("event %s was routed under versions %d and %d", where, min(version, k.Version), max(version, k.Version))
		}
		version = max(version, k.Version)
	}
	return version
}

// event compares one event's records with where it belongs. times are its time and its partition's progress.
func (s *Stream) event(v *Verdict, where place, version int64, times [2]int64, records map[int]*counted, stopped func(int) bool) {
	want := s.targets(&s.Requests[where.source][where.offset], version)
	for q, k := range records {
		if !slices.Equal(k.Rules, want[q]) || k.Time != times[0] || k.Progress != times[1] {
			v.say("event %s on %d: rules %v, time and progress %v, want %v, %v", where, q, k.Rules, [2]int64{k.Time, k.Progress}, want[q], times)
		}
		if s.dimensions(version, k.Rules) > 1 {
			v.Seen.Shared++
		}
	}
	for q := range want {
		if records[q] == nil && !stopped(q) {
			v.say("event %s is missing on %d", where, q)
		}
	}
}

// dimensions counts the different first fields of the rules' keys.
func (s *Stream) dimensions(version int64, rules []int) int {
	first := map[string]bool{}
	for _, i := range rules {
		if i < len(s.Versions[version]) {
			field := ""
			if key := s.Versions[version][i].Key; len(key) > 0 {
				field = key[0]
			}
			first[field] = true
		}
	}
	return len(first)
}
