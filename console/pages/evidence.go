package pages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/console/chart"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/traffic"
)

// Evidence makes dossiers.
type Evidence interface {
	// Gather makes the dossier of a version of a rule; evidence.ErrNoVersion is wrapped where there is none.
	Gather(ctx context.Context, q evidence.Question) (*evidence.Dossier, error)
}

var _ Evidence = (*evidence.Store)(nil)

// evidenceView is what one version of a rule would have done, had it blocked.
type evidenceView struct {
	Version   int
	Role      string
	Others    []option // the other versions that there is evidence of
	Since     traffic.Time
	Until     traffic.Time
	Refuses   string // why there is none
	Figures   []gauge
	Gaps      []string
	Observed  string
	Chart     template.HTML
	Limits    []limitView // of the chart, as a table
	Told      string      // what any limit would have held, for the slider; empty: only the server says
	Limit     int         // of the version
	Most      int         // greatest limit of the slider
	Chosen    int         // considered
	Would     *limitView  // what the considered limit would have held
	Exact     int64
	Unfit     string // why peaks cannot tell what another limit would hold
	Overlap   []figure
	Top       []heldView
	Notes     []string
	Hash      string
	Kept      []param // of the address, for the form of the slider
	Path      string
	Blockless bool
}

// gauge is one figure with how far it can be relied upon.
type gauge struct {
	Name, Value, Note string
	Unknown           bool // it is not measurable
}

// limitView is what one limit would have held.
type limitView struct {
	Limit             int
	Sources, Requests string
}

// heldView is a source that would have been held.
type heldView struct {
	Source                sourceView
	Refused, Events, Peak int64
	Episodes              int64
	Users, Devices        int64
	KnownGood             string
	HeldBy                []string
	Hit                   string
	First, Last           traffic.Time
	Asked                 askedView
}

// gathers bounds how long a dossier may take.
const gathers = 5 * time.Second

// gathering is evidence that is gathered beside the rest of a page: it takes as long as all else.
type gathering struct {
	view  *evidenceView
	err   error
	fault any // a panic, for the goroutine of the request, whose server knows what to do
	stop  context.CancelFunc
	done  chan struct{}
}

// evidenceBeside begins to gather the evidence of a rule. A page that is only brought up to date has none: its minutes are those that are over.
func (p *Pages) evidenceBeside(r *http.Request, see *reading, found *rulestore.Rule, span period) *gathering {
	ctx, stop := context.WithCancel(r.Context())
	g := &gathering{stop: stop, done: make(chan struct{})}
	if r.Header.Get(liveHeader) != "" {
		close(g.done)
		return g
	}
	go func() {
		defer close(g.done)
		defer func() { g.fault = recover() }()
		g.view, g.err = p.evidence(r.WithContext(ctx), see, found, &span)
	}()
	return g
}

func (g *gathering) wait() (*evidenceView, error) {
	if <-g.done; g.fault != nil {
		panic(g.fault)
	}
	return g.view, g.err
}

// end stops what goes on, and waits until it has.
func (g *gathering) end() {
	g.stop()
	<-g.done
}

// evidence makes the section of a rule's page.
func (p *Pages) evidence(r *http.Request, see *reading, found *rulestore.Rule, span *period) (*evidenceView, error) {
	q := r.URL.Query()
	version, err := number(q, "evidence", 0, 1, math.MaxInt)
	if err != nil {
		return nil, err
	}
	d := &found.Newest.Version.Document
	v := &evidenceView{Version: found.Newest.Version.Number, Kept: span.Kept(), Path: r.URL.Path, Limit: d.Limit, Since: span.Since, Until: span.Until}
	v.Kept = append(slices.DeleteFunc(v.Kept, func(k param) bool { return k.Name == "limit" }), param{"since", span.Choice})
	if span.End != "" {
		v.Kept = append(v.Kept, param{"until", span.End})
	}
	if version > 0 {
		v.Version = version
	}
	v.Others = evidenceOf(r, found, v.Version)
	asked := evidence.Question{Rule: d.ID, Version: version, Since: span.Since, Until: span.Until}
	if span.Span() > evidence.MaxSpan {
		asked.Since = span.Until.Add(-evidence.MaxSpan)
	}
	ctx, cancel := context.WithTimeout(r.Context(), gathers)
	defer cancel()
	dossier, err := p.o.Evidence.Gather(ctx, asked)
	switch {
	case errors.Is(err, evidence.ErrNoVersion):
		return nil, &missing{shown.Text(err.Error())}
	case err != nil && r.Context().Err() == nil: // the rest of the page is worth having without it
		v.Refuses = "It could not be gathered: " + words(maskOf(&p.o, r), r, err) +
			". A shorter period takes less time."
		return v, nil
	case err != nil:
		return nil, err
	}
	if v.Chosen, err = number(q, "limit", dossier.Terms.Limit, dossier.Terms.Limit, math.MaxInt32); err != nil {
		return nil, err
	}
	return v, v.fill(see, dossier)
}

// evidenceOf are the versions of a rule that there is evidence of: the one that acts, and the pending one.
func evidenceOf(r *http.Request, found *rulestore.Rule, chosen int) []option {
	if found.Pending == nil {
		return nil
	}
	var out []option
	for _, n := range []int{found.Newest.Version.Number, found.Pending.Version.Number} {
		out = append(out, option{Text: "Version " + strconv.Itoa(n), Href: with(r.URL, "evidence", strconv.Itoa(n), "limit", "", "did", ""), Chosen: n == chosen})
	}
	return out
}

// fill fills in what a dossier says.
func (v *evidenceView) fill(r *reading, d *evidence.Dossier) error {
	r.mask.Know(d)
	document, err := d.Document()
	if err != nil {
		return fmt.Errorf("writing a dossier: %w", err)
	}
	v.Version, v.Role, v.Since, v.Until, v.Limit, v.Hash = d.Version, string(d.Role), d.Since, d.Until, d.Terms.Limit,
		r.mask.Hash(evidence.Hash(document))
	v.Blockless = d.Terms.Block == ""
	v.Observed = fmt.Sprintf("%s of %s", shown.About(d.Observed.Hours()), shown.About(time.Duration(d.Observed.Span)*time.Minute))
	for _, m := range d.Observed.Missing {
		v.Gaps = append(v.Gaps, shown.About(time.Duration(m.Minutes)*time.Minute)+" "+gapWord(m.Reason))
	}
	v.Figures = []gauge{
		countGauge("sources held", d.Held.Sources), countGauge("requests refused", d.Held.Requests), shareGauge("of all traffic", d.Held.ShareOfAll),
		shareGauge("of what the rule watches", d.Held.ShareOfMatched), countGauge("known-good sources", d.KnownGood.Sources), shareGauge("could be judged", d.KnownGood.Coverage),
		countGauge("users behind one source, at most", d.Behind.Users.Most), countGauge("devices behind one source, at most", d.Behind.Devices.Most),
		shareGauge("already held by other rules", d.Overlap.Sources),
	}
	for _, one := range d.Overlap.Rules {
		v.Overlap = append(v.Overlap, figure{Name: one.Rule, Value: shown.Count(one.Sources)})
	}
	v.Exact, v.Unfit = d.Ladder.Exact, shown.Text(d.Ladder.Reason)
	v.ladder(d)
	if v.Told, err = toldLimits(d); err != nil {
		return err
	}
	for i := range d.Top {
		s := &d.Top[i]
		v.Top = append(v.Top, heldView{
			Source: r.source(s.Subject), Refused: s.Refused, Events: s.Events, Peak: s.Peak, Episodes: s.Episodes, Users: s.Users, Devices: s.Devices,
			KnownGood: s.KnownGood, HeldBy: s.HeldBy, Hit: s.Hit, First: s.First, Last: s.Last,
			Asked: askedOf(r, s.Samples, s.First),
		})
	}
	for _, n := range d.Notes {
		v.Notes = append(v.Notes, r.line(n))
	}
	return nil
}

// gapWord says why minutes were not observed.
func gapWord(reason evidence.GapReason) string {
	switch reason {
	case evidence.GapBefore:
		return "before it was counted so"
	case evidence.GapOther:
		return "under a version that counts otherwise"
	case evidence.GapRaised:
		return "with a raised limit"
	case evidence.GapAllowed:
		return "in which an allow list let pass whom none does now"
	case evidence.GapSilent:
		return "without any event"
	case evidence.GapWarming:
		return "while its windows filled"
	case evidence.GapUncounted:
		return "in which nothing was told of its requests"
	case evidence.GapLoss:
		return "with a part of the log lost"
	}
	return shown.Text(string(reason))
}

func countGauge(name string, c evidence.Count) gauge {
	n, ok := c.Known()
	if !ok {
		return gauge{Name: name, Value: "not measurable", Note: shown.Text(c.Reason), Unknown: true}
	}
	g := gauge{Name: name, Value: shown.Count(n), Note: shown.Text(c.Reason)}
	if c.State == evidence.Bounded {
		g.Value = shown.Text(c.String())
	}
	return g
}

func shareGauge(name string, s evidence.Share) gauge {
	if s.State == evidence.NotMeasurable {
		return gauge{Name: name, Value: "not measurable", Note: shown.Text(s.Reason), Unknown: true}
	}
	g := gauge{Name: name, Value: percent(s.Value), Note: fmt.Sprintf("%s of %s", shown.Count(s.Part), shown.Count(s.Whole))}
	if s.State == evidence.Bounded {
		g.Value, g.Note = shown.Text(s.String()), shown.Text(s.Reason)
	}
	return g
}

// percent writes a share with as many decimals as tell something.
func percent(v float64) string {
	switch p := v * 100; {
	case p == 0 || p >= 10:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	case p >= 0.1:
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	default:
		return strconv.FormatFloat(p, 'g', 1, 64) + " %"
	}
}

// rungs is about how many limits the chart of them has.
const rungs = 48

// ladder draws what each limit from the version's own upward would have held, and says it of the one that is considered.
func (v *evidenceView) ladder(d *evidence.Dossier) {
	one := func(limit int) (limitView, int64, bool) {
		w := d.At(int64(limit))
		held, known := w.Sources.Known()
		return limitView{limit, grouped(w.Sources.String()), grouped(w.Requests.String())}, held, known
	}
	if would, _, _ := one(v.Chosen); true {
		v.Would = &would
	}
	c := chart.Ladder{Unit: "sources held", Limit: v.Limit, Chosen: v.Chosen}
	for _, limit := range limitsOf(d) {
		view, held, known := one(limit)
		if !known {
			continue
		}
		c.Steps = append(c.Steps, chart.Rung{Limit: limit, Held: held})
		v.Limits = append(v.Limits, view)
	}
	if len(c.Steps) == 0 {
		return
	}
	v.Most = c.Steps[len(c.Steps)-1].Limit
	c.Name = fmt.Sprintf("Sources that each limit would have held: %s at %d, %s at %d", shown.Count(c.Steps[0].Held), c.Steps[0].Limit, shown.Count(c.Steps[len(c.Steps)-1].Held), v.Most)
	v.Chart = c.SVG()
}

// limitsOf are limits from the version's own up to where nobody would be held, ascending, evenly apart by their ratio.
func limitsOf(d *evidence.Dossier) []int {
	low, high := max(1, d.Terms.Limit), max(1, d.Terms.Limit)*2
	for _, b := range d.Ladder.Peaks {
		high = max(high, int(b.From)+1, int(b.To)+1)
	}
	for _, s := range d.Ladder.Steps {
		if s.Requests > 0 {
			high = max(high, int(s.Limit)+1)
		}
	}
	out := []int{d.Terms.Limit}
	for i := 1; i <= rungs; i++ {
		at := int(math.Round(float64(low) * math.Pow(float64(high)/float64(low), float64(i)/rungs)))
		if at > out[len(out)-1] {
			out = append(out, at)
		}
	}
	return out
}

// mostTold bounds how much a page holds for its slider; beyond it, the form asks the server.
const mostTold = 4000

// toldLimits is what every limit would have held, for a script: [from, sources, requests] as JSON, ascending, each true
// up to the next one. The figures change at few limits only: at the peaks and beside the limits that were counted. It
// is empty where that is too much.
func toldLimits(d *evidence.Dossier) (string, error) {
	own := int64(d.Terms.Limit)
	at := []int64{own, own + 1, d.Ladder.Exact + 1}
	for _, b := range d.Ladder.Peaks {
		at = append(at, b.From, b.To)
	}
	for _, s := range d.Ladder.Steps {
		at = append(at, s.Limit, s.Limit+1)
	}
	slices.Sort(at)
	var told [][3]any
	for _, limit := range slices.Compact(at) {
		if limit < own {
			continue
		}
		w := d.At(limit)
		sources, requests := grouped(w.Sources.String()), grouped(w.Requests.String())
		if n := len(told); n > 0 && told[n-1][1] == sources && told[n-1][2] == requests {
			continue
		}
		told = append(told, [3]any{limit, sources, requests})
	}
	if len(told) > mostTold {
		return "", nil
	}
	out, err := json.Marshal(told)
	if err != nil {
		return "", fmt.Errorf("writing what limits would hold: %w", err)
	}
	return string(out), nil
}

// grouped writes the numbers of a figure as pages write numbers.
func grouped(figure string) string {
	return regexp.MustCompile(`\d{4,}`).ReplaceAllStringFunc(figure, func(digits string) string {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return digits
		}
		return shown.Count(n)
	})
}

// Stops are the limits at which the slider stops: those of the chart.
func (v *evidenceView) Stops() string {
	out := make([]string, len(v.Limits))
	for i := range v.Limits {
		out[i] = strconv.Itoa(v.Limits[i].Limit)
	}
	return strings.Join(out, " ")
}

// LastStop is the number of the last one, from 0.
func (v *evidenceView) LastStop() int { return len(v.Limits) - 1 }
