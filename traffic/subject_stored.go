package traffic

import (
	"crypto/sha256"
	"strings"
)

// The form that a value above maxPlainValue bytes takes in a stored subject: digestMark and its SHA-256 in lower-case hex.
//
// No plain value reads like it: the mark's colon stands as it is, and in a plain value it would be percent-encoded. So
// whoever claims a device named `sha256:…` is never taken for the one whose digest that is.
const (
	maxPlainValue = 64
	digestMark    = "sha256:"
	digestBytes   = len(digestMark) + 2*sha256.Size
)

// Stored is s as stores keep it that pay for its length: each value above 64 bytes is replaced by its digest, written
// `device=sha256:<64 hex digits>`. Clients choose such values, and their length with them. What is stored already, and what
// is no subject, comes back as it is.
func (s Subject) Stored() Subject {
	if len(s) <= maxPlainValue {
		return s // nothing in it can be longer
	}
	var out []byte
	copied := 0 // how much of s is in out
	for at := 0; at < len(s); {
		end := len(s)
		if i := strings.IndexByte(string(s[at:]), '&'); i >= 0 {
			end = at + i
		}
		if i := strings.IndexByte(string(s[at:end]), '='); i >= 0 {
			from := at + i + 1
			if text := string(s[from:end]); len(text) > maxPlainValue && !isDigest(text) {
				value, err := unescapePercent(text)
				if err != nil {
					return s
				}
				if len(value) > maxPlainValue {
					out = AppendStoredValue(append(out, s[copied:from]...), value)
					copied = end
				}
			}
		}
		at = end + 1
	}
	if copied == 0 {
		return s
	}
	return Subject(append(out, s[copied:]...))
}

// AppendStoredValue appends value as a stored subject has it: percent-encoded, or its digest. It allocates nothing for
// values of an Identity where dst has room.
func AppendStoredValue(dst []byte, value string) []byte {
	if len(value) <= maxPlainValue {
		return appendPercent(dst, value)
	}
	var room [keptIdentityValue + len(identityDigest) + 2*sha256.Size]byte
	sum := sha256.Sum256(append(room[:0], value...))
	dst = append(dst, digestMark...)
	for _, c := range sum {
		dst = append(dst, lowerHex[c>>4], lowerHex[c&15])
	}
	return dst
}

// StoredAsDigest reports whether value stands as its digest in a stored subject.
func StoredAsDigest(value string) bool { return len(value) > maxPlainValue }

// isDigest reports whether the text of a value is a digest.
func isDigest(text string) bool {
	if len(text) != digestBytes || text[:len(digestMark)] != digestMark {
		return false
	}
	for i := len(digestMark); i < len(text); i++ {
		if c := text[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

// WithDigests takes each value of s that reads as a digest (`sha256:` and 64 hex digits) for one. It is for what a person
// copies from a listing, never for what a client sends: a client may send such a text as its value.
func (s Subject) WithDigests() Subject {
	const encoded = "=sha256%3A"
	parts := strings.Split(string(s), "&")
	for i, part := range parts {
		at := strings.Index(part, encoded)
		if at < 0 {
			continue
		}
		if text := digestMark + part[at+len(encoded):]; isDigest(text) {
			parts[i] = part[:at+1] + text
		}
	}
	return Subject(strings.Join(parts, "&"))
}
