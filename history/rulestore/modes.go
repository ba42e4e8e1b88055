package rulestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// ModeChange asks for another mode of a rule.
type ModeChange struct {
	Rule     string
	Mode     rules.Mode
	By       string
	Reason   string
	Override bool // promote although the log format carries no verdict; needs a reason

	// Version is the version to promote, as somebody has looked at it: the one that acts, or the pending one. 0 is the one that acts, and
	// is refused of a rule that has both, so that nobody promotes what he has not looked at.
	Version int
	Pending bool // promote the pending version, whatever its number
}

// ModeSet is a rule's mode after SetMode, with when, by whom and why it was set: by the caller or, where nothing changed, by
// somebody before.
type ModeSet struct {
	rules.ModeState
	Version  int       `json:"version"`            // the one that acts
	Pending  int       `json:"pending,omitempty"`  // the one that is pending; 0 for none
	Replaced int       `json:"replaced,omitempty"` // the one that acted before a pending one was promoted; 0: none was
	Changed  bool      `json:"changed"`            // false: the rule had that mode already
	Since    time.Time `json:"since"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
}

// SetMode sets a rule's mode: promote, demote, disable and enable. To promote a pending version is to make it the one that acts, in
// the place of the one before; other changes leave it pending. The generation rises, so that blocks written before hold no
// longer. The change is audited, heard by WatchModes, and published as a routing version where the rule starts or stops to
// count. A mode that the rule has already changes nothing. postgres.ErrNotFound is wrapped for an unknown rule.
//
// A rule may block only when its document has a block, and when the live stream's log format carries verdicts: without
// them our own refusals would feed its windows, and keep a client blocked for ever.
func (s *Store) SetMode(ctx context.Context, c ModeChange) (ModeSet, error) {
	var set ModeSet
	err := s.db.Transact(ctx, fmt.Sprintf("setting rule %q to %s", c.Rule, c.Mode), func(tx pgx.Tx) error {
		if err := streams.Lock(ctx, tx, streams.Live); err != nil {
			return err
		}
		r, err := findRule(ctx, tx, c.Rule)
		if err != nil {
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
		live := r.Newest.Version
		if pending {
			b := &batch{tx: tx}
			r.act(b, OutcomePromoted)
			if err := b.send(ctx); err != nil {
				return err
			}
			details = append(details, fmt.Sprintf("version %d, which was pending, in place of version %d: %s",
				r.Newest.Version.Number, live.Number, strings.Join(rules.Diff(&live.Document, &r.Newest.Version.Document), "; ")))
		}
		if c.Mode == rules.ModeBlock {
			override, err := mayBlock(ctx, tx, &r, c)
			if err != nil {
				return err
			}
			if override != "" {
				details = append(details, override)
			}
		}
		slices.Reverse(details)
		if err := s.storeMode(ctx, tx, &r, c, audit.Entry{Action: action, Detail: strings.Join(details, "; ")}); err != nil {
			return err
		}
		set = r.modeSet(true)
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
	set := ModeSet{ModeState: r.modeState(), Version: r.Newest.Version.Number, Changed: changed, Since: r.Changed, By: r.ChangedBy, Reason: r.Reason}
	if r.Pending != nil {
		set.Pending = r.Pending.Version.Number
	}
	return set
}

// promotes reports whether it is the pending version that c asks to promote.
func (r *Rule) promotes(c ModeChange) (pending bool, err error) {
	live := r.Newest.Version.Number
	if c.Mode != rules.ModeBlock {
		if c.Version != 0 || c.Pending {
			return false, fmt.Errorf("a version is named only to promote it: mode %s is the rule's", c.Mode)
		}
		return false, nil
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
	case c.Version == 0 && !c.Pending && r.Mode == rules.ModeBlock:
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
	entry.Actor, entry.Object, entry.Reason = c.By, "rule "+c.Rule, c.Reason
	r.Mode, r.Promoted = c.Mode, r.Newest.Version.Number // whether it was pending or not: its number was given before this moment
	r.ChangedBy, r.Reason = traffic.Printable(c.By), traffic.Printable(c.Reason)
	// The clock at this moment, under the stream's lock, and not that of the transaction's start: see Rule.Promoted.
	err := tx.QueryRow(ctx, `
		UPDATE rule_modes SET mode = $2, generation = generation + 1, changed_at = clock_timestamp(), changed_by = $3, reason = $4
		WHERE rule = $1 RETURNING generation, changed_at`,
		c.Rule, string(c.Mode), r.ChangedBy, r.Reason).Scan(&r.Generation, &r.Changed)
	if err != nil {
		return err
	}
	r.Changed = r.Changed.UTC()
	if err := audit.Write(ctx, tx, entry); err != nil {
		return err
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
	case to == rules.ModeBlock:
		return "promote", nil
	case to == rules.ModeOff:
		return "disable", nil
	case to == rules.ModeShadow && from == rules.ModeOff:
		return "enable", nil
	case to == rules.ModeShadow:
		return "demote", nil
	}
	return "", fmt.Errorf("mode %q: allowed are %s, %s and %s", to, rules.ModeOff, rules.ModeShadow, rules.ModeBlock)
}

// mayBlock returns an error where the rule must not block. detail is for the audit trail: the reason that was overridden.
func mayBlock(ctx context.Context, tx pgx.Tx, r *Rule, c ModeChange) (detail string, err error) {
	if r.Newest.Version.Block == nil {
		return "", errors.New("its document has no block: add one (key, ttl, extend) and apply it")
	}
	routing, err := newestRouting(ctx, tx, streams.Live)
	if err != nil {
		return "", err
	}
	if routing == nil {
		return "", errNoRouting
	}
	lack := verdictLack(routing.Format)
	switch {
	case lack == "":
		return "", nil
	case !c.Override:
		return "", fmt.Errorf("%s; without it our own refusals would keep a client blocked "+
			"(override with a reason if they cannot reach this log)", lack)
	case c.Reason == "":
		return "", fmt.Errorf("%s; an override needs a reason", lack)
	}
	return "override: " + lack, nil
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
