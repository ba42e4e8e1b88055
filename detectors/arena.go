package detectors

import (
	"math/bits"
	"slices"
)

// arena holds short lists of words in blocks of a few sizes, cut from pages: no pointer for the garbage collector to
// follow but one a page, and a block can be given back. A page serves one size at a time; when its last block is given
// back, any size may have it.
//
// Only blocks are charged for, so pages must not be held for a block or two: compact, which the owner of a block calls
// now and then while the arena is sparse, moves the block out of a page less than half used. Once all owners have called it,
// pages take about twice the bytes charged.
type arena struct {
	pages    []page
	spare    []uint32            // pages that serve no size
	withRoom [numBlocks][]uint32 // pages that may have room, by size
	dense    [numBlocks]uint32   // pages that blocks are moved to by compact, by size; any page while there is none
	words    int                 // in blocks that are in use
}

type page struct {
	words []uint64
	class uint8
	free  uint16 // word at which the first free block starts, plus one; 0: none. A free block's first word links on.
	used  uint16 // blocks in use
	fresh uint16 // word from which on nothing was ever handed out
	open  bool   // stands in withRoom
}

const pageWords = 1024

// Blocks have 8, 12, 16 ... 192, 256 words: powers of two and the middle between two. The least one is a cache line.
const numBlocks = 11

// blockSize is how many words a block of a class has.
func blockSize(class int) int { return (8 + 4*(class&1)) << (class / 2) }

// blockClass is the least class that holds n words, 1 <= n <= 256.
func blockClass(n int) int {
	if n <= 8 {
		return 0
	}
	log := bits.Len(uint(n - 1))
	class := 2 * (log - 3)
	if n <= 3<<(log-2) {
		class--
	}
	return class
}

// block is the block at ref: page in the upper 22 bits, word in the lower 10.
func (a *arena) block(ref uint32, class int) []uint64 {
	p := &a.pages[ref/pageWords]
	at := int(ref % pageWords)
	return p.words[at : at+blockSize(class) : at+blockSize(class)]
}

// prefetch touches the first and the last of n words at a ref, should there be such a place: the ref may be none.
func (a *arena) prefetch(ref, n uint32) (sum uint64) {
	if ref/pageWords >= uint32(len(a.pages)) {
		return 0
	}
	words, at := a.pages[ref/pageWords].words, ref%pageWords
	if words == nil { // a spare page
		return 0
	}
	return words[at] + words[min(at+max(n, 1), pageWords)-1]
}

// take hands out a block of a class; its content is undefined.
func (a *arena) take(class int) uint32 {
	for {
		n := len(a.withRoom[class])
		if n == 0 {
			a.openPage(class)
			continue
		}
		number := a.withRoom[class][n-1]
		p := &a.pages[number]
		if int(p.class) != class || !p.open || !p.room() {
			a.withRoom[class] = a.withRoom[class][:n-1]
			if int(p.class) == class {
				p.open = false
			}
			continue
		}
		return a.cut(number)
	}
}

// cut hands out a block of a page that has room.
func (a *arena) cut(number uint32) uint32 {
	p := &a.pages[number]
	at := uint32(p.fresh)
	if p.free > 0 {
		at = uint32(p.free) - 1
		p.free = uint16(p.words[at])
	} else {
		p.fresh += uint16(blockSize(int(p.class)))
	}
	p.used++
	a.words += blockSize(int(p.class))
	return number*pageWords + at
}

// sparse reports whether less than half of the words of pages that serve a size are in use.
func (a *arena) sparse() bool { return 2*a.words < (len(a.pages)-len(a.spare))*pageWords }

// compact moves a block out of a page less than half used into one that is no emptier, if it knows one, and returns the
// block's ref now. A block never moves to an emptier page, so none goes to and fro.
func (a *arena) compact(ref uint32, class int) uint32 {
	number, to := ref/pageWords, a.dense[class]
	p, q := &a.pages[number], &a.pages[to]
	usable := q.used > 0 && int(q.class) == class && q.room()
	switch {
	case number == to:
		return ref
	case !usable || p.used > q.used:
		if p.room() {
			a.dense[class] = number
		}
		return ref
	case 2*int(p.used)*blockSize(class) >= pageWords:
		return ref
	}
	moved := a.cut(to)
	copy(a.block(moved, class), a.block(ref, class))
	a.give(ref)
	return moved
}

func (p *page) room() bool { return p.free > 0 || int(p.fresh)+blockSize(int(p.class)) <= pageWords }

func (a *arena) openPage(class int) {
	var number uint32
	if n := len(a.spare); n > 0 {
		number = a.spare[n-1]
		a.spare = a.spare[:n-1]
	} else {
		number = uint32(len(a.pages))
		a.pages = append(a.pages, page{words: make([]uint64, pageWords)})
	}
	words := a.pages[number].words
	if words == nil {
		words = make([]uint64, pageWords)
	}
	a.pages[number] = page{words: words, class: uint8(class), open: true}
	a.withRoom[class] = append(a.withRoom[class], number)
}

// give takes a block back.
func (a *arena) give(ref uint32) {
	number := ref / pageWords
	p := &a.pages[number]
	p.used--
	a.words -= blockSize(int(p.class))
	if p.used == 0 {
		a.close(number)
		return
	}
	p.words[ref%pageWords] = uint64(p.free)
	p.free = uint16(ref%pageWords) + 1
	if !p.open {
		p.open = true
		a.withRoom[p.class] = append(a.withRoom[p.class], number)
	}
}

// close makes a page without blocks in use ready for any class. Its entry in withRoom is left to be found stale. Its memory is
// kept only while few pages are spare: the tables may need it.
func (a *arena) close(number uint32) {
	p := &a.pages[number]
	class := p.class
	words := p.words
	if spare := len(a.spare); spare > (len(a.pages)-spare)/8+8 {
		words = nil
	}
	a.pages[number] = page{words: words}
	a.spare = append(a.spare, number)
	if list := a.withRoom[class]; len(list) > 2*len(a.pages)+16 {
		a.withRoom[class] = slices.DeleteFunc(list, func(n uint32) bool { return a.pages[n].class != class || !a.pages[n].open })
	}
}
