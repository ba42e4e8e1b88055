package story_test

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/internal/story"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// What the stories expect is what the definition of each window says of their events, by code that shares nothing with the
// windows: the episodes of every rule and key, with their counts, peaks and bounds, and how many events were late.
func TestStoriesAgreeWithTheOracle(t *testing.T) {
	for _, file := range files(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := read(t, file)
			var told story.Outcome
			for i := range s.Rules {
				episodes, late := truth(s, &s.Rules[i])
				told.Hits = append(told.Hits, episodes...)
				if late > 0 {
					told.Uncounted = append(told.Uncounted, line("rule", s.Rules[i].ID, "why", "late", "count", strconv.Itoa(late)))
				}
			}
			expected := *s
			expected.Expect.Hits = nil
			for _, l := range s.Expect.Hits {
				if !slices.Contains(l.Facts, story.Fact{Name: "phase", Text: "merged"}) { // the oracle knows only how it ends
					expected.Expect.Hits = append(expected.Expect.Hits, counted(l))
				}
			}
			if diff := expected.Diff(&told); diff != "" {
				t.Errorf("%s: + is what the oracle says\n%s", file, diff)
			}
		})
	}
}

// counted are the facts of a line that the oracle knows of.
func counted(l story.Line) story.Line {
	l.Facts = slices.DeleteFunc(slices.Clone(l.Facts), func(f story.Fact) bool {
		return slices.Contains([]string{"updates", "phase", "grouped"}, f.Name)
	})
	return l
}

func line(facts ...string) (l story.Line) {
	for i := 0; i < len(facts); i += 2 {
		l.Facts = append(l.Facts, story.Fact{Name: facts[i], Text: facts[i+1]})
	}
	return l
}

// truth is what one rule must find, and how many events are too late for it: older, by more than its lateness, than the
// newest one of their source partition, or than what was the clock a minute ago of one that was waited for no longer.
func truth(s *story.Story, v *rules.Version) (episodes []story.Line, late int) {
	steps := map[string][]oracle.Step{}
	newest := make([]traffic.Time, s.Partitions)
	for i := range s.Steps {
		step := &s.Steps[i]
		q := &step.Request
		if step.Do != story.ActEvent {
			continue
		}
		newest[step.Partition] = max(newest[step.Partition], q.Time)
		key, whole := keyOf(v, q)
		matches := (len(v.Match.Methods) == 0 || slices.Contains(v.Match.Methods, q.Method)) && (v.Match.Path == "" || v.Match.Path == q.Path)
		one := oracle.Step{Time: int64(q.Time), Limit: int64(v.Limit), Units: 1, Value: q.User}
		if v.Count.Sum != "" {
			one.Units = cost(q)
		}
		if !matches || !whole && v.Missing == rules.MissingSkip || one.Units == 0 || v.Count.Distinct != nil && q.User == "" {
			continue
		}
		if q.Time < newest[step.Partition].Add(-v.Lateness) || forgotten(s, step) {
			late++
			continue
		}
		steps[key] = append(steps[key], one)
	}
	definition := oracle.Definition{
		Algorithm: string(v.Counting()), Distinct: v.Count.Distinct != nil, Window: v.Window.Microseconds(), Capacity: int64(v.Capacity()),
	}
	for key, all := range steps {
		for _, e := range definition.Episodes(definition.Judge(all), (24 * time.Hour).Microseconds()) {
			facts := append([]string{"rule", v.ID}, strings.Split(key, "\x00")...)
			episodes = append(episodes, line(append(facts[:len(facts)-1], "count", strconv.FormatInt(e.Count, 10),
				"peak", strconv.FormatInt(e.Peak, 10), "first", since(e.First), "last", since(e.Last))...))
		}
	}
	return episodes, late
}

// keyOf are the names and values of an event's key.
func keyOf(v *rules.Version, q *traffic.Request) (key string, whole bool) {
	values := map[string]string{"ip": q.IP, "device": q.Device, "user": q.User}
	whole = true
	for _, name := range []string{"ip", "device", "user"} {
		if !slices.ContainsFunc(v.Key, func(k traffic.KeyField) bool { return k.Field.String() == name }) {
			continue
		}
		if values[name] == "" {
			whole = false
			continue
		}
		key += name + "\x00" + values[name] + "\x00"
	}
	return key, whole
}

// cost is the only number that the stories sum up.
func cost(q *traffic.Request) int64 {
	text, ok := strings.CutPrefix(string(q.Attrs), `{"cost":`)
	n, err := strconv.ParseInt(strings.TrimSuffix(text, "}"), 10, 64)
	if !ok || err != nil {
		return 0
	}
	return n
}

// forgotten: the event's source partition was silent for longer than the others wait for one.
func forgotten(s *story.Story, event *story.Step) bool {
	return slices.ContainsFunc(s.Steps, func(silence story.Step) bool {
		return silence.Do == story.ActSilent && silence.Partition == event.Partition && silence.For > 5*time.Minute &&
			silence.At <= event.At && event.At < silence.At+silence.For
	})
}

func since(at int64) string {
	return duration.Format(time.Duration(at-int64(story.Begin)) * time.Microsecond)
}
