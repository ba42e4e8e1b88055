package rules

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
)

// Bounds of a document's values. Those of Window stand beside its defaults.
const (
	MaxIDBytes    = 64
	MaxOwnerBytes = 128
	// MaxLimit bounds what one key's window may have to hold: a sliding log keeps limit+1 times.
	MaxLimit    = 1_000_000
	MaxLateness = 24 * time.Hour
	MinMaxLag   = time.Second
	MaxMaxLag   = 24 * time.Hour
	MinTTL      = time.Second
	MaxTTL      = 31 * 24 * time.Hour
	// MaxTiers bounds the tiers of a rule.
	MaxTiers    = 16
	MinCooldown = time.Second
	MaxCooldown = 24 * time.Hour
)

// What fields may be, in the words of messages.
const (
	allowedID       = "1 to 64 characters a-z, 0-9 and -, not starting with -"
	allowedOwner    = "the name of the team that answers for the rule, 1 to 128 bytes of printable text without spaces around it"
	allowedMatch    = "a mapping with the members method, path, except, host, route, status, path_as, path_case, when; {} for every request"
	allowedReach    = "a mapping with the members method, path, except, host, route, path_as, path_case, which a request has; {} for every request"
	allowedMethod   = "a method name or a list of them, such as POST or [GET, HEAD]"
	allowedPath     = "a path of literal segments, {param} segments and a trailing *, such as /v1/users/{id}/posts*, or a list of them"
	allowedHost     = "a host such as api.example.com, *.example.com for all hosts below it, or a list of them"
	allowedRoute    = "a route's name as the gateway writes it, 1 to 256 bytes of printable text, or a list of them"
	allowedStatus   = "a status from 100 to 599, such as 401, a class of them, 1xx to 5xx, or a list of them"
	allowedPathAs   = "normal, raw"
	allowedPathCase = "exact, ignore"
	allowedIdentity = "ip, device, user, api_key, session"
	allowedKeyField = allowedIdentity + ", host, method, route, plan, user_agent, {param}, attrs.NAME, FIELD|FIELD"
	allowedKey      = "a list of " + allowedKeyField + ", or {field: ip, v4: N, v6: N}; [] for one window in all"
	allowedCounted  = allowedKeyField + ", path; a list of them for combinations"
	allowedMissing  = "skip, group"
	allowedLimit    = "a whole number from 0 to 1000000"
	allowedWindow   = "1s to 31d, in units s m h d"
	allowedLateness = "0s to 1d, in units s m h d"
	allowedMaxLag   = "1s to 1d, in units s m h d"
	allowedTTL      = "1s to 31d, in units s m h d"
	allowedBlockKey = "at least one field of an identity (" + allowedIdentity +
		"); those of the rule's key with the same prefix lengths"
	allowedExtend    = "never, on-hit"
	allowedCount     = "events, {distinct: FIELD}, {distinct: [FIELD, FIELD]} or {sum: NUMBER}"
	allowedSum       = "bytes, latency_ms, or attrs. and the names of members, joined by dots, such as attrs.cost or attrs.usage.tokens"
	allowedBurst     = "a whole number from 1 to 1000000"
	allowedCooldown  = "1s to 1d, in units s m h d"
	allowedNotByHand = "another id: by-hand, and what begins with by-hand-, is of blocks that people order"
	allowedTests     = "a list of at most 100 tests, each with name, timeline and expect"
)

// Validate checks a document that did not come from ParseFiles, against the same rules. The error is a Problems.
func (d *Document) Validate(env Environment) error {
	var ps Problems
	d.check(env, func(p Problem) { ps = append(ps, p.inWords()) })
	return ps.err()
}

// checker is a document that is checked.
type checker struct {
	*Document
	env    Environment
	report func(Problem)
}

// say reports a field unless ok.
func (c *checker) say(ok bool, field, got, allowed string) {
	if !ok {
		c.report(Problem{Field: field, Got: got, Allowed: allowed})
	}
}

// span checks a duration of whole seconds.
func (c *checker) span(field string, v, least, most time.Duration, allowed string) {
	c.say(v >= least && v <= most && v%time.Second == 0, field, duration.Format(v), allowed)
}

// check reports everything about d that is not allowed.
func (d *Document) check(env Environment, report func(Problem)) {
	c := &checker{d, env, report}
	c.say(validID(d.ID), "id", quoteShort(d.ID), allowedID)
	c.say(validOwner(d.Owner), "owner", quoteShort(d.Owner), allowedOwner)
	d.Match.check("match.", false, report)
	c.fields("key", d.Key, false)
	c.say(d.Missing == MissingSkip || d.Missing == MissingGroup, "on_missing", quoteShort(string(d.Missing)), allowedMissing)
	c.say(d.Limit >= 0 && d.Limit <= MaxLimit, "limit", "the number "+strconv.Itoa(d.Limit), allowedLimit)
	c.counting()
	c.conditions()
	c.beside()
	c.span("window", d.Window, MinWindow, MaxWindow, allowedWindow)
	c.span("lateness", d.Lateness, 0, MaxLateness, allowedLateness)
	c.span("max_lag", d.MaxLag, MinMaxLag, MaxMaxLag, allowedMaxLag)
	if d.Block != nil {
		c.block(d.Block)
	}
	c.allow()
	c.promotion()
}

func (c *checker) block(b *Block) {
	c.span("block.ttl", b.TTL, MinTTL, MaxTTL, allowedTTL)
	c.say(b.Extend == ExtendNever || b.Extend == ExtendOnHit, "block.extend", quoteShort(string(b.Extend)), allowedExtend)
	c.blockKey()
	if b.Match != nil {
		b.Match.check("block.match.", true, c.report)
		c.say(len(b.Match.Statuses) == 0, "block.match.status", "a status", notInRequest)
		c.say(b.Match.When == "", "block.match.when", "a condition", notInRequest)
	}
}

// blockKey holds three promises: a block is about the sources that the rule counted, as it tells them apart; a gate can
// tell them apart too, since it derives the same identities; and nobody is blocked on what a client only claims to be. The
// last one keeps an attacker from having others blocked under their names. Fields that the rule's key has not are no breach of
// the first: each tuple that is blocked has made a request that was over the limit.
func (c *checker) blockKey() {
	key := c.Block.Key
	if len(c.Key) == 0 {
		c.report(Problem{Field: "block.key", Got: "a block for a rule whose key is []", Allowed: allowedBlockKey,
			Hint: "such a rule counts everybody together and has nobody to block: remove block"})
		return
	}
	c.say(len(key) > 0, "block.key", "[]", allowedBlockKey)
	if i := slices.IndexFunc(key, func(k traffic.KeyField) bool { return !k.OfIdentity() }); i >= 0 {
		c.report(noIdentity(element("block.key", i), key[i]))
		return
	}
	c.fields("block.key", key, false)
	for i, k := range key {
		if at := slices.IndexFunc(c.Key, func(other traffic.KeyField) bool { return other.Field == k.Field }); at >= 0 {
			c.say(c.Key[at] == k, element("block.key", i), describeKeyField(k), describeKeyField(c.Key[at])+", as in the rule's key, or a plain "+k.Field.String())
		}
	}
	const allowed = "a key with at least one field that the gateway vouches for, so that nobody can be blocked under a name that somebody else made up"
	switch names, hint := claimedOnly(c.env, key); {
	case names != "":
		c.report(Problem{Field: "block.key", Got: names + ": claimed by the client only", Allowed: allowed, Hint: hint})
	case c.BlocksTuples():
		// Who can fill the window of a key that is only claimed has the others in it blocked: each of their requests is over the
		// limit, too. And the 65th tuple of one episode, and all after it, stand for a rule's own key where that is of an
		// identity: whoever rotates addresses could lock out the user that he pretends to be.
		if names, hint := claimedOnly(c.env, c.Key); names != "" {
			allowed := "with them a rule's key, on which a block falls back where there are too many tuples, that is " + allowed
			if !traffic.IdentityKey(c.Key) {
				allowed = "with them a rule's key with at least one field that the gateway vouches for: whoever fills a window of another has the others in it blocked"
			}
			c.report(Problem{Field: "block.key", Got: "fields that the rule's key has not, and a rule's key of " + names + ": claimed by the client only",
				Allowed: allowed, Hint: hint})
		}
	}
}

// claimedOnly names the fields of a key whose every field is the client's own claim, and the settings with which the gateway
// would vouch for them. Both are empty if the gateway vouches for one of the fields, and for an empty key. What an event has
// beside its identity is chosen by clients, or shared by many of them: nobody is told apart by it for certain.
func claimedOnly(env Environment, key []traffic.KeyField) (fields, hint string) {
	var names, settings []string
	for _, k := range key {
		vouched := true
		for one := range k.Alternatives() {
			if env.Identity.Vouched(one.Field) {
				continue
			}
			vouched = false
			switch {
			case one.Field == traffic.FieldIP:
				settings = append(settings, "identity.ip.claimed: false")
			case one.OfIdentity():
				settings = append(settings, "identity."+one.String()+".vouched: true")
			}
		}
		if vouched {
			return "", ""
		}
		names = append(names, k.String())
	}
	hint = "add such a field, for example ip"
	if len(settings) > 0 {
		hint += ", or set " + strings.Join(settings, " or ") + " in the configuration if the gateway itself establishes it"
	}
	return strings.Join(names, ", "), hint
}

// noIdentity is the problem of an element of a block's key.
func noIdentity(place string, k traffic.KeyField) Problem {
	return Problem{Field: place, Got: k.String() + ", which is no identity", Allowed: allowedBlockKey,
		Hint: "a gate derives identities only; of a key with other fields, or with alternatives, name the identity that made the requests, such as ip"}
}

// notInRequest says what a block may ask.
const notInRequest = "what a gate knows of a request before it is answered: method, path, except, host, route"

// check reports what is not allowed in m. Its members stand under prefix in the document. normal requires paths in normal form
// also of a match with a single path: that is asked of files else, since older documents have others, which are read as
// normalPath says.
func (m *Match) check(prefix string, normal bool, report func(Problem)) {
	say := func(ok bool, field, got, allowed, hint string) {
		if !ok {
			report(Problem{Field: prefix + field, Got: got, Allowed: allowed, Hint: hint})
		}
	}
	for i, name := range m.Methods {
		allowed := checkMethod(name)
		say(allowed == "", element("method", i), quoteShort(name), allowed, "")
	}
	normal = (normal || len(m.Paths) > 0 || len(m.Except) > 0) && m.PathAs != PathRaw
	path := func(field, p string) {
		allowed, hint := reading.CheckPattern(p), ""
		if allowed == "" && normal {
			allowed, hint = checkNormal(p)
		}
		say(allowed == "", field, quoteShort(p), allowed, hint)
	}
	if m.Path != "" {
		path("path", m.Path)
	}
	say(m.Path == "" || len(m.Paths) == 0, "path", "one path and a list", "one of them", "")
	say(len(m.Paths) != 1, "path", "a list of one", "that path", "")
	for i, p := range m.Paths {
		path(element("path", i), p)
	}
	for i, p := range m.Except {
		path(element("except", i), p)
	}
	say(!m.exceptsAll(), "except", strings.Join(quoteAll(m.Except), ", ")+", which leaves out all that path matches",
		"paths that leave some requests", "")
	for i, host := range m.Hosts {
		allowed, hint := checkHost(host)
		say(allowed == "", element("host", i), quoteShort(host), allowed, hint)
	}
	for i, route := range m.Routes {
		say(route != "" && len(route) <= MaxRouteBytes && reading.Printable(route), element("route", i), quoteShort(route), allowedRoute, "")
	}
	for i, status := range m.Statuses {
		allowed := checkStatus(status)
		say(allowed == "", element("status", i), quoteShort(status), allowed, "")
	}
	for _, list := range []struct {
		field string
		of    []string
	}{{"path", m.Paths}, {"except", m.Except}, {"host", m.Hosts}, {"route", m.Routes}, {"status", m.Statuses}} {
		say(len(list.of) <= maxAlternatives, list.field, strconv.Itoa(len(list.of))+" of them", "at most "+strconv.Itoa(maxAlternatives), "")
	}
	m.checkReading(say)
}

// checkReading checks how paths are compared.
func (m *Match) checkReading(say func(ok bool, field, got, allowed, hint string)) {
	const needed = "only beside path or except, whose comparison it is about"
	compared := len(m.paths())+len(m.Except) > 0
	switch m.PathAs {
	case "", PathNormal, PathRaw:
		say(m.PathAs == "" || compared, "path_as", quoteShort(string(m.PathAs))+" without a path", needed, "")
	default:
		say(false, "path_as", quoteShort(string(m.PathAs)), allowedPathAs, "")
	}
	switch m.PathCase {
	case "", PathCaseExact, PathCaseIgnore:
		say(m.PathCase == "" || compared, "path_case", quoteShort(string(m.PathCase))+" without a path", needed, "")
	default:
		say(false, "path_case", quoteShort(string(m.PathCase)), allowedPathCase, "")
	}
}

// exceptsAll reports whether each of m's paths is left out as a whole.
func (m *Match) exceptsAll() bool {
	paths := m.paths()
	if len(paths) == 0 {
		paths = []string{"*"}
	}
	for _, p := range paths {
		p = compared(m, p)
		if !slices.ContainsFunc(m.Except, func(e string) bool {
			e = compared(m, e)
			return reading.Includes(e, p) || strings.HasSuffix(p, "/") && m.PathAs != PathRaw && reading.Includes(e, strings.TrimSuffix(p, "/"))
		}) {
			return false
		}
	}
	return true
}

func quoteAll(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, quoteShort(s))
	}
	return out
}

func validID(id string) bool {
	for i := 0; i < len(id); i++ {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' && i > 0) {
			return false
		}
	}
	return id != "" && len(id) <= MaxIDBytes
}

func validOwner(owner string) bool {
	return strings.TrimSpace(owner) == owner && owner != "" && len(owner) <= MaxOwnerBytes && reading.Printable(owner)
}
