package backtest

import "github.com/weirhq/weir/traffic"

// peakSource is one source that a peakCounter follows. It is one line of a processor's cache.
type peakSource struct {
	key    uint64
	newest traffic.Time // number of the newest slice
	counts [peakSlices + 1]uint32
	sum    uint32
	peak   uint32
	taken  bool // else the place is free
}

// followedSources are the sources of a peakCounter by their hashes: a table with linear probing, so that an event costs one miss of
// the cache and not the three of a map of pointers. Hashes that somebody made to meet cost him a walk past peakSources places.
type followedSources struct {
	places []peakSource // a power of two of them, at most three quarters taken
	shift  uint         // of a hash, to its place
	n      int
}

// followedAtFirst are so many places, as a power of two: most rules of a log see few sources.
const followedAtFirst = 3

// find gives the source, or the free place that is its own once it is taken. The place is valid until the next take.
func (f *followedSources) find(key uint64) *peakSource {
	if len(f.places) == 0 {
		f.places, f.shift = make([]peakSource, 1<<followedAtFirst), 64-followedAtFirst
	}
	for at := key >> f.shift; ; at++ {
		src := &f.places[at&uint64(len(f.places)-1)]
		if !src.taken || src.key == key {
			return src
		}
	}
}

// take follows a source that find has not found.
func (f *followedSources) take(key uint64, newest traffic.Time) *peakSource {
	if 4*(f.n+1) > 3*len(f.places) {
		f.rebuild(2*len(f.places), f.shift-1, func(*peakSource) bool { return true })
	}
	f.n++
	src := f.find(key)
	*src = peakSource{key: key, newest: newest, taken: true}
	return src
}

// keep forgets all sources but some.
func (f *followedSources) keep(stays func(*peakSource) bool) {
	f.rebuild(len(f.places), f.shift, stays)
}

func (f *followedSources) rebuild(places int, shift uint, stays func(*peakSource) bool) {
	old := f.places
	*f = followedSources{places: make([]peakSource, places), shift: shift}
	for i := range old {
		if src := &old[i]; src.taken && stays(src) {
			*f.find(src.key) = *src
			f.n++
		}
	}
}

// all calls each of them, in no order.
func (f *followedSources) all(each func(*peakSource)) {
	for i := range f.places {
		if src := &f.places[i]; src.taken {
			each(src)
		}
	}
}
