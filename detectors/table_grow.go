package detectors

// grow gives a sub-table more slots, or splits it where it has as many as one may have.
func (t *table) grow(s *subtable) {
	if len(s.slots) < mostSlots {
		s.resize(sizeFor(int(s.n), len(s.slots)+1))
		return
	}
	t.split(s)
}

// split replaces s by two sub-tables, by the next bit of their keys.
func (t *table) split(s *subtable) {
	if s.depth == t.depth {
		t.widen()
	}
	half := uint64(1) << (63 - s.depth)
	cut, left := 0, 0
	for i := range s.slots {
		if s.slots[i].b != 0 && s.slots[i].hi&half == 0 {
			cut, left = i+1, left+1
		}
	}
	low := newSubtable(sizeFor(left, leastSlots), s.depth+1, s.from, s.epoch)
	low.fill(s.slots[:cut], s.past)
	high := newSubtable(sizeFor(int(s.n)-left, leastSlots), s.depth+1, s.from|half, s.epoch)
	high.fill(s.slots[cut:], s.past[cut:])
	t.link(low)
	t.link(high)
}

// widen doubles the directory, which tells apart one bit more then.
func (t *table) widen() {
	wide := make([]*subtable, 2*len(t.dir))
	for i, sub := range t.dir {
		wide[2*i], wide[2*i+1] = sub, sub
	}
	t.dir, t.depth = wide, t.depth+1
}

// link enters a sub-table into the directory.
func (t *table) link(s *subtable) {
	first, span := t.dirRange(s)
	for i := range span {
		t.dir[first+i] = s
	}
}

// dirRange is the entries of the directory that are a sub-table's.
func (t *table) dirRange(s *subtable) (first, span int) {
	return int(s.from >> (64 - t.depth)), 1 << (t.depth - s.depth)
}

// resize moves the keys of s into size slots.
func (s *subtable) resize(size int) {
	fresh := newSubtable(size, s.depth, s.from, s.epoch)
	fresh.fill(s.slots, s.past)
	*s = *fresh
}

// fill puts slots that stand in order, and the past of each, into an empty sub-table. Should they be pushed beyond its end,
// it is made larger.
func (s *subtable) fill(from []slot, past []uint8) {
	next := 0
	for i := range from {
		if from[i].b == 0 {
			continue
		}
		next = max(next, s.homeOf(from[i].hi))
		if next >= len(s.slots) {
			*s = *newSubtable(len(s.slots)+len(s.slots)/8+4, s.depth, s.from, s.epoch)
			s.fill(from, past)
			return
		}
		s.slots[next], s.tags[next], s.past[next] = from[i], tagOf(from[i].lo), past[i]
		next++
		s.n++
	}
}

// shrink gives memory back after removals: all of it when the table is empty.
func (t *table) shrink(s *subtable) {
	if t.n == 0 {
		t.dir, t.depth = nil, 0
		return
	}
	if len(s.slots) > leastSlots && int(s.n) < len(s.slots)*5/8 {
		s.resize(sizeFor(int(s.n), leastSlots))
	}
}
