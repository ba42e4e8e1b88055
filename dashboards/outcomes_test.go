package dashboards_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// sourceRows are those of Top sources.
func (w *world) sourceRows(g *grafana) []string {
	type key struct {
		rule    string
		subject traffic.Subject
	}
	groups := group(w.chosen(g), func(h *detectors.Hit) key { return key{h.Rule, h.Subject} })
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b key) int {
		return cmp.Or(cmp.Compare(events(groups[b]), events(groups[a])), cmp.Compare(a.rule, b.rule), cmp.Compare(a.subject, b.subject))
	})
	rowsOf := group(w.rows(g), w.runOf)
	var rows []string
	for _, k := range keys[:min(50, len(keys))] {
		found := groups[k]
		newest := &found[0]
		first, peak := newest.First, 0
		for i := range found {
			h := &found[i]
			first, peak = min(first, h.First), max(peak, h.Peak)
			if cmp.Or(cmp.Compare(newest.Last, h.Last), cmp.Compare(newest.First, h.First)) < 0 {
				newest = h
			}
		}
		tuples := rowsOf[w.runOf(newest)]
		slices.SortFunc(tuples, func(a, b detectors.Hit) int { return cmp.Or(cmp.Compare(b.Last, a.Last), cmp.Compare(a.ID, b.ID)) })
		outcome, blocks, until := w.outcome(tuples)
		rows = append(rows, line(k.rule, cmp.Or(readable(k.subject), "all that matches"), events(found), len(found), peak, newest.First, newest.Last, first,
			asked(&tuples[0]), holds(tuples), blocks, outcome, until, tuples[0].ID))
	}
	return rows
}

// holds lists whom blocks would keep out, of which there are more than three in some.
func holds(tuples []detectors.Hit) any {
	var whom []string
	for i := range tuples {
		if b := tuples[i].BlockSubject; b != "" {
			whom = append(whom, readable(b))
		}
	}
	switch n := len(whom); {
	case n == 0:
		return nil
	case n > 3:
		return fmt.Sprintf("%s and %d more", strings.Join(whom[:3], ", "), n-3)
	}
	return strings.Join(whom, ", ")
}

func asked(h *detectors.Hit) string {
	requests := map[string]bool{}
	for _, s := range h.Samples {
		if !strings.Contains(s, "path") {
			requests[s] = true // it is in no form that weir writes
			continue
		}
		_, path, _ := strings.Cut(s, `"path":"`)
		path, status, _ := strings.Cut(path, `","status":`)
		requests["POST "+path+" "+status[:3]] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(requests)), ", ")
}

// outcome is what became of the blocks of an episode: how many hold or would, and until when.
func (w *world) outcome(tuples []detectors.Hit) (outcome string, blocks int, until any) {
	var last *blocklist.Decision
	var held, would, possible traffic.Time
	holding, holdable, against := 0, 0, ""
	for i := range tuples {
		h := &tuples[i]
		if standing := w.held(h.Rule)[h.BlockSubject.Stored()]; standing != 0 && h.BlockSubject != "" {
			holding, held = holding+1, max(held, standing)
		}
		possible = max(possible, w.would(h))
		switch why := w.against(h); {
		case w.would(h) == 0:
		case why != "":
			against = why
		default:
			would = max(would, w.would(h))
			if w.would(h) > traffic.At(w.now) {
				holdable++
			}
		}
		for j := range w.decisions {
			d := &w.decisions[j]
			if d.Hit == h.ID && (last == nil || d.At > last.At || d.At == last.At && d.ID < last.ID) {
				last = d
			}
		}
	}
	shadow := w.modes[tuples[0].Rule].Mode == rules.ModeShadow
	switch {
	case shadow && would != 0:
		until = would
	case !shadow && last != nil && (last.Action == blocklist.ActionWritten || last.Action == blocklist.ActionExtended) && last.Until <= traffic.At(w.now):
		until = last.Until // one that was to last longer was ended
	}
	if !shadow {
		holdable = 0
	}
	switch {
	case holding > 0:
		return "held", holding, held
	case possible == 0:
		return "no block is possible", 0, until
	case shadow && would > traffic.At(w.now):
		return "would be held", holdable, until
	case shadow && would != 0:
		return "would have been held", 0, until
	case shadow:
		return "would be withheld: " + against, 0, nil
	case last == nil:
		return "not held", 0, nil
	case last.Action == blocklist.ActionWithheld:
		return "withheld: max_lag", 0, nil
	case last.Action == blocklist.ActionReleased:
		return "released", 0, nil
	}
	return "was held", 0, until
}
