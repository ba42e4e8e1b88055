package loadgen

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Found is one episode of a rule as history has it.
type Found struct {
	Subject     traffic.Subject
	First, Last traffic.Time
	Count       int64
	Closed      bool
	AtLeast     bool // Count, First and Last are bounds
}

// Comparison says how history agrees with the oracle about one rule.
type Comparison struct {
	Events   int64 `json:"events"`   // of the load, counted by the rule
	Sources  int   `json:"sources"`  // that the oracle says are over
	Found    int   `json:"found"`    // of those, in history
	Missing  int   `json:"missing"`  // of those, not in history
	Extra    int   `json:"extra"`    // of the load, in history, and never over
	Episodes int   `json:"episodes"` // of the found sources, in history
	Exact    int   `json:"exact"`    // found sources whose episodes were compared one by one
	Equal    int   `json:"equal"`    // of those, the same in number, bounds and counts
	Unequal  int   `json:"unequal"`  // found sources whose episodes contradict the oracle
	Open     int   `json:"open"`     // episodes that are not closed yet, whose counts are not final
	Unsure   int   `json:"unsure"`   // sources that are over or not, depending on events that perhaps do not count, or on their order
	Before   int   `json:"before"`   // sources with an episode that began before the load: not judged
	Doubted  int64 `json:"doubted"`  // events that perhaps do not count
	Shared   int64 `json:"shared"`   // events counted together with other traffic's: not judged
	// Disordered are events of sources that are judged by half: the algorithm depends on the order in which events come,
	// which is not known, so history may have missed such a source and must not have accused it falsely.
	Disordered int64 `json:"disordered"`
	// Differences explains the first of what is missing, extra or unequal.
	Differences []string `json:"differences,omitempty"`
}

// maxDifferences is how many differences are explained.
const maxDifferences = 20

// Agrees reports whether history says nothing that the oracle contradicts.
func (c *Comparison) Agrees() bool { return c.Missing+c.Extra+c.Unequal == 0 }

// Compare holds history's episodes of the rule, of all sources, against what is expected. Sources that are not the
// load's are passed over.
func (x *Expectation) Compare(found []Found) Comparison {
	c := Comparison{Events: x.Fed, Doubted: x.Doubted, Shared: x.Shared, Disordered: x.Disordered}
	bySubject := map[string][]Found{}
	for _, f := range found {
		bySubject[string(f.Subject)] = append(bySubject[string(f.Subject)], f)
	}
	for _, subject := range x.subjects(bySubject) {
		episodes := bySubject[subject]
		slices.SortFunc(episodes, func(a, b Found) int { return cmp.Compare(a.First, b.First) })
		if x.narrowed() {
			episodes = joined(episodes)
		}
		j := x.sources[subject]
		if j == nil {
			j = &judged{exact: true} // never sent
		}
		x.compareSource(&c, subject, j, episodes)
	}
	return c
}

// subjects lists the sources to look at, in the order of their names: those of the load, and those in history that bear
// its name.
func (x *Expectation) subjects(found map[string][]Found) []string {
	all := make([]string, 0, len(x.sources))
	for subject := range x.sources {
		all = append(all, subject)
	}
	for subject := range found {
		if _, known := x.sources[subject]; !known && x.bearsName(subject) {
			all = append(all, subject)
		}
	}
	sort.Strings(all)
	return all
}

// bearsName reports whether the subject holds a device, user or session of this load, by its name.
func (x *Expectation) bearsName(subject string) bool {
	for part := range strings.SplitSeq(subject, "&") {
		_, value, _ := strings.Cut(part, "=")
		if strings.HasPrefix(value, x.load) { // the name needs no percent-encoding
			return true
		}
	}
	return false
}

func (x *Expectation) compareSource(c *Comparison, subject string, j *judged, found []Found) {
	if len(found) > 0 && found[0].First < x.earliest {
		c.Before++
		return
	}
	for _, f := range found {
		if !f.Closed {
			c.Open++
		}
	}
	over, perhaps, seen := len(j.must) > 0, j.perhaps, len(found) > 0
	switch {
	case !perhaps && seen:
		c.Extra++
		c.differ("%s is in history with %d events from %s, and was never over", subject, found[0].Count, found[0].First)
		return
	case !perhaps:
		return
	case !over:
		c.Unsure++
		if contradiction := x.contradicts(j, found); contradiction != "" {
			c.Unequal++
			c.differ("%s: %s", subject, contradiction)
		}
		return
	}
	c.Sources++
	if !seen {
		c.Missing++
		c.differ("%s is not in history, and was over from %s, with %d events", subject, traffic.Time(j.must[0].First), j.must[0].Count)
		return
	}
	c.Found++
	c.Episodes += len(found)
	contradiction := x.contradicts(j, found)
	if j.exact {
		c.Exact++
	}
	switch {
	case contradiction != "":
		c.Unequal++
		c.differ("%s: %s", subject, contradiction)
	case j.exact:
		c.Equal++
	}
}

func (c *Comparison) differ(format string, args ...any) {
	if len(c.Differences) < maxDifferences {
		c.Differences = append(c.Differences, fmt.Sprintf(format, args...))
	}
}

// contradicts says how the episodes of a source that may be over contradict the oracle; empty when they do not.
func (x *Expectation) contradicts(j *judged, found []Found) string {
	if !j.exact {
		return j.outside(found, x.Rule.Window)
	}
	open := !found[len(found)-1].Closed
	if len(found) != len(j.must) && !(open && len(found) < len(j.must)) {
		return fmt.Sprintf("%d episodes in history, the oracle has %d", len(found), len(j.must))
	}
	for i, f := range found {
		e := j.must[i]
		want := Found{First: traffic.Time(e.First), Last: traffic.Time(e.Last), Count: e.Count}
		same := f.First == want.First && f.Last == want.Last && f.Count == want.Count
		if !f.Closed { // reported now and then: what it says so far may be behind
			same = f.First == want.First && f.Last <= want.Last && f.Count <= want.Count
		}
		if !same {
			return fmt.Sprintf("episode %d in history is %s, the oracle says %s", i+1, f.text(), want.text())
		}
	}
	return ""
}

func (f *Found) text() string {
	return fmt.Sprintf("%d events from %s to %s", f.Count, f.First, f.Last)
}

// outside looks for what cannot be, in whatever order the events came and whichever of the doubted ones count: an episode
// that begins before the first time at which the source may be over, ends after the last, or has more events than there
// were. An episode whose figures are bounds may be a window off.
func (j *judged) outside(found []Found, window time.Duration) string {
	for i, f := range found {
		beside := int64(0)
		if f.AtLeast {
			beside = window.Microseconds()
		}
		if int64(f.First) < j.earliest-beside || int64(f.Last) > j.latest+beside {
			return fmt.Sprintf("episode %d in history is %s, the oracle has over events from %s to %s only", i+1, f.text(),
				traffic.Time(j.earliest), traffic.Time(j.latest))
		}
		if n := j.between(int64(f.First)-beside, int64(f.Last)+beside); f.Count > n {
			return fmt.Sprintf("episode %d in history is %s, the load sent %d in that time", i+1, f.text(), n)
		}
	}
	return ""
}

// between counts events by their times, both ends included.
func (j *judged) between(from, to int64) int64 {
	lo, _ := slices.BinarySearch(j.times, from)
	hi, _ := slices.BinarySearch(j.times, to+1)
	return int64(hi - lo)
}

// narrowed reports whether the rule would block by a field that its key has not: there is a hit then for each block of an
// episode.
func (x *Expectation) narrowed() bool {
	b := x.Rule.Block
	return b != nil && slices.ContainsFunc(b.Key, func(k traffic.KeyField) bool {
		return !slices.ContainsFunc(x.Rule.Key, func(of traffic.KeyField) bool { return of.Field == k.Field })
	})
}

// joined makes one of the hits of each episode, which all have its first time; found ascends by it.
func joined(found []Found) []Found {
	var out []Found
	for _, f := range found {
		if n := len(out); n > 0 && out[n-1].First == f.First {
			o := &out[n-1]
			o.Last, o.Count = max(o.Last, f.Last), max(o.Count, f.Count)
			o.Closed, o.AtLeast = o.Closed && f.Closed, o.AtLeast || f.AtLeast
			continue
		}
		out = append(out, f)
	}
	return out
}
