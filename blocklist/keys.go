// Package blocklist is the contract of blocks in Redis (docs/blocks.md): the names of keys, their values, the scripts that change
// them, the streams of changes, and the decisions on the blocks topic. Its folders decide (enforce), put back (reconcile) and follow
// (replica).
package blocklist

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// Keys names everything that weir keeps in Redis. The names are a public contract, docs/blocks.md: `v1` in them changes
// when a reader of today would be wrong about what it finds.
type Keys struct{ prefix string }

// maxNamespaceBytes bounds a namespace; it also prefixes topics, groups and a schema name.
const maxNamespaceBytes = 48

// NewKeys makes the names of one namespace. Braces are refused in it: they would decide a key's slot in a cluster.
func NewKeys(namespace string) (Keys, error) {
	allowed := "1 to 48 lower case letters, digits, '-', '_' and '.', such as weir"
	if namespace == "" || len(namespace) > maxNamespaceBytes {
		return Keys{}, fmt.Errorf("namespace: got %q, allowed: %s", namespace, allowed)
	}
	for i := 0; i < len(namespace); i++ {
		c := namespace[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return Keys{}, fmt.Errorf("namespace: got %q, allowed: %s", namespace, allowed)
		}
	}
	return Keys{prefix: namespace + version}, nil
}

// Namespace is whose keys they are.
func (k Keys) Namespace() string { return strings.TrimSuffix(k.prefix, version) }

// version is the part of each key that changes with the contract.
const version = ":v1:"

// Block is the key of the block of subject, in its stored form, by rule. The braces make subject the hash tag: all keys of one
// identity lie in one slot. A subject cannot contain a brace, since all but unreserved bytes of its values are percent-encoded
// or stand in a digest.
func (k Keys) Block(subject traffic.Subject, rule string) string {
	return k.prefix + "block:{" + string(subject) + "}:" + rule
}

// Tombstone is the key of the release of subject from rule, in the slot of Block's.
func (k Keys) Tombstone(subject traffic.Subject, rule string) string {
	return k.prefix + "tombstone:{" + string(subject) + "}:" + rule
}

// Crowd is the sorted set of the blocks of an address by rule, of one mode generation. It lies in the address's slot.
func (k Keys) Crowd(address traffic.Subject, rule string, generation int64) string {
	return k.prefix + "crowd:{" + string(address) + "}:" + rule + ":" + strconv.FormatInt(generation, 10)
}

// Shapes is the set of the field combinations that blocks are keyed on.
func (k Keys) Shapes() string { return k.prefix + "shapes" }

// Rules is the hash of the rules' modes. The delta streams carry its whole name as hash tag and so lie in its slot:
// a mode and its delta change together, and one XREAD follows all streams, in a cluster too.
func (k Keys) Rules() string { return k.prefix + "rules" }

// Never is the key of the entries of never-block lists that people make, in the slot of the modes.
func (k Keys) Never() string { return k.prefix + "never:{" + k.Rules() + "}" }

// Streams is the set of the names of the delta streams that have been written to.
func (k Keys) Streams() string { return k.prefix + "delta:{" + k.Rules() + "}" }

// Stream is the key of a delta stream.
func (k Keys) Stream(name string) string { return k.Streams() + ":" + name }

// Last is the key that holds the id of the newest entry of a delta stream.
func (k Keys) Last(name string) string { return k.Stream(name) + ":last" }

// Installation is the key that says whose the namespace is, in the slot of the modes.
func (k Keys) Installation() string { return k.prefix + "installation:{" + k.Rules() + "}" }

// Epoch is the key of the reconciler's marker: without it, Redis has forgotten, or is another one.
func (k Keys) Epoch() string { return k.prefix + "epoch" }

// Lease is the key by which reconcilers take turns.
func (k Keys) Lease() string { return k.prefix + "reconciler" }

func (k Keys) blockPattern() string     { return k.prefix + "block:{*" }
func (k Keys) tombstonePattern() string { return k.prefix + "tombstone:{*" }

// Name names one block: its subject and its rule. In keys, and in a gate's table, the subject is in its stored form.
type Name struct {
	Subject traffic.Subject
	Rule    string
}

// parse reads a key made by Block or Tombstone; ok is false for any other. Older weirs wrote long values whole; h has the
// stored subject for their keys, too.
func (k Keys) parse(key string) (h Name, tombstone, ok bool) {
	rest, ok := strings.CutPrefix(key, k.prefix)
	if !ok {
		return Name{}, false, false
	}
	tagged, ok := strings.CutPrefix(rest, "block:{")
	if !ok {
		if tagged, ok = strings.CutPrefix(rest, "tombstone:{"); !ok {
			return Name{}, false, false
		}
		tombstone = true
	}
	subject, rule, ok := strings.Cut(tagged, "}:")
	h = Name{Subject: traffic.Subject(subject), Rule: rule}
	if !ok || h.Check() != nil {
		return Name{}, false, false
	}
	h.Subject = h.Subject.Stored()
	return h, tombstone, true
}

// maxSubjectBytes is more than the longest subject of bounded identity values has: five of 272 bytes, each byte
// percent-encoded, with their names.
const maxSubjectBytes = 8 << 10

// Check says what is wrong with h as a block's name: only what passes may become part of a Redis key.
func (h Name) Check() error {
	if !ruleID(h.Rule) {
		return fmt.Errorf("rule: got %q, allowed: a rule id of lower case letters, digits and '-'", h.Rule)
	}
	if len(h.Subject) > maxSubjectBytes {
		return fmt.Errorf("block subject: got %d bytes, allowed: at most %d", len(h.Subject), maxSubjectBytes)
	}
	_, err := ParseSubject(h.Subject)
	return err
}

func ruleID(id string) bool {
	if id == "" || len(id) > maxRuleBytes || id[0] == '-' {
		return false
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}

const maxRuleBytes = 64
