package report

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/plural"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// page is what page.html shows. html/template escapes every text of it for where it stands, and shown has replaced what moves
// text about or is invisible. Beyond that the page's own policy lets nothing run and nothing be fetched.
type page struct {
	Style    template.CSS
	Policy   string
	Title    string
	Headline string
	Facts    []fact
	Unread   []string
	Notes    []string
	Head     []string // of Figures
	Figures  [][]string
	Rules    []ruleSection
}

type fact struct{ Name, Value string }

// ruleSection is a rule, or a value of a sweep that has a chart of its own.
type ruleSection struct {
	Name, Watches, TooMuch, Block string
	Would                         string // what a block would have done
	Chart                         *chart
	Lists                         []sourceList
}

// sourceList is who was over, at one value of a sweep or without one.
type sourceList struct {
	Of      string // limit=10; empty without a sweep
	Sources string // how many there are
	Top     []pageSource
	Cut     int64 // sources that are not in Top
	Open    bool  // unfolded when the page is opened
}

type pageSource struct {
	Subject             string
	Episodes, Over      int64
	Peak                int
	First, Last, Sample string
	Samples             []string
}

// Page writes one HTML page that needs nothing beside it.
func (r *Report) Page(to io.Writer) error {
	t, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return err
	}
	return t.Execute(to, r.page())
}

func (r *Report) page() *page {
	sum := sha256.Sum256([]byte(pageCSS))
	p := &page{
		Style: template.CSS(pageCSS), Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'",
		Title: "Backtest of " + terminal.FirstFew(r.Files), Headline: r.headline(), Facts: r.facts(), Unread: r.unread(), Notes: r.notes(), Head: r.figuresHead(),
	}
	p.Title = terminal.Safe(p.Title)
	for i := range r.Result.Rules {
		row := r.figures(r.Result.Rules[i])
		for j := range row {
			row[j] = terminal.Shown(row[j])
		}
		p.Figures = append(p.Figures, row)
	}
	for rest := r.Result.Rules; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(found backtest.RuleResult) bool { return found.Rule != rest[0].Rule })
		if n < 0 {
			n = len(rest)
		}
		p.Rules = append(p.Rules, r.sections(rest[:n])...)
		rest = rest[n:]
	}
	return p
}

func (r *Report) facts() []fact {
	what, by := "Files", ""
	if r.Live {
		what, by = "Live topic", ", append time"
	}
	all := []fact{{what, terminal.Safe(strings.Join(r.Files, ", "))}, {"Format", r.Format}}
	if r.Reorder > 0 {
		all = append(all, fact{"Reordered within", duration.Format(r.Reorder)})
	}
	if r.Since != 0 {
		all = append(all, fact{"Since" + by, terminal.Time(r.Since)})
	}
	if r.Until != 0 {
		all = append(all, fact{"Until" + by, terminal.Time(r.Until)})
	}
	return all
}

// sections shows one rule: in one section with a line for each limit, or with one for each window, whose counts differ.
func (r *Report) sections(of []backtest.RuleResult) []ruleSection {
	if r.Sweep == "window" {
		var out []ruleSection
		for i := range of {
			s := newSection(&of[i], []line{{of[i].Version.Limit, of[i].Sources}})
			s.Lists = []sourceList{newList(&of[i], false)}
			out = append(out, s)
		}
		return out
	}
	// Under the greatest limit most is kept of a source that is over.
	greatest := slices.MaxFunc(of, func(a, b backtest.RuleResult) int { return cmp.Compare(a.Version.Limit, b.Version.Limit) })
	var lines []line
	for i := range of {
		lines = append(lines, line{of[i].Version.Limit, of[i].Sources})
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.limit, b.limit) })
	s := newSection(&greatest, lines)
	for i := range of {
		s.Lists = append(s.Lists, newList(&of[i], r.Sweep == ""))
	}
	if r.Sweep != "" { // what holds for one of the limits only is in the table
		s.TooMuch, s.Would = limited(&greatest.Version, limitsOf(lines)), ""
	}
	return []ruleSection{s}
}

// limitsOf writes the limits of a sweep: 5, 10 or 20.
func limitsOf(lines []line) string {
	all := make([]string, len(lines))
	for i, l := range lines {
		all[i] = strconv.Itoa(l.limit)
	}
	last := len(all) - 1
	if last == 0 {
		return all[0]
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

func newSection(found *backtest.RuleResult, lines []line) ruleSection {
	v := &found.Version
	s := ruleSection{Name: found.Rule, Watches: watched(&v.Match), TooMuch: limited(v, strconv.Itoa(v.Limit)), Block: "none: the rule can only watch", Chart: newChart(found, lines)}
	if v.Block == nil {
		return s
	}
	s.Block = "by " + strings.Join(fieldNames(v.Block.Key), ", ") + " for " + duration.Format(v.Block.TTL)
	if b := found.Block; b != nil {
		s.Would = wouldHave(b)
	}
	return s
}

// wouldHave says what a block would have done.
func wouldHave(b *backtest.BlockResult) string {
	if b.Refused == 0 {
		return "A block would have refused nothing."
	}
	return fmt.Sprintf("A block would have refused %s: %s of all, %s of those that the rule watches. It would have held %s, and refused the first request at %s.",
		plural.Of(b.Refused, "request"), share(b.ShareOfAll), share(b.ShareOfMatched), plural.Of(b.Held, "source"), terminal.Time(b.FirstRefused))
}

func newList(found *backtest.RuleResult, open bool) sourceList {
	l := sourceList{Of: terminal.Safe(found.Swept), Cut: found.TopCut, Open: open, Sources: plural.Of(found.Sources, "source")}
	for _, s := range found.Top {
		shown := pageSource{
			Subject: subject.Text(s.Subject), Episodes: s.Episodes, Over: s.Over, Peak: s.Peak, First: terminal.Time(s.First), Last: terminal.Time(s.Last),
			Sample: terminal.Cell(evidence(s.Samples)),
		}
		for _, text := range s.Samples {
			shown.Samples = append(shown.Samples, terminal.Safe(text))
		}
		l.Top = append(l.Top, shown)
	}
	return l
}

// WritePage writes the page to a file, which it replaces in one step: whoever has the last report open never sees half of a new
// one.
func (r *Report) WritePage(path string) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".weir-backtest-*")
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	err = errors.Join(r.Page(file), file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // the error below says what went wrong
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}
