package rulestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

// Dossier is the evidence for the promotion of a version, as it was shown to who promotes.
type Dossier struct {
	Rule         string
	Version      int
	Since, Until time.Time // what it is about
	Made         time.Time // at most MaxDossierAge before the promotion
	By           string    // who had it made
	// Document is the whole of it as canonical JSON: its SHA-256 is the dossier's hash. It is stored with the promotion as it is.
	Document json.RawMessage
	Evidence promotion.Evidence // the figures of Document that gates ask
}

// MaxDossierAge is how old a dossier may be with which a rule is promoted, by the clock of the database: who promotes looks at what is so now.
const MaxDossierAge = 15 * time.Minute

// Hash is the SHA-256 of d's document, in hex.
func (d *Dossier) Hash() string {
	sum := sha256.Sum256(d.Document)
	return hex.EncodeToString(sum[:])
}

// GatesError says that a promotion was refused since not all of the rule's gates pass. Nothing was changed.
type GatesError struct {
	Rule     string
	Verdicts []promotion.Verdict // of all gates, in the order of documents
	Verdict  string              // what the log format lacks; empty: nothing
}

func (e *GatesError) Error() string {
	return fmt.Sprintf("rule %s was not promoted: %s; promote it all the same with --override and the reason for that",
		e.Rule, strings.Join(missedBy(e.Verdict, e.Verdicts), "; "))
}

// missedBy are the reasons against a promotion.
func missedBy(lack string, verdicts []promotion.Verdict) (reasons []string) {
	if lack != "" {
		reasons = append(reasons, lack+"; without it our own refusals would keep a client blocked")
	}
	for _, v := range promotion.Missed(verdicts) {
		reasons = append(reasons, v.String())
	}
	return reasons
}

// admitted is a promotion that may be carried out.
type admitted struct {
	verdicts   []promotion.Verdict
	overridden []string // what was against it; the override's reason stands in the change
	loosened   []string // gates of the document that passed, and whose defaults would not have
	hash       []byte   // of the dossier; nil: there is none
	predicted  promotion.Prediction
}

// admit asks whether r's newest version may block: its document, the log's format and its gates, in the transaction of the promotion.
func admit(ctx context.Context, tx pgx.Tx, r *Rule, c *ModeChange) (*admitted, error) {
	v := &r.Newest.Version
	if v.Block == nil {
		return nil, errors.New("its document has no block: add one (key, ttl, extend) and apply it")
	}
	lack, err := verdictLackOf(ctx, tx)
	if err != nil {
		return nil, err
	}
	var evidence *promotion.Evidence
	if c.Dossier != nil {
		if err := c.Dossier.fits(ctx, tx, v); err != nil {
			return nil, err
		}
		evidence = &c.Dossier.Evidence
	}
	gates := rules.GatesOf(&v.Document)
	a := &admitted{verdicts: gates.Judge(evidence), predicted: gates.Predict(evidence)}
	a.overridden = missedBy(lack, a.verdicts)
	if len(a.overridden) > 0 && strings.TrimSpace(c.Override) == "" {
		return nil, &GatesError{Rule: c.Rule, Verdicts: a.verdicts, Verdict: lack}
	}
	a.loosened = loosened(a.verdicts, promotion.DefaultGates().Judge(evidence))
	if c.Dossier != nil {
		a.hash, err = c.Dossier.store(ctx, tx)
	}
	return a, err
}

// loosened says which gates passed since the document asks for less than the default, with the figures that were passed
// over.
func loosened(asked, byDefault []promotion.Verdict) (out []string) {
	for i, v := range byDefault {
		if v.Outcome != promotion.Passed && asked[i].Outcome == promotion.Passed {
			out = append(out, fmt.Sprintf("%s passed at %s (document: %s; default: %s)", v.Gate, asked[i].Got,
				asked[i].Allowed, v.Allowed))
		}
	}
	return out
}

// fits says what makes a dossier none of a promotion of v now.
func (d *Dossier) fits(ctx context.Context, tx pgx.Tx, v *rules.Version) error {
	now, err := clock(ctx, tx)
	switch {
	case err != nil:
		return err
	case d.Rule != v.ID || d.Version != v.Number:
		return fmt.Errorf("evidence: got that of version %d of rule %s, allowed that of version %d of rule %s", d.Version, d.Rule, v.Number, v.ID)
	case now.Sub(d.Made) > MaxDossierAge:
		return fmt.Errorf("evidence: got what was so at %s, allowed at most %s ago: look again", d.Made.Format(time.RFC3339), MaxDossierAge)
	case !json.Valid(d.Document):
		return errors.New("evidence: its document is no JSON")
	}
	return nil
}

// store keeps d, once.
func (d *Dossier) store(ctx context.Context, tx pgx.Tx) ([]byte, error) {
	sum := sha256.Sum256(d.Document)
	_, err := tx.Exec(ctx, `INSERT INTO dossiers (hash, rule, version, document, since, until, made_at, made_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (hash) DO NOTHING`,
		sum[:], d.Rule, d.Version, string(d.Document), d.Since, d.Until, d.Made, traffic.Printable(d.By))
	return sum[:], err
}

// auditOverride writes why a promotion of r was made all the same, apart from why it was made. before is how the rule stood.
func (a *admitted) auditOverride(ctx context.Context, tx pgx.Tx, r *Rule, c *ModeChange, before string) error {
	if len(a.overridden) == 0 {
		return nil
	}
	next := *r
	next.Mode = c.Mode
	next.Generation++
	return audit.Write(ctx, tx, audit.Entry{
		Actor: c.By, Via: c.Via, Action: "override", Object: "rule " + c.Rule, Reason: c.Override, Detail: strings.Join(a.overridden, "; "),
		Before: before, After: next.stands(),
	})
}

// verdictLackOf says why events of the live stream carry no verdict; empty when they do.
func verdictLackOf(ctx context.Context, tx pgx.Tx) (string, error) {
	routing, err := newestRouting(ctx, tx, streams.Live)
	if err != nil {
		return "", err
	}
	if routing == nil {
		return "", errNoRouting
	}
	return verdictLack(routing.Format), nil
}

// TellsRefusals reports whether what gates refuse is counted: it is in the live stream's log, and the stages tell of
// it.
func (s *Store) TellsRefusals(ctx context.Context) (bool, error) {
	routing, err := newestRouting(ctx, s.db, streams.Live)
	if err != nil {
		return false, s.db.Fail("reading whether refusals are counted", err)
	}
	return routing != nil && routing.RecordFormat >= rules.RefusalRecordFormat && verdictLack(routing.Format) == "", nil
}

// StoredDossier is a dossier as a promotion kept it.
type StoredDossier struct {
	Hash     string          `json:"hash"`
	Rule     string          `json:"rule"`
	Version  int             `json:"version"`
	Since    time.Time       `json:"since"`
	Until    time.Time       `json:"until"`
	Made     time.Time       `json:"made_at"`
	By       string          `json:"made_by"`
	Document json.RawMessage `json:"document"`
}

// Dossiers are those of the promotions of a rule, newest first.
func (s *Store) Dossiers(ctx context.Context, rule string) ([]StoredDossier, error) {
	rows, err := s.db.Query(ctx, `SELECT encode(hash, 'hex'), rule, version, since, until, made_at, made_by, document FROM dossiers
		WHERE rule = $1 ORDER BY made_at DESC, hash`, traffic.Printable(rule))
	if err == nil {
		var all []StoredDossier
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d StoredDossier, err error) {
			var document string
			err = row.Scan(&d.Hash, &d.Rule, &d.Version, &d.Since, &d.Until, &d.Made, &d.By, &document)
			d.Since, d.Until, d.Made, d.Document = d.Since.UTC(), d.Until.UTC(), d.Made.UTC(), json.RawMessage(document)
			return d, err
		})
		if err == nil {
			return all, nil
		}
	}
	return nil, s.db.Fail(fmt.Sprintf("reading the dossiers of rule %q", rule), err)
}
