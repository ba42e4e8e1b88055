package rulestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Document is a rule to apply: the document, and the YAML that it was read from, kept for people; it may be empty, and then what was kept
// stays. The text is no part of the version: one that says the same in other words makes none, and is kept beside the
// one before.
type Document struct {
	rules.Document
	Source string
}

// maxSourceBytes bounds the text that is kept of a document. Of a longer one the YAML is kept that it amounts to.
const maxSourceBytes = 64 << 10

// WithSources gives each rule of a set its text, or the YAML that it amounts to.
func WithSources(set *rules.Set) []Document {
	out := make([]Document, len(set.Rules))
	for i, d := range set.Rules {
		out[i] = Document{Document: d, Source: set.Texts[d.ID]}
		if out[i].Source == "" || len(out[i].Source) > maxSourceBytes {
			out[i].Source = d.YAML()
		}
	}
	return out
}

// bindTexts binds the steps of a plan to the texts that they were planned against, and finds those that leave a
// document as it is and its text not. The text is what people go by who promote the rule, so that to change it is an
// act as any other: its owner's, and audited.
func bindTexts(ctx context.Context, tx pgx.Tx, steps []step) error {
	var names []string
	for i := range steps {
		if st := &steps[i]; st.was != nil && st.Kind != ChangeKept {
			names = append(names, st.Rule)
		}
	}
	stored, err := standingTexts(ctx, tx, names)
	if err != nil {
		return err
	}
	for i := range steps {
		if st := &steps[i]; st.Kind != ChangeKept {
			st.bindText(stored[st.Rule])
		}
	}
	return nil
}

// standing are the hashes of the texts of a rule's version that acts and of the pending one, as they are stored.
type standing struct {
	text, pending string
	number        int // of the pending version; 0: none is pending
}

// both names both texts.
func (s *standing) both() string {
	if s.number == 0 {
		return s.text
	}
	return s.text + "+" + s.pending
}

func standingTexts(ctx context.Context, tx pgx.Tx, names []string) (map[string]standing, error) {
	rows, err := tx.Query(ctx,
		"SELECT v.rule, v.version, v.pending, encode(sha256(convert_to(v.source, 'UTF8')), 'hex') FROM "+
			standingVersions, names)
	if err != nil {
		return nil, err
	}
	found := map[string]standing{}
	var rule, text string
	var number int
	var pending bool
	_, err = pgx.ForEachRow(rows, []any{&rule, &number, &pending, &text}, func() error {
		s := found[rule]
		if pending {
			s.number, s.pending = number, text
		} else {
			s.text = text
		}
		found[rule] = s
		return nil
	})
	return found, err
}

// bindText says which texts the step takes the place of.
func (st *step) bindText(stored standing) {
	given := ""
	if st.source != "" {
		given = hashOfText(traffic.Printable(st.source))
	}
	switch {
	case st.Kind == ChangeRemoved:
		st.Text = &TextChange{Was: stored.both()}
		return
	case st.edited && (st.was != nil || given != ""):
		st.Text = &TextChange{Was: stored.both(), Becomes: given}
		return
	case st.edited:
		return
	case st.ends != "": // the document is that of the version that acts, and what was pending is no more
		st.Text = &TextChange{Was: stored.both()}
	}
	replaced := stored.text
	if st.next.Number == stored.number {
		replaced = stored.pending
	}
	if given == "" || given == replaced {
		return
	}
	if st.Kind == ChangeUnchanged {
		st.Kind = ChangeText
	}
	st.Diff = append(st.Diff, "text: other comments, notation or tests, which change nothing that acts")
	st.rewrites = true
	if st.Text == nil {
		st.Text = &TextChange{Was: replaced}
	}
	st.Text.Becomes = given
}

// keepText queues the text of a document that is stored already. What was stored with the version stays.
func (st *step) keepText(b *batch, by audit.Entry) {
	if st.rewrites {
		b.queue("INSERT INTO rule_texts (rule, version, source, author, reason) VALUES ($1, $2, $3, $4, $5)",
			st.Rule, st.next.Number, traffic.Printable(st.source), by.Actor, by.Reason)
	}
}

// texts are the parts of an entry of the audit trail that tell the texts before and afterwards apart.
func (st *step) texts() (before, after string) {
	return "text " + shortHash(st.Text.Was), "text " + shortHash(st.Text.Becomes)
}

func hashOfText(text string) string {
	hash := sha256.Sum256([]byte(text))
	return hex.EncodeToString(hash[:])
}

// standingVersions are the versions of the rules $1 that act, and those that are pending.
const standingVersions = allVersions + ` WHERE v.rule = ANY ($1) AND (v.pending AND v.outcome = '' OR
	NOT v.pending AND v.version = (SELECT max(w.version) FROM rule_versions w WHERE w.rule = v.rule))`

// Sources fills in the texts of the newest and the pending versions of rules that List gave.
func (s *Store) Sources(ctx context.Context, all []Rule) error {
	var names []string
	for i := range all {
		names = append(names, all[i].Newest.Version.ID)
	}
	type key struct {
		rule    string
		number  int
		pending bool
	}
	texts := map[key]string{}
	rows, err := s.db.Query(ctx, "SELECT v.rule, v.version, v.pending, v.source FROM "+standingVersions, names)
	if err == nil {
		var k key
		var text string
		_, err = pgx.ForEachRow(rows, []any{&k.rule, &k.number, &k.pending, &text}, func() error {
			texts[k] = text
			return nil
		})
	}
	if err != nil {
		return s.db.Fail("reading the texts of rules", err)
	}
	for i := range all {
		r := &all[i]
		r.Newest.Source = texts[key{r.Newest.Version.ID, r.Newest.Version.Number, false}]
		if r.Pending != nil {
			r.Pending.Source = texts[key{r.Newest.Version.ID, r.Pending.Version.Number, true}]
		}
	}
	return nil
}
