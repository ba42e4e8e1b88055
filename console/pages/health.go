package pages

import (
	"net/http"

	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/history"
)

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
	Command      string
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
		Period: span, Problems: pulse.Problems, Stages: pulse.Stages, Gates: pulse.Gates, GatesUnknown: pulse.GatesUnknown,
		Rules: len(see.Rules), Blocks: len(see.Blocks), Command: p.o.Command + " doctor",
	}
	if see.redis != "" {
		v.Problems = append(v.Problems, console.Problem{Part: "Redis", Detail: "does not answer: blocks and releases are not shown"})
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
	for _, one := range []*history.Figure{&f.Late, &f.OutOfOrder, &f.MissingField, &f.MissingValue} {
		*one = max(0, *one)
	}
	return f
}
