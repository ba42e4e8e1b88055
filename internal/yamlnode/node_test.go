package yamlnode

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func documents(t *testing.T, src string) []Node {
	t.Helper()
	var nodes []Node
	for n, err := range Documents([]byte(src)) {
		if err != nil {
			t.Fatalf("%q: %v", src, err)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func TestDocumentsAreReadOneByOne(t *testing.T) {
	if got := documents(t, ""); len(got) != 0 {
		t.Errorf("an empty text: got %d documents, want none", len(got))
	}
	got := documents(t, "a: 1\n---\n---\n[b]\n")
	if len(got) != 3 || got[0].Kind() != Mapping || got[1].Kind() != Null || got[2].Kind() != List || got[2].Line() != 4 {
		t.Errorf("got %+v, want a mapping, nothing, and a list at line 4", got)
	}
}

func TestASyntaxErrorHasItsLineAndComesLast(t *testing.T) {
	read := 0
	for n, err := range Documents([]byte("a: 1\n---\nb: [\n")) {
		if err == nil {
			read++
			continue
		}
		e := (*SyntaxError)(nil)
		if !errors.As(err, &e) || e.Line != 3 || strings.Contains(e.Reason, "line") || !strings.HasPrefix(err.Error(), "line 3: ") {
			t.Errorf("got %#v with %+v, want line 3 and the reason without it", err, n)
		}
		read += 10
	}
	if read != 11 {
		t.Errorf("got %d, want one document and one error", read)
	}
	if e := syntaxError(nil, errors.New("yaml: input error: gone")); e.Line != 0 || e.Error() != "input error: gone" {
		t.Errorf("an error without line: got %#v", e)
	}
}

func TestKindsAndHowTheyAreDescribed(t *testing.T) {
	for src, want := range map[string]struct {
		kind Kind
		is   string
	}{
		"{}": {Mapping, "a mapping"}, "[]": {List, "a list"}, "~": {Null, "nothing"}, "null": {Null, "nothing"},
		"text": {Text, `"text"`}, `"5"`: {Text, `"5"`}, "5": {Integer, "the number 5"}, "5.5": {Float, "the number 5.5"},
		"true": {Boolean, "the truth value true"}, "2026-11-21": {Timestamp, "the date 2026-11-21"},
		"!mine x": {Tagged, `"x"`}, "!!str 5": {Text, `"5"`}, strings.Repeat("1", 50): {Float, "the number " + strings.Repeat("1", 40) + "… (50 digits)"},
	} {
		n := documents(t, src)[0]
		if got := n.Describe(strconv.Quote); n.Kind() != want.kind || got != want.is {
			t.Errorf("%s: got kind %d, %s; want %d, %s", src, n.Kind(), got, want.kind, want.is)
		}
	}
}

func TestMembersAreInOrderAndKnowTheirFirst(t *testing.T) {
	members := documents(t, "a: 1\nb: 2\n[x]: 3\na: 4\n")[0].Members()
	for i, want := range []struct {
		name, value string
		first       int
	}{{"a", "1", 0}, {"b", "2", 0}, {"", "3", 0}, {"a", "4", 1}} {
		m := members[i]
		if m.Name.Value() != want.name || m.Value.Value() != want.value || m.First != want.first || m.Name.Line() != i+1 {
			t.Errorf("member %d: got %+v, want %+v", i, m, want)
		}
	}
	if got := documents(t, "[a, b]")[0].Members(); got != nil {
		t.Errorf("a list has members: %+v", got)
	}
}

func TestReferencesAndTagsAreKept(t *testing.T) {
	n := documents(t, "a: &here !!str 5\nb: *here\n")[0]
	members := n.Members()
	if a := members[0].Value; a.Anchor() != "here" || a.Tag() != "!!str" {
		t.Errorf("got anchor %q, tag %q", a.Anchor(), a.Tag())
	}
	b := members[1].Value
	if b.Kind() != Alias || b.IsScalar() || b.Value() != "here" || b.Describe(nil) != "a YAML reference" || b.Tag() != "" {
		t.Errorf("got kind %d, value %q", b.Kind(), b.Value())
	}
	if r := b.Resolved(); r.Kind() != Text || r.Value() != "5" || r.Resolved() != r {
		t.Errorf("resolved: got kind %d, value %q", r.Kind(), r.Value())
	}
	show := func(text string) string { return "<" + text + ">" }
	if got, want := n.References(show), []Reference{
		{Place{1, 4}, "the YAML anchor <&here>", "values written out"}, {Place{2, 4}, "the YAML alias <*here>", "values written out"},
	}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := documents(t, "[{a: !mine x}]")[0].References(show), []Reference{{Place{1, 6}, "the YAML tag <!mine>", "values without a tag"}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := len(n.Children()); got != 4 {
		t.Errorf("got %d children, want two names and two values", got)
	}
}

func TestHowItIsWritten(t *testing.T) {
	for _, tt := range []struct {
		src          string
		line, column int
		flow         bool
	}{
		{"a:\n  - b", 2, 3, false}, {"a: [b]", 1, 4, true}, {"ä: {b: c}", 1, 4, true}, {"a:\n  b: c", 2, 3, false}, {"a: b", 1, 4, false},
	} {
		n := documents(t, tt.src)[0].Members()[0].Value
		if n.Line() != tt.line || n.Column() != tt.column || n.Flow() != tt.flow {
			t.Errorf("%q: got %d:%d, flow %v; want %d:%d, %v", tt.src, n.Line(), n.Column(), n.Flow(), tt.line, tt.column, tt.flow)
		}
	}
}

func TestDecode(t *testing.T) {
	var got map[string]any
	if err := documents(t, "{a: 1, b: [x]}")[0].Decode(&got); err != nil || got["a"] != 1 || !slices.Equal(got["b"].([]any), []any{"x"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if err := documents(t, "[x]")[0].Decode(&got); err == nil {
		t.Error("a list was decoded as a mapping")
	}
}
