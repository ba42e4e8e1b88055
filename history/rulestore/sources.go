package rulestore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Document is a rule to apply: the document, and the YAML that it was read from, kept for people; it may be empty, and then what was kept
// stays. The text is no part of the version: one that says the same in other words takes its place.
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

// keepSource keeps the text of a document that is stored already: its comments and tests may be others.
func (st *step) keepSource(b *batch) {
	if st.edited || st.source == "" {
		return
	}
	b.queue("UPDATE "+st.table()+" SET source = $3 WHERE rule = $1 AND version = $2 AND source <> $3",
		st.Rule, st.next.Number, traffic.Printable(st.source))
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
