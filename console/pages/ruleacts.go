package pages

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// ruleAct is something that is done to a rule beside a change of its mode: its form, and what the form does when it is
// sent.
type ruleAct struct {
	name string // in addresses
	act  access.Act
	form func(*ruleForm) error
	do   func(*ruleForm) (told string, err error)
}

// ruleForm is a form about one rule while it is made, or carried out.
type ruleForm struct {
	*actForm
	acting
	r     *http.Request
	q     url.Values // of the address, or of the form that was sent
	see   *reading
	found *rulestore.Rule
	plan  *rulestore.Plan // of a rollback
}

func ruleActs() []ruleAct {
	return []ruleAct{
		{"limit", access.SetLimit, (*ruleForm).askLimit, (*ruleForm).setLimit},
		{"rollback", access.Rollback, (*ruleForm).askRollback, (*ruleForm).rollBack},
		{"reset", access.Reset, (*ruleForm).askReset, (*ruleForm).reset},
	}
}

// routeRule adds the forms, and what they do.
func (p acting) routeRule() {
	for _, a := range ruleActs() {
		path := "/rules/{rule}/" + a.name
		p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: path, Act: a.act, Rule: "rule"},
			p.answered(func(w http.ResponseWriter, r *http.Request) error {
				f, err := p.ruleForm(r, a, r.URL.Query())
				if err != nil {
					return err
				}
				return p.show(w, r, &shell{Name: "act", Title: f.Title, Active: "overview", Body: f.actForm})
			}))
		p.mux.HandleFunc(access.Route{Method: http.MethodPost, Pattern: path, Act: a.act, Rule: "rule"},
			p.answered(func(w http.ResponseWriter, r *http.Request) error {
				if err := r.ParseForm(); err != nil {
					return &badRequest{"form", "", "fields as a form sends them"}
				}
				f, err := p.ruleForm(r, a, r.PostForm)
				if err != nil {
					return err
				}
				told := ""
				if err = confirmed(r); err == nil {
					told, err = a.do(f)
				}
				if err != nil {
					return p.again(w, r, f.actForm, err)
				}
				p.forget()
				http.Redirect(w, r, withDid(f.Back, told), http.StatusSeeOther)
				return nil
			}))
	}
}

func (p acting) ruleForm(r *http.Request, a ruleAct, q url.Values) (*ruleForm, error) {
	see, err := p.read(r)
	if err != nil {
		return nil, err
	}
	id := r.PathValue("rule")
	found, err := p.o.Rules.Find(r.Context(), id)
	if err != nil {
		return nil, unknownRule(err, id, see)
	}
	if err := access.May(see.visit.Actor, a.act, found.Newest.Version.Owner); err != nil {
		return nil, err
	}
	if found.Removed {
		return nil, &missing{fmt.Sprintf("The rule %s was removed: nothing can be done to it.", id)}
	}
	path := "/rules/" + url.PathEscape(id)
	f := &ruleForm{acting: p, r: r, q: q, see: see, found: &found, actForm: &actForm{
		Action: path + "/" + a.name, Back: path, Rule: id, Hidden: []param{{"seen", acts.StandingOf(&found).Revision}},
	}}
	return f, a.form(f)
}

// askLimit asks how far, and for how long, the limit is raised; or whether that is to end.
func (f *ruleForm) askLimit() error {
	v, raised := &f.found.Newest.Version, f.found.Raised
	if f.q.Get("end") != "" {
		f.Title, f.Verb, f.Confirm, f.Danger = "End the raised limit of "+f.Rule, "End it",
			"It is to count by its document again", true
		f.Means = []string{fmt.Sprintf("From now on the limit is %s again, as the document says.",
			shown.Count(v.Limit))}
		f.Hidden = append(f.Hidden, param{"end", "yes"})
		return nil
	}
	f.Title, f.Verb, f.Confirm = "Raise the limit of "+f.Rule, "Raise", "Fewer are to be found for this time"
	f.Means = []string{fmt.Sprintf("The document's limit is %s in %s. A higher one holds for requests before its end, which comes by itself; it only raises.", shown.Count(v.Limit), shown.Span(v.Window))}
	if raised.In(f.see.now.Std()) {
		f.Means = append(f.Means, fmt.Sprintf("It is raised to %s until %s UTC; this takes the place of that.",
			shown.Count(raised.Limit), shown.Stamp(traffic.At(raised.Until))))
	}
	f.Inputs = []input{
		{Name: "limit", Label: fmt.Sprintf("Limit, above %s", shown.Count(v.Limit)), Value: f.q.Get("limit"),
			Number: true, Required: true},
		{Name: "for", Label: "For how long, 31d at most", Value: orElse(f.q.Get("for"), "2h"), Required: true},
	}
	return nil
}

func (f *ruleForm) setLimit() (string, error) {
	asked, told := acts.LimitRequest{Rule: f.Rule, Reason: f.q.Get("reason"), Seen: f.q.Get("seen")}, "limit-end"
	if f.q.Get("end") == "" {
		var err error
		if asked.Limit, err = strconv.Atoi(strings.TrimSpace(f.q.Get("limit"))); err != nil || asked.Limit < 1 {
			return "", &acts.Invalid{Field: "limit", Got: shown.Text(f.q.Get("limit")),
				Allowed: "a whole number above the document's limit"}
		}
		asked.For, err = lengthAsked(f.r)
		if err != nil || asked.For == "" {
			return "", &acts.Invalid{Field: "for", Got: shown.Text(f.q.Get("for")),
				Allowed: "a time such as 2h, 31d at most"}
		}
		told = "limit"
	}
	_, err := f.o.Acts.SetLimit(f.r.Context(), f.see.visit.Actor, asked)
	return told, err
}

// askRollback shows what an older document would change.
func (f *ruleForm) askRollback() error {
	to, err := number(f.q, "to", 0, 1, math.MaxInt)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(f.found.Versions, func(v rulestore.StoredVersion) bool { return v.Version.Number == to }) {
		return &badRequest{"to", shown.Text(f.q.Get("to")), fmt.Sprintf("a version of the rule, 1 to %d",
			f.found.Versions[0].Version.Number)}
	}
	done, err := f.o.Acts.Rollback(f.r.Context(), f.see.visit.Actor, acts.RollbackRequest{Rule: f.Rule, To: to,
		DryRun: true})
	if err != nil {
		return err
	}
	f.plan = done.Plan
	f.Title, f.Verb, f.Confirm = fmt.Sprintf("Roll %s back to version %d", f.Rule, to), "Roll back",
		"I have looked at what changes"
	f.Hidden = append(f.Hidden, param{"to", strconv.Itoa(to)}, param{"text", f.textShown()})
	f.Means = []string{fmt.Sprintf("The document of version %d becomes a new version, as an edit does.", to)}
	for i := range f.plan.Changes {
		f.Means = append(f.Means, rollbackMeans(&f.plan.Changes[i])...)
	}
	return nil
}

// textShown binds the form to the texts that its plan is about: they are no part of what a rule is.
func (f *ruleForm) textShown() string {
	var texts []string
	for i := range f.plan.Changes {
		if text := f.plan.Changes[i].Text; text != nil {
			texts = append(texts, text.Was+" "+text.Becomes)
		}
	}
	return strings.Join(texts, " ")
}

// rollbackMeans says what a rollback would do.
func rollbackMeans(c *rulestore.RuleChange) []string {
	var out []string
	switch c.Kind {
	case rulestore.ChangeUnchanged:
		return []string{"It says what the version says that acts: nothing would change."}
	case rulestore.ChangeWithdrawn:
		out = append(out, "What is pending is withdrawn: the version that acts says the same.")
	case rulestore.ChangePending:
		out = append(out, "It may block more than the version that acts, and so waits for its promotion: "+
			shown.Text(strings.Join(c.Pending, "; "))+".")
	}
	for _, line := range c.Diff {
		out = append(out, shown.Text(line))
	}
	if c.Warming {
		out = append(out, "Its windows begin empty.")
	}
	return out
}

// changeMeans says what applying a document would do to its rule.
func changeMeans(c *rulestore.RuleChange) []string {
	out := rollbackMeans(c)
	switch c.Kind {
	case rulestore.ChangeNew:
		out = append([]string{"A new rule: it counts in shadow, and refuses nobody until it is promoted."}, out...)
	case rulestore.ChangeRestored:
		out = append([]string{"It was removed before, and counts again, in shadow."}, out...)
	}
	return out
}

func (f *ruleForm) rollBack() (string, error) {
	if seen, now := f.q.Get("seen"), acts.StandingOf(f.found); seen != "" && seen != now.Revision {
		return "", &acts.ChangedError{Rule: f.Rule, Seen: seen, Now: now}
	}
	if f.q.Get("seen") != "" && f.q.Get("text") != f.textShown() {
		return "", rulestore.ErrOvertaken
	}
	to, err := strconv.Atoi(f.q.Get("to"))
	if err != nil {
		return "", &acts.Invalid{Field: "to", Got: shown.Text(f.q.Get("to")), Allowed: "a version of the rule"}
	}
	if err := acts.CheckReason(f.q.Get("reason")); err != nil { // which the form asks for, as all do
		return "", err
	}
	done, err := f.o.Acts.Rollback(f.r.Context(), f.see.visit.Actor, acts.RollbackRequest{Rule: f.Rule, To: to,
		Shown: f.plan, Reason: f.q.Get("reason")})
	if err == nil && done.Plan != nil && !done.Plan.Changed() {
		err = errors.New("nothing was changed: the version that acts says the same")
	}
	return "rollback", err
}

// askReset asks whether the count of a source begins at nothing.
func (f *ruleForm) askReset() error {
	given := traffic.Subject(f.q.Get("subject"))
	subject, err := f.see.mask.ResolveSubject(given)
	if err == nil && given != "" {
		_, err = subject.Values()
	}
	if err != nil {
		return &badRequest{"subject", shown.Text(string(given)),
			"the canonical subject of a source as the rule counts it, such as ip=192.0.2.1%2F32"}
	}
	f.about = subject
	f.Title, f.Verb, f.Confirm = "Reset a count", "Reset", "What was counted is to be forgotten"
	f.Means = []string{
		"What the rule has counted of it begins at nothing, with the first request that is routed after this; its running episodes end.",
		"It releases nobody: a block that stands holds until it ends or is released.",
	}
	f.Hidden = append(f.Hidden, param{"subject", string(given)})
	if given == "" {
		f.Means = append(f.Means, "Without a source it is the one count of a rule that counts all requests together.")
		return nil
	}
	who := f.see.source(subject)
	f.Source, f.Back = &who, orElse(who.Href, f.Back)
	return nil
}

func (f *ruleForm) reset() (string, error) {
	_, err := f.o.Acts.ResetCount(f.r.Context(), f.see.visit.Actor, acts.ResetRequest{Rule: f.Rule,
		Subject: f.about, Reason: f.q.Get("reason")})
	return "reset", err
}

// mostResets bounds how many counts the page of a source offers to reset.
const mostResets = 6

// resets are the counts of a source that a visitor may reset: of the rules that it was over the limit of, each as the
// rule counts it.
func resets(see *reading, hits []history.RecordedHit) []actLink {
	var out []actLink
	if !see.forms {
		return out
	}
	for i := range hits {
		h := &hits[i]
		rule := see.Rules[h.Rule]
		if h.Stream != history.Live || rule == nil || rule.Mode == rules.ModeOff || !see.may(access.Reset,
			rule.Newest.Version.Owner) || digested(h.Subject) {
			continue
		}
		masked := see.mask.Subject(h.Subject)
		one := actLink{Title: "Reset its count: " + h.Rule, Href: "/rules/" + url.PathEscape(h.Rule) +
			"/reset?subject=" + url.QueryEscape(string(masked))}
		if who := see.source(h.Subject); len(who.Fields) > 1 {
			one.Title += ", " + who.Label
		}
		if !slices.Contains(out, one) && len(out) < mostResets {
			out = append(out, one)
		}
	}
	return out
}

// digested reports whether a source has a value of which only a digest is stored: its count cannot be named by that.
func digested(s traffic.Subject) bool {
	values, err := s.Values()
	return err != nil || len(values) == 0 || slices.ContainsFunc(values,
		func(v traffic.SubjectValue) bool { return v.Digest })
}

// actsOn are what can be done to a rule by this visitor.
func (r *reading) actsOn(found *rulestore.Rule) []actLink {
	d := &found.Newest.Version.Document
	var out []actLink
	add := func(act access.Act, name, title, command string, version int, chief bool) {
		if found.Removed || !r.may(act, d.Owner) {
			return
		}
		one := actLink{Title: title, Command: command, Chief: chief}
		if r.forms {
			one.Href = "/rules/" + url.PathEscape(d.ID) + "/" + name
			if version > 0 {
				one.Href += "?version=" + strconv.Itoa(version)
			}
		}
		out = append(out, one)
	}
	newest := found.Newest.Version.Number
	switch {
	case found.Mode == rules.ModeOff:
		add(access.Enable, "enable", "Count again", r.commands.Mode(d.ID, found.Mode, 0), 0, true)
	case found.Mode == rules.ModeCanary:
		add(access.Promote, "promote", "Block all", r.commands.Promote(d.ID, newest), newest, false)
		add(access.Demote, "demote", "Demote", r.commands.Mode(d.ID, found.Mode, 0), 0, false)
	case found.Mode != rules.ModeShadow:
		add(access.Demote, "demote", "Demote", r.commands.Mode(d.ID, found.Mode, 0), 0, false)
	case d.Block != nil:
		add(access.Promote, "promote", "Promote", r.commands.Promote(d.ID, newest), newest, true)
	}
	if found.Pending != nil {
		n := found.Pending.Version.Number
		add(access.Promote, "promote", fmt.Sprintf("Promote version %d", n), r.commands.Promote(d.ID, n), n, false)
	}
	add(access.Apply, "edit", "Edit", r.commands.Apply(d.ID), 0, false)
	if found.Mode != rules.ModeOff {
		add(access.SetLimit, "limit", "Raise the limit", r.commands.RaiseLimit(d.ID), 0, false)
	}
	if r.forms && found.Raised.In(r.now.Std()) {
		add(access.SetLimit, "limit?end=yes", "End the raised limit", "", 0, false)
	}
	if r.forms && len(d.Key) == 0 && found.Mode != rules.ModeOff {
		add(access.Reset, "reset", "Reset the count", "", 0, false)
	}
	if found.Mode != rules.ModeOff {
		add(access.Disable, "disable", "Disable", r.commands.Disable(d.ID), 0, false)
	}
	return out
}
