package signin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
)

// Token is a static token for a script, and for a person without an identity provider. Whoever has it is the actor
// token:NAME.
type Token struct {
	Name   string
	Role   access.Role
	Owners []string // for whom a token of role owner decides
	SHA256 [sha256.Size]byte
	// Expires is when it is taken no longer; it has to have an end.
	Expires time.Time
}

// maxTokenBytes bounds what is hashed of a header that anybody may send.
const maxTokenBytes = 512

// actor is whoever has the token.
func (t *Token) actor() access.Actor {
	return access.Actor{Name: "token:" + t.Name, Role: t.Role, Owners: slices.Clone(t.Owners), Via: access.ViaToken}
}

// origin is the Subject of a session that was begun with the token. A token that takes its name later is another one:
// what is kept of it is a hash of the hash that the configuration has.
func (t *Token) origin() string {
	sum := sha256.Sum256(t.SHA256[:])
	return "token " + t.Name + " " + hex.EncodeToString(sum[:8])
}

func checkTokens(tokens []Token) ([]Token, error) {
	for i, t := range tokens {
		switch {
		case t.Name == "" || t.SHA256 == [sha256.Size]byte{} || t.Expires.IsZero() || t.Role == access.Nobody:
			return nil, fmt.Errorf("token %d %q: needs a name, a role, a hash and an end", i+1, t.Name)
		case slices.ContainsFunc(tokens[:i], func(o Token) bool { return o.Name == t.Name || o.SHA256 == t.SHA256 }):
			return nil, fmt.Errorf("token %d %q: its name or its hash is given twice", i+1, t.Name)
		}
	}
	return slices.Clone(tokens), nil
}

// bearer is the token that a request brings in its Authorization header, where it may stand once. Tokens in an address are not looked
// for: addresses are logged. Credentials of another scheme are those of a proxy in front, and not ours.
func bearer(r *http.Request) (text string, has bool, err error) {
	lines := r.Header.Values("Authorization")
	if len(lines) == 0 {
		return "", false, nil
	}
	for _, line := range lines {
		scheme, rest, _ := strings.Cut(line, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			continue
		}
		if len(lines) > 1 {
			return "", true, errors.New("several Authorization headers")
		}
		text, has = strings.TrimSpace(rest), true
	}
	if has && (text == "" || len(text) > maxTokenBytes || strings.ContainsAny(text, " ,")) {
		return "", true, errors.New("no single token in the Authorization header")
	}
	return text, has, nil
}

// byToken takes a request for that of a token's actor.
func (g *Guard) byToken(v visit, text string, malformed error) (visit, *refusal) {
	why := malformed
	if why == nil {
		var found *Token
		if found, why = g.findToken(text); why == nil {
			v.Actor, v.bearer = found.actor(), true
			v.Until = found.Expires
			v.still = func(context.Context) bool { return g.o.Clock().Before(found.Expires) }
			return v, nil
		}
	}
	if wait := g.limits.failures.charge(v.address); wait > 0 {
		return v, tooMany(wait)
	}
	g.o.Logger.Warn("a token was refused", "why", why, "address", v.address)
	return v, &refusal{status: http.StatusUnauthorized, reason: reasonToken, detail: noToken(why)}
}

// noToken is what is told of a token that is refused.
func noToken(why error) string {
	if errors.Is(why, errExpired) {
		return "the token has expired"
	}
	return "the token is not one of this console's"
}

var errExpired = errors.New("expired")

// findToken compares with every token, whichever it is: how long it takes tells nothing.
func (g *Guard) findToken(text string) (*Token, error) {
	sum := sha256.Sum256([]byte(text))
	at := -1
	for i := range g.tokens {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], g.tokens[i].SHA256[:]), i, at)
	}
	switch {
	case at < 0:
		return nil, errors.New("unknown token")
	case !g.o.Clock().Before(g.tokens[at].Expires):
		return nil, fmt.Errorf("token %s: %w on %s", g.tokens[at].Name, errExpired, g.tokens[at].Expires.UTC().Format(time.RFC3339))
	}
	return &g.tokens[at], nil
}
