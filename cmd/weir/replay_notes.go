package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Notes say what a replay's figures leave a reader to find out: why a rule has counted nothing, and what a file would have to
// be read as. A row of zeros looks like "nobody was over".

// frequentShown is how many of the most frequent requests, and of a line's members, are shown.
const (
	frequentShown = 8
	membersShown  = 20
)

// notes are those of a summary that has all else.
func (p *replay) notes(s *replaySummary) []string {
	var notes []string
	if s.Events == 0 {
		if note := timelessNote(p.dropped.timeless(), p.reading.flags.format); note != "" {
			notes = append(notes, note)
		}
		return notes
	}
	var idle []string
	for i := range s.Rules {
		r, v := &s.Rules[i], &p.rules[i]
		if r.Matched == 0 {
			idle = append(idle, fmt.Sprintf("rule %s matched none of %s: it watches %s", r.Rule, terminal.Plural(s.Events, "event"), watched(&v.Match)))
			continue
		}
		for _, f := range slices.Sorted(maps.Keys(r.Lacking)) {
			if r.Lacking[f] == r.Matched {
				notes = append(notes, fmt.Sprintf("rule %s: all %d lack %s, a field of its key, so %s", r.Rule, r.Matched, f, lackingMeans(v.Missing)))
			}
		}
	}
	if len(idle) > 0 {
		notes = append(append(notes, idle...), frequentNote(s.Frequent))
	}
	return notes
}

func lackingMeans(missing rules.OnMissing) string {
	if missing == rules.MissingGroup {
		return "they share one window, which blocks nobody"
	}
	return "none of them was counted"
}

// watched writes a match: POST /v1/guest-tokens.
func watched(m *rules.Match) string {
	method, path := "any method", m.Path
	if len(m.Methods) > 0 {
		method = strings.Join(m.Methods, " or ")
	}
	if path == "" {
		path = "any path"
	}
	return terminal.Safe(method + " " + path)
}

func frequentNote(top []frequentRequest) string {
	shown := make([]string, len(top))
	for i, r := range top {
		atLeast := ""
		if r.AtLeast {
			atLeast = "at least "
		}
		shown[i] = fmt.Sprintf("%s (%s%d)", terminal.Safe(strings.TrimSpace(r.Method+" "+r.Path)), atLeast, r.Events)
	}
	return "the most frequent requests of the file: " + strings.Join(shown, ", ")
}

// timelessNote says which members a line has that no time was found in. It knows JSON lines only.
func timelessNote(line []byte, format string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(line, &members) != nil || len(members) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(members))
	note := "no line has a time; the first one has the members " + terminal.Safe(strings.Join(names[:min(len(names), membersShown)], ", "))
	if more := len(names) - membersShown; more > 0 {
		note += fmt.Sprintf(" and %d more", more)
	}
	if name := timeAmong(line, names); name != "" {
		option := "--map time=" + name
		if format == traffic.FormatWeir {
			option = "--format json " + option
		}
		note += "; did you mean " + option + "?"
	}
	return note
}

// timeAmong finds the member that is read as a time of our days; of several, one that is called like a time.
func timeAmong(line []byte, names []string) string {
	oldest, newest := traffic.At(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), service.Now().Add(24*time.Hour)
	best := ""
	for _, name := range names {
		fields, err := traffic.ParseFieldMap("time=" + name)
		if err != nil {
			continue
		}
		d, err := traffic.NewDecoder(traffic.FormatJSON, fields, len(line))
		if err != nil {
			continue
		}
		var r traffic.Request
		if d.Decode(line, &r) != nil || !r.HasTime || r.Time < oldest || r.Time > newest {
			continue
		}
		if best == "" || !calledTime(best) && calledTime(name) {
			best = name
		}
	}
	return best
}

func calledTime(name string) bool {
	name = strings.ToLower(name)
	return name == "ts" || name == "at" || strings.Contains(name, "time") || strings.Contains(name, "date")
}

// timeless is the first line that was refused because it has no time; nil for none.
func (d *deadCount) timeless() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.noTime
}

// keepTimeless is called with each letter, under the lock.
func (d *deadCount) keepTimeless(letter *traffic.DeadLetter) {
	if d.noTime == nil && letter.Reason == archive.ReasonNoTime {
		d.noTime = slices.Clone(letter.Value)
	}
}
