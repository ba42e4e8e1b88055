package condition

import (
	"errors"
	"regexp/syntax"
	"sort"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// pattern is a regular expression of matches as a table, which says for what was read of a text and its next character what then
// was read. Each character costs one look, whatever the pattern is and whoever wrote the text. Go's regexp follows all ways
// through a pattern at once, which costs a text of MaxText bytes tens of milliseconds.
//
// It agrees with regexp.MatchString. A pattern does not change and may be used by any number of goroutines.
type pattern struct {
	ascii  [utf8.RuneSelf]uint16 // the class of a character; characters of one class are alike to the pattern
	others []rune                // the ranges of those beyond ASCII, by their first one, ascending
	class  []uint16              // of each range
	end    int                   // the class of the end of the text, the greatest one
	next   []uint16              // by state, and then by class
	size   int                   // in instructions of Go's regexp
}

// The states that decide. The first other one is where a text begins.
const (
	patternFails uint16 = iota
	patternHolds
	patternBegins
)

// match reports whether the pattern is found in a text. What is not UTF-8 is read as U+FFFD, byte by byte.
func (p *pattern) match(text string) bool {
	state := patternBegins
	for i := 0; i < len(text); {
		class := 0
		if c := text[i]; c < utf8.RuneSelf {
			class = int(p.ascii[c])
			i++
		} else {
			r, size := utf8.DecodeRuneInString(text[i:])
			class = p.classOf(r)
			i += size
		}
		if state = p.next[int(state)*(p.end+1)+class]; state < patternBegins {
			return state == patternHolds
		}
	}
	return p.next[int(state)*(p.end+1)+p.end] == patternHolds
}

// classOf is the class of a character beyond ASCII.
func (p *pattern) classOf(r rune) int {
	return int(p.class[sort.Search(len(p.others), func(i int) bool { return p.others[i] > r })-1])
}

// findable reports whether the pattern is found in any text of the characters that has takes. To has, all characters beyond ASCII are
// alike.
func (p *pattern) findable(has func(c rune) bool) bool {
	classes := make([]bool, p.end+1)
	classes[p.end] = true
	for c, class := range p.ascii {
		classes[class] = classes[class] || has(rune(c))
	}
	for i, first := range p.others {
		classes[p.class[i]] = classes[p.class[i]] || has(first)
	}
	seen := make([]bool, p.cells()/(p.end+1))
	for reached := []uint16{patternBegins}; len(reached) > 0; {
		state := reached[len(reached)-1]
		reached = reached[:len(reached)-1]
		for class, may := range classes {
			switch next := p.next[int(state)*(p.end+1)+class]; {
			case !may || next == patternFails:
			case next == patternHolds:
				return true
			case !seen[next]:
				seen[next] = true
				reached = append(reached, next)
			}
		}
	}
	return false
}

// cells is the size of the table.
func (p *pattern) cells() int { return len(p.next) }

// Bounds of making a table. Beyond them the pattern is refused.
const (
	maxInstructions = MaxPattern
	// maxAsked bounds how often a character is looked up in a class of the pattern.
	maxAsked = 400_000
)

var (
	errPatternSize  = errors.New("too many instructions")
	errPatternTable = errors.New("too great a table")
)

// compilePattern makes the table of a regular expression of at most maxInstructions, with at most so many cells. The errors are
// those of regexp/syntax, and errPatternTable.
func compilePattern(text string, cells int) (*pattern, error) {
	prog, err := programOf(text)
	if err != nil {
		return nil, err
	}
	t := &tabulator{prog: prog, cells: cells, anchored: prog.StartCond()&syntax.EmptyBeginText != 0, states: map[place]uint16{}}
	if len(prog.Inst) > maxInstructions || !t.classify() || !t.tabulate() {
		return nil, errPatternTable
	}
	t.out.size = len(prog.Inst)
	return &t.out, nil
}

func programOf(text string) (*syntax.Prog, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	return syntax.Compile(parsed.Simplify())
}

// patterns are those of one expression, by their text.
type patterns map[string]*pattern

// add makes a pattern that is not there yet, and tells how many instructions all have, with it. The errors are compilePattern's, and
// errPatternSize.
func (ps patterns) add(text string) (instructions int, err error) {
	if ps[text] != nil {
		return 0, nil
	}
	prog, err := programOf(text)
	if err != nil {
		return 0, err
	}
	instructions, room := len(prog.Inst), MaxPatternTable
	for _, p := range ps {
		instructions += p.size
		room -= p.cells()
	}
	if instructions > MaxPattern {
		return instructions, errPatternSize
	}
	ps[text], err = compilePattern(text, room)
	if err != nil {
		delete(ps, text)
	}
	return instructions, err
}

// option has a program ask ps in the place of CEL's own patterns.
func (ps patterns) option() cel.ProgramOption {
	ask := func(call interpreter.InterpretableCall, text string) (interpreter.InterpretableCall, error) {
		p := ps[text]
		if p == nil {
			return nil, errors.New("a pattern that was not compiled")
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(values ...ref.Val) ref.Val {
			if len(values) == 2 {
				if read, ok := values[0].(types.String); ok {
					return types.Bool(p.match(string(read)))
				}
			}
			return types.NoSuchOverloadErr()
		}), nil
	}
	return cel.OptimizeRegex(
		&interpreter.RegexOptimization{Function: overloads.Matches, OverloadID: overloads.Matches, RegexIndex: 1, Factory: ask},
		&interpreter.RegexOptimization{Function: overloads.Matches, OverloadID: overloads.MatchesString, RegexIndex: 1, Factory: ask})
}
