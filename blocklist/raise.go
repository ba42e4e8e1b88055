package blocklist

import "context"

// outcome is what the raise or the release script did.
type outcome string

const (
	outcomeWritten      outcome = "written"
	outcomeExtended     outcome = "extended"
	outcomeSame         outcome = "same"          // written before, by the same hit to the same expiry
	outcomeSameExtended outcome = "same_extended" // extended before, likewise
	outcomeUnchanged    outcome = "unchanged"     // the block lasts as long or longer already; release: a later one stands
	outcomeAbsent       outcome = "absent"        // there is no block to extend
	outcomeStale        outcome = "stale"         // a block of a newer mode generation stands
	outcomeReleased     outcome = "released"      // raise: a tombstone covers the hit; release: done
	outcomeUnreadable   outcome = "unreadable"    // the key holds what this build cannot read
)

// raise asks for one block.
type raise struct {
	held
	block      Block
	extendOnly bool // raise an existing block, write none
}

// raiseAll runs the raise script for each element; all keys must differ, since their order is not kept.
func (s *Store) raiseAll(ctx context.Context, raises []raise) ([]outcome, error) {
	calls := make([]call, len(raises))
	for i := range raises {
		calls[i] = s.raiseCall(&raises[i])
	}
	out := make([]outcome, len(raises))
	err := s.run(ctx, calls, func(i int, answer any) error {
		text, ok := answer.(string)
		if !ok {
			return badAnswer("raise", answer)
		}
		out[i] = outcome(text)
		return nil
	})
	return out, err
}

func (s *Store) raiseCall(r *raise) call {
	fresh, extended := r.block, r.block
	fresh.Extended, extended.Extended = false, true
	scope := "any"
	if r.extendOnly {
		scope = "extend"
	}
	return call{
		script: s.scripts.raise,
		keys:   []string{s.keys.Block(r.subject, r.rule), s.keys.Tombstone(r.subject, r.rule)},
		args: []any{
			encode(&fresh), encode(&extended), r.block.Until.String(), expiryMS(r.block.Until),
			r.block.Generation, r.block.Hit, r.block.Since.String(), scope,
		},
	}
}

// release asks for one tombstone.
type release struct {
	held
	tombstone Tombstone
	covered   bool // remove only a block that the tombstone covers: for what is asserted anew
}

// released is the answer to a release.
type released struct {
	outcome outcome
	hit     string // of the block that was there
}

// releaseAll runs the release script for each element; all keys must differ.
func (s *Store) releaseAll(ctx context.Context, releases []release) ([]released, error) {
	calls := make([]call, len(releases))
	for i := range releases {
		calls[i] = s.releaseCall(&releases[i])
	}
	out := make([]released, len(releases))
	err := s.run(ctx, calls, func(i int, answer any) error {
		parts, ok := answer.([]any)
		if !ok || len(parts) != 2 {
			return badAnswer("release", answer)
		}
		what, ok1 := parts[0].(string)
		hit, ok2 := parts[1].(string)
		if !ok1 || !ok2 {
			return badAnswer("release", answer)
		}
		out[i] = released{outcome: outcome(what), hit: hit}
		return nil
	})
	return out, err
}

func (s *Store) releaseCall(r *release) call {
	scope := "any"
	if r.covered {
		scope = "covered"
	}
	return call{
		script: s.scripts.release,
		keys:   []string{s.keys.Block(r.subject, r.rule), s.keys.Tombstone(r.subject, r.rule)},
		args:   []any{encode(&r.tombstone), r.tombstone.Released.String(), expiryMS(r.tombstone.Until), scope},
	}
}

// addShapes names the shapes of what is about to be written.
func (s *Store) addShapes(ctx context.Context, subjects []held) error {
	members := map[string]bool{}
	for _, h := range subjects {
		who, err := parseWho(h.subject)
		if err != nil {
			return err
		}
		members[scopeMatch+":"+who.shape().String()] = true
	}
	if len(members) == 0 {
		return nil
	}
	list := make([]any, 0, len(members))
	for m := range members {
		list = append(list, m)
	}
	return s.client.SAdd(ctx, s.keys.Shapes(), list...).Err()
}
