package doctest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// shown is one command line of a document, with the output that is shown below it.
type shown struct {
	line   int
	text   string
	output []string
}

// commandsOf reads a shell block. In kind console a command begins with "$ " (and goes on after a \ at the end of its
// line), and all else is output; in kind sh each line is a command.
func commandsOf(b *block) ([]shown, error) {
	var all []shown
	going := false
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		command, begins := strings.CutPrefix(line, "$ ")
		switch {
		case going:
			last := &all[len(all)-1]
			last.text = strings.TrimSuffix(last.text, "\\") + " " + strings.TrimSpace(line)
		case begins || b.kind == "sh":
			if text := strings.TrimSpace(command); text != "" && !strings.HasPrefix(text, "#") {
				all = append(all, shown{line: b.line + i, text: text})
			}
		case len(all) == 0:
			return nil, fmt.Errorf("line %d: output before any command; commands begin with \"$ \"", b.line+i)
		case strings.TrimSpace(line) != "":
			all[len(all)-1].output = append(all[len(all)-1].output, line)
		}
		going = len(all) > 0 && len(all[len(all)-1].output) == 0 && strings.HasSuffix(all[len(all)-1].text, "\\")
	}
	if len(all) == 0 {
		return nil, errors.New("a shell block without a command")
	}
	return all, nil
}

// programsOf finds the simple commands of a command line: the words of each, its program first, those within $( )
// included. It knows as much of the shell's grammar as the documents use.
func programsOf(text string) ([][]string, error) {
	tokens, inner, err := tokensOf(text)
	if err != nil {
		return nil, err
	}
	var all [][]string
	for _, nested := range inner {
		programs, err := programsOf(nested)
		if err != nil {
			return nil, err
		}
		all = append(all, programs...)
	}
	var current []string
	end := func() {
		if words := simple(current); len(words) > 0 {
			all = append(all, words)
		}
		current = nil
	}
	for _, token := range tokens {
		if slices.Contains([]string{"|", "||", "&&", ";", "&"}, token) {
			end()
			continue
		}
		current = append(current, token)
	}
	end()
	return all, nil
}

// simple takes keywords, assignments and redirections off a command.
func simple(words []string) []string {
	for len(words) > 0 && slices.Contains([]string{"do", "then", "else", "if", "while", "!", "(", ")", "done", "fi"}, words[0]) {
		words = words[1:]
	}
	if len(words) > 0 && words[0] == "for" {
		return nil // the words that it goes over are no command
	}
	for len(words) > 0 && isAssignment(words[0]) {
		words = words[1:]
	}
	var out []string
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case ">", ">>", "<", "2>":
			i++ // its file
		case "2>&1", ">&2":
		default:
			out = append(out, words[i])
		}
	}
	return out
}

func isAssignment(word string) bool {
	name, _, found := strings.Cut(word, "=")
	return found && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// tokensOf cuts a line into words and operators. Quotes are taken off; $( ) within words is given as inner.
func tokensOf(text string) (tokens, inner []string, err error) {
	var word strings.Builder
	inWord := false
	flush := func() {
		if inWord {
			tokens = append(tokens, word.String())
		}
		word.Reset()
		inWord = false
	}
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(text):
			i++
			word.WriteByte(text[i])
			inWord = true
		case c == '$' && quote != '\'' && strings.HasPrefix(text[i:], "$("):
			size := matching(text[i+1:])
			if size < 0 {
				return nil, nil, errors.New("a $( that is never closed")
			}
			inner = append(inner, text[i+2:i+size])
			word.WriteString("$()")
			i, inWord = i+size, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == '#' && !inWord:
			return tokens, inner, nil
		case c == ' ' || c == '\t':
			flush()
		case strings.ContainsRune("|&;", rune(c)) && !(c == '&' && i > 0 && text[i-1] == '>'):
			flush()
			token := string(c)
			if c != ';' && i+1 < len(text) && text[i+1] == c {
				token, i = token+token, i+1
			}
			tokens = append(tokens, token)
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	flush()
	if quote != 0 {
		return nil, nil, errors.New("a quote that is never closed")
	}
	return tokens, inner, nil
}

// matching is the index of the ) that closes the ( at the beginning of text, -1 for none.
func matching(text string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

func TestCommandsOf(t *testing.T) {
	b := &block{kind: "console", line: 5, text: "$ weir run \\\n    --stages route\nstarted\n\n$ weir blocks list   # who\nSOURCE\n"}
	got, err := commandsOf(b)
	want := []shown{{5, "weir run  --stages route", []string{"started"}}, {9, "weir blocks list   # who", []string{"SOURCE"}}}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if got, err := commandsOf(&block{kind: "sh", text: "# first\nweir migrate\n\nweir run\n"}); err != nil || len(got) != 2 {
		t.Errorf("sh: %v, %v", got, err)
	}
	for _, text := range []string{"output\n", "# nothing\n"} {
		if got, err := commandsOf(&block{kind: "console", text: text}); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestProgramsOf(t *testing.T) {
	for text, want := range map[string]string{
		"weir run --stages route   # comment":                        "[[weir run --stages route]]",
		`A=1 B="x y" weir rules apply -f 'a b' > out 2>&1`:           "[[weir rules apply -f a b]]",
		"tail -F a.log | weir ingest - --live && echo done; ls":      "[[tail -F a.log] [weir ingest - --live] [echo done] [ls]]",
		`for i in $(seq 5); do echo "x $(date -u) \" $i" >> f; done`: "[[date -u] [seq 5] [echo x $() \" $i]]",
		`x=$(weir version)`: "[[weir version]]",
		`weir show '$(no)'`: "[[weir show $(no)]]",
	} {
		got, err := programsOf(text)
		slices.SortStableFunc(got, func(a, b []string) int { return 0 })
		if err != nil || !sameCommands(fmt.Sprint(got), want) {
			t.Errorf("%s: got %v, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"echo 'x", "echo $(date"} {
		if got, err := programsOf(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// sameCommands compares two lists of commands in any order.
func sameCommands(a, b string) bool {
	parts := func(s string) []string {
		all := strings.Split(strings.TrimSuffix(strings.TrimPrefix(s, "[["), "]]"), "] [")
		slices.Sort(all)
		return all
	}
	return slices.Equal(parts(a), parts(b))
}
