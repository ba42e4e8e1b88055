package acts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// Standing is what a rule is at a moment, as somebody sees who decides about it.
type Standing struct {
	Rule       string            `json:"rule" mask:"name"`
	Owner      string            `json:"owner" mask:"name"` // of the version that acts
	Mode       rules.Mode        `json:"mode"`
	Generation int64             `json:"generation"`
	Version    int               `json:"version"`           // the one that acts
	Pending    int               `json:"pending,omitempty"` // the one that is pending; 0: none
	Limit      int               `json:"limit"`             // the document's
	Raised     *rulestore.Raised `json:"raised,omitempty"`
	Removed    bool              `json:"removed,omitempty"`
	Since      time.Time         `json:"since"` // when the mode was set last, by whom and why
	By         string            `json:"by" mask:"name"`
	Reason     string            `json:"reason,omitempty" mask:"text,By"`
	// Revision changes with each of these but the reasons: an act that names it is refused where somebody else was
	// quicker.
	Revision string `json:"revision" mask:"-"`
}

// StandingOf is the standing of a rule.
func StandingOf(r *rulestore.Rule) Standing {
	v := &r.Newest.Version
	s := Standing{
		Rule: v.ID, Owner: v.Owner, Mode: r.Mode, Generation: r.Generation, Version: v.Number, Limit: v.Limit, Raised: r.Raised, Removed: r.Removed,
		Since: r.Changed.UTC(), By: r.ChangedBy, Reason: r.Reason,
	}
	if r.Pending != nil {
		s.Pending = r.Pending.Version.Number
	}
	hashed := s // without reasons: they may name somebody, who would be found by trying which name has the hash
	hashed.Reason = ""
	if s.Raised != nil {
		raised := *s.Raised
		raised.Reason, hashed.Raised = "", &raised
	}
	text, err := json.Marshal(hashed)
	if err != nil { // of plain data: never
		return s
	}
	sum := sha256.Sum256(text)
	s.Revision = hex.EncodeToString(sum[:8])
	return s
}

// check is what an act asks of a rule within the transaction that changes it: may the actor, and is the rule still what
// was looked at? Who may not is told that, whatever the rule is by now; within are the bounds of its owner.
func check(actor access.Actor, act access.Act, seen string, within func() error) func(r *rulestore.Rule) error {
	return func(r *rulestore.Rule) error {
		if err := access.May(actor, act, r.Newest.Version.Owner); err != nil {
			return err
		}
		if err := within(); err != nil {
			return err
		}
		if now := StandingOf(r); seen != "" && seen != now.Revision {
			return &ChangedError{Rule: now.Rule, Seen: seen, Now: now}
		}
		return nil
	}
}

// checkWithin is check with the bounds for the version that acts.
func (o *Options) checkWithin(actor access.Actor, act access.Act, seen string) func(r *rulestore.Rule) error {
	return func(r *rulestore.Rule) error {
		bound := bounded{o.Bounds, actor, act}
		within := func() error { return bound.rules(&r.Newest.Version.Document) }
		return check(actor, act, seen, within)(r)
	}
}

// PromoteRequest asks to let a rule block.
type PromoteRequest struct {
	Rule string `json:"rule"`
	// Version is the version to promote, as somebody has looked at it: the one that acts, or the pending one. 0 is the one that acts,
	// and is refused of a rule that has both.
	Version int `json:"version,omitempty"`
	// Pending promotes the pending version, whatever its number.
	Pending bool `json:"pending,omitempty"`
	// To is canary or block; empty: block.
	To rules.Mode `json:"to,omitempty"`
	// Override is why to promote although gates do not pass, or the log format carries no verdict; empty: not to.
	Override string `json:"override,omitempty"`
	// Until and Dossier are those of the evidence that was looked at, see Evidence: that decides. What has come since
	// is said, and refuses only where a gate that passed does not any more. Empty: what is so now decides.
	Until   time.Time `json:"until,omitzero"`
	Dossier string    `json:"dossier,omitempty"`
	Reason  string    `json:"reason"`
	// Seen is the revision of the rule that was looked at; empty: whatever it is. See Standing.
	Seen string `json:"seen,omitempty"`
}

// ModeRequest asks for a mode that does not block: shadow or off.
type ModeRequest struct {
	Rule   string     `json:"rule"`
	Mode   rules.Mode `json:"mode"`
	Reason string     `json:"reason"`
	Seen   string     `json:"seen,omitempty"`
}

// ModeDone is a rule's mode afterwards, and whether gates know it.
type ModeDone struct {
	rulestore.ModeSet
	Publication
	SinceLooked
}

// Promote lets a rule, or its pending version, block, and tells the gates.
func (s *Service) Promote(ctx context.Context, actor access.Actor, r PromoteRequest) (ModeDone, error) {
	if r.Version < 0 {
		return ModeDone{}, &Invalid{Field: "version", Got: fmt.Sprint(r.Version), Allowed: "a version of the rule, from 1 on"}
	}
	if err := r.check(actor); err != nil {
		return ModeDone{}, err
	}
	looked, since, err := s.decided(ctx, actor, &r)
	if err != nil {
		return ModeDone{}, err
	}
	done, err := s.setMode(ctx, actor, access.Promote, r.Seen, rulestore.ModeChange{
		Rule: r.Rule, Mode: r.To, Reason: r.Reason, Override: r.Override, Version: r.Version, Pending: r.Pending,
		Dossier: looked.dossier, News: since.News,
	})
	done.SinceLooked = since
	return done, err
}

// check fills in the default, and asks what needs no store.
func (r *PromoteRequest) check(actor access.Actor) error {
	if r.To = cmp.Or(r.To, rules.ModeBlock); !r.To.Blocks() {
		return &Invalid{Field: "to", Got: string(r.To), Allowed: fmt.Sprintf("%s, %s", rules.ModeCanary, rules.ModeBlock)}
	}
	if r.Override != "" && CheckReason(r.Override) != nil {
		return &Invalid{Field: "override", Got: r.Override, Allowed: "words that say why, beside the reason, for the audit trail"}
	}
	if err := CheckReason(r.Reason); err != nil {
		return err
	}
	return access.MayAny(actor, access.Promote)
}

// SetMode puts a rule into shadow, or off, and tells the gates. What it needs depends on the mode that the rule has: from block it is a
// demotion.
func (s *Service) SetMode(ctx context.Context, actor access.Actor, r ModeRequest) (ModeDone, error) {
	act := access.Demote
	switch r.Mode {
	case rules.ModeShadow:
	case rules.ModeOff:
		act = access.Disable
	default:
		return ModeDone{}, &Invalid{Field: "mode", Got: string(r.Mode), Allowed: fmt.Sprintf("%s, %s", rules.ModeShadow, rules.ModeOff)}
	}
	return s.setMode(ctx, actor, act, r.Seen, rulestore.ModeChange{Rule: r.Rule, Mode: r.Mode, Reason: r.Reason})
}

func (s *Service) setMode(ctx context.Context, actor access.Actor, act access.Act, seen string, change rulestore.ModeChange) (ModeDone, error) {
	if err := CheckReason(change.Reason); err != nil {
		return ModeDone{}, err
	}
	if err := access.MayAny(actor, act); err != nil {
		return ModeDone{}, err
	}
	change.By, change.Via = actor.Name, actor.Via
	change.Check = func(r *rulestore.Rule) error {
		does := act
		if act == access.Demote && r.Mode == rules.ModeOff {
			does = access.Enable
		}
		bound := bounded{s.o.Bounds, actor, does}
		return check(actor, does, seen, func() error { return bound.mode(r, &change) })(r)
	}
	set, err := s.o.Rules.SetMode(ctx, change)
	if err != nil {
		return ModeDone{}, s.misnamed(ctx, change.Rule, err)
	}
	s.log(actor, act, "rule "+change.Rule)
	// Gates are told also when nothing changed: whoever asks again may do so because they were not.
	done := ModeDone{ModeSet: set, Publication: s.publish(ctx, actor, change.Rule)}
	for i := range done.overtaken {
		if is := &done.overtaken[i].Is; is.Rule == change.Rule {
			done.Generation = is.Generation
		}
	}
	return done, nil
}

// LimitRequest asks for a higher limit, in place of a raise that there was: for so long from the database's now on,
// or for requests before Until. Limit 0 ends that one.
type LimitRequest struct {
	Rule   string    `json:"rule"`
	Limit  int       `json:"limit"`
	For    string    `json:"for,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason"`
	Seen   string    `json:"seen,omitempty"`
}

// SetLimit raises a rule's limit for a time, or ends that.
func (s *Service) SetLimit(ctx context.Context, actor access.Actor, r LimitRequest) (rulestore.LimitSet, error) {
	if err := CheckReason(r.Reason); err != nil {
		return rulestore.LimitSet{}, err
	}
	length, err := r.length()
	if err != nil {
		return rulestore.LimitSet{}, err
	}
	if err := access.MayAny(actor, access.SetLimit); err != nil {
		return rulestore.LimitSet{}, err
	}
	set, err := s.o.Rules.RaiseLimit(ctx, rulestore.LimitChange{
		Rule: r.Rule, Limit: r.Limit, For: length, Until: r.Until, By: actor.Name, Via: actor.Via, Reason: r.Reason,
		Check: s.o.checkWithin(actor, access.SetLimit, r.Seen),
	})
	if err != nil {
		return rulestore.LimitSet{}, s.misnamed(ctx, r.Rule, err)
	}
	s.log(actor, access.SetLimit, "rule "+r.Rule)
	return set, nil
}

// length checks what is asked for, and is how long the raise lasts; 0 where it is to end at a time, or ends now.
func (r *LimitRequest) length() (time.Duration, error) {
	const allowed = "when the raise ends, a time like 2026-12-24T18:00:00Z, or for: how long it lasts, like 2h"
	lasts, err := readLasting(r.For, 0)
	switch {
	case r.Limit < 0:
		return 0, &Invalid{Field: "limit", Got: fmt.Sprint(r.Limit),
			Allowed: "a whole number above the document's limit, or 0: as the document says"}
	case err != nil:
		return 0, err
	case r.Limit > 0 && r.For == "" && r.Until.IsZero():
		return 0, &Invalid{Field: "until", Got: "", Allowed: allowed}
	case r.For != "" && !r.Until.IsZero():
		return 0, &Invalid{Field: "until", Got: r.Until.Format(time.RFC3339), Allowed: "one of for and until"}
	case r.Limit == 0 && !r.Until.IsZero():
		return 0, &Invalid{Field: "until", Got: r.Until.Format(time.RFC3339),
			Allowed: "none beside limit 0, which ends the raise now"}
	case r.Limit == 0 && r.For != "":
		return 0, &Invalid{Field: "for", Got: r.For, Allowed: "none beside limit 0, which ends the raise now"}
	}
	return lasts.length, nil
}

// versionOf gives a version among those of r.
func versionOf(r *rulestore.Rule, number int) *rulestore.StoredVersion {
	i := slices.IndexFunc(r.Versions, func(v rulestore.StoredVersion) bool { return v.Version.Number == number })
	if i < 0 {
		return nil
	}
	return &r.Versions[i]
}
