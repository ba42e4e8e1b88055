package pages

import (
	"net/http"
	"net/url"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/traffic"
)

// eraseWait is how long the form waits for an erasure, which goes on after that.
const eraseWait = 10 * time.Second

// eraseAddress is where one value of an identity is erased from history; empty for whoever may not, and for what is several values or none.
func eraseAddress(r *reading, subject traffic.Subject, given string) string {
	values, err := subject.Values()
	if err != nil || len(values) != 1 || values[0].Missing || !r.forms || !r.may(access.Erase, "") {
		return ""
	}
	if _, known := traffic.ParseField(values[0].Field); !known {
		return ""
	}
	return "/erase?of=" + url.QueryEscape(given)
}

// routeErase adds the form that takes a person out of history, and what it does.
func (p acting) routeErase() {
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/erase", Act: access.Erase}, p.answered(func(w http.ResponseWriter, r *http.Request) error {
		form, _, err := p.eraseForm(r, r.URL.Query().Get("of"))
		if err != nil {
			return err
		}
		return p.show(w, r, &shell{Name: "act", Title: form.Title, Active: "explore", Body: form})
	}))
	p.mux.HandleFunc(access.Route{Method: http.MethodPost, Pattern: "/erase", Act: access.Erase}, p.answered(p.erase))
}

// eraseForm is the form, and the person as FIELD=VALUE.
func (p acting) eraseForm(r *http.Request, of string) (*actForm, string, error) {
	see, err := p.read(r)
	if err != nil {
		return nil, "", err
	}
	_, _, subject, err := see.sourceAsked(of)
	if err != nil {
		return nil, "", err
	}
	values, err := subject.Values()
	if err != nil || len(values) != 1 || eraseAddress(see, subject, of) == "" {
		return nil, "", &badRequest{"of", shown.Text(of), "FIELD=VALUE of one person, such as user=alice or ip=203.0.113.9"}
	}
	who := see.source(subject)
	return &actForm{
		Title: "Erase a person from history", Verb: "Erase", Danger: true, Action: "/erase", Back: "/sources?of=" + url.QueryEscape(of), Source: &who,
		Means: []string{
			"Episodes with their evidence, samples of requests in the episodes of others, decisions about blocks that have ended and saved views are deleted. They do not come back.",
			"The audit trail calls the person by a pseudonym from then on, also in the reason that is written here. Nobody is released: blocks hold until they end.",
			"All of it is done at once, or nothing. With a large history it takes minutes, and goes on when this page is closed; the audit trail tells when it is done.",
		},
		Hidden: []param{{"of", of}}, Confirm: "Erase it for good",
	}, values[0].Field + "=" + values[0].Value, nil
}

func (p acting) erase(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return &badRequest{"form", "", "fields as a form sends them"}
	}
	form, person, err := p.eraseForm(r, r.PostForm.Get("of"))
	if err != nil {
		return err
	}
	var state acts.ErasureState
	if err = confirmed(r); err == nil {
		state, err = p.o.Acts.Erase(r.Context(), access.From(r.Context()), acts.EraseRequest{Subject: person, Reason: r.PostFormValue("reason"), Wait: eraseWait})
	}
	if err != nil {
		return p.again(w, r, form, err)
	}
	p.forget()
	if state.Running {
		http.Redirect(w, r, withDid(form.Back, "erasing"), http.StatusSeeOther)
		return nil
	}
	http.Redirect(w, r, withDid(form.Back, "erase"), http.StatusSeeOther)
	return nil
}
