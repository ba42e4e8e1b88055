package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// list is the file of -servers: which kinds of server a test uses, by "package test", without PostgreSQL, which is as
// real in every run. A test that stops to use one, or begins to, shows as a line of a change.
type list map[string][]string

// readList reads lines of package, test and kinds.
func readList(file string) (list, error) {
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("list of servers: %w", err)
	}
	l := list{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(line, "#"):
		case len(fields) < 3:
			return nil, fmt.Errorf("%s: line %q has %d fields, want package, test and kinds of server", file, strings.TrimSpace(line), len(fields))
		default:
			l[fields[0]+" "+fields[1]] = fields[2:]
		}
	}
	return l, nil
}

// listOf is what was seen of the tests that ran. Subtests count as the test.
func listOf(seen uses, e executed) list {
	l := list{}
	for u := range seen {
		test, _, _ := strings.Cut(u.test, "/")
		name := u.pkg + " " + test
		if u.kind == "postgres" || u.source == "skipped" || !strings.HasPrefix(test, "Test") || !e.ran(name) || slices.Contains(l[name], u.kind) {
			continue
		}
		l[name] = append(l[name], u.kind)
		slices.Sort(l[name])
	}
	return l
}

// stale names the lines that are not true of the tests that ran. Only in a whole run does a test use all of its kinds.
func (l list) stale(seen uses, e executed, whole bool) (complaints []string) {
	now := listOf(seen, e)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		for _, kind := range now[name] {
			if !slices.Contains(l[name], kind) {
				complaints = append(complaints, fmt.Sprintf("the list of servers lacks: %s %s", name, kind))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if e.lacks(name) {
			complaints = append(complaints, fmt.Sprintf("the list of servers has a test that is not there: %s", name))
		}
		for _, kind := range l[name] {
			if whole && !slices.Contains(now[name], kind) && e.ran(name) {
				complaints = append(complaints, fmt.Sprintf("the list of servers has what was not seen: %s %s", name, kind))
			}
		}
	}
	if len(complaints) > 0 {
		complaints = append(complaints, "`scripts/test.sh servers` writes the list anew")
	}
	return complaints
}

// writeList writes what was seen of the tests that ran, and leaves the lines of tests that did not.
func writeList(file string, before list, seen uses, e executed) error {
	l := listOf(seen, e)
	for name, kinds := range before {
		if !e.ran(name) && !e.lacks(name) {
			l[name] = kinds
		}
	}
	var text strings.Builder
	text.WriteString("# Which tests use a Kafka or a Redis, of which kind: in a landing these, and no others, run against real ones.\n" +
		"# scripts/test.sh servers writes this file anew; a run fails where it is not true.\n")
	for _, name := range slices.Sorted(maps.Keys(l)) {
		fmt.Fprintf(&text, "%s %s\n", name, strings.Join(l[name], " "))
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("list of servers: %w", err)
	}
	return nil
}
