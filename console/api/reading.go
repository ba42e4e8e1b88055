package api

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Me is who asks.
type Me struct {
	access.Actor
	May []access.Act `json:"may"` // to some rule; which ones, Owners says
}

func me(c *call) (any, error) {
	m := Me{Actor: c.actor, May: []access.Act{}}
	for _, act := range access.Acts() {
		if access.MayAny(c.actor, act) == nil {
			m.May = append(m.May, act)
		}
	}
	return m, nil
}

// Health is how an installation does.
type Health struct {
	Stages []StageLag `json:"stages"`
	// Problems are parts that are away, and what that means. None: all is well, as far as this process can see.
	Problems []HealthProblem `json:"problems"`
	// Gates are those that have told Redis of themselves within 30 s, ascending by instance. Those of builds before do
	// not.
	Gates []HealthGate `json:"gates"`
	// Foreign says whose Redis is, where it is another installation's: ENFORCE stands still then.
	Foreign string `json:"foreign_redis,omitempty" mask:"line"`
	// Unknown says what this process cannot know.
	Unknown []string `json:"unknown,omitempty" mask:"-"`
}

// StageLag is how many records a stage has yet to work off.
type StageLag struct {
	Stage   string `json:"stage" mask:"-"`
	Records int64  `json:"records"`
}

// HealthProblem is a part that is away, and what that means.
type HealthProblem struct {
	Part   string `json:"part" mask:"-"`
	Detail string `json:"detail" mask:"line"`
}

// HealthGate is what a gate says of itself. Counters are since it was started; times are by its clock.
type HealthGate struct {
	Instance    string       `json:"instance" mask:"-"`
	Build       string       `json:"build" mask:"-"`
	Ready       bool         `json:"ready"`
	Observing   bool         `json:"observing"` // it refuses nobody
	Blocks      int          `json:"blocks"`    // that it holds
	Behind      float64      `json:"behind_seconds"`
	Passed      int64        `json:"passed"`
	FailedOpen  int64        `json:"failed_open"` // passed unjudged
	Refused     int64        `json:"refused"`
	WouldRefuse int64        `json:"would_refuse"`
	Identity    string       `json:"identity" mask:"-"` // fingerprint of its identity map
	Started     traffic.Time `json:"started"`
	Told        traffic.Time `json:"told"`
	Doubts      []string     `json:"doubts" mask:"line"` // why it may not do what the installation asks
}

func modes() []string {
	return []string{string(rules.ModeOff), string(rules.ModeShadow), string(rules.ModeCanary), string(rules.ModeBlock)}
}

func listRules(c *call) (any, error) {
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	after, err := c.cursor()
	if err != nil {
		return nil, err
	}
	all, err := c.o.Reader.Rulebook(c.r.Context())
	if err != nil {
		return nil, err
	}
	page := Page[Rule]{Items: []Rule{}}
	for i := range all {
		r := &all[i]
		v := &r.Newest.Version
		owner, ofOwner := c.values["owner"]
		if v.ID <= after && after != "" || ofOwner && v.Owner != owner || c.values["mode"] != "" && c.values["mode"] != string(r.Mode) {
			continue
		}
		if len(page.Items) == limit {
			page.Next = cursorAt(page.Items[limit-1].Newest.Version.ID)
			break
		}
		page.Items = append(page.Items, *r)
	}
	return page, nil
}

// RuleAnswer is a rule with its revision, for If-Match and for the member seen of an act.
type RuleAnswer struct {
	Rule
	Revision string `json:"revision" mask:"-"`
}

func getRule(c *call) (any, error) {
	r, err := c.o.Reader.Rule(c.r.Context(), c.r.PathValue("rule"))
	if err != nil {
		return nil, err
	}
	c.revision = acts.StandingOf(&r.Rule).Revision
	return RuleAnswer{r, c.revision}, nil
}

func promotionEvidence(c *call) (any, error) {
	q := acts.EvidenceRequest{Rule: c.r.PathValue("rule"), Pending: c.flag("pending")}
	var err error
	if text := c.values["version"]; text != "" {
		if q.Version, err = strconv.Atoi(text); err != nil || q.Version < 1 {
			return nil, &acts.Invalid{Field: "version", Got: text, Allowed: "a version of the rule, from 1 on"}
		}
	}
	if text := c.values["until"]; text != "" {
		if q.Until, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, &acts.Invalid{Field: "until", Got: text, Allowed: "a time like 2026-12-24T18:00:00Z"}
		}
	}
	shown, err := c.o.Acts.Evidence(c.r.Context(), c.actor, q)
	return shown, err
}

// Entry is an entry of the audit trail.
type Entry = audit.Entry

func ruleHistory(c *call) (any, error) {
	limit := limitDefault
	if text, given := c.values["limit"]; given {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, &acts.Invalid{Field: "limit", Got: text, Allowed: "0 and more; 0 is all"}
		}
		limit = n
	}
	entries, err := c.o.Reader.RuleTrail(c.r.Context(), c.r.PathValue("rule"), limit)
	return Page[Entry]{Items: entries}, err
}

func listAudit(c *call) (any, error) {
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	object, err := c.mask.ResolveObject(c.values["object"])
	if err != nil {
		return nil, &acts.Invalid{Field: "object", Got: c.values["object"], Allowed: err.Error()}
	}
	entries, err := c.o.Reader.Trail.Of(c.r.Context(), object, limit)
	return Page[Entry]{Items: append([]Entry{}, entries...)}, err
}

// liveSection gives the request to the live picture, whose viewers all get the same bytes: who is shown pseudonyms is no viewer.
func liveSection(c *call) {
	if c.mask.Any() {
		c.fail(c.w, c.r, c.name, &httpError{status: http.StatusForbidden, title: "the live picture shows values as they are",
			detail: fmt.Sprintf("%s is shown pseudonyms, which the live picture has not: pages and the other resources have", c.actor)})
		return
	}
	c.o.Live.ServeHTTP(c.w, c.r)
}
