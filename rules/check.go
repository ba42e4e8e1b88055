package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
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
	MinCooldown = time.Second
	MaxCooldown = 24 * time.Hour
)

// What fields may be, in the words of messages.
const (
	allowedID       = "1 to 64 characters a-z, 0-9 and -, not starting with -"
	allowedOwner    = "the name of the team that answers for the rule, 1 to 128 bytes of printable text without spaces around it"
	allowedMatch    = "a mapping with the members method, path, path_as, path_case; {} for every request"
	allowedPath     = "a path of literal segments, {param} segments and a trailing *, such as /v1/users/{id}/posts*"
	allowedPathAs   = "normal, raw"
	allowedPathCase = "exact, ignore"
	allowedKeyField = "ip, device, user, api_key, session"
	allowedKey      = "a list of " + allowedKeyField + " and {field: ip, v4: N, v6: N}; [] for one window in all"
	allowedMissing  = "skip, group"
	allowedLimit    = "a whole number from 0 to 1000000"
	allowedWindow   = "1s to 31d, in units s m h d"
	allowedLateness = "0s to 1d, in units s m h d"
	allowedMaxLag   = "1s to 1d, in units s m h d"
	allowedTTL      = "1s to 31d, in units s m h d"
	allowedBlockKey = "at least one field; those of the rule's key with the same prefix lengths"
	allowedExtend   = "never, on-hit"
	allowedCount    = "events, {distinct: FIELD} or {sum: attrs.NAME}"
	allowedSum      = "attrs. and the names of members, joined by dots, such as attrs.cost or attrs.usage.tokens"
	allowedBurst    = "a whole number from 1 to 1000000"
	allowedCooldown = "1s to 1d, in units s m h d"
)

// Validate checks a document that did not come from Parse, against the same rules. The error is a Problems.
func (d *Document) Validate(env Environment) error {
	var ps Problems
	d.check(env, func(p Problem) { ps = append(ps, p) })
	return ps.err()
}

// check reports everything about d that is not allowed.
func (d *Document) check(env Environment, report func(Problem)) {
	say := func(ok bool, field, got, allowed string) {
		if !ok {
			report(Problem{Field: field, Got: got, Allowed: allowed})
		}
	}
	say(validID(d.ID), "id", quoteShort(d.ID), allowedID)
	say(validOwner(d.Owner), "owner", quoteShort(d.Owner), allowedOwner)
	for i, m := range d.Match.Methods {
		allowed := checkMethod(m)
		say(allowed == "", element("match.method", i), quoteShort(m), allowed)
	}
	if d.Match.Path != "" {
		allowed := checkPath(d.Match.Path)
		say(allowed == "", "match.path", quoteShort(d.Match.Path), allowed)
	}
	d.Match.checkReading(say)
	checkKey("key", d.Key, say)
	say(d.Missing == MissingSkip || d.Missing == MissingGroup, "on_missing", quoteShort(string(d.Missing)), allowedMissing)
	say(d.Limit >= 0 && d.Limit <= MaxLimit, "limit", "the number "+strconv.Itoa(d.Limit), allowedLimit)
	d.checkCounting(say)
	span := func(field string, v, least, most time.Duration, allowed string) {
		say(v >= least && v <= most && v%time.Second == 0, field, duration.Format(v), allowed)
	}
	span("window", d.Window, MinWindow, MaxWindow, allowedWindow)
	span("lateness", d.Lateness, 0, MaxLateness, allowedLateness)
	span("max_lag", d.MaxLag, MinMaxLag, MaxMaxLag, allowedMaxLag)
	if b := d.Block; b != nil {
		span("block.ttl", b.TTL, MinTTL, MaxTTL, allowedTTL)
		say(b.Extend == ExtendNever || b.Extend == ExtendOnHit, "block.extend", quoteShort(string(b.Extend)), allowedExtend)
		d.checkBlockKey(env, report, say)
	}
}

// checkReading checks how the path is compared. That a path is in normal form is asked of files only: older documents,
// whose path is not, are read as normalPath says.
func (m *Match) checkReading(say func(ok bool, field, got, allowed string)) {
	const needed = "only beside match.path, whose comparison it is about"
	switch m.PathAs {
	case "", PathNormal, PathRaw:
		say(m.PathAs == "" || m.Path != "", "match.path_as", quoteShort(string(m.PathAs))+" without match.path", needed)
	default:
		say(false, "match.path_as", quoteShort(string(m.PathAs)), allowedPathAs)
	}
	switch m.PathCase {
	case "", PathCaseExact, PathCaseIgnore:
		say(m.PathCase == "" || m.Path != "", "match.path_case", quoteShort(string(m.PathCase))+" without match.path", needed)
	default:
		say(false, "match.path_case", quoteShort(string(m.PathCase)), allowedPathCase)
	}
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
	return strings.TrimSpace(owner) == owner && owner != "" && len(owner) <= MaxOwnerBytes && printable(owner)
}

// checkKey checks the elements of a key, not whether it may be empty.
func checkKey(field string, key []traffic.KeyField, say func(ok bool, field, got, allowed string)) {
	for i, k := range key {
		place := element(field, i)
		checkKeyField(place, k, say)
		repeated := slices.ContainsFunc(key[:i], func(other traffic.KeyField) bool { return other.Field == k.Field })
		say(!repeated || k.Field >= traffic.NumFields, place, k.Field.String()+" a second time", "each field once")
	}
}

func checkKeyField(place string, k traffic.KeyField, say func(ok bool, field, got, allowed string)) {
	switch {
	case k.Field >= traffic.NumFields:
		say(false, place, k.Field.String(), allowedKeyField)
	case k.Field == traffic.FieldIP:
		say(k.V4 >= 1 && k.V4 <= 32, place+".v4", strconv.Itoa(int(k.V4)), "a whole number from 1 to 32")
		say(k.V6 >= 1 && k.V6 <= 128, place+".v6", strconv.Itoa(int(k.V6)), "a whole number from 1 to 128")
	default:
		say(k.V4 == 0 && k.V6 == 0, place, "a prefix length for "+k.Field.String(), "v4 and v6 only with field: ip")
	}
}

// checkBlockKey holds two promises: a block is about the sources that the rule counted, as it tells them apart, and
// nobody is blocked on what a client only claims to be. The second one keeps an attacker from having others blocked under
// their names. Fields that the rule's key has not are no breach of the first: each tuple that is blocked has made a
// request that was over the limit.
func (d *Document) checkBlockKey(env Environment, report func(Problem), say func(ok bool, field, got, allowed string)) {
	key := d.Block.Key
	if len(d.Key) == 0 {
		report(Problem{Field: "block.key", Got: "a block for a rule whose key is []", Allowed: allowedBlockKey,
			Hint: "such a rule counts everybody together and has nobody to block: remove block"})
		return
	}
	say(len(key) > 0, "block.key", "[]", allowedBlockKey)
	checkKey("block.key", key, say)
	narrower := false
	for i, k := range key {
		at := slices.IndexFunc(d.Key, func(other traffic.KeyField) bool { return other.Field == k.Field })
		if narrower = narrower || at < 0; at >= 0 {
			say(d.Key[at] == k, element("block.key", i), describeKeyField(k), describeKeyField(d.Key[at])+", as in the rule's key, or a plain "+k.Field.String())
		}
	}
	const allowed = "a key with at least one field that the gateway vouches for, so that nobody can be blocked under a name that somebody else made up"
	switch names, hint := claimedOnly(env, key); {
	case names != "":
		report(Problem{Field: "block.key", Got: names + ": claimed by the client only", Allowed: allowed, Hint: hint})
	case narrower:
		// The 65th tuple of one episode, and all after it, stand for the rule's own key: whoever rotates addresses could
		// lock out the user that he pretends to be.
		if names, hint := claimedOnly(env, d.Key); names != "" {
			report(Problem{Field: "block.key", Got: "fields that the rule's key has not, and a rule's key of " + names + ": claimed by the client only",
				Allowed: "with them a rule's key, on which a block falls back where there are too many tuples, that is " + allowed, Hint: hint})
		}
	}
}

// claimedOnly names the fields of a key of which the gateway vouches for none, and says how to have it otherwise. It is ""
// for a key with a field that is vouched for, and for an empty one.
func claimedOnly(env Environment, key []traffic.KeyField) (fields, hint string) {
	names, settings := make([]string, len(key)), make([]string, len(key))
	for i, k := range key {
		if env.Identity.Vouched(k.Field) {
			return "", ""
		}
		names[i], settings[i] = k.Field.String(), "identity."+k.Field.String()+".vouched: true"
		if k.Field == traffic.FieldIP {
			settings[i] = "identity.ip.claimed: false"
		}
	}
	return strings.Join(names, ", "), "add such a field, for example ip, or set " + strings.Join(settings, " or ") +
		" in the configuration if the gateway itself establishes it"
}

// describeKey writes a key as a rule does.
func describeKey(key []traffic.KeyField) string {
	parts := make([]string, len(key))
	for i, k := range key {
		parts[i] = describeKeyField(k)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func describeKeyField(k traffic.KeyField) string {
	if k.Field == traffic.FieldIP {
		return fmt.Sprintf("{field: ip, v4: %d, v6: %d}", k.V4, k.V6)
	}
	return k.Field.String()
}
