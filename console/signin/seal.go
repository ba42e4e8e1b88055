package signin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync/atomic"
	"time"
)

// Seal makes the secrets that the store is asked about, and knows them again: one that no console of the installation
// has made is told by itself. So nobody has the store asked by making secrets up, and nobody can use up what others may
// ask.
//
// A sealed secret is base64url of 16 bytes of HMAC-SHA-256, cut (RFC 2104, section 5), over its purpose and what
// follows: 16 random bytes, and what belongs to the secret.
type Seal struct{ key []byte }

// NewSeal makes a Seal of the installation's key.
func NewSeal(key []byte) Seal { return Seal{key} }

// Purposes of sealed secrets. One for a purpose is good for no other.
const (
	forSession    = "session"
	forSignIn     = "sign-in"
	forInvitation = "invitation"
)

const (
	sealBytes   = 16 // of the code
	randomBytes = 16
)

func (k Seal) code(purpose string, body []byte) []byte {
	h := hmac.New(sha256.New, k.key)
	h.Write([]byte(purpose))
	h.Write([]byte{0})
	h.Write(body)
	return h.Sum(nil)[:sealBytes]
}

// make makes a secret with what belongs to it.
func (k Seal) make(purpose string, with []byte) secret {
	body := make([]byte, randomBytes, randomBytes+len(with))
	_, _ = rand.Read(body) // never fails, says its documentation
	body = append(body, with...)
	return secret(base64.RawURLEncoding.EncodeToString(append(k.code(purpose, body), body...)))
}

// open returns what belongs to a secret; false for one that was not made for the purpose here.
func (k Seal) open(purpose string, s secret) (with []byte, made bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(string(s))
	if err != nil || len(raw) < sealBytes+randomBytes ||
		!hmac.Equal(raw[:sealBytes], k.code(purpose, raw[sealBytes:])) {
		return nil, false
	}
	return raw[sealBytes+randomBytes:], true
}

// signIn makes the secret of a sign-in that may take until then, and goes on with next. Nothing is stored of it: of
// those that are begun there may be any number.
func (k Seal) signIn(next string, until time.Time) secret {
	return k.make(forSignIn, append(binary.BigEndian.AppendUint64(nil, uint64(until.Unix())), next...))
}

// underWay is what a sign-in began with; false where it is none, or its time is over.
func (k Seal) underWay(s secret, now time.Time) (next string, until time.Time, is bool) {
	with, made := k.open(forSignIn, s)
	if !made || len(with) < 8 {
		return "", time.Time{}, false
	}
	until = time.Unix(int64(binary.BigEndian.Uint64(with)), 0)
	return string(with[8:]), until, now.Before(until)
}

// sealing has the installation's Seal.
type sealing struct {
	store Sessions
	read  atomic.Pointer[Seal] // nil until it has been read
}

// seal reads the Seal once: until then a store that is away lets nobody in.
func (s *sealing) seal(ctx context.Context) (Seal, error) {
	if k := s.read.Load(); k != nil {
		return *k, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	key, err := s.store.Key(ctx)
	if err != nil {
		return Seal{}, err
	}
	k := NewSeal(key)
	s.read.Store(&k)
	return k, nil
}
