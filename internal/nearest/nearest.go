// Package nearest guesses the name that somebody meant who wrote one that does not exist.
package nearest

import "strings"

// Name finds the name that was probably meant by got: the same but for case and separators, or at most a third of
// its letters away. "" when none is near.
func Name(got string, names []string) string {
	if len(got) > 40 {
		return ""
	}
	best, distance := "", len(got)/3+1
	for _, name := range names {
		d := editDistance(foldName(got), foldName(name))
		if d < distance || d == 0 && best == "" {
			best, distance = name, d
		}
	}
	return best
}

func foldName(s string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(s))
}

// editDistance counts inserted, deleted, replaced and swapped neighbouring bytes (optimal string alignment).
func editDistance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
