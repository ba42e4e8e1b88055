package pages

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// auditPage is what people did, and why.
type auditPage struct {
	Period                      period
	Rule, Source, Actor, Action string // filters
	List                        []entryView
	Total                       string
	Next                        string // the next page; empty: this is the last one
	First                       string // the first page; empty: this is it
}

func (p *Pages) audit(w http.ResponseWriter, r *http.Request) error {
	see, err := p.read(r)
	if err != nil {
		return err
	}
	span, err := periodOf(r.URL, see.now, "30d")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	v := &auditPage{Period: span, Rule: q.Get("rule"), Source: q.Get("source"), Actor: q.Get("actor"),
		Action: q.Get("action")}
	source, err := see.filterSource(v.Source)
	if err != nil {
		return err
	}
	place, err := placeAsked(see, r.URL)
	if err != nil {
		return err
	}
	found, err := p.o.Explorer.Audit(r.Context(), explore.AuditFilter{
		Rule: v.Rule, Source: source, Actor: v.Actor, Action: v.Action, Since: span.Since, Until: span.end(),
	}, explore.Page{Cursor: place})
	if err != nil {
		return err
	}
	v.List, v.Total = see.entries(found.Acts), total(found.Total)
	v.Next, v.First = cursors(see, r.URL, found.Next)
	for _, text := range []*string{&v.Rule, &v.Source, &v.Actor, &v.Action} {
		*text = shown.Text(*text)
	}
	return p.show(w, r, &shell{Name: "audit", Title: "Audit", Active: "audit", Body: v})
}

// cursors are the addresses of the next page and of the first one, empty for none.
func cursors(see *reading, here *url.URL, next string) (after, first string) {
	if next != "" {
		after = with(here, "cursor", see.mask.Cursor(next), "did", "")
	}
	if here.Query().Get("cursor") != "" {
		first = with(here, "cursor", "")
	}
	return after, first
}

// placeAsked is the place that the link to a page's next one named, as the visitor was given it.
func placeAsked(see *reading, here *url.URL) (string, error) {
	text := here.Query().Get("cursor")
	place, err := see.mask.Place(text)
	if err != nil {
		return "", &explore.BadFilterError{Field: "cursor", Got: text, Allowed: "what the link to the next page has"}
	}
	return place, nil
}

// entryView is one entry of the audit trail.
type entryView struct {
	At     traffic.Time
	Actor  string
	Via    string
	Action string
	Change string
	Object string
	Href   string // of what the object is about
	Reason string
	Detail string
}

func (r *reading) entry(e *audit.Numbered) entryView {
	told := access.Show(r.mask, e.Entry)
	return entryView{
		At: traffic.At(e.At), Actor: shown.Text(e.Actor), Via: shown.Text(e.Via), Action: shown.Text(e.Action),
		Change: shown.Text(told.Change()),
		Object: r.objectWords(e.Object), Href: r.objectHref(e.Object),
		Reason: shown.Text(told.Reason), Detail: shown.Text(told.Detail),
	}
}

func (r *reading) entries(all []audit.Numbered) []entryView {
	r.mask.Know(all)
	out := make([]entryView, len(all))
	for i := range all {
		out[i] = r.entry(&all[i])
	}
	return out
}

// healthPage is how the installation does.
type healthPage struct {
	Period   period
	Problems []console.Problem
	Stages   []console.StageLag
	Gates    []console.Gate
	// GatesUnknown: Redis did not tell which there are.
	GatesUnknown bool
	Lag          int64
	Uncounted    []ruleUncounted
	Complete     bool // the figures of all reasons are known
	Rules        int
	Blocks       int
	BlocksCut    bool // there are more
	Command      string
	Partitions   bool // there is a page of them
}

// ruleUncounted is what one rule did not count.
type ruleUncounted struct {
	Rule    string
	Figures []figure
}

func (p *Pages) health(w http.ResponseWriter, r *http.Request) error {
	see, err := p.read(r)
	if err != nil {
		return err
	}
	span, err := periodOf(r.URL, see.now, "24h")
	if err != nil {
		return err
	}
	pulse := p.o.Pulse()
	v := &healthPage{
		Period: span, Problems: access.Show(see.mask, pulse.Problems), Stages: pulse.Stages, Gates: pulse.Gates,
		GatesUnknown: pulse.GatesUnknown,
		Rules:        len(see.Rules), Blocks: len(see.Blocks), BlocksCut: see.cut, Command: p.o.Command + " doctor",
		Partitions: see.forms,
	}
	if see.short {
		v.Problems = append(v.Problems, redisProblem(see))
	}
	for _, s := range v.Stages {
		v.Lag += s.Records
	}
	missed, err := p.o.History.NotCounted(r.Context(), history.Live, span.Since)
	if err != nil {
		return err
	}
	v.Complete = missed.Complete
	for _, id := range see.ids() {
		if all := uncounted(known(missed.Figures(id))); len(all) > 0 {
			v.Uncounted = append(v.Uncounted, ruleUncounted{id, all})
		}
	}
	return p.show(w, r, &shell{Name: "health", Title: "Health", Active: "health", Live: true, Body: v})
}

// known leaves out figures that are not known: the page says once that there are such.
func known(f history.Figures) history.Figures {
	for _, one := range []*history.Figure{&f.Late, &f.OutOfOrder, &f.MissingField, &f.MissingValue, &f.Budget} {
		*one = max(0, *one)
	}
	return f
}

// partitionsPage is the partitions as the stages last reported them, those that stopped first.
type partitionsPage struct {
	Did     string
	Problem string // why nothing was done
	Total   int
	Stopped int
	List    []partitionView
	Pager   pager
}

// partitionView is one partition.
type partitionView struct {
	Name      string // keyed/12
	State     string
	Stopped   bool
	Silent    bool // it goes on, and nobody has reported it for a while
	Offset    int64
	Behind    int64
	End       int64
	Watermark traffic.Time // 0: it has none
	Owner     string
	Reported  traffic.Time
	Reason    string
	Resume    string // the form that lets it go on; empty: it has no gap, or the visitor may not
}

const (
	partitionsPerPage = 200
	silentAfter       = 30 * time.Second // stages report every two
)

// partitionOf is what a stage reported, for this visitor.
func partitionOf(r *reading, p *acts.Partition) partitionView {
	v := partitionView{
		Name: p.Name(), State: shown.Text(string(p.State)), Stopped: !p.Running(), Offset: p.Offset, End: p.End,
		Behind: max(0, p.End-p.Offset), Watermark: p.Watermark, Owner: shown.Text(p.Owner),
		Reported: traffic.At(p.Reported), Reason: r.line(p.Reason),
		Silent: p.Running() && r.now.Std().Sub(p.Reported) > silentAfter,
	}
	if p.GapOffset != nil && r.may(access.Resume, "") {
		v.Resume = "/partitions/" + v.Name + "/resume"
	}
	return v
}

// parting is the page of the partitions, and the form that lets one go on.
type parting struct{ acting }

func (p parting) route() {
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/partitions", Act: access.View},
		p.answered(func(w http.ResponseWriter, r *http.Request) error { return p.list(w, r, nil) }))
	const path = "/partitions/{side}/{partition}/resume"
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: path, Act: access.Resume},
		p.answered(func(w http.ResponseWriter, r *http.Request) error {
			form, _, err := p.resumeForm(r)
			if err != nil {
				return p.notResumed(w, r, err)
			}
			return p.show(w, r, &shell{Name: "act", Title: form.Title, Active: "health", Body: form})
		}))
	p.mux.HandleFunc(access.Route{Method: http.MethodPost, Pattern: path, Act: access.Resume}, p.answered(p.resume))
}

// list is the page; why, where it is not nil, is why one of them was not let go on.
func (p parting) list(w http.ResponseWriter, r *http.Request, why error) error {
	see, err := p.read(r)
	if err != nil {
		return err
	}
	all, err := p.o.Acts.Partitions(r.Context(), see.visit.Actor)
	if err != nil {
		return err
	}
	v, status := &partitionsPage{Did: did(r.URL.Query()), Total: len(all)}, http.StatusOK
	if why != nil {
		v.Problem, status = words(maskOf(&p.o, r), r, why), http.StatusConflict
	}
	slices.SortStableFunc(all, func(a, b acts.Partition) int {
		switch {
		case a.Running() == b.Running():
			return 0
		case b.Running():
			return -1
		}
		return 1
	})
	for i := range all {
		v.List = append(v.List, partitionOf(see, &all[i]))
		if v.List[i].Stopped {
			v.Stopped++
		}
	}
	if v.List, v.Pager, err = pageOf(r.URL, v.List, partitionsPerPage); err != nil {
		return err
	}
	return p.write(w, r, status, &shell{Name: "partitions", Title: "Partitions", Active: "health", Live: why == nil,
		Body: v})
}

// notResumed shows why there is no form: with the list, where the partition goes on by now or has no gap.
func (p parting) notResumed(w http.ResponseWriter, r *http.Request, err error) error {
	if errors.As(err, new(*acts.NotStoppedError)) {
		return p.list(w, r, err)
	}
	return err
}

// resumeForm is the form that lets a partition go on, and the partition as it is now.
func (p parting) resumeForm(r *http.Request) (*actForm, *acts.Partition, error) {
	side, text := r.PathValue("side"), r.PathValue("partition")
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil, nil, &badRequest{"partition", shown.Text(text), "the number of a partition"}
	}
	actor := access.From(r.Context())
	if err := access.May(actor, access.Resume, ""); err != nil {
		return nil, nil, err
	}
	all, err := p.o.Acts.Partitions(r.Context(), actor)
	if err != nil {
		return nil, nil, err
	}
	now, err := acts.Resumable(all, ingest.Side(side), n)
	invalid, unknown := (*acts.Invalid)(nil), (*acts.UnknownName)(nil)
	switch {
	case errors.As(err, &invalid):
		return nil, nil, &badRequest{invalid.Field, shown.Text(invalid.Got), invalid.Allowed}
	case errors.As(err, &unknown):
		return nil, nil, &missing{"No stage has reported partition " + shown.Text(unknown.Name) + "."}
	case err != nil:
		return nil, nil, err
	}
	return &actForm{
		Title: "Let partition " + now.Name() + " go on", Verb: "Let it go on", Danger: true, Back: "/partitions",
		Above: "Partitions", Action: "/partitions/" + now.Name() + "/resume",
		Means: append([]string{"It stopped: " + shown.Text(maskOf(&p.o, r).Line(now.Reason))}, lost(now)...),
		Hidden: []param{{"gap_source", strconv.Itoa(*now.GapSource)},
			{"gap_offset", strconv.FormatInt(*now.GapOffset, 10)}},
		Confirm: "What is missing will not be counted",
	}, now, nil
}

// lost says what is not counted once a gap is accepted.
func lost(p *acts.Partition) []string {
	source, end := *p.GapSource, *p.GapOffset
	what := fmt.Sprintf("Records of requests/%d before offset %d that did not come to %s: no rule counts them.", source,
		end, p.Name())
	switch {
	case source == ingest.KeyedAnew:
		what = fmt.Sprintf("What the log of %s held from offset %d on and was not read: no rule counts it. It goes "+
			"on at the start of the log that there is; what of it was counted before is not counted again.",
			p.Name(), end)
	case (source == ingest.GapInKeyed || p.Side == ingest.SideRequests) && p.Offset >= 0 && p.Offset < end:
		what = fmt.Sprintf("What %s holds from offset %d to before offset %d, %s records at most: no rule counts them.",
			p.Name(), p.Offset, end, shown.Count(end-p.Offset))
	case source == ingest.GapInKeyed || p.Side == ingest.SideRequests:
		what = fmt.Sprintf("What %s holds before offset %d and was not read by now: no rule counts it.", p.Name(), end)
	}
	return []string{
		what,
		"Whoever was over a limit in it is not found. A loss record in history says so; it cannot be taken back.",
		"First bring back what can be brought back: a broker, or a whole replica.",
		"Only this gap is accepted: the next one stops the partition again.",
	}
}

func (p parting) resume(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return &badRequest{"form", "", "fields as a form sends them"}
	}
	form, now, err := p.resumeForm(r)
	if err != nil {
		return p.notResumed(w, r, err)
	}
	source, err := strconv.Atoi(r.PostFormValue("gap_source"))
	offset, oerr := strconv.ParseInt(r.PostFormValue("gap_offset"), 10, 64)
	if err = errors.Join(err, oerr); err != nil {
		return &badRequest{"gap", shown.Text(r.PostFormValue("gap_source") + ", " + r.PostFormValue("gap_offset")),
			"the gap that the form had"}
	}
	var done acts.ResumeDone
	if err = confirmed(r); err == nil {
		done, err = p.o.Acts.ResumePartition(r.Context(), access.From(r.Context()), acts.ResumeRequest{Side: now.Side,
			Partition: now.Partition, GapSource: &source, GapOffset: &offset, Reason: r.PostFormValue("reason")})
	}
	if errors.As(err, new(*acts.NotStoppedError)) {
		return p.list(w, r, err)
	}
	if err != nil {
		return p.again(w, r, form, err)
	}
	told := "resume"
	if done.Again {
		told = "resume-again"
	}
	http.Redirect(w, r, withDid(form.Back, told), http.StatusSeeOther)
	return nil
}
