package replica

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/traffic"
)

// hasher hashes the values of a shape, without writing its subject's text. Its seeds are random for each table, so that
// nobody can choose identities that meet. A hash only finds candidates: sameSubject decides.
type hasher struct {
	strings maphash.Seed
	k0, k1  uint64
}

func newHasher() hasher {
	return hasher{strings: maphash.MakeSeed(), k0: randomWord(), k1: randomWord()}
}

// randomWord is an odd random number: the hash of nothing under a fresh seed.
func randomWord() uint64 { return maphash.Bytes(maphash.MakeSeed(), nil) | 1 }

// mix is the multiply-and-fold step of wyhash (Wang Yi).
func (h *hasher) mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^h.k0, b^h.k1)
	return hi ^ lo
}

// sums are the hashes of a request's values, each made when the first shape asks for it: shapes have fields in common, and
// a long value costs a digest.
type sums struct {
	known uint8 // bit 1<<Field
	of    [traffic.NumFields]uint64
}

// identity hashes id's values of shape s; false when one of them is missing, or the address is of the other family. values
// are those of id that have been hashed for other shapes.
func (h *hasher) identity(id *traffic.Identity, s *blocklist.Shape, values *sums) (uint64, bool) {
	sum := uint64(s.Fields)
	if s.Has(traffic.FieldIP) {
		if !id.IP.IsValid() || id.IP.Is6() != s.V6 {
			return 0, false
		}
		sum = h.address(sum, id.IP, s.Bits)
	}
	for f := traffic.FieldDevice; f < traffic.NumFields; f++ {
		if !s.Has(f) {
			continue
		}
		if values.known&(1<<f) == 0 {
			value := valueOf(id, f)
			if value == "" {
				return 0, false
			}
			values.of[f] = h.value(value)
			values.known |= 1 << f
		}
		sum = h.mix(sum, values.of[f])
	}
	return sum, true
}

// value hashes what stands for value in a stored subject.
func (h *hasher) value(value string) uint64 {
	if !traffic.StoredAsDigest(value) {
		return maphash.String(h.strings, value)
	}
	var room [maxStoredText]byte
	return maphash.Bytes(h.strings, traffic.AppendStoredValue(room[:0], value))
}

// maxStoredText has room for any digest.
const maxStoredText = 80

// subject hashes p, equal to what identity gives for a request of p.
func (h *hasher) subject(p *blocklist.ParsedSubject, s blocklist.Shape) uint64 {
	sum := uint64(s.Fields)
	if s.Has(traffic.FieldIP) {
		sum = h.address(sum, p.Prefix.Addr(), s.Bits)
	}
	for f := traffic.FieldDevice; f < traffic.NumFields; f++ {
		if s.Has(f) {
			sum = h.mix(sum, maphash.String(h.strings, p.Values[f]))
		}
	}
	return sum
}

// address hashes a's first n bits.
func (h *hasher) address(sum uint64, a netip.Addr, n uint8) uint64 {
	if a.Is4() {
		b := a.As4()
		v := uint64(binary.BigEndian.Uint32(b[:])) &^ (1<<(32-n) - 1)
		return h.mix(sum, v<<8|uint64(n))
	}
	b := a.As16()
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	if n <= 64 {
		hi, lo = hi&^(1<<(64-n)-1), 0 // a shift by 64 gives 0, and with it no bit is kept
	} else {
		lo &^= 1<<(128-n) - 1
	}
	return h.mix(h.mix(sum, hi), lo^uint64(n))
}

func valueOf(id *traffic.Identity, f traffic.Field) string {
	switch f {
	case traffic.FieldDevice:
		return id.Device
	case traffic.FieldUser:
		return id.User
	case traffic.FieldAPIKey:
		return id.APIKey
	case traffic.FieldSession:
		return id.Session
	}
	return ""
}

// sameSubject reports whether subject, a stored one, is that of id under s, comparing value by value without writing a text.
func sameSubject(subject traffic.Subject, id *traffic.Identity, s *blocklist.Shape) bool {
	rest := string(subject)
	for f := traffic.Field(0); f < traffic.NumFields; f++ {
		if !s.Has(f) {
			continue
		}
		var part string
		part, rest = cutPart(rest)
		name := f.String()
		if len(part) <= len(name) || part[:len(name)] != name || part[len(name)] != '=' {
			return false
		}
		text := part[len(name)+1:]
		if f != traffic.FieldIP {
			if !sameStored(text, valueOf(id, f)) {
				return false
			}
			continue
		}
		var buf [64]byte
		p, err := id.IP.Prefix(int(s.Bits))
		if err != nil || !sameEncoded(text, p.AppendTo(buf[:0])) {
			return false
		}
	}
	return rest == ""
}

// cutPart cuts a subject after its first field.
func cutPart(s string) (part, rest string) {
	part, rest, _ = strings.Cut(s, "&")
	return part, rest
}

// sameStored reports whether text stands for value in a stored subject.
func sameStored(text, value string) bool {
	if !traffic.StoredAsDigest(value) {
		return sameEncoded(text, value)
	}
	var room [maxStoredText]byte
	return text == string(traffic.AppendStoredValue(room[:0], value))
}

// sameEncoded reports whether text is value percent-encoded. text is canonical: it came through Subject.Values.
func sameEncoded[V string | []byte](text string, value V) bool {
	at := 0
	for i := 0; i < len(value); i++ {
		switch {
		case at >= len(text):
			return false
		case text[at] != '%':
			if text[at] != value[i] {
				return false
			}
			at++
		case at+2 >= len(text) || hexDigit(text[at+1])<<4|hexDigit(text[at+2]) != value[i]:
			return false
		default:
			at += 3
		}
	}
	return at == len(text)
}

func hexDigit(c byte) byte {
	if c >= 'A' {
		return c - 'A' + 10
	}
	return c - '0'
}
