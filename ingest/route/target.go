package route

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/dchest/siphash"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// targeter tells the keyed partition, 0 to n-1, that owns a rule's window for an event. That follows the rule's dimension, the
// first field of its key with its address prefix, so that all events of one value meet, whatever the rest of the key.
//
// The rule, for anyone who wants to compute it again:
//
//	key     = the first 16 bytes of SHA-256("weir/target/1" 0x00 secret), as two little-endian 64-bit numbers k0, k1
//	message = 0x00, the rule's ID                  for a rule with the empty key: ruleID is not empty
//	          0x01, field name, 0x00, value        for a dimension that the event has
//	          0x02, field name, 0x00, v4, v6       for one that it lacks; prefixes as single bytes
//	          0x03, the rule's ID, 0x00, block     for a request that a gate refused
//	target  = SipHash-2-4(k0, k1, message) mod n   as an unsigned 64-bit number
//
// So two rules with one dimension have one target. The field name is traffic.KeyField's; of a fallback the name and the value
// are those of the alternative that the event has, and where it has none, the name is the fallback's. The value is what Identity.ValueOf gives: for ip the address cut to the dimension's prefix, with the
// prefix ("192.0.2.1/32"). n must be at least 1.
//
// A targeter is not safe for concurrent use.
type targeter struct {
	k0, k1  uint64
	n       uint64
	last    uint64 // the hash of the newest target
	scratch []byte
}

func newTargeter(secret []byte, n int) *targeter {
	h := sha256.New()
	h.Write([]byte("weir/target/1\x00"))
	h.Write(secret)
	key := h.Sum(nil)
	return &targeter{k0: binary.LittleEndian.Uint64(key[:8]), k1: binary.LittleEndian.Uint64(key[8:16]), n: uint64(n)}
}

// TargetOf is the keyed partition, of n, that counts a source under a rule with a key. It fails where the key has no such source.
func TargetOf(secret []byte, n int, rule string, key []traffic.KeyField, source traffic.Subject) (int, error) {
	t := newTargeter(secret, n)
	who, err := source.Named(key)
	if err != nil {
		return 0, err
	}
	if len(key) == 0 {
		return t.ofRule(rule), nil
	}
	chosen, ok := who.Identity.Choose(who, key[0])
	switch {
	case !ok && key[0].OfIdentity():
		return t.ofIdentity(key[0], &who.Identity), nil
	case !ok:
		return t.ofValue(chosen, "", true), nil
	case chosen.OfIdentity():
		return t.ofIdentity(chosen, &who.Identity), nil
	}
	value, _ := who.ExtraValue(chosen)
	return t.ofValue(chosen, value, false), nil
}

func (t *targeter) ofRule(id string) int {
	t.scratch = append(append(t.scratch[:0], 0), id...)
	return t.sum()
}

// ofBlock is the target of the requests that a gate refused by one block.
func (t *targeter) ofBlock(v *traffic.Verdict) int {
	t.scratch = append(append(append(t.scratch[:0], 3), v.Rule...), 0)
	t.scratch = append(t.scratch, v.Block...)
	return t.sum()
}

// ofValue is the target of a value, or of a missing one.
func (t *targeter) ofValue(field traffic.KeyField, value string, missing bool) int {
	t.begin(field, missing)
	if !missing {
		t.scratch = append(t.scratch, value...)
	}
	return t.sum()
}

// ofIdentity is the target of the value that id has, or of a missing one.
func (t *targeter) ofIdentity(field traffic.KeyField, id *traffic.Identity) int {
	t.begin(field, false)
	var present bool
	if t.scratch, present = id.AppendValue(t.scratch, field); !present {
		t.begin(field, true)
	}
	return t.sum()
}

// begin writes what stands before a value, or all of it for a missing one.
func (t *targeter) begin(field traffic.KeyField, missing bool) {
	kind := byte(1)
	if missing {
		kind = 2
	}
	t.scratch = append(append(t.scratch[:0], kind), field.String()...)
	t.scratch = append(t.scratch, 0)
	if missing {
		t.scratch = append(t.scratch, field.V4, field.V6)
	}
}

func (t *targeter) sum() int {
	t.last = siphash.Hash(t.k0, t.k1, t.scratch)
	return int(t.last % t.n)
}

// dimension is the first field of a key, by which a rule's windows are spread over the keyed partitions.
type dimension struct {
	field traffic.KeyField
	uses  []rules.ExtraUse // where its values are found beside the identity
}

func dimensionOf(field traffic.KeyField, uses []rules.ExtraUse) dimension {
	d := dimension{field: field}
	for one := range field.Alternatives() {
		if at := slices.IndexFunc(uses, func(u rules.ExtraUse) bool { return u.Field == one }); at >= 0 {
			d.uses = append(d.uses, uses[at])
		}
	}
	return d
}

// dimensionKey is equal for two dimensions under which all events have the same value.
type dimensionKey struct {
	field traffic.KeyField
	uses  string // the indexes of the extra fields: each is one field
}

func (d dimension) key() dimensionKey {
	var uses []byte
	for _, u := range d.uses {
		uses = binary.AppendUvarint(uses, uint64(u.Index))
	}
	return dimensionKey{d.field, string(uses)}
}

// dimensionTarget is the keyed partition of the event's value of a dimension.
func (r *eventRouter) dimensionTarget(d *dimension) int {
	if d.field.OfIdentity() {
		return r.targets.ofIdentity(d.field, &r.out.identity)
	}
	r.extra.uses = d.uses
	chosen, ok := r.out.identity.Choose(&r.extra, d.field)
	switch {
	case !ok:
		return r.targets.ofValue(chosen, "", true)
	case chosen.OfIdentity():
		return r.targets.ofIdentity(chosen, &r.out.identity)
	}
	value, _ := r.extra.ExtraValue(chosen)
	return r.targets.ofValue(chosen, value, false)
}
