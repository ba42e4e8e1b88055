package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func rulesCommand(a *app) *cobra.Command {
	return family("rules", "Check, apply and promote rules", `  weir rules lint -f rules/
  weir rules apply -f rules/ --dry-run
  weir rules promote guest-token-flood --reason "two days of shadow, no viewer among the hits"`,
		rulesLint(a), rulesApply(a), rulesList(a), rulesShow(a), rulesPromote(a), rulesDemote(a))
}

// ruleFiles reads rule documents from files, directories and standard input (-). What is probably not meant in them is said
// on standard error.
func ruleFiles(a *app, paths []string, identity traffic.IdentityMap) ([]rules.Document, error) {
	return readRules(a, paths, rules.Environment{Identity: identity, Warn: func(p rules.Problem) {
		fmt.Fprintf(a.Stderr, "weir: warning: %s\n", p.Error())
	}})
}

func readRules(a *app, paths []string, env rules.Environment) ([]rules.Document, error) {
	if len(paths) == 0 {
		return nil, usage.Errorf("-f is required: a file or directory of rules, or - for standard input")
	}
	var files []rules.File
	var trees []rules.Document
	var problems []error
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			docs, err := rules.LoadDir(os.DirFS(path), filepath.ToSlash(path), env)
			trees, problems = append(trees, docs...), append(problems, err)
			continue
		}
		src, err := readBounded(a, path)
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		files = append(files, rules.File{Name: path, Src: src})
	}
	docs, err := rules.ParseFiles(files, env)
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, err
	}
	return onceEach(append(trees, docs...))
}

// readBounded reads a file of rules, and a byte more than is allowed of one that is too big, so that the parser says so.
func readBounded(a *app, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(a.stdin, rules.MaxFileBytes+1))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	src, err := io.ReadAll(io.LimitReader(f, rules.MaxFileBytes+1))
	return src, errors.Join(err, f.Close())
}

// onceEach refuses an id that two of several -f have.
func onceEach(docs []rules.Document) ([]rules.Document, error) {
	seen := map[string]bool{}
	for _, d := range docs {
		if seen[d.ID] {
			return nil, fmt.Errorf("rule %s is in two of the -f given; allowed: once", d.ID)
		}
		seen[d.ID] = true
	}
	if len(docs) == 0 {
		return nil, errors.New("no rule in the files given")
	}
	return docs, nil
}

func rulesLint(a *app) *cobra.Command {
	var from []string
	c := &cobra.Command{
		Use:   "lint -f FILE|DIR",
		Short: "Check rule documents; needs no server",
		Long: `Check rule documents against the configuration's identity map. Every problem is shown with file, line, field, what it got
and what is allowed. The exit code is 1 if there is one. What is legal and probably not meant, such as a method that no request has, is
warned about in the same form, and is no problem. No server is needed.`,
		Example: "  weir rules lint -f rules/\n  weir rules lint -f - < rule.yaml",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			warnings := []rules.Problem{}
			docs, err := readRules(a, from, rules.Environment{Identity: conf.Identity, Warn: func(p rules.Problem) { warnings = append(warnings, p) }})
			if a.Format == "json" {
				return lintJSON(&a.Output, docs, warnings, err)
			}
			for _, w := range warnings {
				fmt.Fprintf(a.Stdout, "warning: %s\n", w.Error())
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Stdout, "%s without a problem\n", terminal.Plural(len(docs), "rule"))
			return err
		}),
	}
	fileFlag(c, &from)
	return c
}

// lintJSON writes problems and warnings as arrays, empty when there are none.
func lintJSON(o *terminal.Output, docs []rules.Document, warnings []rules.Problem, err error) error {
	found := append([]rules.Problem{}, problemsIn(err)...)
	if err != nil && len(found) == 0 {
		return err // not about a document: a file that cannot be read
	}
	report := struct {
		Rules    int             `json:"rules"`
		Problems []rules.Problem `json:"problems"`
		Warnings []rules.Problem `json:"warnings"`
	}{len(docs), found, warnings}
	if werr := o.WriteJSON(report); werr != nil {
		return werr
	}
	if err != nil {
		return errSaid
	}
	return nil
}

// problemsIn gathers the problems of all errors that err joins.
func problemsIn(err error) []rules.Problem {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []rules.Problem
		for _, e := range joined.Unwrap() {
			all = append(all, problemsIn(e)...)
		}
		return all
	}
	var found rules.Problems
	if errors.As(err, &found) {
		return found
	}
	return nil
}

func rulesApply(a *app) *cobra.Command {
	var from []string
	var opts history.ApplyOptions
	var act actFlags
	c := &cobra.Command{
		Use:   "apply -f FILE|DIR",
		Short: "Make the stored rules those of the documents",
		Long: `Make the stored rules those of the documents, in one step, and show what changed. New rules start in shadow.
Rules that are stored but not among the documents are kept, unless --prune removes them. An edit of a rule that blocks is
refused if it may block more than before: demote it, apply, watch it, promote it again.`,
		Example: `  weir rules apply -f rules/ --dry-run
  weir rules apply -f rules/ --reason "looser limit for partners"
  weir rules apply -f rules/ --prune`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				docs, err := ruleFiles(a, from, s.config.Identity)
				if err != nil {
					return err
				}
				plan, err := s.ApplyRules(ctx, withSources(docs), act.by, act.reason, opts)
				if err != nil {
					return err
				}
				if opts.DryRun {
					return showPlan(&a.Output, plan, nil)
				}
				p := s.publishModes(ctx)
				return showPlan(&a.Output, plan, &p)
			})
		}),
	}
	fileFlag(c, &from)
	c.Flags().BoolVar(&opts.DryRun, "dry-run", false, "show what would change, change nothing")
	c.Flags().BoolVar(&opts.Prune, "prune", false, "remove stored rules that are not among the documents")
	act.register(c, a.environ)
	return c
}

func withSources(docs []rules.Document) []history.RuleDocument {
	out := make([]history.RuleDocument, len(docs))
	for i, d := range docs {
		out[i] = history.RuleDocument{Document: d, Source: d.YAML()}
	}
	return out
}

// showPlan writes one line for each rule and one for each field that changed, and whether gates were told: p, nil for a dry
// run.
func showPlan(o *terminal.Output, plan history.Plan, p *publication) error {
	if o.Format == "json" {
		return o.WriteJSON(struct {
			history.Plan
			*publication
		}{plan, p})
	}
	var b strings.Builder
	for _, c := range plan.Changes {
		fmt.Fprintf(&b, "%-9s %s version %d, %s", c.Kind, c.Rule, c.Version, c.Mode)
		if c.Warming {
			b.WriteString(", warming: its windows start empty")
		}
		b.WriteString("\n")
		for _, line := range c.Diff {
			fmt.Fprintf(&b, "            %s\n", terminal.Cell(line))
		}
		for _, reason := range c.Refused {
			fmt.Fprintf(&b, "            would be refused: %s\n", terminal.Cell(reason))
		}
	}
	switch {
	case p == nil:
		b.WriteString("dry run: nothing was changed\n")
	case !plan.Changed():
		fmt.Fprintf(&b, "no change; routing version %d stays\n", plan.Routing)
	default:
		fmt.Fprintf(&b, "applied as routing version %d\n", plan.Routing)
	}
	if _, err := io.WriteString(o.Stdout, b.String()); err != nil || p == nil {
		return err
	}
	return p.show(o.Stdout, plan.Changed(), "the rules are stored; weir run publishes them")
}

func rulesList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the rules with their modes, and what they did not count",
		Example: "  weir rules list\n  weir rules list --output json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				all, err := s.Rules(ctx)
				if err != nil {
					return err
				}
				figured, err := withFigures(ctx, s, all...)
				if err != nil {
					return err
				}
				head := []string{"RULE", "MODE", "VERSION", "OWNER", "LIMIT", "WINDOW", "CHANGED", "BY", "NOT COUNTED 24H"}
				return terminal.List(&a.Output, figured, head, func(r figuredRule) []string {
					v := r.Newest.Version
					return []string{
						v.ID, string(r.Mode), strconv.Itoa(v.Number), terminal.Brief(v.Owner), strconv.Itoa(v.Limit),
						duration.Format(v.Window), terminal.Stamp(r.Changed), terminal.Brief(r.ChangedBy),
						uncountedText(&r.Uncounted),
					}
				})
			})
		}),
	}
}

func rulesShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "show RULE",
		Short:   "Show a rule: its newest document, mode and versions, and what it did not count",
		Example: "  weir rules show guest-token-flood",
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				r, err := s.named(ctx, args[0])
				if err != nil {
					return err
				}
				figured, err := withFigures(ctx, s, r)
				if err != nil {
					return err
				}
				if a.Format == "json" {
					return a.WriteJSON(figured[0])
				}
				return showRule(&a.Output, figured[0])
			})
		}),
	}
}

func showRule(o *terminal.Output, r figuredRule) error {
	removed := ""
	if r.Removed {
		removed = ", removed"
	}
	fmt.Fprintf(o.Stdout, "# mode %s since %s, set by %s%s\n# not counted in the last 24 h: %s\n%s\n", r.Mode, terminal.Stamp(r.Changed),
		terminal.Cell(r.ChangedBy), removed, uncountedText(&r.Uncounted),
		strings.TrimRight(r.Newest.Version.YAML(), "\n"))
	fmt.Fprintln(o.Stdout)
	return terminal.List(o, r.Versions, []string{"VERSION", "LINEAGE", "CREATED", "AUTHOR", "REASON"}, func(v history.StoredVersion) []string {
		return []string{strconv.Itoa(v.Version.Number), strconv.Itoa(v.Version.Lineage), terminal.Stamp(v.Created), terminal.Brief(v.Author), terminal.Brief(v.Reason)}
	})
}

// fileFlag is the -f of commands that take rule documents.
func fileFlag(c *cobra.Command, from *[]string) {
	c.Flags().StringArrayVarP(from, "file", "f", nil, "file or directory of rules, - for standard input; may be repeated")
}

// uncountedPeriod is how far back the figures of rules go.
const uncountedPeriod = 24 * time.Hour

// figuredRule is a rule with what it did not count in the live stream during uncountedPeriod.
type figuredRule struct {
	history.Rule
	Uncounted history.Figures `json:"uncounted_24h"`
}

// withFigures adds to rules what they did not count.
func withFigures(ctx context.Context, s *store, all ...history.Rule) ([]figuredRule, error) {
	missed, err := s.NotCounted(ctx, history.Live, service.Now().Add(-uncountedPeriod))
	if err != nil {
		return nil, err
	}
	out := make([]figuredRule, len(all))
	for i := range all {
		out[i] = figuredRule{all[i], missed.Figures(all[i].Newest.Version.ID)}
	}
	return out, nil
}

// uncountedText is figures in one line: those that are not 0, and those that are not known.
func uncountedText(f *history.Figures) string {
	var parts []string
	for _, reason := range uncountedReasons() {
		if n := f.Of(reason); n != 0 {
			parts = append(parts, reason.String()+" "+n.String())
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}
