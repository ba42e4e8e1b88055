package blocklist

// seen remembers the newest ids, of its size at least and of twice that at most, in two maps of which the older is dropped
// whole. It keeps work from being repeated without end; what it has forgotten is done once more, which is harmless.
type seen struct {
	size       int
	young, old map[string]struct{}
}

func newSeen(size int) *seen {
	return &seen{size: size, young: map[string]struct{}{}, old: map[string]struct{}{}}
}

func (s *seen) has(id string) bool {
	if _, ok := s.young[id]; ok {
		return true
	}
	_, ok := s.old[id]
	return ok
}

func (s *seen) add(id string) {
	if len(s.young) >= s.size {
		s.old, s.young = s.young, make(map[string]struct{}, s.size)
	}
	s.young[id] = struct{}{}
}
