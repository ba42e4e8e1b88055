package access

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// A pseudonym is a keyed hash of field and value, and the value encrypted under that hash (the SIV construction of RFC 5297, with
// HMAC-SHA-256 and AES-256-CTR): so a filter by a pseudonym needs neither a table of all values that were ever shown, which would have to
// be kept as well as the values themselves, nor a scan that hashes history. Without the key it tells that two values are equal and,
// to the next 8 bytes, how long one is.
const (
	pseudonymMark = "~"
	tagBytes      = 12 // two of 2^40 values have the same one with a chance of 2^-17, and then only their difference shows
	padTo         = 8
)

// What is in a pseudonym.
const (
	kindText   = 0 // padded by zeros
	kindDigest = 1 // the SHA-256 that stands for a long value
	kindPrefix = 2 // an address prefix: its length, the address
)

type cipherPair struct {
	hashKey []byte
	block   cipher.Block
}

func newCipherPair(key []byte) (*cipherPair, error) {
	block, err := aes.NewCipher(derived(key, "weir pseudonym: encryption"))
	if err != nil {
		return nil, err
	}
	return &cipherPair{hashKey: derived(key, "weir pseudonym: hash"), block: block}, nil
}

func derived(key []byte, purpose string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(purpose))
	return h.Sum(nil)
}

// seal makes the pseudonym of a value.
func (p *cipherPair) seal(field, value string) string {
	plain := encodeValue(field, value)
	tag := p.tag(field, plain)
	out := append(tag, plain...)
	p.crypt(tag, out[tagBytes:])
	return pseudonymMark + alphabet().EncodeToString(out)
}

// open gives the value of a pseudonym of field; false for a text that seal has not made of this key and field.
func (p *cipherPair) open(field, text string) (string, bool) {
	plain, ok := p.unseal(field, text)
	if !ok {
		return "", false
	}
	return decodeValue(plain)
}

// unseal gives the bytes that were sealed under a field, at least one; false for a text that this key has not sealed.
func (p *cipherPair) unseal(field, text string) ([]byte, bool) {
	encoded, ok := strings.CutPrefix(text, pseudonymMark)
	if !ok {
		return nil, false
	}
	raw, err := alphabet().DecodeString(encoded)
	if err != nil || len(raw) <= tagBytes || alphabet().EncodeToString(raw) != encoded {
		return nil, false
	}
	tag, plain := raw[:tagBytes], raw[tagBytes:]
	p.crypt(tag, plain)
	if !hmac.Equal(tag, p.tag(field, plain)) {
		return nil, false
	}
	return plain, true
}

func (p *cipherPair) tag(field string, plain []byte) []byte {
	h := hmac.New(sha256.New, p.hashKey)
	h.Write([]byte(field))
	h.Write([]byte{0}) // no field has it, so that no two pairs of field and value are the same bytes
	h.Write(plain)
	return h.Sum(make([]byte, 0, sha256.Size))[:tagBytes:tagBytes]
}

func (p *cipherPair) crypt(tag, text []byte) {
	var iv [aes.BlockSize]byte // the last four bytes count the blocks
	copy(iv[:], tag)
	cipher.NewCTR(p.block, iv[:]).XORKeyStream(text, text)
}

// alphabet is that of RFC 4648 for hex order, in small letters: all of it unreserved in URLs and in subjects.
func alphabet() *base32.Encoding {
	return base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)
}

const digestMark = "sha256:"

// encodeValue gives the bytes of a value: the same ones for all texts that mean the same source.
func encodeValue(field, value string) []byte {
	if field == "ip" {
		if prefix, ok := addressPrefix(value); ok {
			return append([]byte{kindPrefix, byte(prefix.Bits())}, prefix.Addr().AsSlice()...)
		}
	}
	if sum, err := hex.DecodeString(strings.TrimPrefix(value, digestMark)); err == nil && len(sum) == sha256.Size && strings.HasPrefix(value, digestMark) {
		return append([]byte{kindDigest}, sum...)
	}
	if traffic.StoredAsDigest(value) {
		sum := sha256.Sum256([]byte(value))
		return append([]byte{kindDigest}, sum[:]...)
	}
	out := append([]byte{kindText}, value...)
	out = append(out, 1) // where the value ends
	return append(out, make([]byte, (padTo-len(out)%padTo)%padTo)...)
}

func decodeValue(plain []byte) (string, bool) {
	body := plain[1:]
	switch {
	case plain[0] == kindText && len(body) > 0:
		body = bytes.TrimRight(body, "\x00")
		return string(body[:max(0, len(body)-1)]), true
	case plain[0] == kindDigest:
		return digestMark + hex.EncodeToString(body), true
	case plain[0] == kindPrefix && len(body) > 1:
		address, ok := netip.AddrFromSlice(body[1:])
		if prefix := netip.PrefixFrom(address, int(body[0])); ok && !prefix.IsSingleIP() {
			return prefix.String(), true
		}
		return address.String(), ok
	}
	return "", false
}

// addressPrefix reads an address, which is a prefix of its own, or a prefix.
func addressPrefix(text string) (netip.Prefix, bool) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address.WithZone(""), address.BitLen()), true
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix, err == nil
}

func isAddress(text string) bool {
	if !strings.ContainsAny(text, ".:") {
		return false
	}
	_, ok := addressPrefix(text)
	return ok
}

// withPrefix is an address as subjects have it.
func withPrefix(text string) string {
	if prefix, ok := addressPrefix(text); ok {
		return prefix.String()
	}
	return text
}
