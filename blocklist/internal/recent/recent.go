// Package recent remembers the newest of many ids in bounded memory.
package recent

// Set remembers the newest ids, of its size at least and of twice that at most, in two maps of which the older is dropped
// whole. It keeps work from being repeated without end; what it has forgotten is done once more, which is harmless.
type Set struct {
	size       int
	young, old map[string]struct{}
}

func NewSet(size int) *Set {
	return &Set{size: size, young: map[string]struct{}{}, old: map[string]struct{}{}}
}

func (s *Set) Has(id string) bool {
	if _, ok := s.young[id]; ok {
		return true
	}
	_, ok := s.old[id]
	return ok
}

func (s *Set) Add(id string) {
	if len(s.young) >= s.size {
		s.old, s.young = s.young, make(map[string]struct{}, s.size)
	}
	s.young[id] = struct{}{}
}
