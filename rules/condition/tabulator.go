package condition

import (
	"fmt"
	"math/bits"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// tabulator makes the table of a pattern from its program.
type tabulator struct {
	prog     *syntax.Prog
	cells    int  // at most in the table
	anchored bool // the pattern is found at the beginning of a text or nowhere
	looks    bool // the program asks what stands before or after a place
	out      pattern

	takes   [][]bool // by instruction, and then by class; nil for an instruction that reads nothing
	example []rune   // a character of each class, and last that of the end
	states  map[place]uint16
	found   []place // by state; of those that decide none

	// Of one walk through the program.
	seen  pcs
	stack []uint32
}

// pcs is a set of instructions.
type pcs [(maxInstructions + 63) / 64]uint64

func (s *pcs) add(pc uint32)      { s[pc/64] |= 1 << (pc % 64) }
func (s *pcs) has(pc uint32) bool { return s[pc/64]&(1<<(pc%64)) != 0 }

// place is what was read: the instructions at which the program may stand before the next character, and a character that is like
// the one before, as far as the program asks.
type place struct {
	at     pcs
	before rune
}

const beyondText rune = -1 // before its beginning and after its end

// classify divides all characters into classes. It is false where there are too many to look at.
func (t *tabulator) classify() bool {
	starts := []rune{0}
	from := func(lo, hi rune) { starts = append(starts, lo, hi+1) }
	kinds := map[string][]uint32{} // instructions that take the same characters
	for pc := range t.prog.Inst {
		inst := &t.prog.Inst[pc]
		switch inst.Op {
		case syntax.InstEmptyWidth:
			t.looks = true
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			kind := fmt.Sprint(inst.Op, inst.Arg, inst.Rune)
			if kinds[kind] = append(kinds[kind], uint32(pc)); len(kinds[kind]) == 1 {
				boundaries(inst, from)
			}
		}
	}
	if t.looks {
		for _, of := range []string{"\n\n", "09", "AZ", "__", "az"} {
			from(rune(of[0]), rune(of[1]))
		}
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	if len(starts)*(len(kinds)+1) > maxAsked {
		return false
	}
	t.divide(starts, kinds)
	return true
}

// boundaries tells the ranges of characters that an instruction takes, or some of which it takes.
func boundaries(inst *syntax.Inst, from func(lo, hi rune)) {
	switch {
	case inst.Op == syntax.InstRuneAny:
	case inst.Op == syntax.InstRuneAnyNotNL:
		from('\n', '\n')
	case len(inst.Rune) == 1: // perhaps in either case
		from(inst.Rune[0], inst.Rune[0])
		for r := unicode.SimpleFold(inst.Rune[0]); r != inst.Rune[0]; r = unicode.SimpleFold(r) {
			from(r, r)
		}
	default:
		for i := 0; i+1 < len(inst.Rune); i += 2 {
			from(inst.Rune[i], inst.Rune[i+1])
		}
	}
}

// divide finds the class of each range, which begins at one of starts.
func (t *tabulator) divide(starts []rune, kinds map[string][]uint32) {
	one := make([]*syntax.Inst, 0, len(kinds))
	all := make([][]uint32, 0, len(kinds))
	for _, like := range kinds {
		one, all = append(one, &t.prog.Inst[like[0]]), append(all, like)
	}
	classes := map[string]uint16{}
	answers := make([]byte, len(one)+1)
	var taken [][]byte // by class, the answers of one
	for i, r := range starts {
		if r > unicode.MaxRune {
			break
		}
		for k, inst := range one {
			answers[k] = 0
			if inst.MatchRune(r) {
				answers[k] = 1
			}
		}
		answers[len(one)] = t.likeness(r)
		class, known := classes[string(answers)]
		if !known {
			class = uint16(len(taken))
			classes[string(answers)] = class
			taken, t.example = append(taken, slices.Clone(answers)), append(t.example, r)
		}
		after := unicode.MaxRune + 1
		if i+1 < len(starts) {
			after = starts[i+1]
		}
		for ; r < after && r < utf8.RuneSelf; r++ {
			t.out.ascii[r] = class
		}
		if after > utf8.RuneSelf {
			t.out.others, t.out.class = append(t.out.others, max(r, utf8.RuneSelf)), append(t.out.class, class)
		}
	}
	t.out.end = len(taken)
	t.example = append(t.example, beyondText)
	t.takes = make([][]bool, len(t.prog.Inst))
	for k, like := range all {
		row := make([]bool, len(taken))
		for class := range taken {
			row[class] = taken[class][k] == 1
		}
		for _, pc := range like {
			t.takes[pc] = row
		}
	}
}

// likeness tells characters apart as far as a program asks what stands beside a place.
func (t *tabulator) likeness(r rune) byte {
	switch {
	case !t.looks:
		return 0
	case r == '\n':
		return 1
	case syntax.IsWordChar(r):
		return 2
	}
	return 0
}

// tabulate fills the table in, state by state. It is false where that would be too great.
func (t *tabulator) tabulate() bool {
	t.found = make([]place, patternBegins)
	t.out.next = make([]uint16, int(patternBegins)*(t.out.end+1))
	begin := place{before: beyondText}
	if !t.looks {
		begin.before = 0
	}
	begin.at.add(uint32(t.prog.Start))
	if t.stateOf(begin) == patternFails {
		return false
	}
	for state := int(patternBegins); state < len(t.found); state++ {
		from := t.found[state]
		closed := map[syntax.EmptyOp]reached{}
		for class, r := range t.example {
			var beside syntax.EmptyOp
			if t.looks {
				beside = syntax.EmptyOpContext(from.before, r)
			}
			to, known := closed[beside]
			if !known {
				to = t.reach(&from.at, beside)
				closed[beside] = to
			}
			next, ok := t.step(&to, class)
			if !ok {
				return false
			}
			t.out.next[state*(t.out.end+1)+class] = next
		}
	}
	return true
}

// reached is where a program stands that waits for a character.
type reached struct {
	reading []uint32 // the instructions that read it
	matched bool
}

// reach follows the instructions that read nothing, at a place where beside is so.
func (t *tabulator) reach(from *pcs, beside syntax.EmptyOp) (to reached) {
	t.seen, t.stack = pcs{}, t.stack[:0]
	push := func(pc uint32) {
		if !t.seen.has(pc) {
			t.seen.add(pc)
			t.stack = append(t.stack, pc)
		}
	}
	for word, set := range from {
		for ; set != 0; set &= set - 1 {
			push(uint32(word*64 + bits.TrailingZeros64(set)))
		}
	}
	for len(t.stack) > 0 {
		pc := t.stack[len(t.stack)-1]
		t.stack = t.stack[:len(t.stack)-1]
		inst := &t.prog.Inst[pc]
		switch inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			push(inst.Out)
			push(inst.Arg)
		case syntax.InstCapture, syntax.InstNop:
			push(inst.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&^beside == 0 {
				push(inst.Out)
			}
		case syntax.InstMatch:
			return reached{matched: true}
		case syntax.InstFail:
		default:
			to.reading = append(to.reading, pc)
		}
	}
	return to
}

// step is the state after a character of a class; ok is false where there are too many.
func (t *tabulator) step(from *reached, class int) (next uint16, ok bool) {
	switch {
	case from.matched:
		return patternHolds, true
	case class == t.out.end:
		return patternFails, true
	}
	var to place
	for _, pc := range from.reading {
		if t.takes[pc][class] {
			to.at.add(t.prog.Inst[pc].Out)
		}
	}
	if !t.anchored {
		to.at.add(uint32(t.prog.Start)) // it may begin behind any character
	}
	if to.at == (pcs{}) {
		return patternFails, true
	}
	if t.looks {
		to.before = [...]rune{' ', '\n', 'a'}[t.likeness(t.example[class])]
	}
	next = t.stateOf(to)
	return next, next != patternFails
}

// stateOf is the state of a place, patternFails where there is no room for one more.
func (t *tabulator) stateOf(p place) uint16 {
	if state, known := t.states[p]; known {
		return state
	}
	if len(t.out.next)+t.out.end+1 > t.cells || len(t.found) > 1<<16-1 {
		return patternFails
	}
	state := uint16(len(t.found))
	t.states[p] = state
	t.found = append(t.found, p)
	t.out.next = append(t.out.next, make([]uint16, t.out.end+1)...)
	return state
}
