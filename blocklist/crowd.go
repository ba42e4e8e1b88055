package blocklist

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"

	"github.com/weirhq/weir/traffic"
)

// DefaultPerAddress is how many blocks of one address and rule are in force at a time when the configuration does not say.
const DefaultPerAddress = 1000

// Crowds bounds how many blocks one client can have written. Where a rule's block key holds a field that the client merely
// claims, each claim makes another key: one address that goes on claiming would fill Redis, and the memory of every gate.
type Crowds struct {
	// PerAddress is how many blocks of one address and rule may be in force at a time; 0: any number. The address is cut as
	// the rule's block key says.
	PerAddress int
	// Claimed lists the fields that the gateway does not vouch for.
	Claimed []traffic.Field
}

// Answers of the script, beside OutcomeCrowded and OutcomeFull.
const (
	outcomeAdmitted Outcome = "admitted"
	outcomeCounted  Outcome = "counted"
)

// crowd is where a block is counted.
type crowd struct {
	index int // in the list that it was made of
	key   string
	name  string
}

// crowd returns the set in which the block h is counted; false where clients cannot choose its key. Blocks of other mode
// generations are not in force, and are counted in other sets.
func (w *Writer) crowd(index int, h Name, generation int64) (crowd, bool) {
	if w.store.crowds.PerAddress <= 0 {
		return crowd{}, false
	}
	subject, err := ParseSubject(h.Subject)
	if err != nil || !subject.Prefix.IsValid() || !subject.hasAny(w.store.crowds.Claimed) {
		return crowd{}, false
	}
	address, _, _ := strings.Cut(string(h.Subject), "&") // ip is the first field of any subject
	sum := sha256.Sum256([]byte(h.Subject))
	return crowd{index, w.store.keys.Crowd(traffic.Subject(address), h.Rule, generation), base64.RawURLEncoding.EncodeToString(sum[:16])}, true
}

// admit counts the bounded raises that have no outcome yet, and sets the outcome of those that find no room. It returns the
// newly counted ones. All calls go in one pipeline; without a bounded raise there is none.
func (w *Writer) admit(ctx context.Context, raises []Raise, out []Outcome) ([]crowd, error) {
	var bound, fresh []crowd
	var calls []call
	for i := range raises {
		r := &raises[i]
		c, ok := w.crowd(i, r.Name, r.Block.Generation)
		if !ok || out[i] != "" {
			continue
		}
		out[i] = OutcomeUnreached // unless there is an answer
		bound = append(bound, c)
		calls = append(calls, call{
			script: w.store.redis.scripts.admit, keys: []string{c.key},
			args: []any{w.store.crowds.PerAddress, c.name, expiryMS(r.Block.Until), r.scope()},
		})
	}
	err := w.store.redis.run(ctx, calls, func(i int, answer any) error {
		switch text, _ := answer.(string); Outcome(text) {
		case outcomeCounted:
			out[bound[i].index] = ""
		case outcomeAdmitted:
			out[bound[i].index] = ""
			fresh = append(fresh, bound[i])
		case OutcomeCrowded, OutcomeFull:
			out[bound[i].index] = Outcome(text)
		default:
			return badAnswer("admit", answer)
		}
		return nil
	})
	return fresh, err
}

// crowdsOf finds where the blocks of releases are counted.
func (w *Writer) crowdsOf(releases []Release) (bound []crowd) {
	for i := range releases {
		if releases[i].Generation == 0 {
			continue
		}
		if c, ok := w.crowd(i, releases[i].Name, releases[i].Generation); ok {
			bound = append(bound, c)
		}
	}
	return bound
}

// leaveTimeout bounds leave: what comes after it is told to gates.
const leaveTimeout = 100 * time.Millisecond

// leave takes the blocks of bound for which over is true out of their sets. Errors are dropped: a block that stays counted
// makes room when it would have expired.
func (w *Writer) leave(ctx context.Context, bound []crowd, over func(i int) bool) {
	var calls []call
	for _, c := range bound {
		if over(c.index) {
			calls = append(calls, call{script: w.store.redis.scripts.leave, keys: []string{c.key}, args: []any{c.name}})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	_ = w.store.redis.run(ctx, calls, func(int, any) error { return nil })
}
