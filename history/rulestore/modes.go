package rulestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// ModeChange asks for another mode of a rule.
type ModeChange struct {
	Rule     string
	Mode     rules.Mode
	By       string
	Via      string // how who asks came, for the audit trail
	Reason   string
	Override string // why to promote although gates do not pass, or the log format carries no verdict; empty: not to

	// Version is the version to promote, as somebody has looked at it: the one that acts, or the pending one. 0 is the one that acts, and
	// is refused of a rule that has both, so that nobody promotes what he has not looked at.
	Version int
	Pending bool // promote the pending version, whatever its number

	// Dossier is the evidence with which to promote; nil: there is none, and nothing is measurable.
	Dossier *Dossier
	// News is what has come since the dossier was looked at, for the audit trail.
	News []string
	// Check is asked of the rule as it stands when the change is made, within the transaction; its error refuses the change. nil: nothing
	// is asked.
	Check func(r *Rule) error

	goesOn bool // the blocks of the present generation go on to hold
	quiet  bool // there is no entry of the audit trail
}

// checked asks a check, where there is one.
func (r *Rule) checked(check func(r *Rule) error) error {
	if check == nil {
		return nil
	}
	return check(r)
}

// ModeSet is a rule's mode after SetMode, with when, by whom and why it was set: by the caller or, where nothing changed, by
// somebody before.
type ModeSet struct {
	rules.ModeState
	Version  int       `json:"version"`            // the one that acts
	Pending  int       `json:"pending,omitempty"`  // the one that is pending; 0 for none
	Replaced int       `json:"replaced,omitempty"` // the one that acted before a pending one was promoted; 0: none was
	Changed  bool      `json:"changed"`            // false: the rule had that mode already
	Canary   *Canary   `json:"canary,omitempty"`   // where a rule in canary stands
	Since    time.Time `json:"since"`
	By       string    `json:"by" mask:"name"`
	Reason   string    `json:"reason" mask:"text,By"`
	// Gates are what the gates said of a promotion; Overridden is what was against it, and did not keep it from being made.
	Gates      []promotion.Verdict `json:"gates,omitempty"`
	Overridden []string            `json:"overridden,omitempty" mask:"line"`
	// hash of the evidence that was stored with the promotion
	Dossier string `json:"dossier,omitempty" mask:"hash"`
}

// SetMode sets a rule's mode: promote, demote, disable and enable. To promote a pending version is to make it the one that acts, in
// the place of the one before; other changes leave it pending. The generation rises, so that blocks written before hold no
// longer. The change is audited, heard by WatchModes, and published as a routing version where the rule starts or stops to
// count. A mode that the rule has already changes nothing. postgres.ErrNotFound is wrapped for an unknown rule.
//
// A rule may block, or be a canary, only when its document has a block; and when its gates pass, and the live stream's log format carries
// verdicts, without which our own refusals would feed its windows and keep a client blocked for ever: else *GatesError, unless
// that is overridden with a reason. All of it is asked in the transaction of the change. A rule that blocks is made no canary.
func (s *Store) SetMode(ctx context.Context, c ModeChange) (ModeSet, error) {
	var set ModeSet
	err := s.db.Transact(ctx, fmt.Sprintf("setting rule %q to %s", c.Rule, c.Mode), func(tx pgx.Tx) error {
		if _, err := begin(ctx, tx); err != nil {
			return err
		}
		r, err := findRule(ctx, tx, c.Rule)
		if err != nil {
			return err
		}
		if err := r.checked(c.Check); err != nil {
			return err
		}
		if r.Removed {
			return r.removedError()
		}
		action, err := actionOf(r.Mode, c.Mode)
		if err != nil {
			return err
		}
		pending, err := r.promotes(c)
		if err != nil {
			return err
		}
		if r.Mode == c.Mode && !pending {
			set = r.modeSet(false)
			return nil
		}
		var details []string
		live, before := r.Newest.Version, r.stands()
		if pending {
			b := &batch{tx: tx}
			r.act(b, OutcomePromoted)
			if err := b.send(ctx); err != nil {
				return err
			}
			details = append(details, fmt.Sprintf("version %d, which was pending, in place of version %d: %s",
				r.Newest.Version.Number, live.Number, strings.Join(rules.Diff(&live.Document, &r.Newest.Version.Document), "; ")))
		}
		a := &admitted{}
		if c.Mode.Blocks() {
			if a, err = admit(ctx, tx, &r, &c); err != nil {
				return err
			}
			details = append(details, r.promotionDetails(&c, a)...)
			if err := a.auditOverride(ctx, tx, &r, &c, before); err != nil {
				return err
			}
		}
		if err := s.storeMode(ctx, tx, &r, c, audit.Entry{Action: action, Detail: strings.Join(details, "; "), Before: before}); err != nil {
			return err
		}
		if err := r.storePromotion(ctx, tx, a); err != nil {
			return err
		}
		set = r.modeSet(true)
		set.Gates, set.Overridden = a.verdicts, a.overridden
		if c.Dossier != nil {
			set.Dossier = c.Dossier.Hash()
		}
		if pending {
			set.Replaced = live.Number
		}
		return nil
	})
	return set, err
}

func (r *Rule) removedError() error {
	return fmt.Errorf("removed on %s by %s: %w", r.Changed.Format("2006-01-02"), r.ChangedBy, postgres.ErrNotFound)
}

func (r *Rule) modeSet(changed bool) ModeSet {
	set := ModeSet{
		ModeState: r.modeState(), Version: r.Newest.Version.Number, Changed: changed, Canary: r.Canary, Since: r.Changed, By: r.ChangedBy, Reason: r.Reason,
	}
	if r.Pending != nil {
		set.Pending = r.Pending.Version.Number
	}
	return set
}

// promotes reports whether it is the pending version that c asks to promote.
func (r *Rule) promotes(c ModeChange) (pending bool, err error) {
	live := r.Newest.Version.Number
	if !c.Mode.Blocks() {
		if c.Version != 0 || c.Pending {
			return false, fmt.Errorf("a version is named only to promote it: mode %s is the rule's", c.Mode)
		}
		return false, nil
	}
	if c.Mode == rules.ModeCanary && r.Mode == rules.ModeBlock {
		return false, fmt.Errorf("it blocks since %s, by %s: a canary would let pass most of whom it holds; demote it first (weir rules demote %s), or promote to block",
			r.Changed.Format(time.RFC3339), r.ChangedBy, c.Rule)
	}
	if r.Pending == nil {
		switch {
		case c.Pending:
			return false, errors.New("no version is pending")
		case c.Version != 0 && c.Version != live:
			return false, fmt.Errorf("version: got %d, allowed %d, which is the newest; weir rules rollback makes an old document a new version", c.Version, live)
		}
		return false, nil
	}
	next := r.Pending.Version.Number
	switch {
	case c.Version != 0 && c.Version != live && c.Version != next, c.Pending && c.Version == live:
		return false, fmt.Errorf("version: got %d, allowed %d, which is pending, and %d, which acts", c.Version, next, live)
	case c.Version == 0 && !c.Pending && r.Mode.Blocks():
		return false, fmt.Errorf("version: got none of a rule that blocks by version %d and has version %d pending, allowed the one that was looked at "+
			"(weir rules diff %[3]s %[1]d %[2]d): weir rules promote %[3]s --version %[2]d, or weir rules promote %[3]s --pending for whatever is pending",
			live, next, c.Rule)
	case c.Version == 0 && !c.Pending:
		return false, fmt.Errorf("version %d acts, in %s, and version %d is pending: say which is to block with --version", live, r.Mode, next)
	}
	return c.Pending || c.Version != live, nil
}

// storeMode stores the change, and updates r.
func (s *Store) storeMode(ctx context.Context, tx pgx.Tx, r *Rule, c ModeChange, entry audit.Entry) error {
	entry.Actor, entry.Via, entry.Object, entry.Reason = c.By, c.Via, "rule "+c.Rule, c.Reason
	if c.Mode != rules.ModeCanary {
		r.Canary = nil
	} else if err := r.setCanary(ctx, tx); err != nil {
		return err
	}
	r.Mode, r.Promoted = c.Mode, r.Newest.Version.Number // whether it was pending or not: its number was given before this moment
	r.ChangedBy, r.Reason = traffic.Printable(c.By), traffic.Printable(c.Reason)
	// The clock at this moment, under the stream's lock, and not that of the transaction's start: see Rule.Promoted.
	err := tx.QueryRow(ctx, `
		UPDATE rule_modes SET mode = $2, generation = CASE WHEN $5 THEN generation ELSE greatest(generation,
			(SELECT floor FROM rule_numbers)) + 1 END,
			changed_at = clock_timestamp(), changed_by = $3, reason = $4
		WHERE rule = $1 RETURNING generation, changed_at`,
		c.Rule, string(c.Mode), r.ChangedBy, r.Reason, c.goesOn).Scan(&r.Generation, &r.Changed)
	if err != nil {
		return err
	}
	r.Changed, entry.After = r.Changed.UTC(), r.stands()
	if !c.quiet {
		if err := audit.Write(ctx, tx, entry); err != nil {
			return err
		}
	}
	if err := s.db.Notify(ctx, tx, modesTopic(), c.Rule); err != nil {
		return err
	}
	_, err = s.publishRules(ctx, tx)
	return err
}

// actionOf names a change of mode in the audit trail.
func actionOf(from, to rules.Mode) (string, error) {
	switch {
	case to.Blocks():
		return "promote", nil
	case to == rules.ModeOff:
		return "disable", nil
	case to == rules.ModeShadow && from == rules.ModeOff:
		return "enable", nil
	case to == rules.ModeShadow:
		return "demote", nil
	}
	return "", fmt.Errorf("mode %q: allowed are %s, %s, %s and %s", to, rules.ModeOff, rules.ModeShadow, rules.ModeCanary, rules.ModeBlock)
}

// promotionDetails are what the audit trail says of a promotion beside its reason. They begin the canary of r where c asks for one.
func (r *Rule) promotionDetails(c *ModeChange, a *admitted) (details []string) {
	if c.Mode == rules.ModeCanary {
		r.beginCanary(a.predicted)
		details = append(details, fmt.Sprintf("to canary, step 1 of %d: %s of its block keys", len(r.Canary.Steps), r.Canary.Share))
		if blind := a.predicted.Uncompared(); blind != "" {
			details = append(details, blind)
		}
	}
	if c.Dossier != nil {
		details = append(details, "dossier "+c.Dossier.Hash())
	}
	return append(append(details, a.loosened...), c.News...)
}

// storePromotion keeps with the mode which dossier it was set with.
func (r *Rule) storePromotion(ctx context.Context, tx pgx.Tx, a *admitted) error {
	_, err := tx.Exec(ctx, "UPDATE rule_modes SET dossier = $2 WHERE rule = $1", r.Newest.Version.ID, a.hash)
	return err
}

// verdictLack says why events of format f carry no verdict; empty when they do.
func verdictLack(f rules.Format) string {
	switch {
	case format.CarriesVerdict(f.Name, f.Map):
		return ""
	case f.Name == format.JSON:
		return "the live stream's log format json has no field verdict: " +
			"name the member that holds it in the field map (verdict=verdict where it has that name)"
	}
	return fmt.Sprintf("the live stream's log format %q has no field verdict", f.Name)
}
