package detectors

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"

	"github.com/dchest/siphash"

	"github.com/weirhq/weir/traffic"
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

func (f Fingerprint) compare(g Fingerprint) int {
	return cmp.Or(cmp.Compare(f.Hi, g.Hi), cmp.Compare(f.Lo, g.Lo))
}

// String writes f as 32 hex digits.
func (f Fingerprint) String() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], f.Hi)
	binary.BigEndian.PutUint64(b[8:], f.Lo)
	return hex.EncodeToString(b[:])
}

// keyForm is how the keys of a lineage become fingerprints.
type keyForm uint8

const (
	keyText   keyForm = 1 // of lineage and subject, as written; lineages that a snapshot of format 1 brought
	keyBinary keyForm = 2 // of the fields' bytes; rules of equal keys share it
)

// textKey is the fingerprint of form keyText. The parts carry their lengths, so no two pairs give the same bytes.
func (s *Secret) textKey(scratch []byte, lineage string, subject []byte) (Fingerprint, []byte) {
	scratch = binary.AppendUvarint(scratch[:0], uint64(len(lineage)))
	scratch = append(scratch, lineage...)
	scratch = append(scratch, subject...)
	return s.sum(scratch), scratch
}

// binaryKey is the fingerprint of form keyBinary: of each field of key, in the order of the Field constants, its number
// and its value with length; an address as its masked bytes, after its prefix length. missing counts the fields that
// id does not have; they are written as their number with the top bit set.
func (s *Secret) binaryKey(scratch []byte, id *traffic.Identity, key []traffic.KeyField) (f Fingerprint, missing int, out []byte) {
	scratch = append(scratch[:0], 0xff) // no text key begins so: a rule's id is not that long
	for field := traffic.Field(0); field < traffic.NumFields; field++ {
		for i := range key {
			if key[i].Field != field {
				continue
			}
			var ok bool
			if scratch, ok = appendKeyValue(scratch, id, key[i]); !ok {
				missing++
			}
		}
	}
	return s.sum(scratch), missing, scratch
}

func appendKeyValue(dst []byte, id *traffic.Identity, k traffic.KeyField) ([]byte, bool) {
	if k.Field == traffic.FieldIP {
		return appendKeyAddress(dst, id, k)
	}
	value, ok := id.Value(k)
	if !ok {
		return append(dst, 0x80|byte(k.Field)), false
	}
	dst = append(dst, byte(k.Field))
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...), true
}

func appendKeyAddress(dst []byte, id *traffic.Identity, k traffic.KeyField) ([]byte, bool) {
	if !id.IP.IsValid() {
		return append(dst, 0x80|byte(k.Field)), false
	}
	bits := k.V4
	if id.IP.Is6() {
		bits = k.V6
	}
	prefix, err := id.IP.Prefix(int(bits))
	if err != nil {
		return append(dst, 0x80|byte(k.Field)), false
	}
	dst = append(dst, byte(k.Field), bits)
	if id.IP.Is4() {
		raw := prefix.Addr().As4()
		return append(append(dst, 4), raw[:]...), true
	}
	raw := prefix.Addr().As16()
	return append(append(dst, 16), raw[:]...), true
}

// extraKey is binaryKey for a key with fields beside the identity, or with alternatives: each element is written as the field
// that the event has of it, a field beside the identity as its number, its name and its value, both with length. key must be in
// one order for all rules that share fingerprints.
func (s *Secret) extraKey(scratch []byte, id *traffic.Identity, extra traffic.Extra, key []traffic.KeyField) (f Fingerprint, missing int, out []byte) {
	scratch = append(scratch[:0], 0xfd) // no other key or value begins so
	for _, k := range key {
		var ok bool
		if scratch, ok = appendExtraValue(scratch, id, extra, k); !ok {
			missing++
		}
	}
	return s.sum(scratch), missing, scratch
}

func appendExtraValue(dst []byte, id *traffic.Identity, extra traffic.Extra, k traffic.KeyField) ([]byte, bool) {
	chosen, ok := id.Choose(extra, k)
	if ok && chosen.OfIdentity() {
		return appendKeyValue(dst, id, chosen)
	}
	mark := byte(chosen.Field)
	if !ok {
		mark |= 0x80
	}
	dst = appendText(append(dst, mark), chosen.Name)
	if !ok {
		return dst, false
	}
	value, _ := extra.ExtraValue(chosen)
	return appendText(dst, value), true
}

// value is the hash of the value of a field that is counted as distinct; false when the event has none.
func (s *Secret) value(scratch []byte, id *traffic.Identity, k traffic.KeyField) (v uint64, out []byte, ok bool) {
	scratch, ok = appendKeyValue(append(scratch[:0], 0xfe), id, k)
	return s.sum(scratch).Lo, scratch, ok
}

// values is value for any fields, and for combinations of them; false when the event lacks one.
func (s *Secret) values(scratch []byte, id *traffic.Identity, extra traffic.Extra, fields []traffic.KeyField) (v uint64, out []byte, ok bool) {
	scratch = append(scratch[:0], 0xfc)
	for _, k := range fields {
		if scratch, ok = appendExtraValue(scratch, id, extra, k); !ok {
			return 0, scratch, false
		}
	}
	return s.sum(scratch).Lo, scratch, true
}

// hitID is hash(kind, rule, lineage, key, block tuple, g, p, o), see docs/DESIGN.md §2, "Deterministic, monotone
// effects". The rule's version is not part of it: an edited rule that replays the log finds the same offences.
//
// nth is 0 but for the second and further hits of equal parts that one event opens.
func (s *Secret) hitID(h *Hit, nth int) string {
	var b []byte
	for _, part := range []string{string(h.Kind), h.Rule, string(h.Subject), string(h.BlockSubject)} {
		b = appendBytes(b, []byte(part))
	}
	for _, n := range []int64{int64(h.Lineage), h.Generation, int64(h.Source), h.Offset} {
		b = binary.AppendVarint(b, n)
	}
	if nth != 0 {
		b = binary.AppendVarint(b, int64(nth))
	}
	return s.sum(b).String()
}

// fingerprinter computes the fingerprints of an event's keys. Rules of equal keys share one.
type fingerprinter struct {
	secret           *Secret
	prefetched       []prefetched // of the event's rules; nil where nothing was prefetched
	shared           []sharedKey  // keys of the event that were computed so far
	subject, scratch []byte       // memory that every event uses again
	extra            Extra
}

// sharedKey is the fingerprint of a key that several rules of one event have.
type sharedKey struct {
	group   int
	print   Fingerprint
	missing int
}

// begin takes the next event, and what was prefetched for its rules.
func (f *fingerprinter) begin(known []prefetched) {
	f.prefetched, f.shared = known, f.shared[:0]
}

// locate is the event's key under the rule at index i of k.Rules, how many of its fields the event lacks, and where in its
// sub-table the key probably stands.
func (f *fingerprinter) locate(k *Keyed, i int, b *binding) (key Fingerprint, missing int, at int32) {
	if i < len(f.prefetched) && f.prefetched[i].known {
		x := &f.prefetched[i]
		return x.print, int(x.missing), x.at
	}
	key, missing = f.key(k, b)
	return key, missing, 0
}

// key is the fingerprint of the event's key under a rule, and how many of its fields the event lacks.
func (f *fingerprinter) key(k *Keyed, b *binding) (key Fingerprint, missing int) {
	if b.lineage.form == keyText {
		f.subject, missing = traffic.AppendSubjectOf(f.subject[:0], &k.Identity, f.of(k, b), b.version.Key)
		key, f.scratch = f.secret.textKey(f.scratch, b.lineage.id, f.subject)
		return key, missing
	}
	for i := range f.shared {
		if f.shared[i].group == b.group {
			return f.shared[i].print, f.shared[i].missing
		}
	}
	if b.key == nil {
		key, missing, f.scratch = f.secret.binaryKey(f.scratch, &k.Identity, b.version.Key)
	} else {
		key, missing, f.scratch = f.secret.extraKey(f.scratch, &k.Identity, f.of(k, b), b.key)
	}
	f.shared = append(f.shared, sharedKey{b.group, key, missing})
	return key, missing
}

// measure sets the units or the distinct value that the event adds under the rule at index i of k.Rules; false when the event
// lacks the value.
func (f *fingerprinter) measure(k *Keyed, i int, b *binding, ev *event) (ok bool) {
	switch c := &b.version.Count; {
	case b.counted != nil:
		ev.value, f.scratch, ok = f.secret.values(f.scratch, &k.Identity, f.of(k, b), b.counted)
		return ok
	case c.Distinct != nil:
		ev.value, f.scratch, ok = f.secret.value(f.scratch, &k.Identity, *c.Distinct)
		return ok
	case c.Sum != "" && i < len(k.Units):
		ev.units = min(k.Units[i], 1<<40)
	}
	return true
}

// text is the event's key under a rule as subjects are written. It is valid until the next call.
func (f *fingerprinter) text(k *Keyed, b *binding) []byte {
	f.subject, _ = traffic.AppendSubjectOf(f.subject[:0], &k.Identity, f.of(k, b), b.version.Key)
	return f.subject
}

// of is what the event has beside its identity, as a rule names it. It is valid until the next call.
func (f *fingerprinter) of(k *Keyed, b *binding) traffic.Extra {
	f.extra = Extra{k.Extra, b.extra}
	return &f.extra
}
