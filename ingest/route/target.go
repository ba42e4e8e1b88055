package route

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/dchest/siphash"

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
//	target  = SipHash-2-4(k0, k1, message) mod n   as an unsigned 64-bit number
//
// So two rules with one dimension have one target. The field name is
// traffic.Field's; the value is what Identity.Value gives: for ip the address cut to the dimension's prefix, with the
// prefix ("192.0.2.1/32"). n must be at least 1.
//
// A targeter is not safe for concurrent use.
type targeter struct {
	k0, k1  uint64
	n       uint64
	scratch []byte
}

func newTargeter(secret []byte, n int) *targeter {
	h := sha256.New()
	h.Write([]byte("weir/target/1\x00"))
	h.Write(secret)
	key := h.Sum(nil)
	return &targeter{k0: binary.LittleEndian.Uint64(key[:8]), k1: binary.LittleEndian.Uint64(key[8:16]), n: uint64(n)}
}

func (t *targeter) ofRule(id string) int {
	t.scratch = append(append(t.scratch[:0], 0), id...)
	return t.sum()
}

func (t *targeter) ofValue(field traffic.KeyField, value string, missing bool) int {
	kind := byte(1)
	if missing {
		kind = 2
	}
	t.scratch = append(append(t.scratch[:0], kind), field.Field.String()...)
	t.scratch = append(t.scratch, 0)
	if missing {
		t.scratch = append(t.scratch, field.V4, field.V6)
	} else {
		t.scratch = append(t.scratch, value...)
	}
	return t.sum()
}

func (t *targeter) sum() int { return int(siphash.Hash(t.k0, t.k1, t.scratch) % t.n) }
