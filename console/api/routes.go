package api

import (
	"net/http"
	"slices"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/reveal"
	"github.com/weirhq/weir/console/why"
	"github.com/weirhq/weir/history/rulestore"
)

// route is one operation of the API: what is served, who may ask, and what the OpenAPI document says about it.
type route struct {
	access.Route
	name    string // operationId
	summary string
	params  []param
	// body and answer are zero values of what is sent and answered; nil: none, or JSON that no type describes.
	body, answer any
	// documents: the body may be as large as rule documents are. matched: If-Match is compared with the rule's revision. page: the
	// answer is one page of many. unfinished: the answer may be 202.
	documents, matched, unfinished bool
	csv                            bool // the answer can be had as CSV
	instant                        bool // the answer is there: it takes no turn

	handle func(c *call) (any, error)
	stream func(c *call) // instead of handle: it answers by itself
}

// param is a parameter of a query.
type param struct {
	name, doc string
	allowed   []string // none: anything of the kind
	kind      string   // of JSON Schema; empty: string
	required  bool
}

func pageParams(more ...param) []param {
	return append(more,
		param{name: "limit", doc: "at most so many items, 1 to 1000; default 100", kind: "integer"},
		param{name: "cursor", doc: "next of the page before"})
}

func flagParam(name, doc string) param {
	return param{name: name, doc: doc, allowed: []string{"true", "false"}}
}

// Page is a part of a list. Next asks for the part behind it as cursor; absent: there is none.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty" mask:"cursor"`
}

// table is every route, those that tell first.
func (a *API) table() []route {
	get := func(pattern, rule string) access.Route {
		return access.Route{Method: http.MethodGet, Pattern: pattern, Act: access.View, Rule: rule}
	}
	all := []route{
		{Route: access.Route{Method: http.MethodGet, Pattern: "/api/v1/openapi.json", Act: access.View}, name: "getOpenAPI", summary: "This description of the API",
			instant: true, handle: func(*call) (any, error) { return a.document, nil }},
		{Route: access.Route{Method: http.MethodGet, Pattern: "/api/v1/me", Act: access.Self}, name: "getMe", summary: "Who asks, and what they may do",
			answer: Me{}, instant: true, handle: me},
		{Route: get("/api/v1/health", ""), name: "getHealth", summary: "How the stages stand, and what does not work", answer: Health{},
			instant: true, handle: func(*call) (any, error) { return a.o.Health(), nil }},
		{Route: get("/api/v1/rulebook", ""), name: "listRules", summary: "All rules, ascending by id: mode, version that acts, pending version, raised limit",
			params: pageParams(param{name: "owner", doc: "only rules of this owner"}, param{name: "mode", doc: "only rules in this mode", allowed: modes()}),
			answer: Page[Rule]{}, handle: listRules},
		{Route: get("/api/v1/rules/{rule}", "rule"), name: "getRule", summary: "A rule with all its versions, also one that was removed. Its ETag is what If-Match takes",
			answer: RuleAnswer{}, handle: getRule},
		{Route: get("/api/v1/rules/{rule}/history", "rule"), name: "getRuleHistory", summary: "What was done to a rule, the newest first",
			params: []param{{name: "limit", doc: "at most so many entries; 0: all; default 100", kind: "integer"}}, answer: Page[Entry]{}, handle: ruleHistory},
		{Route: get("/api/v1/rules/{rule}/evidence", "rule"), name: "getEvidence", summary: "What a promotion would be judged by: a summary, the gates, and the hash that a promotion may name",
			params: []param{{name: "version", doc: "of the rule; default: the one that acts", kind: "integer"}, flagParam("pending", "of the pending version"),
				{name: "until", doc: "the end of the time that it is about, RFC 3339; default: some minutes ago"}},
			answer: acts.EvidenceShown{}, handle: promotionEvidence},
		{Route: get("/api/v1/blocklist", ""), name: "listBlocks",
			summary: "The blocks in Redis, ascending by source and rule, as they were up to some seconds ago",
			params: pageParams(param{name: "rule", doc: "only blocks of this rule"},
				param{name: "subject", doc: "only the source of this canonical subject, asked of Redis now"},
				param{name: "id", doc: "only blocks whose id begins so, 8 to 32 hex digits"},
				flagParam("released", "releases, too")),
			answer: BlockPage{}, handle: listBlocks},
		{Route: get("/api/v1/never-block", ""), name: "listNeverBlock",
			summary: "Who is never blocked: never_block of the configuration, and what people have entered, by prefix",
			answer:  Page[acts.NeverListed]{}, handle: listNeverBlock},
		{Route: get("/api/v1/allow", ""), name: "listAllowLists",
			summary: "All allow lists with their entries, ascending by id, and the rules that name them",
			params:  pageParams(), answer: Page[AllowList]{}, handle: listAllow},
		{Route: get("/api/v1/allow/{list}", "list"), name: "getAllowList",
			summary: "An allow list with its versions, also one that was removed",
			params:  []param{{name: "version", doc: "of the list; default: the newest", kind: "integer"}},
			answer:  AllowListAnswer{}, handle: getAllow},
		{Route: get("/api/v1/partitions", ""), name: "listPartitions",
			summary: "The partitions as the stages last reported them, requests before keyed: which stopped, and why",
			params:  []param{flagParam("stopped", "only those that are refused or halted")},
			answer:  Page[acts.Partition]{}, handle: listPartitions},
		{Route: get("/api/v1/rules/{rule}/dossier", "rule"), name: "getDossier", summary: "What a version of a rule would have done, had it blocked",
			params: dossierParams(), answer: Dossier{}, handle: dossier},
		{Route: get("/api/v1/why/{id}", ""), name: "getWhy", summary: "What is behind a block id that a client was told, or the id of a hit, 8 to 32 hex digits of it; and whether the block holds now",
			answer: why.Answer{}, handle: whyID},
		{Route: get("/api/v1/why", ""), name: "getWhyOfSource", summary: "The same of the newest block of a source, or of its newest hit, with the names of others",
			params: []param{sourceParam(true)}, answer: why.Answer{}, handle: whySource},
		{Route: get("/api/v1/audit", ""), name: "listAudit", summary: "Who did what, and why: the newest first",
			params: []param{{name: "object", doc: "only entries about it: rule ID, allow list ID"}, {name: "limit", doc: "at most so many entries, 1 to 1000; default 100", kind: "integer"}},
			answer: Page[Entry]{}, handle: listAudit},
	}
	if a.o.Reveal != nil {
		all = append(all, route{
			Route: access.Route{Method: http.MethodPost, Pattern: "/api/v1/reveal", Act: access.Reveal}, name: "revealValue",
			summary: "What is behind a pseudonym. It is audited who asks and why, before the answer", body: reveal.Request{}, answer: Revealed{}, handle: revealed,
		})
	}
	if a.o.Reader.Counts != nil {
		all = append(all, route{
			Route: get("/api/v1/rules/{rule}/counters", "rule"), name: "getCount",
			summary: "What a rule has counted of a source by now, asked of the process that counts it",
			params: []param{{name: "subject",
				doc: "the source as the rule counts it, canonical; none for the empty key"}},
			answer: Count{}, handle: getCount,
		})
	}
	return slices.Concat(all, a.asking(), a.doing(), a.live())
}

// doing are the acts.
func (a *API) doing() []route {
	post := func(pattern string, act access.Act, rule string) access.Route {
		return access.Route{Method: http.MethodPost, Pattern: pattern, Act: act, Rule: rule}
	}
	return []route{
		{Route: post("/api/v1/rules/{rule}/promote", access.Promote, "rule"), name: "promoteRule", summary: "Let a rule, or its pending version, block, or make it a canary; 409 names the gates that do not pass",
			body: acts.PromoteRequest{}, answer: acts.ModeDone{}, matched: true, handle: promote},
		{Route: post("/api/v1/rules/{rule}/demote", access.Demote, "rule"), name: "demoteRule", summary: "Put a rule into shadow: its blocks hold no longer",
			body: Reasoned{}, answer: acts.ModeDone{}, matched: true, handle: setMode("shadow")},
		{Route: post("/api/v1/rules/{rule}/disable", access.Disable, "rule"), name: "disableRule", summary: "Let a rule count nothing",
			body: Reasoned{}, answer: acts.ModeDone{}, matched: true, handle: setMode("off")},
		{Route: post("/api/v1/rules/{rule}/enable", access.Enable, "rule"), name: "enableRule", summary: "Let a rule that is off count again, in shadow",
			body: Reasoned{}, answer: acts.ModeDone{}, matched: true, handle: setMode("shadow")},
		{Route: post("/api/v1/rules/{rule}/limit", access.SetLimit, "rule"), name: "setLimit", summary: "Raise a rule's limit for a time, or end that with limit 0",
			body: acts.LimitRequest{}, answer: rulestore.LimitSet{}, matched: true, handle: setLimit},
		{Route: post("/api/v1/rules/{rule}/rollback", access.Rollback, "rule"), name: "rollbackRule", summary: "Apply an older document of a rule as a new version",
			body: acts.RollbackRequest{}, answer: acts.ApplyDone{}, handle: rollback},
		{Route: post("/api/v1/rules/{rule}/reset", access.Reset, "rule"), name: "resetCount", summary: "Set what a rule has counted of a source back to nothing",
			body: acts.ResetRequest{}, answer: rulestore.CounterResetDone{}, handle: reset},
		{Route: access.Route{Method: http.MethodPost, Pattern: "/api/v1/apply", Act: access.Apply, Body: true}, name: "applyRules",
			summary: "Make the stored rules and allow lists those of documents; dry_run plans, and shown carries out only the plan that was shown",
			body:    acts.ApplyRequest{}, answer: acts.ApplyDone{}, documents: true, handle: apply},
		{Route: access.Route{Method: http.MethodPost, Pattern: "/api/v1/try", Act: access.Apply, Body: true},
			name: "tryRules",
			summary: "What documents would do, were they applied: what would change, what their tests say, and what " +
				"their rules make of the latest requests. Nothing is changed",
			body: acts.TryRequest{}, answer: acts.Tried{}, documents: true, handle: try},
		{Route: post("/api/v1/rules/{rule}/release", access.Release, "rule"), name: "releaseBlock",
			summary: "Lift a block. 202: it is on its way, and ENFORCE has not acted yet", body: acts.ReleaseRequest{}, answer: acts.ReleaseDone{}, unfinished: true, handle: release},
		{Route: post("/api/v1/blocks", access.Block, ""), name: "blockSource",
			summary: "Block a source by hand, for a time; dry_run says who is behind it. 202: it is ordered, and ENFORCE has not acted yet", body: acts.BlockRequest{}, answer: acts.BlockDone{},
			unfinished: true, handle: block},
		{Route: post("/api/v1/never-block/entries", access.NeverBlock, ""), name: "changeNeverBlockList",
			summary: "Keep addresses from being blocked, which lifts the blocks that hold them, or end that",
			body:    acts.NeverRequest{}, answer: acts.NeverDone{}, handle: changeNeverBlock},
		{Route: post("/api/v1/allow/{list}/entries", access.Allow, "list"), name: "changeAllowList", summary: "Add entries to an allow list, or remove them",
			body: acts.AllowRequest{}, answer: acts.AllowDone{}, handle: changeAllow},
		{Route: post("/api/v1/partitions/{side}/{partition}/resume", access.Resume, ""), name: "resumePartition",
			summary: "Let a partition that stopped at a gap go on, without what is missing; 409: it is another gap now",
			body:    acts.ResumeRequest{}, answer: acts.ResumeDone{}, handle: resume},
		{Route: post("/api/v1/history/erase", access.Erase, ""), name: "erasePerson",
			summary: "Take a person out of history, all at once or not at all. 202: it goes on, and the same request again waits for it", body: acts.EraseRequest{}, answer: acts.ErasureState{},
			unfinished: true, handle: erase},
	}
}

// live are the sections of the live picture, as docs/console.md describes them.
func (a *API) live() []route {
	if a.o.Live == nil {
		return nil
	}
	var all []route
	for _, s := range []struct{ path, name, summary string }{
		{"pulse", "getPulse", "Rates and lags of the stages, live"},
		{"rules", "getLiveRules", "The live picture of rules: who is over, what would be held"},
		{"hits", "getLiveHits", "The newest episodes of each rule, live"},
		{"hits/{id}", "getLiveHit", "One of the newest episodes with its evidence"},
		{"blocks", "getLiveBlocks", "The newest blocks and releases, live"},
		{"stream", "getStream", "Server-Sent Events: each section when it changes"},
	} {
		all = append(all, route{
			Route: access.Route{Method: http.MethodGet, Pattern: "/api/v1/" + s.path, Act: access.View}, name: s.name, summary: s.summary, stream: liveSection,
		})
	}
	return all
}

// Block is a block or a release in Redis.
type Block struct {
	blocklist.Listed
}

// BlockPage is a part of the blocks.
type BlockPage struct {
	Page[Block]
	Total      int  `json:"total"`      // of all pages, of what was read
	Unreadable int  `json:"unreadable"` // keys that this build cannot read
	Cut        bool `json:"cut"`        // Redis holds more than is read: of these, and of what was asked for perhaps
	// Foreign says whose Redis is, where it is another installation's, whose blocks these are then
	Foreign string `json:"foreign_redis,omitempty" mask:"line"`
}
