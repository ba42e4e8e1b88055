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

// otherTexts finds the steps that leave a document as it is and its text not. The text is what people go by who
// promote the rule, so that to change it is an act as any other: its owner's, and audited.
func otherTexts(ctx context.Context, tx pgx.Tx, steps []step) error {
	var names []string
	var numbers []int
	var hashes [][]byte
	at := map[string]*step{}
	for i := range steps {
		st := &steps[i]
		if st.source == "" || st.Kind == ChangeKept || st.Kind == ChangeRemoved {
			continue
		}
		hash := sha256.Sum256([]byte(traffic.Printable(st.source)))
		if st.edited {
			st.Text = &TextChange{Becomes: hex.EncodeToString(hash[:])}
			continue
		}
		names, numbers, hashes = append(names, st.Rule), append(numbers, st.next.Number), append(hashes, hash[:])
		at[st.Rule] = st
	}
	rows, err := tx.Query(ctx, `SELECT n.rule, v.source
		FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS n (rule, version, hash)
		JOIN `+allVersions+` ON v.rule = n.rule AND v.version = n.version
		WHERE sha256(convert_to(v.source, 'UTF8')) <> n.hash`, names, numbers, hashes)
	if err != nil {
		return err
	}
	var rule, stored string
	_, err = pgx.ForEachRow(rows, []any{&rule, &stored}, func() error {
		st := at[rule]
		if st.Kind == ChangeUnchanged {
			st.Kind = ChangeText
		}
		st.Diff = append(st.Diff, "text: other comments, notation or tests, which change nothing that acts")
		text := stored
		st.replaces = &text
		st.Text = &TextChange{Was: hashOfText(stored), Becomes: hashOfText(traffic.Printable(st.source))}
		return nil
	})
	return err
}

// keepText queues the text of a document that is stored already. What was stored with the version stays.
func (st *step) keepText(b *batch, by audit.Entry) {
	if st.replaces != nil {
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
	rows, err := s.db.Query(ctx, "SELECT v.rule, v.version, v.pending, v.source FROM "+allVersions+` WHERE v.rule = ANY ($1) AND (v.pending AND v.outcome = '' OR
		NOT v.pending AND v.version = (SELECT max(w.version) FROM rule_versions w WHERE w.rule = v.rule))`, names)
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
