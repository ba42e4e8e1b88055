// Package recent remembers the newest of many ids in bounded memory.
package recent

// Set remembers the newest ids: at least size of them, at most twice as many. It has two maps and drops the older one whole. Its users
// only save themselves repeated work by it, so a forgotten id does no harm. It is not safe for concurrent use.
type Set struct {
	size       int
	young, old map[string]struct{}
}

// NewSet makes a Set that remembers at least size ids.
func NewSet(size int) *Set {
	return &Set{size: size, young: map[string]struct{}{}, old: map[string]struct{}{}}
}

// Has reports whether id was added and has not been forgotten.
func (s *Set) Has(id string) bool {
	if _, ok := s.young[id]; ok {
		return true
	}
	_, ok := s.old[id]
	return ok
}

// Add remembers id.
func (s *Set) Add(id string) {
	if len(s.young) >= s.size {
		s.old, s.young = s.young, make(map[string]struct{}, s.size)
	}
	s.young[id] = struct{}{}
}
