package detectors

import "github.com/weirhq/weir/traffic"

// KeptRoutings is how many routing versions a partition keeps at hand, the newest ones. Records name older ones after a restart at
// any time; an older one is asked for again, and rules that are edited for years fill no memory.
const KeptRoutings = 16

// learned is a routing version, as a partition's records need it.
type learned struct {
	number   int64
	lost     bool // nobody knows its rules any more
	bindings []binding
	blocks   [][]traffic.KeyField // the keys of the blocks that are tried, each once
	resets   []keyReset           // those not applied yet when it was learned, ascending by since
	reset    int64                // the version that brought the newest of them; 0: there is none
}

// learnedVersions are the routing versions that a partition has learned. They are no part of its state.
type learnedVersions struct {
	known  map[int64]*learned
	latest *learned // that was asked for: records of one version come in long runs
}

// get gives a version, nil if it is not known here.
func (l *learnedVersions) get(version int64) *learned {
	if l.latest == nil || l.latest.number != version {
		l.latest = l.known[version]
	}
	return l.latest
}

// put adds a version, and drops the oldest other ones until KeptRoutings are left.
func (l *learnedVersions) put(v *learned) {
	l.known[v.number], l.latest = v, nil
	for len(l.known) > KeptRoutings {
		oldest := v.number
		for number := range l.known {
			if number != v.number && (oldest == v.number || number < oldest) {
				oldest = number
			}
		}
		delete(l.known, oldest)
	}
}
