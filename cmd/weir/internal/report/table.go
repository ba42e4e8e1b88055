package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/internal/plural"
)

// Table writes the report for people: what was read, a row for each rule or value, and who was over. Of a sweep it leaves the
// sources out, which would be those of every value.
func (r *Report) Table(o *terminal.Output) error {
	fmt.Fprintln(o.Stdout, r.headline())
	for _, line := range r.unread() {
		fmt.Fprintln(o.Stdout, line)
	}
	fmt.Fprintln(o.Stdout)
	if err := terminal.List(o, r.Result.Rules, r.figuresHead(), r.figures); err != nil {
		return err
	}
	if notes := r.notes(); len(notes) > 0 {
		fmt.Fprintf(o.Stdout, "\n%s\n", strings.Join(notes, "\n"))
	}
	switch over := slices.ContainsFunc(r.Result.Rules, func(found backtest.RuleResult) bool { return found.Episodes > 0 }); {
	case over && r.Sweep == "":
		return r.tableOfSources(o)
	case !over && r.Result.Events > 0:
		fmt.Fprint(o.Stdout, "\nnobody was over a limit\n")
	}
	return nil
}

// figuresHead names the columns of a row of figures.
func (r *Report) figuresHead() []string {
	head := []string{"RULE", "SOURCES", "EPISODES", "EVENTS", "MATCHED", "WOULD REFUSE", "OF ALL", "OF MATCHED", "HELD"}
	if r.Sweep != "" {
		head = slices.Insert(head, 1, strings.ToUpper(r.Sweep))
	}
	return head
}

// figures are the row of a rule, or of a value that was tried for it. A rule without a block would refuse nothing.
func (r *Report) figures(found backtest.RuleResult) []string {
	row := []string{found.Rule}
	if r.Sweep != "" {
		row = append(row, swept(&found))
	}
	for _, n := range []int64{found.Sources, found.Episodes, found.Over, found.Matched} {
		row = append(row, strconv.FormatInt(n, 10))
	}
	if b := found.Block; b != nil {
		return append(row, strconv.FormatInt(b.Refused, 10), share(b.ShareOfAll), share(b.ShareOfMatched), strconv.FormatInt(b.Held, 10))
	}
	return append(row, "", "", "", "")
}

// ruledSource is a source with the rule whose limit it was over.
type ruledSource struct {
	rule string
	backtest.Source
}

func (r *Report) tableOfSources(o *terminal.Output) error {
	var all []ruledSource
	var cut []string
	for i := range r.Result.Rules {
		found := &r.Result.Rules[i]
		for _, s := range found.Top {
			all = append(all, ruledSource{found.Rule, s})
		}
		if found.TopCut > 0 {
			cut = append(cut, fmt.Sprintf("rule %s: %s more; --top N shows more of them, --output csv each episode", found.Rule, plural.Of(found.TopCut, "source")))
		}
	}
	fmt.Fprintln(o.Stdout)
	head := []string{"RULE", "SOURCE", "EPISODES", "EVENTS", "PEAK", "FIRST", "LAST", "SAMPLE"}
	if err := terminal.List(o, all, head, func(s ruledSource) []string {
		return []string{
			s.rule, subject.Text(s.Subject), strconv.FormatInt(s.Episodes, 10), strconv.FormatInt(s.Over, 10), strconv.Itoa(s.Peak),
			terminal.Time(s.First), terminal.Time(s.Last), terminal.Brief(evidence(s.Samples)),
		}
	}); err != nil {
		return err
	}
	for _, line := range cut {
		fmt.Fprintln(o.Stdout, line)
	}
	return nil
}
