package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// ModeChange asks for another mode of a rule.
type ModeChange struct {
	Rule     string
	Mode     rules.Mode
	By       string
	Reason   string
	Override bool // promote although the log format carries no verdict; needs a reason
}

// SetMode sets a rule's mode: promote, demote, disable and enable. The generation rises, so that blocks written before
// hold no longer; a mode that the rule has already changes nothing. It is audited, told to those who WatchModes, and
// published as a routing version where the rule starts or stops to count. ErrNotFound is wrapped for an unknown rule.
//
// A rule may block only when its document has a block, and when the live stream's log format carries verdicts: without
// them our own refusals would feed its windows, and keep a client blocked for ever.
func (s *Store) SetMode(ctx context.Context, c ModeChange) (rules.ModeState, error) {
	var state rules.ModeState
	err := s.transact(ctx, fmt.Sprintf("setting rule %q to %s", c.Rule, c.Mode), func(tx pgx.Tx) error {
		if err := lockStream(ctx, tx, Live); err != nil {
			return err
		}
		r, err := findRule(ctx, tx, c.Rule)
		if err != nil {
			return err
		}
		if r.Removed {
			return fmt.Errorf("removed on %s by %s: %w", r.Changed.Format("2006-01-02"), r.ChangedBy, ErrNotFound)
		}
		action, err := actionOf(r.Mode, c.Mode)
		if err != nil {
			return err
		}
		if r.Mode == c.Mode {
			state = r.modeState()
			return nil
		}
		var detail string
		if c.Mode == rules.ModeBlock {
			if detail, err = mayBlock(ctx, tx, &r, c); err != nil {
				return err
			}
		}
		state, err = s.storeMode(ctx, tx, &r, c, AuditEntry{Action: action, Detail: detail})
		return err
	})
	return state, err
}

func (s *Store) storeMode(ctx context.Context, tx pgx.Tx, r *Rule, c ModeChange, entry AuditEntry) (rules.ModeState, error) {
	entry.Actor, entry.Object, entry.Reason = c.By, "rule "+c.Rule, c.Reason
	r.Mode, r.Promoted = c.Mode, r.Newest.Version.Number
	// The clock at this moment, under the stream's lock, and not that of the transaction's start: see Rule.Promoted.
	err := tx.QueryRow(ctx, `
		UPDATE rule_modes SET mode = $2, generation = generation + 1, changed_at = clock_timestamp(), changed_by = $3, reason = $4
		WHERE rule = $1 RETURNING generation`,
		c.Rule, string(c.Mode), traffic.Printable(c.By), traffic.Printable(c.Reason)).Scan(&r.Generation)
	if err != nil {
		return rules.ModeState{}, err
	}
	if err := writeAudit(ctx, tx, entry); err != nil {
		return rules.ModeState{}, err
	}
	if err := s.notify(ctx, tx, channelModes, c.Rule); err != nil {
		return rules.ModeState{}, err
	}
	if _, err := s.publishRules(ctx, tx); err != nil {
		return rules.ModeState{}, err
	}
	return r.modeState(), nil
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

// mayBlock returns what the audit trail is to say about an override.
func mayBlock(ctx context.Context, tx pgx.Tx, r *Rule, c ModeChange) (detail string, err error) {
	if r.Newest.Version.Block == nil {
		return "", errors.New("its document has no block: add one (key, ttl, extend) and apply it")
	}
	routing, err := newestRouting(ctx, tx, Live)
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
	case traffic.CarriesVerdict(f.Name, f.Map):
		return ""
	case f.Name == traffic.FormatJSON:
		return "the live stream's log format json has no field verdict: " +
			"name the member that holds it in the field map (verdict=verdict where it has that name)"
	}
	return fmt.Sprintf("the live stream's log format %q has no field verdict", f.Name)
}
