package detectors

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/dchest/siphash"
)

// Secret is the deployment secret under which keys become fingerprints: without it nobody can construct identities
// that collide, or recognise one in a snapshot.
type Secret [16]byte

// Fingerprint is 128 bits of SipHash-2-4 (Aumasson and Bernstein, 2012) under the deployment secret.
type Fingerprint struct{ Hi, Lo uint64 }

func (s *Secret) sum(b []byte) Fingerprint {
	hi, lo := siphash.Hash128(binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:]), b)
	return Fingerprint{hi, lo}
}

func (f Fingerprint) less(g Fingerprint) bool {
	if f.Hi != g.Hi {
		return f.Hi < g.Hi
	}
	return f.Lo < g.Lo
}

// String writes f as 32 hex digits.
func (f Fingerprint) String() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], f.Hi)
	binary.BigEndian.PutUint64(b[8:], f.Lo)
	return hex.EncodeToString(b[:])
}

// windowKey is the fingerprint of one window: a lineage of a rule and the subject that it counts. The parts carry their
// lengths, so no two pairs give the same bytes.
func (s *Secret) windowKey(scratch []byte, lineage string, subject []byte) (Fingerprint, []byte) {
	scratch = binary.AppendUvarint(scratch[:0], uint64(len(lineage)))
	scratch = append(scratch, lineage...)
	scratch = append(scratch, subject...)
	return s.sum(scratch), scratch
}

// hitID is hash(kind, rule, lineage, key, block tuple, g, p, o), see DESIGN "Deterministic, idempotent, monotone
// effects". The rule's version is not part of it: an edited rule that replays the log finds the same offences.
func (s *Secret) hitID(h *Hit) string {
	var b []byte
	for _, part := range []string{string(h.Kind), h.Rule, string(h.Subject), string(h.BlockSubject)} {
		b = appendBytes(b, []byte(part))
	}
	for _, n := range []int64{int64(h.Lineage), h.Generation, int64(h.Source), h.Offset} {
		b = binary.AppendVarint(b, n)
	}
	return s.sum(b).String()
}
