package pages

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Acts is what people do here; an acts.Service, or a console/remote client.
type Acts interface {
	// Promote lets a rule, or its pending version, block.
	Promote(ctx context.Context, actor access.Actor, r acts.PromoteRequest) (acts.ModeDone, error)
	// Evidence is what a promotion would be judged by.
	Evidence(ctx context.Context, actor access.Actor, r acts.EvidenceRequest) (acts.EvidenceShown, error)
	// SetMode puts a rule into shadow (demote, enable) or off (disable).
	SetMode(ctx context.Context, actor access.Actor, r acts.ModeRequest) (acts.ModeDone, error)
	// Release lifts the block of a source.
	Release(ctx context.Context, actor access.Actor, r acts.ReleaseRequest) (acts.ReleaseDone, error)
	// Block blocks a source for a time, whatever rules say.
	Block(ctx context.Context, actor access.Actor, r acts.BlockRequest) (acts.BlockDone, error)
	// NeverBlockList is who is never blocked, ChangeNeverBlock changes it.
	NeverBlockList(ctx context.Context, actor access.Actor) ([]acts.NeverListed, error)
	ChangeNeverBlock(ctx context.Context, actor access.Actor, r acts.NeverRequest) (acts.NeverDone, error)
	// SetLimit raises a rule's limit for a time, or ends that.
	SetLimit(ctx context.Context, actor access.Actor, r acts.LimitRequest) (rulestore.LimitSet, error)
	// Apply makes the stored rules and allow lists those of documents. Try tells what that would do.
	Apply(ctx context.Context, actor access.Actor, r acts.ApplyRequest) (acts.ApplyDone, error)
	Try(ctx context.Context, actor access.Actor, r acts.TryRequest) (acts.Tried, error)
	// Rollback applies an older document of a rule as a new version.
	Rollback(ctx context.Context, actor access.Actor, r acts.RollbackRequest) (acts.ApplyDone, error)
	// ResetCount sets what a rule has counted of a source back to nothing.
	ResetCount(ctx context.Context, actor access.Actor, r acts.ResetRequest) (rulestore.CounterResetDone, error)
	// ChangeAllow adds entries to an allow list, or removes them.
	ChangeAllow(ctx context.Context, actor access.Actor, r acts.AllowRequest) (acts.AllowDone, error)
	// Erase takes a person out of history.
	Erase(ctx context.Context, actor access.Actor, r acts.EraseRequest) (acts.ErasureState, error)
	// Partitions are as the stages last reported them, ResumePartition lets one that stopped go on.
	Partitions(ctx context.Context, actor access.Actor) ([]acts.Partition, error)
	ResumePartition(ctx context.Context, actor access.Actor, r acts.ResumeRequest) (acts.ResumeDone, error)
}

var _ Acts = (*acts.Service)(nil)

// actForm is the page of something that can be done: what it means, the reason, the confirmation.
type actForm struct {
	Title    string // as a sentence: Promote login-stuffing
	Means    []string
	Verb     string // on the button
	Danger   bool
	Action   string // where the form goes
	Back     string
	Hidden   []param
	Reason   string
	Confirm  string            // what is ticked
	Problem  string            // why the last try failed
	Problems []string          // one by one, where there are several
	Wrong    map[string]string // what is wrong with a field, by its name
	Next     string
	Summary  []string // of the evidence
	Whom     string   // where its sources are listed; empty: here
	Evidence *evidenceView
	Gates    []gateView
	Modes    []choice // canary or block; none: it is no promotion
	// Overridable is whether a reason can be given to go on although gates do not pass.
	Overridable bool
	Override    string
	Above       string // where the form leads back to, where that is neither a source nor a rule
	Source      *sourceView
	Rule        string
	Behind      []string        // who is behind the source
	Block       *blockForm      // nil: it is no block by hand
	Never       *neverForm      // nil: it adds nothing to the never-block list
	Inputs      []input         // what else it asks
	about       traffic.Subject // the source that is meant
}

// input is one thing that a form asks beside the reason.
type input struct {
	Name, Label, Value, Example string
	Number, Required            bool
	Choices                     []choice // one of them is taken; none: it is written
	Radio                       bool     // the choices stand below each other
}

// asked is an input with what is wrong with what was written there.
type asked struct {
	Input input
	Wrong string
}

// modeAct is one way to change what a rule does.
type modeAct struct {
	name string // in addresses
	act  access.Act
	mode rules.Mode
	verb string
}

func modeActs() []modeAct {
	return []modeAct{
		{"promote", access.Promote, rules.ModeBlock, "Promote"},
		{"demote", access.Demote, rules.ModeShadow, "Demote"},
		{"disable", access.Disable, rules.ModeOff, "Disable"},
		{"enable", access.Enable, rules.ModeShadow, "Count again"},
	}
}

// acting is the pages on which people do something.
type acting struct{ *Pages }

// route adds the forms and what they do.
func (p acting) route() {
	for _, a := range modeActs() {
		path := "/rules/{rule}/" + a.name
		p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: path, Act: a.act, Rule: "rule"}, p.answered(func(w http.ResponseWriter, r *http.Request) error {
			form, err := p.modeForm(r, a)
			if err != nil {
				return err
			}
			return p.show(w, r, &shell{Name: "act", Title: form.Title, Active: "overview", Body: form})
		}))
		p.mux.HandleFunc(access.Route{Method: http.MethodPost, Pattern: path, Act: a.act, Rule: "rule"}, p.answered(func(w http.ResponseWriter, r *http.Request) error {
			return p.setMode(w, r, a)
		}))
	}
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/release", Act: access.Release}, p.answered(func(w http.ResponseWriter, r *http.Request) error {
		form, err := p.releaseForm(r, r.URL.Query())
		if err != nil {
			return err
		}
		return p.show(w, r, &shell{Name: "act", Title: form.Title, Active: "blocks", Body: form})
	}))
	p.mux.HandleFunc(access.Route{Method: http.MethodPost, Pattern: "/release", Act: access.Release},
		p.answeredIn(releaseWithin, p.release))
	p.routeErase()
	p.routeBlock()
	p.routeNever()
	p.routeAllow()
	parting{p}.route()
	p.routeRule()
	writing{p}.route()
}

// modeForm is the form of a change of mode.
func (p acting) modeForm(r *http.Request, a modeAct) (*actForm, error) {
	see, err := p.read(r)
	if err != nil {
		return nil, err
	}
	id := r.PathValue("rule")
	found, err := p.o.Rules.Find(r.Context(), id)
	if err != nil {
		return nil, unknownRule(err, id, see)
	}
	d := &found.Newest.Version.Document
	if err := access.May(see.visit.Actor, a.act, d.Owner); err != nil {
		return nil, err
	}
	version, err := number(r.URL.Query(), "version", found.Newest.Version.Number, 1, math.MaxInt)
	if err != nil {
		return nil, err
	}
	target := d
	if found.Pending != nil && version == found.Pending.Version.Number {
		target = &found.Pending.Version.Document
	}
	form := &actForm{
		Title: a.verb + " " + id, Verb: a.verb, Action: "/rules/" + url.PathEscape(id) + "/" + a.name, Back: "/rules/" + url.PathEscape(id), Rule: id,
		Danger: a.mode == rules.ModeBlock, Means: means(&found, target, a, version),
		Hidden: []param{{"seen", acts.StandingOf(&found).Revision}, {"version", strconv.Itoa(version)}},
	}
	form.Confirm = map[string]string{
		"promote": "I have looked at whom it would have held", "demote": "Nobody is to be held by this rule any more",
		"disable": "Nothing is to be counted by this rule", "enable": "It is to count again, in shadow",
	}[a.name]
	if a.mode == rules.ModeBlock {
		form.Title = fmt.Sprintf("Promote version %d of %s", version, id)
		if err := p.judged(r, see, form, target, version); err != nil {
			return nil, err
		}
	}
	return form, nil
}

// means says what a change of mode does.
func means(found *rulestore.Rule, target *rules.Document, a modeAct, version int) []string {
	switch a.name {
	case "promote":
		var out []string
		if target.Block == nil {
			return []string{"This version names no block: it cannot be promoted."}
		}
		whom := "everybody who matches is"
		if key := keyWords(target.Block.Key); key != "" {
			whom = "each such " + key + " is"
		}
		out = append(out, fmt.Sprintf("From now on, whoever goes over %s in %s is held: %s refused for %s.", shown.Count(target.Limit), shown.Span(target.Window), whom, shown.Span(target.Block.TTL)))
		if found.Pending != nil && version == found.Pending.Version.Number {
			for _, line := range diff(&found.Newest.Version.Document, target) {
				out = append(out, fmt.Sprintf("In place of version %d: %s.", found.Newest.Version.Number, line))
			}
		}
		return out
	case "demote":
		return []string{"Every block of this rule holds nobody any more, at once. It goes on counting and recording."}
	case "disable":
		return []string{"The rule counts nothing and records nothing until it is enabled. Its blocks hold nobody any more. What it has found stays."}
	}
	return []string{"The rule counts and records again, in shadow. Its windows begin empty."}
}

// setMode carries a change of mode out.
func (p acting) setMode(w http.ResponseWriter, r *http.Request, a modeAct) error {
	ctx, id := r.Context(), r.PathValue("rule")
	form, err := p.modeForm(r, a)
	if err != nil {
		return err
	}
	actor, reason := access.From(ctx), r.PostFormValue("reason")
	version, err := strconv.Atoi(orElse(r.PostFormValue("version"), "0"))
	if err != nil {
		return &badRequest{"version", shown.Text(r.PostFormValue("version")), "the number of a version"}
	}
	told := "?did=" + a.name
	if err = confirmed(r); err == nil {
		var done acts.ModeDone
		if a.mode == rules.ModeBlock {
			asked := acts.PromoteRequest{
				Rule: id, Version: version, To: rules.Mode(r.PostFormValue("to")), Override: strings.TrimSpace(r.PostFormValue("override")), Reason: reason,
				Dossier: r.PostFormValue("dossier"), Seen: r.PostFormValue("seen"),
			}
			if asked.Until, err = time.Parse(time.RFC3339Nano, r.PostFormValue("until")); err != nil {
				return &badRequest{"until", shown.Text(r.PostFormValue("until")), "the time that the form had"}
			}
			if !asked.To.Blocks() {
				return &badRequest{"to", shown.Text(string(asked.To)), "canary, block"}
			}
			done, err = p.o.Acts.Promote(ctx, actor, asked)
			told = promoted(asked.To, &done)
		} else {
			done, err = p.o.Acts.SetMode(ctx, actor, acts.ModeRequest{Rule: id, Mode: a.mode, Reason: reason,
				Seen: r.PostFormValue("seen")})
			if !done.Changed {
				told = "?did=already"
			}
		}
	}
	if err != nil {
		if outdated(err) { // what is so now is shown, and decides when it is sent again
			r.PostForm.Del("until")
			now, err := p.modeForm(r, a)
			if err != nil {
				return err
			}
			form = now
		}
		return p.again(w, r, form, err)
	}
	p.forget()
	http.Redirect(w, r, "/rules/"+url.PathEscape(id)+told, http.StatusSeeOther)
	return nil
}

// outdated reports whether an act was refused since what was looked at is not so any more, or was looked at too long
// ago.
func outdated(err error) bool {
	var turned *acts.TurnedError
	var invalid *acts.Invalid
	return errors.As(err, &turned) || errors.As(err, &invalid) && invalid.Field == "until"
}

// confirmed refuses an act that nobody has ticked.
func confirmed(r *http.Request) error {
	if r.PostFormValue("confirm") != "yes" {
		return &acts.Invalid{Field: "confirm", Got: shown.Text(r.PostFormValue("confirm")), Allowed: "yes: tick the box"}
	}
	return nil
}

// again shows a form once more, with what was written and why that was not done.
func (p acting) again(w http.ResponseWriter, r *http.Request, form *actForm, err error) error {
	status := http.StatusUnprocessableEntity
	var forbidden *access.Forbidden
	var changed *acts.ChangedError
	var unfinished *acts.UnfinishedError
	var invalid *acts.Invalid
	var gates *rulestore.GatesError
	var turned *acts.TurnedError
	var refused *acts.RefusedBlockError
	var never *acts.NeverBlockedError
	mask := maskOf(&p.o, r)
	form.Problem, form.Reason, form.Wrong = words(maskOf(&p.o, r), r, err), r.PostFormValue("reason"),
		map[string]string{}
	switch {
	case errors.As(err, &forbidden):
		return err
	case errors.As(err, &changed), errors.Is(err, rulestore.ErrOvertaken):
		status, form.Next = http.StatusConflict, "Look at the rule again before you decide."
	case errors.As(err, new(*acts.BeyondError)):
		status = http.StatusForbidden
	case errors.As(err, &unfinished):
		status, form.Next = http.StatusBadGateway, "What is done stays done. The page of the rule shows how it stands."
	case errors.As(err, new(*acts.GapChangedError)):
		status, form.Next = http.StatusConflict, "What this page tells of is the gap of now."
	case errors.As(err, &refused):
		status, form.Next = http.StatusConflict, "The page of the source shows how it stands."
	case errors.As(err, &never), errors.As(err, new(*orders.AbsentError)):
		status = http.StatusConflict
	case errors.As(err, &gates):
		form.Problem, form.Problems = "It was not promoted, since not all of its gates pass.", gateProblems(mask, gates)
		form.Wrong["override"] = "Say here why it is to block all the same; the audit trail keeps that apart from the reason."
	case errors.As(err, &turned):
		status, form.Problem = http.StatusConflict,
			fmt.Sprintf("It was not promoted, since a gate answers otherwise than at %s, when you looked.",
				turned.Since.UTC().Format("15:04 UTC"))
		told := access.Show(mask, *turned)
		for i := range told.Then {
			form.Problems = append(form.Problems, fmt.Sprintf("%s: then %s, now %s; allowed is %s",
				gateWords(told.Now[i].Gate), gateAnswer(&told.Then[i]), gateAnswer(&told.Now[i]), told.Now[i].Allowed))
		}
	case errors.As(err, &invalid):
		form.Wrong[invalid.Field] = shown.Text("Allowed: " + mask.Line(invalid.Allowed))
	case r.Context().Err() != nil:
		status = http.StatusServiceUnavailable
	}
	return p.write(w, r, status, &shell{Name: "act", Title: form.Title, Body: form})
}

func withDid(address, did string) string {
	if strings.Contains(address, "?") {
		return address + "&did=" + did
	}
	return address + "?did=" + did
}

// did words what a form has done, for the page that follows it.
func did(q url.Values) string {
	return map[string]string{
		"promote": "Promoted: it blocks from now on." + grown(q), "canary": "Promoted: its canary begins to hold." +
			grown(q), "demote": "Demoted: it holds nobody any more.", "disable": "Disabled: it counts nothing.",
		"enable": "It counts again, in shadow.", "release": "Released: requests of this source pass.",
		"passed":        "Released and let pass: the rules that name the list do not count it from now on.",
		"limit":         "Raised: requests before its end are counted against the higher limit.",
		"limit-end":     "Ended: the limit is the document's again.",
		"already":       "Nothing was changed: the rule was in this mode already.",
		"applied":       "Applied: the documents are the newest versions.",
		"rollback":      "Rolled back: the older document is the newest version.",
		"reset":         "Reset: the count begins at nothing with the requests that come now.",
		"entered":       "Entered: the rules that name the list do not count it from now on.",
		"entry-removed": "Removed: the rules that name the list count it again.",
		"never":         "Entered: its addresses are never blocked, and blocks that held them are released.",
		"never-remove":  "Removed: its addresses may be blocked again.",
		"block":         "Blocked: gates refuse its requests.",
		"ordered":       "Ordered: ENFORCE has not written the block yet. The audit trail has the order; the block stands here when it is done.",
		"resume": "Accepted: its stage, where it runs, goes on within seconds, and a loss record in history says " +
			"what was not read.",
		"resume-again": "This gap had been accepted before: nothing has changed.",
		"erase":        "Erased from history: the audit trail tells what, under a pseudonym.",
		"erasing":      "The erasure goes on: the audit trail tells when it is done.",
		"keep":         "The view is saved.", "drop": "The view is removed.",
	}[q.Get("did")]
}

// releaseWithin bounds a release: Redis is waited for, and Kafka, before it is on its way.
const releaseWithin = 3 * answerWithin

// releaseWait is how long a release waits for ENFORCE, so that the page that follows shows it done.
const releaseWait = 3 * time.Second

// forget has the next page ask the stores anew, because somebody has just changed what they hold.
func (p acting) forget() {
	p.lately.mu.Lock()
	defer p.lately.mu.Unlock()
	p.lately.found = nil
	if p.o.Changed != nil {
		p.o.Changed()
	}
}
