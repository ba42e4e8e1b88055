// Package signing says which modes in Redis the rule store has written: whoever publishes modes signs them, and gates
// that know the key's public half act on no other one.
package signing

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// What is wrong with a text that is not taken.
var (
	ErrUnsigned = errors.New("nobody has signed it")
	ErrForged   = errors.New("its signature is not the rule store's")
)

const (
	prefix = "ed25519:"
	// domain keeps a signature from being one of anything else, and names the form of what is signed.
	domain = "weir mode 1"
	// A signed text is the text with one member more, its last.
	before, after = `,"sig":"`, `"}`

	// SeedBytes is how long the seed of a Signer is.
	SeedBytes = ed25519.SeedSize
)

// Signer signs modes of one namespace. It may be used by several goroutines.
type Signer struct {
	*Trust
	private ed25519.PrivateKey
}

// NewSigner makes the Signer of a seed, which whoever knows can sign.
func NewSigner(seed []byte, namespace string) (*Signer, error) {
	if len(seed) != SeedBytes {
		return nil, fmt.Errorf("seed of the key of modes: got %d bytes, allowed: %d", len(seed), SeedBytes)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := append(ed25519.PublicKey{}, private[SeedBytes:]...)
	return &Signer{newTrust(public, namespace), private}, nil
}

// Sign gives text, a JSON object with members, with its signature.
func (s *Signer) Sign(text string) string {
	sum := ed25519.Sign(s.private, s.message(text))
	return strings.TrimSuffix(text, "}") + before + base64.RawURLEncoding.EncodeToString(sum) + after
}

// Trust is the public half of a Signer. It may be used by several goroutines.
type Trust struct {
	public    ed25519.PublicKey
	namespace string

	mu    sync.Mutex
	known map[string][sha256.Size]byte // by rule, the digest of the text that was found to be signed last
}

func newTrust(public ed25519.PublicKey, namespace string) *Trust {
	return &Trust{public: public, namespace: namespace, known: map[string][sha256.Size]byte{}}
}

// ParseTrust reads what String writes.
func ParseTrust(text, namespace string) (*Trust, error) {
	encoded, ok := strings.CutPrefix(text, prefix)
	public, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil || len(public) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("got %q; allowed: %s and 43 letters, digits, '-' and '_', as weir gate trust prints it",
			text, prefix)
	}
	return newTrust(public, namespace), nil
}

// String is the key as gates are configured with it. It is no secret.
func (t *Trust) String() string { return prefix + base64.RawURLEncoding.EncodeToString(t.public) }

// Check is nil for what the Signer has signed in the namespace, to the byte, else ErrUnsigned or ErrForged. rule is
// whose mode text is said to be: what was signed last of it is not computed again. That text is of that rule the
// caller sees to.
func (t *Trust) Check(rule, text string) error {
	signed, sum, err := split(text)
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(text))
	t.mu.Lock()
	known, ok := t.known[rule]
	t.mu.Unlock()
	if ok && known == digest {
		return nil
	}
	if !ed25519.Verify(t.public, t.message(signed), sum) {
		return ErrForged
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[rule] = digest
	return nil
}

// split takes a signed text apart.
func split(text string) (signed string, sum []byte, err error) {
	const length = len(before) + 86 + len(after)
	at := len(text) - length
	if at < 1 || !strings.HasPrefix(text[at:], before) || !strings.HasSuffix(text, after) {
		return "", nil, ErrUnsigned
	}
	sum, err = base64.RawURLEncoding.Strict().DecodeString(text[at+len(before) : len(text)-len(after)])
	if err != nil {
		return "", nil, ErrForged
	}
	return text[:at] + "}", sum, nil
}

// message is what is signed: domain, namespace and text, each behind its length.
func (t *Trust) message(text string) []byte {
	var b []byte
	for _, part := range []string{domain, t.namespace, text} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	return b
}
