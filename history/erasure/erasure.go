// Package erasure takes a person out of history: every row that tells of one value of an identity, and what other rows say of it.
package erasure

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/traffic"
)

// Person is one value of one field of an identity: whom history is to forget.
type Person struct {
	Field  traffic.Field
	Value  string       // as ROUTE reads it (rules.TypedSource); of ip: an address or prefix, as Prefix says
	Typed  string       // as it was typed, where that differs: records of format 3 have it so
	Prefix netip.Prefix // of ip alone
}

// Request asks to erase a person.
type Request struct {
	Person Person
	By     string
	Via    string // how who asks came, for the audit trail
	Reason string
	DryRun bool // only says what would be erased
	// Shown are the pseudonyms by which the console shows the person: views and entries have them.
	Shown []string
	// Progress, where it is set, is told what is looked through, before it is.
	Progress func(what string)
}

// Done is what was erased, or would be, and what stays.
type Done struct {
	// Subject is who was read from what was typed.
	Subject traffic.Subject `json:"subject"`
	// Pseudonym stands for the person in the audit trail: a hash under the secret of the deployment, the same for the same person.
	Pseudonym string  `json:"pseudonym" mask:"-"`
	DryRun    bool    `json:"dry_run"`
	Erased    []Count `json:"erased"`
	Left      []Left  `json:"left"`
	Blocks    []Block `json:"blocks"` // in force: their decisions stay as long as they are
	// Texts are those that name the person, at most 200 of them, and TextsMore is how many more there are. They are
	// told by a dry run alone.
	Texts     []Text `json:"texts,omitempty"`
	TextsMore int    `json:"texts_more,omitempty"`
}

// Count is how many of something there were.
type Count struct {
	What string `json:"what" mask:"-"`
	N    int64  `json:"n"`
}

// Left is something that stays, and why.
type Left struct {
	What string `json:"what" mask:"-"`
	N    int64  `json:"n,omitempty"` // 0: not counted
	Why  string `json:"why" mask:"-"`
}

// Block is one that holds the person now.
type Block struct {
	Rule    string          `json:"rule" mask:"name"`
	Subject traffic.Subject `json:"subject"`
	Until   traffic.Time    `json:"until"`
}

// Eraser erases. It is safe for concurrent use.
type Eraser struct {
	db      *postgres.DB
	streams *streams.Store
}

// New returns the Eraser of an installation.
func New(db *postgres.DB, s *streams.Store) *Eraser { return &Eraser{db, s} }

var errDry = errors.New("nothing is to be erased")

// Erase erases all at once, with its entry of the audit trail, or nothing.
func (e *Eraser) Erase(ctx context.Context, r Request) (Done, error) {
	_, secret, err := e.streams.Secret(ctx)
	if err != nil {
		return Done{}, err
	}
	var done Done
	err = e.db.Transact(ctx, "erasing a person", func(tx pgx.Tx) error {
		w := work{tx: tx, person: r.Person, done: Done{Subject: r.Person.subject(),
			Pseudonym: r.Person.pseudonym(secret[:]),
			DryRun:    r.DryRun, Erased: []Count{}, Left: []Left{}, Blocks: []Block{}}}
		if err := w.run(ctx, &r); err != nil {
			return err
		}
		done = w.done
		if r.DryRun {
			return errDry
		}
		done.Texts, done.TextsMore = nil, 0
		return nil
	})
	if err != nil && !errors.Is(err, errDry) {
		return Done{}, err
	}
	return done, nil
}

// erasedMark stands behind the field in a pseudonym.
const erasedMark = ":erased-"

// pseudonym is the same for the same person, and tells nobody without the secret who it is.
func (p *Person) pseudonym(secret []byte) string {
	const bytes = 12
	h := hmac.New(sha256.New, secret)
	_, _ = fmt.Fprintf(h, "weir erasure\x00%s\x00%s", p.Field, p.Value) // a hash never fails
	return p.Field.String() + erasedMark + hex.EncodeToString(h.Sum(nil)[:bytes])
}

// work is one erasure.
type work struct {
	tx     pgx.Tx
	person Person
	done   Done
}

func (w *work) run(ctx context.Context, r *Request) error {
	at := func(what string) {
		if r.Progress != nil {
			r.Progress(what)
		}
	}
	for _, step := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"episodes", w.episodes}, {"samples of requests", w.samples}, {"block decisions", w.decisions},
		{"prefixes that hold the address", w.wider},
		{"saved views", func(ctx context.Context) error { return w.views(ctx, r.Shown) }},
	} {
		at(step.what)
		if err := step.run(ctx); err != nil {
			return err
		}
	}
	at("the audit trail and all reasons")
	detail, err := json.Marshal(w.done.Erased)
	if err != nil {
		return err
	}
	found := make([]string, len(w.done.Erased))
	for i, c := range w.done.Erased {
		found[i] = fmt.Sprintf("%s: %d", c.What, c.N)
	}
	entry := audit.Entry{Actor: r.By, Via: r.Via, Action: "erase", Object: "subject " + w.done.Pseudonym, Reason: r.Reason, Detail: string(detail),
		Before: cmp.Or(strings.Join(found, "; "), audit.None), After: audit.None}
	if err := audit.Write(ctx, w.tx, entry); err != nil {
		return err
	}
	if err := w.texts(ctx, r.Shown); err != nil { // the reason may name the person, too
		return err
	}
	return w.others(ctx)
}

func (w *work) erased(what string, n int64) {
	if n > 0 {
		w.done.Erased = append(w.done.Erased, Count{what, n})
	}
}

func (w *work) left(what string, n int64, why string) {
	w.done.Left = append(w.done.Left, Left{what, n, why})
}

// column is the column of the field that values of subjects are in.
func (p *Person) column() string {
	if p.Field == traffic.FieldUser {
		return "user_id"
	}
	return p.Field.String()
}

// values are the value and, where it was typed in another way, that.
func (p *Person) values() []string {
	if p.Typed == "" || p.Typed == p.Value {
		return []string{p.Value}
	}
	return []string{p.Value, p.Typed}
}

// subject is the person as weir writes sources.
func (p *Person) subject() traffic.Subject {
	return traffic.SubjectOf([]traffic.SubjectValue{{Field: p.Field.String(), Value: p.Value}})
}

// forms are the spellings of the value in rows.
func (p *Person) forms() (forms []string) {
	for _, value := range p.values() {
		forms = append(forms, traffic.Printable(value))
		if traffic.StoredAsDigest(value) {
			forms = append(forms, string(traffic.AppendStoredValue(nil, value)))
		}
	}
	return forms
}

// parts are how a subject may write the value: those that have no columns, of blocks and of the audit trail.
func (p *Person) parts() (parts []string) {
	for _, value := range p.values() {
		written := traffic.SubjectOf([]traffic.SubjectValue{{Field: p.Field.String(), Value: value}})
		for _, form := range []traffic.Subject{written, written.Stored(), written.WithDigests()} {
			if !slices.Contains(parts, string(form)) {
				parts = append(parts, string(form))
			}
		}
	}
	return parts
}

// condition is that a row is the person's, with its argument $1. subjects are columns that hold whole subjects, for $2.
func (p *Person) condition(subjects ...string) (sql string, args []any) {
	if p.Field == traffic.FieldIP {
		sql, args = "ip <<= $1::cidr", []any{p.Prefix}
	} else {
		sql, args = p.column()+" = ANY ($1::text[])", []any{p.forms()}
	}
	for _, column := range subjects {
		sql += " OR string_to_array(" + column + ", '&') && $2::text[]"
	}
	if len(subjects) > 0 {
		args = append(args, p.parts())
	}
	return "(" + sql + ")", args
}
