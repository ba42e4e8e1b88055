package acts

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Witness writes down acts that leave no entry of the audit trail by themselves: what is taken away as a file, and
// views that are kept.
type Witness struct {
	Masking
}

var _ access.Witness = (*Witness)(nil)

// witnessTimeout bounds how long an act waits for its entry.
const witnessTimeout = 5 * time.Second

// Tell writes the entry of an act, with the question that it is about. What a visitor who is shown pseudonyms has named
// otherwise is left out: the entry would show him which pseudonym that has.
func (w *Witness) Tell(r *http.Request, actor access.Actor, act access.Act) error {
	question := r.URL.Query()
	if access.Changes(r.Method) { // the form says what is done, and the address nothing
		if err := access.Form(nil, r); err != nil {
			return err
		}
		// What cannot be read is no question: who keeps it refuses it.
		question, _ = url.ParseQuery(r.PostForm.Get("query"))
	}
	ctx, cancel := context.WithTimeout(r.Context(), witnessTimeout)
	defer cancel()
	object := "history"
	if act == access.SaveView {
		object = "view"
	}
	if source := w.source(actor, question.Get("source")); source != "" {
		object += " of " + source
	}
	entry := audit.Entry{Actor: actor.Name, Via: actor.Via, Action: string(act), Object: object,
		Reason: asked(question), Detail: r.Method + " " + r.URL.Path}
	if err := w.Trail.Add(ctx, entry); err != nil {
		return &access.UnwrittenError{Act: act, Cause: err}
	}
	return nil
}

// source is the source that a question is about, as the audit trail names sources; empty: none, or one that the actor
// may not name so.
func (w *Witness) source(actor access.Actor, text string) string {
	subject, field, value := traffic.CutSource(text)
	if subject == "" && (field == "" || value == "") {
		return ""
	}
	plain, err := w.Masker.For(actor).ResolveSource(text)
	if err != nil {
		return ""
	}
	if s, f, v := traffic.CutSource(plain); s == subject && f == field && v == value { // there is no pseudonym in it
		subject, field, value = rules.TypedSource(text)
	}
	if subject == "" {
		subject = traffic.SubjectOf([]traffic.SubjectValue{{Field: field, Value: value}})
	}
	return string(subject)
}

// maxAsked bounds what an entry says of a question, in bytes.
const maxAsked = 500

// asked is a question in its own words, but for the source that it is about and the place of the page. They are the
// actor's, as a reason is.
func asked(question url.Values) string {
	var said []string
	for _, name := range slices.Sorted(maps.Keys(question)) {
		if value := question.Get(name); value != "" && name != "source" && name != "cursor" {
			said = append(said, name+" "+value)
		}
	}
	text := strings.Join(said, ", ")
	if len(text) > maxAsked {
		text = strings.ToValidUTF8(text[:maxAsked], "") + "…"
	}
	return text
}
