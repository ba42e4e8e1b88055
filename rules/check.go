package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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
)

// What fields may be, in the words of messages.
const (
	allowedID       = "1 to 64 characters a-z, 0-9 and -, not starting with -"
	allowedOwner    = "the name of the team that answers for the rule, 1 to 128 bytes of printable text without spaces around it"
	allowedMatch    = "a mapping with the members method, path; {} for every request"
	allowedPath     = "a path of literal segments, {param} segments and a trailing *, such as /v1/users/{id}/posts*"
	allowedKeyField = "ip, device, user, api_key, session"
	allowedKey      = "a list of " + allowedKeyField + " and {field: ip, v4: N, v6: N}; [] for one window in all"
	allowedMissing  = "skip, group"
	allowedLimit    = "a whole number from 0 to 1000000"
	allowedWindow   = "1s to 31d, in units s m h d"
	allowedLateness = "0s to 1d, in units s m h d"
	allowedMaxLag   = "1s to 1d, in units s m h d"
	allowedTTL      = "1s to 31d, in units s m h d"
	allowedBlockKey = "at least one field, all of them fields of the rule's key with the same prefix lengths"
	allowedExtend   = "never, on-hit"
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
	checkKey("key", d.Key, say)
	say(d.Missing == MissingSkip || d.Missing == MissingGroup, "on_missing", quoteShort(string(d.Missing)), allowedMissing)
	say(d.Limit >= 0 && d.Limit <= MaxLimit, "limit", "the number "+strconv.Itoa(d.Limit), allowedLimit)
	span := func(field string, v, least, most time.Duration, allowed string) {
		say(v >= least && v <= most && v%time.Second == 0, field, FormatDuration(v), allowed)
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
		if k.Field >= traffic.NumFields {
			say(false, place, k.Field.String(), allowedKeyField)
			continue
		}
		repeated := slices.ContainsFunc(key[:i], func(other traffic.KeyField) bool { return other.Field == k.Field })
		say(!repeated, place, k.Field.String()+" a second time", "each field once")
		if k.Field == traffic.FieldIP {
			say(k.V4 >= 1 && k.V4 <= 32, place+".v4", strconv.Itoa(int(k.V4)), "a whole number from 1 to 32")
			say(k.V6 >= 1 && k.V6 <= 128, place+".v6", strconv.Itoa(int(k.V6)), "a whole number from 1 to 128")
		} else {
			say(k.V4 == 0 && k.V6 == 0, place, "a prefix length for "+k.Field.String(), "v4 and v6 only with field: ip")
		}
	}
}

// checkBlockKey holds two promises: a block is about the sources that the rule counted, and nobody is blocked on what a
// client only claims to be. The second one keeps an attacker from having others blocked under their names.
func (d *Document) checkBlockKey(env Environment, report func(Problem), say func(ok bool, field, got, allowed string)) {
	key := d.Block.Key
	if len(d.Key) == 0 {
		report(Problem{Field: "block.key", Got: "a block for a rule whose key is []", Allowed: allowedBlockKey,
			Hint: "such a rule counts everybody together and has nobody to block: remove block"})
		return
	}
	say(len(key) > 0, "block.key", "[]", allowedBlockKey)
	checkKey("block.key", key, say)
	vouched := len(key) == 0
	for i, k := range key {
		vouched = vouched || env.Identity.Vouched(k.Field)
		say(slices.Contains(d.Key, k), element("block.key", i), describeKeyField(k), fmt.Sprintf("fields of the rule's key %s", describeKey(d.Key)))
	}
	if vouched {
		return
	}
	names, settings := make([]string, len(key)), make([]string, len(key))
	for i, k := range key {
		names[i], settings[i] = k.Field.String(), "identity."+k.Field.String()+".vouched: true"
		if k.Field == traffic.FieldIP {
			settings[i] = "identity.ip.claimed: false"
		}
	}
	report(Problem{
		Field: "block.key",
		Got:   strings.Join(names, ", ") + ": claimed by the client only",
		Allowed: "a key with at least one field that the gateway vouches for, so that nobody can be blocked under a name " +
			"that somebody else made up",
		Hint: "add such a field, for example ip, or set " + strings.Join(settings, " or ") +
			" in the configuration if the gateway itself establishes it",
	})
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
