package pages

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// releaseForm is the form that lifts a block.
func (p acting) releaseForm(r *http.Request, q url.Values) (*actForm, error) {
	see, err := p.read(r)
	if err != nil {
		return nil, err
	}
	if err := access.May(see.visit.Actor, access.Release, ""); err != nil {
		return nil, err
	}
	rule, given := q.Get("rule"), traffic.Subject(q.Get("subject"))
	if see.Rules[rule] == nil && !rules.IsByHand(rule) {
		return nil, &badRequest{"rule", shown.Text(rule), "the name of a rule" + near(rule, see)}
	}
	subject, err := see.mask.ResolveSubject(given)
	if err == nil {
		_, err = blocklist.ParseSubject(subject)
	}
	if err != nil || subject == "" {
		return nil, &badRequest{"subject", shown.Text(string(given)),
			"the canonical subject of a block, such as ip=192.0.2.1%2F32"}
	}
	let, err := p.letting(r.Context(), see, rule, subject)
	if err != nil {
		return nil, err
	}
	who := see.source(subject)
	form := &actForm{
		Behind: p.behind(r.Context(), see, subject), Inputs: let.inputs(see, q.Get),
		Title: "Release a source", Verb: "Release", Action: "/release", Back: orElse(who.Href, "/blocks"),
		Source: &who, Rule: rule,
		Means:   []string{"Requests of this source pass again at once. Evidence from before does not block it anew; new evidence does."},
		Hidden:  []param{{"rule", rule}, {"subject", string(given)}},
		Confirm: "Let it pass",
	}
	if let.why != "" {
		form.Means = append(form.Means, let.why)
	}
	if let.offered() {
		form.Means = append(form.Means, "An entry of an allow list keeps it from being counted at all, by every rule that names the list, so that new evidence does not block it either.")
	}
	return form, nil
}

// release lifts a block.
func (p acting) release(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return &badRequest{"form", "", "fields as a form sends them"}
	}
	form, err := p.releaseForm(r, r.PostForm)
	if err != nil {
		return err
	}
	see, err := p.read(r)
	if err != nil {
		return err
	}
	subject, err := see.mask.ResolveSubject(traffic.Subject(r.PostFormValue("subject")))
	if err != nil {
		return &badRequest{"subject", "", err.Error()}
	}
	told := "release"
	if err = confirmed(r); err == nil {
		told, err = p.lift(r, see, subject)
	}
	if err != nil {
		return p.again(w, r, form, err)
	}
	p.forget()
	http.Redirect(w, r, withDid(form.Back, told), http.StatusSeeOther)
	return nil
}

// lift releases a source and, where that is asked, lets it pass first: evidence that comes between the two blocks
// nobody then.
func (p acting) lift(r *http.Request, see *reading, subject traffic.Subject) (told string, err error) {
	ctx, actor, rule := r.Context(), see.visit.Actor, r.PostFormValue("rule")
	let, err := p.letting(ctx, see, rule, subject)
	if err != nil {
		return "", err
	}
	entry, err := let.request(r, p.o.Clock())
	if err == nil && entry != nil {
		_, err = p.o.Acts.ChangeAllow(ctx, actor, *entry)
	}
	if err != nil {
		return "", err
	}
	done, err := p.o.Acts.Release(ctx, actor, acts.ReleaseRequest{Rule: rule, Subject: subject,
		Reason: r.PostFormValue("reason"), Wait: releaseWait})
	// it is over, or somebody was quicker
	if none := (*acts.NotBlockedError)(nil); entry != nil && errors.As(err, &none) {
		return "passed", nil
	}
	if err == nil && done.Release == "" {
		err = errors.New("nothing was released: " + orElse(done.Problem,
			"no block of this rule holds exactly this source"))
	}
	switch {
	case entry == nil:
		return "release", err
	case err != nil:
		return "", unlifted(entry.List, err)
	}
	return "passed", nil
}

// behind is who is behind a source that is to be blocked, or released.
func (p acting) behind(ctx context.Context, see *reading, subject traffic.Subject) []string {
	b, err := acts.Behind(ctx, p.o.Explorer, subject, see.now)
	if err != nil {
		p.o.Logger.Warn("console: who is behind a source cannot be asked", "error", err)
		return []string{"History did not answer: it is not known who is behind it."}
	}
	lines := b.Lines(func(field, value string) string { return see.mask.Value(field, value) })
	for i := range lines {
		lines[i] = shown.Text(lines[i])
	}
	return lines
}

// blockForm is what the form of a block by hand asks beside the reason.
type blockForm struct {
	For   string
	Match string
	All   bool // every request is held
}

// blockAddress is where a source is blocked by hand; empty for whoever may not, and for what no gate tells apart.
func blockAddress(r *reading, subject traffic.Subject, given string) string {
	if _, err := blocklist.ParseSubject(blockable(subject)); err != nil || !r.forms || !r.may(access.Block, "") {
		return ""
	}
	return "/block?of=" + url.QueryEscape(given)
}

// blockable is a subject as blocks are keyed on it: an address has a prefix.
func blockable(s traffic.Subject) traffic.Subject {
	values, err := s.Values()
	if err != nil {
		return s
	}
	for i := range values {
		if address, err := netip.ParseAddr(values[i].Value); err == nil && values[i].Field == traffic.FieldIP.String() {
			address = address.Unmap().WithZone("")
			bits := traffic.DefaultV4
			if address.Is6() {
				bits = traffic.DefaultV6
			}
			if p, err := address.Prefix(int(bits)); err == nil {
				values[i].Value = p.String()
			}
		} else if p, err := netip.ParsePrefix(values[i].Value); err == nil &&
			values[i].Field == traffic.FieldIP.String() {
			values[i].Value = p.Masked().String()
		}
	}
	return traffic.SubjectOf(values).Stored()
}

// routeBlock adds the form that blocks a source by hand, and what it does.
func (p acting) routeBlock() {
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/block", Act: access.Block},
		p.answered(func(w http.ResponseWriter, r *http.Request) error {
			form, _, err := p.blockForm(r, r.URL.Query())
			if err != nil {
				return err
			}
			return p.show(w, r, &shell{Name: "act", Title: form.Title, Active: "blocks", Body: form})
		}))
	p.mux.HandleFunc(access.Route{Method: http.MethodPost, Pattern: "/block", Act: access.Block}, p.answered(p.block))
}

// blockForm is the form, and the subject of the source that is to be blocked.
func (p acting) blockForm(r *http.Request, q url.Values) (*actForm, traffic.Subject, error) {
	see, err := p.read(r)
	if err != nil {
		return nil, "", err
	}
	of := strings.TrimSpace(q.Get("of"))
	_, _, subject, err := see.sourceAsked(of)
	if err != nil {
		return nil, "", err
	}
	if subject = blockable(subject); subject == "" || blockAddress(see, subject, of) == "" {
		return nil, "", &badRequest{"of", shown.Text(of),
			"FIELD=VALUE of an ip, a device, a user, an api_key or a session, such as ip=203.0.113.7"}
	}
	who := see.source(subject)
	return &actForm{
		Title: "Block a source", Verb: "Block", Danger: true, Action: "/block", Back: "/sources?of=" +
			url.QueryEscape(of), Source: &who,
		Means: []string{
			"From now on gates refuse its requests, whatever rules say, until the time is over or somebody releases it.",
			"Whoever else is behind it is refused, too: see below with whom it was seen.",
		},
		Behind: p.behind(r.Context(), see, subject),
		Hidden: []param{{"of", of}},
		Block: &blockForm{For: orElse(q.Get("for"), "1h"), Match: q.Get("match"),
			All: q.Get("what") == "everything" || q.Get("what") == "" && q.Get("match") == ""},
		Confirm: "I have looked at who is behind it",
	}, subject, nil
}

func (p acting) block(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return &badRequest{"form", "", "fields as a form sends them"}
	}
	form, subject, err := p.blockForm(r, r.PostForm)
	if err != nil {
		return err
	}
	if err = confirmed(r); err == nil {
		asked := acts.BlockRequest{
			Subject: subject, Everything: r.PostFormValue("what") == "everything", Match: form.Block.Match,
			For: strings.TrimSpace(form.Block.For), Reason: r.PostFormValue("reason"), Wait: releaseWait,
		}
		_, err = p.o.Acts.Block(r.Context(), access.From(r.Context()), asked)
	}
	var unfinished *acts.UnfinishedError
	told := "block"
	switch {
	case errors.As(err, &unfinished): // it is stored, and will be done
		told = "ordered"
	case err != nil:
		return p.again(w, r, form, err)
	}
	p.forget()
	http.Redirect(w, r, withDid(form.Back, told), http.StatusSeeOther)
	return nil
}

// eraseWait is how long the form waits for an erasure, which goes on after that.
const eraseWait = 10 * time.Second

// eraseAddress is where one value of an identity is erased from history; empty for whoever may not, and for what is
// several values or none.
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
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/erase", Act: access.Erase},
		p.answered(func(w http.ResponseWriter, r *http.Request) error {
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
	_, person, subject, err := see.sourceAsked(of)
	if err != nil {
		return nil, "", err
	}
	if eraseAddress(see, subject, of) == "" {
		return nil, "", &badRequest{"of", shown.Text(of),
			"FIELD=VALUE of one person, such as user=alice or ip=203.0.113.9"}
	}
	who := see.source(subject)
	return &actForm{
		Title: "Erase a person from history", Verb: "Erase", Danger: true, Action: "/erase", Back: "/sources?of=" +
			url.QueryEscape(of), Source: &who,
		Means: []string{
			"Episodes with their evidence, samples of requests in the episodes of others, decisions about blocks that have ended and saved views are deleted. They do not come back.",
			"The audit trail calls the person by a pseudonym from then on, also in the reason that is written here. Nobody is released: blocks hold until they end.",
			"All of it is done at once, or nothing. With a large history it takes minutes, and goes on when this page is closed; the audit trail tells when it is done.",
		},
		Hidden: []param{{"of", of}}, Confirm: "Erase it for good",
	}, person, nil
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
		state, err = p.o.Acts.Erase(r.Context(), access.From(r.Context()), acts.EraseRequest{Subject: person,
			Reason: r.PostFormValue("reason"), Wait: eraseWait})
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
