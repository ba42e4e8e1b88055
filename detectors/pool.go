package detectors

// pool holds what some cells of a lineage have beside them, by index.
type pool[T any] struct {
	items []*T
	free  []uint32
}

// take returns an empty T and its index.
func (p *pool[T]) take() (uint32, *T) {
	item := new(T)
	if n := len(p.free); n > 0 {
		index := p.free[n-1]
		p.free = p.free[:n-1]
		p.items[index] = item
		return index, item
	}
	p.items = append(p.items, item)
	return uint32(len(p.items) - 1), item
}

// hold gives an empty cell a T of its own to refer to.
func (p *pool[T]) hold(c *cell) *T {
	index, item := p.take()
	*c = farCell(index)
	return item
}

// at is what the cell refers to.
func (p *pool[T]) at(c *cell) *T { return p.items[c.b&cellIndex] }

// give forgets what the cell refers to. The last one given leaves the pool empty of memory.
func (p *pool[T]) give(c *cell) {
	index := uint32(c.b & cellIndex)
	p.items[index] = nil
	p.free = append(p.free, index)
	if len(p.free) == len(p.items) {
		p.items, p.free = nil, nil
	}
}
