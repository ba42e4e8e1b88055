package pages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// writePage is where documents are written: the text, and beside it what it would do. It is tried before it is applied,
// and applied only as it was shown: a text that has changed since is tried anew.
type writePage struct {
	Title, Action, Back string
	May                 bool   // the visitor may apply documents, and so try them
	Rule                string // that is edited; empty: documents of any
	Text                string
	Digest              string // of the text that was tried; empty: none was
	Plan                string // what it would change, as it was shown, in JSON
	Reason              string

	Problem  string
	Next     string
	Problems []textProblem // that the text has
	Wrong    map[string]string
	Tried    *triedView
}

// textProblem is what is wrong with a text, or probably not meant, and the line where.
type textProblem struct {
	Line, Column int // 0: not known
	Quoted       string
	Says         string
}

// triedView is what documents would do.
type triedView struct {
	Warnings  []textProblem
	Changes   []changeView
	Changed   bool
	Tests     int
	Failed    []acts.RuleTest
	Untested  []string
	NoTraffic string
	Traffic   *trafficView // nil: NoTraffic says why
}

type changeView struct {
	Name  string
	Means []string
}

// trafficView is what rules make of the latest requests.
type trafficView struct {
	Since, Until   traffic.Time
	Shorter        string
	Events, Unread int64
	Rules          []ruleTriedView
}

type ruleTriedView struct {
	acts.RuleTried
	Share string // of all requests, those that the block alone would have refused
	Whom  []whomView
}

// whomView is one source that a rule would have found.
type whomView struct {
	Source     sourceView
	Over, Peak int64
}

// tryWithin bounds the answer of the page that tries documents: requests are counted meanwhile.
const tryWithin = 40 * time.Second

// blankRule is what an author begins with.
const blankRule = `# docs/rules.md has every field. A new rule counts in shadow and refuses nobody.
id:            # such as sign-in-flood
owner: %s
match: {method: POST, path: /v1/sign-in}
key: [ip]
limit: 20
window: 1m
block: {key: [ip], ttl: 10m} # what gates refuse once it is promoted
tests:
  - name: the 21st is over
    each: {method: POST, path: /v1/sign-in, ip: 192.0.2.1}
    timeline: [{at: 0s, times: 21, every: 1s}]
    expect: {hits: [{ip: 192.0.2.1, count: 1}]}
`

// writing is the pages on which documents are written.
type writing struct{ acting }

func (p writing) route() {
	for _, route := range []access.Route{
		{Pattern: "/write", Act: access.Apply, Body: true},
		{Pattern: "/rules/{rule}/edit", Act: access.Apply, Rule: "rule"},
	} {
		open := route
		if open.Method = http.MethodGet; open.Body { // it is empty, and of no rule yet
			open.Act, open.Body = access.View, false
		}
		p.mux.HandleFunc(open, p.answered(func(w http.ResponseWriter, r *http.Request) error {
			v, err := p.opened(r)
			if err != nil {
				return err
			}
			return p.show(w, r, v.shell())
		}))
		route.Method = http.MethodPost
		p.mux.HandleFunc(route, p.answeredIn(tryWithin, p.written))
	}
}

func (v *writePage) shell() *shell {
	return &shell{Name: "write", Title: v.Title, Active: "overview", Body: v}
}

// opened is the page as it is opened.
func (p writing) opened(r *http.Request) (*writePage, error) {
	actor := access.From(r.Context())
	id := r.PathValue("rule")
	if id == "" {
		owner := ""
		if len(actor.Owners) == 1 {
			owner = actor.Owners[0]
		}
		return &writePage{Title: "Write rules", Action: "/write", Back: "/", Text: fmt.Sprintf(blankRule, owner),
			May: access.MayAny(actor, access.Apply) == nil}, nil
	}
	see, err := p.read(r)
	if err != nil {
		return nil, err
	}
	found, err := p.o.Rules.Find(r.Context(), id)
	if err != nil {
		return nil, unknownRule(err, id, see)
	}
	if err := access.May(actor, access.Apply, found.Newest.Version.Owner); err != nil {
		return nil, err
	}
	path, of := "/rules/"+url.PathEscape(id), &found.Newest
	v := &writePage{Title: "Edit " + id, Action: path + "/edit", Back: path, Rule: id, May: true}
	if found.Pending != nil {
		of = found.Pending
	}
	if v.Text = of.Source; v.Text == "" {
		v.Text = of.Version.Document.YAML()
	}
	return v, nil
}

// written tries what was written, or applies what was tried.
func (p writing) written(w http.ResponseWriter, r *http.Request) error {
	v, err := p.opened(r)
	if err != nil {
		return err
	}
	if err := r.ParseForm(); err != nil {
		return &badRequest{"form", "", "fields as a form sends them"}
	}
	v.Text = strings.ReplaceAll(r.PostFormValue("text"), "\r\n", "\n") // as browsers send lines
	v.Reason = r.PostFormValue("reason")
	apply := r.PostFormValue("do") == "apply"
	digest := digestOf(v.Text)
	if apply && r.PostFormValue("tried") == digest {
		var done acts.ApplyDone
		if done, err = p.apply(r, v); err == nil {
			p.forget()
			http.Redirect(w, r, v.after(done.Plan), http.StatusSeeOther)
			return nil
		}
	} else if apply {
		err = errChangedText
	}
	return p.tried(w, r, v, digest, err)
}

// errChangedText refuses to apply a text that nobody was shown the effect of.
var errChangedText = errors.New("the text has changed since it was tried: below is what it would do now")

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// apply applies the text as it was shown.
func (p writing) apply(r *http.Request, v *writePage) (acts.ApplyDone, error) {
	actor := access.From(r.Context())
	asked := acts.ApplyRequest{Files: v.files(), Alone: true, Reason: v.Reason}
	if text := r.PostFormValue("plan"); text != "" {
		asked.Shown = &rulestore.Plan{}
		if err := json.Unmarshal([]byte(text), asked.Shown); err != nil {
			return acts.ApplyDone{}, &acts.Invalid{Field: "plan", Got: "no plan", Allowed: "what the form had"}
		}
	}
	err := confirmed(r)
	if err == nil {
		err = acts.CheckReason(v.Reason)
	}
	if err == nil && asked.Shown == nil {
		err = errChangedText
	}
	if err == nil {
		err = v.about(asked.Shown)
	}
	if err != nil {
		return acts.ApplyDone{}, err
	}
	return p.o.Acts.Apply(r.Context(), actor, asked)
}

// about refuses, where one rule is edited, a text that is about another one.
func (v *writePage) about(plan *rulestore.Plan) error {
	if v.Rule == "" || len(plan.Changes) == 1 && len(plan.AllowLists) == 0 && plan.Changes[0].Rule == v.Rule {
		return nil
	}
	var names []string
	for i := range plan.Changes {
		names = append(names, plan.Changes[i].Rule)
	}
	for i := range plan.AllowLists {
		names = append(names, plan.AllowLists[i].List)
	}
	return &acts.Invalid{Field: "text", Got: strings.Join(names, ", "),
		Allowed: "one document, of the rule " + v.Rule + "; Write rules takes any"}
}

func (v *writePage) files() []acts.File { return []acts.File{{Name: v.name(), Text: v.Text}} }

func (v *writePage) name() string {
	if v.Rule != "" {
		return v.Rule + ".yaml"
	}
	return "text.yaml"
}

// after is the page that follows when it was applied: that of the first rule or, where there is none, of the first
// list.
func (v *writePage) after(plan *rulestore.Plan) string {
	switch {
	case plan != nil && len(plan.Changes) > 0:
		return "/rules/" + url.PathEscape(plan.Changes[0].Rule) + "?did=applied"
	case plan != nil && len(plan.AllowLists) > 0:
		return "/allow/" + url.PathEscape(plan.AllowLists[0].List) + "?did=applied"
	}
	return "/"
}

// tried shows the text with what it would do, and why it was not applied.
func (p writing) tried(w http.ResponseWriter, r *http.Request, v *writePage, digest string, refused error) error {
	ctx, actor := r.Context(), access.From(r.Context())
	see, err := p.read(r)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if refused != nil {
		if status, err = v.refuse(words(maskOf(&p.o, r), r, refused), refused); err != nil {
			return err
		}
	}
	tried, err := p.o.Acts.Try(ctx, actor, acts.TryRequest{Files: v.files()})
	if err == nil {
		err = v.about(tried.Plan)
	}
	v.Tried = &triedView{Warnings: v.problems(tried.Warnings)}
	if err != nil {
		v.Tried.NoTraffic = "It was not tried."
		if status, err = v.refuse(words(maskOf(&p.o, r), r, err), err); err != nil {
			return err
		}
		return p.write(w, r, status, v.shell())
	}
	tried.Plan = access.Show(see.mask, tried.Plan)
	v.take(see, &tried)
	plan, err := json.Marshal(tried.Plan)
	if err != nil {
		return fmt.Errorf("writing down what would change: %w", err)
	}
	v.Digest, v.Plan = digest, string(plan)
	return p.write(w, r, status, v.shell())
}

// refuse says why a text was not applied, or not tried. An error that is about something else is given back.
func (v *writePage) refuse(words string, err error) (status int, other error) {
	var problems rules.Problems
	var forbidden *access.Forbidden
	var invalid *acts.Invalid
	var removed *rulestore.RefusedError
	var listed *rulestore.AllowRefusedError
	v.Wrong = map[string]string{}
	v.Problem = words
	switch {
	case errors.As(err, &problems):
		v.Problem = fmt.Sprintf("It cannot be applied: %s.", plural.Of(len(problems), "problem"))
		v.Problems = v.problems(problems)
	case errors.As(err, &forbidden), errors.As(err, new(*acts.BeyondError)):
		return http.StatusForbidden, nil
	case errors.Is(err, errChangedText), errors.Is(err, rulestore.ErrOvertaken):
		v.Next = "Look at what it would do, and apply it then."
		return http.StatusConflict, nil
	case errors.As(err, &invalid):
		v.Wrong[invalid.Field] = shown.Text("Allowed: " + invalid.Allowed)
	case errors.As(err, &removed), errors.As(err, &listed):
		return http.StatusConflict, nil
	case errors.Is(err, acts.ErrNoRules):
		v.Problem = "There is no rule and no allow list in the text."
	default:
		return 0, err
	}
	return http.StatusUnprocessableEntity, nil
}

// problems are those of the text, each with its line.
func (v *writePage) problems(all []rules.Problem) []textProblem {
	lines := strings.Split(v.Text, "\n")
	var out []textProblem
	for _, p := range all {
		one := textProblem{Line: p.Line, Column: p.Column}
		if p.Line > 0 && p.Line <= len(lines) {
			one.Quoted = shown.Text(strings.TrimSpace(lines[p.Line-1]))
		}
		p.File, p.Line, p.Column = "", 0, 0
		one.Says = shown.Text(p.Error())
		out = append(out, one)
	}
	return out
}

// take shows what documents would do.
func (v *writePage) take(see *reading, tried *acts.Tried) {
	t := v.Tried
	t.Changed, t.Tests, t.NoTraffic = tried.Changed(), len(tried.Tests), shown.Text(tried.NoTraffic)
	for i := range tried.Changes {
		c := &tried.Changes[i]
		t.Changes = append(t.Changes, changeView{fmt.Sprintf("%s, version %d", c.Rule, c.Version), changeMeans(c)})
	}
	for i := range tried.AllowLists {
		c := &tried.AllowLists[i]
		one := changeView{Name: fmt.Sprintf("allow list %s, version %d", c.List, c.Version)}
		for _, line := range slices.Concat(c.Diff, c.Refused) {
			one.Means = append(one.Means, shown.Text(line))
		}
		if c.Kind == rulestore.ChangeUnchanged {
			one.Means = append(one.Means, "It says what is stored: nothing would change.")
		}
		t.Changes = append(t.Changes, one)
	}
	for _, test := range tried.Tests {
		if !test.OK {
			test.Name, test.Diff = shown.Text(test.Name), shownLines(test.Diff)
			t.Failed = append(t.Failed, test)
		}
	}
	t.Untested = tried.Untested
	if tried.Traffic != nil {
		t.Traffic = trafficOf(see, tried.Traffic)
	}
}

// shownLines is a text of several lines for reading.
func shownLines(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = shown.Text(lines[i])
	}
	return strings.Join(lines, "\n")
}

// trafficOf is what rules make of the latest requests, for this visitor.
func trafficOf(see *reading, t *acts.TrafficTried) *trafficView {
	out := &trafficView{Since: t.Since, Until: t.Until, Shorter: shown.Text(t.Shorter), Events: t.Events,
		Unread: t.Unread}
	for i := range t.Rules {
		one := ruleTriedView{RuleTried: t.Rules[i]}
		if one.Block != nil {
			one.Share = fmt.Sprintf("%.2f %%", 100*one.Block.Share)
		}
		for _, s := range one.Top {
			one.Whom = append(one.Whom, whomView{see.source(s.Subject), s.Over, int64(s.Peak)})
		}
		out.Rules = append(out.Rules, one)
	}
	return out
}
