package api

import (
	"net/http"
	"slices"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/streams"
)

// asking are the questions of history. Parameters have the names of the flags of weir history, and take what those take.
func (a *API) asking() []route {
	get := func(path string) access.Route {
		return access.Route{Method: http.MethodGet, Pattern: "/api/v1/history/" + path, Act: access.View}
	}
	by := param{name: "by", doc: "what is summed up; default: rule", allowed: []string{string(explore.ByRule), string(explore.BySource), string(explore.ByHour), string(explore.ByDay)}}
	order := param{name: "order", doc: "the greatest first of these; default: events. Hours and days come in order of time, the newest first",
		allowed: []string{string(explore.ByEvents), string(explore.ByEpisodes), string(explore.BySources), string(explore.ByPeak), string(explore.ByLast)}}
	all := []route{
		{Route: get("hits"), name: "listHistoryHits", summary: "Episodes over limits, the newest first",
			params: append(episodeParams(), flagParam("merged", "also episodes that a late event joined to others")), answer: Counted[history.RecordedHit]{}, handle: historyHits},
		{Route: get("hits/{id}"), name: "getHistoryHit", summary: "One hit with its evidence, and all that was decided and done about it: 8 to 32 hex digits of its id",
			answer: explore.Story{}, handle: historyHit},
		{Route: get("sources"), name: "listHistorySources", summary: "Sums of episodes by rule and source, the worst first",
			params: append(episodeParams(), order), answer: Counted[explore.GroupRow]{}, handle: historySums(explore.BySource)},
		{Route: get("top"), name: "listHistoryTop", summary: "Sums of episodes by rule, source, hour or day",
			params: append(episodeParams(), by, order), answer: Counted[explore.GroupRow]{}, handle: historySums("")},
		{Route: get("timeline"), name: "getHistoryTimeline", summary: "What happened to a source, the newest first: episodes, decisions, acts",
			params: append(lookParams(), sourceParam(true)), answer: Page[Happened]{}, handle: historyTimeline},
		{Route: get("seen-with"), name: "getHistoryPivots", summary: "The other identities that a source was seen with in its newest episodes",
			params: append(lookParams(), sourceParam(true)), answer: explore.Pivots{}, handle: historyPivots},
		{Route: get("decisions"), name: "listHistoryDecisions", summary: "What was decided about blocks, the newest first",
			params: append(lookParams(), sourceParam(false), param{name: "action", doc: "only these decisions", allowed: explore.DecisionActions()}),
			answer: Counted[history.RecordedDecision]{}, handle: historyDecisions},
		{Route: get("audit"), name: "listHistoryAudit", summary: "What people did, the newest first",
			params: append(spanParams(), param{name: "rule", doc: "acts on this rule, and on blocks of it"}, sourceParam(false),
				param{name: "by", doc: "only what this person or program did"}, param{name: "action", doc: "only acts of this name: promote, demote, release, …"}),
			answer: Counted[Act]{}, handle: historyAudit},
		{Route: get("late"), name: "listHistoryLate", summary: "How many events came too late to count, by rule, source partition and minute, the newest first",
			params: lookParams(), answer: Counted[history.LateSum]{}, handle: historyLate},
		{Route: get("uncounted"), name: "listHistoryUncounted", summary: "How many events rules did not count, by rule, reason and minute, the newest first",
			params: append(lookParams(), param{name: "reason", doc: "only those of this reason", allowed: explore.UncountedReasons()}),
			answer: Counted[history.UncountedSum]{}, handle: historyUncounted},
		{Route: get("refused"), name: "listHistoryRefused",
			summary: "How many requests gates really refused, by rule, block and minute, the newest first",
			params:  lookParams(), answer: Counted[history.RefusedSum]{}, handle: historyRefused},
	}
	if a.o.Reader.Letters != nil {
		all = append(all, route{Route: get("dead"), name: "listHistoryDead", summary: "Dead letters, which a stage could not use, the newest first; read from Kafka. stage and reason look for letters among all since since",
			params: []param{{name: "since", doc: "taken by Kafka not before: " + explore.TimesAllowed}, {name: "stage", doc: "only of this stage: ingest, route, record, enforce"},
				{name: "reason", doc: "only of this reason: malformed, oversized, refused, …"}},
			answer: Counted[Letter]{}, handle: historyDead})
	}
	for i := range all {
		r := &all[i]
		if r.csv = r.params != nil; !r.csv {
			continue // one hit is no table
		}
		if r.name != "getHistoryPivots" {
			r.params = pageParams(r.params...)
		}
		r.params = append(r.params, param{name: "format", doc: "json, or csv for analysts and above; default: as Accept says", allowed: []string{"json", "csv"}})
	}
	return append(all, route{
		Route: get("replays"), name: "listReplays", summary: "The replays that were made; replay=NAME of the others asks about one", answer: Page[streams.Stream]{}, handle: historyReplays,
	})
}

// spanParams bound a time.
func spanParams() []param {
	return []param{{name: "since", doc: "not before: " + explore.TimesAllowed}, {name: "until", doc: "before: likewise"}}
}

// lookParams select what a rule did in a time.
func lookParams() []param {
	return append(spanParams(), param{name: "rule", doc: "only this rule"}, param{name: "replay", doc: "of this replay instead of the live stream"})
}

func sourceParam(required bool) param {
	return param{name: "source", doc: "this source: " + sourceAllowed, required: required}
}

// episodeParams select episodes.
func episodeParams() []param {
	return slices.Concat(lookParams(), []param{
		sourceParam(false),
		{name: "kind", doc: "episodes of this kind; default: hit", allowed: explore.Kinds()},
		{name: "owner", doc: "only of rules of this owner"},
		{name: "mode", doc: "only of rules that are in this mode now", allowed: explore.Modes()},
		{name: "field", doc: "only sources that have this field", allowed: explore.Fields()},
		{name: "state", doc: "only episodes that are running, or closed", allowed: explore.States()},
	})
}

func dossierParams() []param {
	return append(spanParams(), param{name: "version", doc: "the version with this number; default: the one that acts", kind: "integer"},
		flagParam("pending", "the version that waits for its promotion"), flagParam("candidate", "the limit on trial of the version"))
}
