package traffic

import (
	"crypto/sha256"
	"strings"
	"unicode/utf8"
)

// readable is v as every gateway's log writes it: each byte that is no UTF-8 and each control character is U+FFFD. Some
// logs write the bytes as they are, some write U+FFFD, and a gate sees the header itself; a client's value must be one
// value everywhere, or it is counted under one and held under another. Nothing else is changed. A value without any such
// byte, as nearly all are, is returned as it is, without allocation.
func readable(v string) string {
	clean := plainText(v)
	if clean == len(v) {
		return v
	}
	var out strings.Builder
	out.Grow(len(v) + 8)
	out.WriteString(v[:clean])
	for i := clean; i < len(v); {
		r, n := utf8.DecodeRuneInString(v[i:]) // a byte that is no UTF-8 is utf8.RuneError of one byte
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			r = utf8.RuneError
		}
		out.WriteRune(r)
		i += n
	}
	return out.String()
}

// plainText is the index of a byte of v before which all are printable ASCII, len(v) if all are. Eight bytes at a time:
// w-0x20 borrows out of the high bit of a byte below 0x20, w+1 carries 0x7f into it, and others than ASCII have it.
func plainText(v string) int {
	i := 0
	for ; i+8 <= len(v); i += 8 {
		w := uint64(v[i]) | uint64(v[i+1])<<8 | uint64(v[i+2])<<16 | uint64(v[i+3])<<24 |
			uint64(v[i+4])<<32 | uint64(v[i+5])<<40 | uint64(v[i+6])<<48 | uint64(v[i+7])<<56
		if (w|(w-' '*lowBits)|(w+lowBits))&highBits != 0 {
			return i
		}
	}
	for ; i < len(v); i++ {
		if c := v[i]; c < ' ' || c >= 0x7f {
			return i
		}
	}
	return i
}

// The bounds of an identity's values: windows and stores keep them whole.
const (
	maxIdentityValue  = 256 // bytes up to which a value stays as it is
	keptIdentityValue = 200 // bytes of a longer one that are kept
	identityDigest    = "~sha256:"
)

// IdentityValue is text as an Identity holds it that was read from a header of that text: without blanks around it, and
// as BoundedValue has it.
func IdentityValue(text string) string { return BoundedValue(trimBlank(text)) }

// set stores the value of field f. A value above maxIdentityValue becomes its first keptIdentityValue bytes, `~sha256:`
// and the digest of all of it in hex: 272 bytes, longer than any value that is kept whole, so that different values stay
// different.
func (id *Identity) set(f Field, value string) {
	if len(value) > maxIdentityValue {
		value = digested(value)
	}
	switch f {
	case FieldDevice:
		id.Device = value
	case FieldUser:
		id.User = value
	case FieldAPIKey:
		id.APIKey = value
	case FieldSession:
		id.Session = value
	}
}

func digested(value string) string {
	sum := sha256.Sum256([]byte(value))
	out := make([]byte, 0, keptIdentityValue+len(identityDigest)+2*sha256.Size)
	out = append(out, value[:keptIdentityValue]...)
	out = append(out, identityDigest...)
	for _, c := range sum {
		out = append(out, lowerHex[c>>4], lowerHex[c&15])
	}
	return string(out)
}
