package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/ruletry"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/cmd/weir/internal/versions"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
)

func rulesCommand(a *app) *cobra.Command {
	return family("rules", "Check, apply and promote rules", `  weir rules lint -f rules/
  weir rules apply -f rules/ --dry-run
  weir rules promote guest-token-flood --reason "two days of shadow, no viewer among the hits"`,
		slices.Concat(versions.Commands(versionsHost(a)), tryCommands(a),
			[]*cobra.Command{rulesEvidence(a), rulesLint(a), rulesApply(a), rulesList(a), rulesShow(a),
				rulesPromote(a), rulesDemote(a), rulesDisable(a)})...)
}

// tryCommands are those that try documents without a server.
func tryCommands(a *app) []*cobra.Command {
	h := &ruletry.Host{
		Output: &a.Output, Stdin: func() io.Reader { return a.stdin }, Config: a.config, Does: a.does, Failed: errSaid,
		Documents: func(paths []string, env rules.Environment) (*rules.Set, error) { return readRules(a, paths, env) },
	}
	return h.Commands()
}

// ruleFiles reads rule documents from files, directories and standard input (-). What is probably not meant in them is said
// on standard error. events is the format of the events that the rules are for. stored are the ids of the allow lists that rules may name
// beside those of the files.
func ruleFiles(a *app, paths []string, c *config.Config, events rules.Format, stored []string) (*rules.Set, error) {
	env, err := ruleEnvironment(c, func(p rules.Problem) { fmt.Fprintf(a.Stderr, "weir: warning: %s\n", p.Error()) })
	if err != nil {
		return nil, err
	}
	env.Format, env.AllowLists = events, append([]string{}, stored...)
	return readRules(a, paths, env)
}

// ruleEnvironment is what the documents of files are judged against.
func ruleEnvironment(c *config.Config, warn func(rules.Problem)) (rules.Environment, error) {
	conditions, err := condition.New()
	if err != nil {
		return rules.Environment{}, err
	}
	return rules.Environment{Identity: c.Identity, Conditions: conditions, Format: c.EventFormat(), Warn: warn,
		Tests:   ruletry.CheckTests(),
		Bounded: c.Console.RuleBounds().Warn}, nil
}

// ruleSources reads the texts of files, directories and standard input (-).
func (a *app) ruleSources(paths []string) ([]acts.File, error) {
	files, err := ruleTexts(a, paths)
	out := make([]acts.File, len(files))
	for i, f := range files {
		out[i] = acts.File{Name: f.Name, Text: string(f.Src)}
	}
	return out, err
}

func ruleTexts(a *app, paths []string) ([]rules.File, error) {
	if len(paths) == 0 {
		return nil, usage.Errorf("-f is required: a file or directory of rules, or - for standard input")
	}
	var files []rules.File
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			tree, err := rules.ReadDir(os.DirFS(path), filepath.ToSlash(path))
			if err != nil {
				return nil, err
			}
			files = append(files, tree...)
			continue
		}
		src, err := readBounded(a, path)
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		files = append(files, rules.File{Name: path, Src: src})
	}
	return files, nil
}

func readRules(a *app, paths []string, env rules.Environment) (*rules.Set, error) {
	files, err := ruleTexts(a, paths)
	if err != nil {
		return nil, err
	}
	set, err := rules.ParseSet(files, env)
	if err != nil {
		return nil, err
	}
	if len(set.Rules)+len(set.AllowLists) == 0 {
		return nil, versions.NoRules(len(files), paths)
	}
	return set, nil
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

func rulesLint(a *app) *cobra.Command {
	var from []string
	c := &cobra.Command{
		Use:   "lint -f FILE|DIR",
		Short: "Check rule documents; needs no server",
		Long: `Check rule documents against the configuration's identity map. Every problem is shown with file, line, field, what it got
and what is allowed. The exit code is 1 if there is one. What is legal and probably not meant, such as a method that no request has, is
warned about in the same form, and is no problem: so is the name of an allow list that is not in the files, since it may be stored. No
server is needed.`,
		Example: "  weir rules lint -f rules/\n  weir rules lint -f - < rule.yaml",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			warnings := []rules.Problem{}
			env, err := ruleEnvironment(conf, func(p rules.Problem) { warnings = append(warnings, p) })
			if err != nil {
				return err
			}
			set, err := readRules(a, from, env)
			if a.Format == "json" {
				return lintJSON(&a.Output, set, warnings, err)
			}
			for _, w := range warnings {
				fmt.Fprintf(a.Stdout, "warning: %s\n", w.Error())
			}
			if err != nil {
				return err
			}
			what := plural.Of(len(set.Rules), "rule")
			if n := len(set.AllowLists); n > 0 {
				what += " and " + plural.Of(n, "allow list")
			}
			_, err = fmt.Fprintf(a.Stdout, "%s without a problem\n", what)
			return err
		}),
	}
	fileFlag(c, &from)
	return c
}

// lintJSON writes problems and warnings as arrays, empty when there are none.
func lintJSON(o *terminal.Output, set *rules.Set, warnings []rules.Problem, err error) error {
	found := append([]rules.Problem{}, problemsIn(err)...)
	if err != nil && len(found) == 0 {
		return err // not about a document: a file that cannot be read
	}
	if set == nil {
		set = &rules.Set{}
	}
	report := struct {
		Rules      int             `json:"rules"`
		AllowLists int             `json:"allow_lists"`
		Problems   []rules.Problem `json:"problems"`
		Warnings   []rules.Problem `json:"warnings"`
	}{len(set.Rules), len(set.AllowLists), found, warnings}
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
	var act actFlags
	var dry, prune, yes bool
	c := &cobra.Command{
		Use:   "apply -f FILE|DIR",
		Short: "Make the stored rules those of the documents",
		Long: `Make the stored rules and allow lists those of the documents, in one step, and show what changed. New rules start in shadow.
Rules that are stored but not among the documents are kept, unless --prune removes them, and so are allow lists, which --prune removes
where no rule names them. An edit of a rule that blocks acts at once if it can only block less. Otherwise it is pending: counted beside
the version that blocks and never enforced, until weir rules promote makes it the one that blocks, or another document takes its place.
Taking an entry back from an allow list that a blocking rule names is refused, if the rule was promoted with that entry. On a terminal
the changes are shown and agreed to first.`,
		Example: `  weir rules apply -f rules/ --dry-run
  weir rules apply -f rules/ --reason "looser limit for partners"
  weir rules apply -f rules/ --prune`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			files, err := a.ruleSources(from)
			if err != nil {
				return err
			}
			return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
				return versions.Worded(len(files), from, a.carry(func(dry bool, shown *rulestore.Plan) (acts.ApplyDone, error) {
					return d.Apply(ctx, desk.Local(act.by), acts.ApplyRequest{Files: files, Prune: prune, DryRun: dry, Shown: shown, Reason: act.reason})
				}, dry, yes))
			})
		}),
	}
	fileFlag(c, &from)
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would change, change nothing")
	c.Flags().BoolVar(&prune, "prune", false, "remove stored rules that are not among the documents")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask, as where standard input is no terminal")
	act.register(c, a.environ)
	return c
}

// carry applies documents. Where somebody can be asked, the plan is shown first, and carried out only as it was shown.
func (a *app) carry(apply versions.Apply, dry, yes bool) error {
	var agreed *rulestore.Plan
	if !yes && !dry && a.Format != "json" && versions.Asks(a.stdin) {
		shown, err := apply(true, nil)
		a.warn(shown.Warnings)
		if err != nil {
			return desk.Told(err)
		}
		if shown.Changed() {
			fmt.Fprint(a.Stderr, versions.PlanText(shown.Plan))
			if ok, err := versions.Agreed(a.stdin, a.Stderr); err != nil || !ok {
				return errors.Join(err, errors.New("not applied"))
			}
		}
		agreed = shown.Plan
	}
	done, err := apply(dry, agreed)
	if agreed == nil {
		a.warn(done.Warnings)
	}
	if err != nil {
		return desk.Told(err)
	}
	return showPlan(&a.Output, done.Plan, done.Publication)
}

// warn tells what is probably not meant in documents.
func (a *app) warn(all []rules.Problem) {
	for _, p := range all {
		fmt.Fprintf(a.Stderr, "weir: warning: %s\n", p.Error())
	}
}

// showPlan writes a plan, and whether gates were told of it: p, nil for a dry run.
func showPlan(o *terminal.Output, plan *rulestore.Plan, p *acts.Publication) error {
	if o.Format == "json" {
		return o.WriteJSON(acts.ApplyDone{Plan: plan, Publication: p})
	}
	said := "dry run: nothing was changed\n"
	switch {
	case p == nil:
	case !plan.Changed():
		said = fmt.Sprintf("no change; routing version %d stays\n", plan.Routing)
	default:
		said = fmt.Sprintf("%sapplied as routing version %d\n", versions.Promotions(plan), plan.Routing)
	}
	if _, err := io.WriteString(o.Stdout, versions.PlanText(plan)+said); err != nil || p == nil {
		return err
	}
	return showPublication(o.Stdout, p, plan.Changed(), "the rules are stored; weir run publishes them")
}

func rulesList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the rules with their modes, and what they did not count",
		Example: "  weir rules list\n  weir rules list --output json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
				figured, err := d.Rulebook(ctx)
				if err != nil {
					return err
				}
				now := service.Now().Std()
				head := []string{"RULE", "MODE", "VERSION", "PENDING", "OWNER", "LIMIT", "WINDOW", "CHANGED", "BY", "NOT COUNTED 24H"}
				return terminal.List(&a.Output, figured, head, func(r api.Rule) []string {
					v := r.Newest.Version
					return []string{
						v.ID, modeText(&r.Rule), numberText(v.Number, r.Warm(now)), pendingText(&r.Rule, now), terminal.Brief(v.Owner),
						limitText(v.Limit, r.Raised, now),
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
			return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
				r, err := d.Rule(ctx, args[0])
				if err != nil {
					return desk.Told(err)
				}
				if a.Format == "json" {
					return a.WriteJSON(r)
				}
				return showRule(&a.Output, r)
			})
		}),
	}
}

func showRule(o *terminal.Output, r api.Rule) error {
	removed := ""
	if r.Removed {
		removed = ", removed"
	}
	fmt.Fprintf(o.Stdout, "# mode %s since %s, set by %s%s\n# not counted in the last 24 h: %s\n", r.Mode, terminal.Stamp(r.Changed),
		terminal.Cell(r.ChangedBy), removed, uncountedText(&r.Uncounted))
	fmt.Fprint(o.Stdout, wronglyText(r.FalsePositives))
	fmt.Fprint(o.Stdout, besideText(&r.Rule, service.Now().Std()))
	fmt.Fprintf(o.Stdout, "%s\n\n", strings.TrimRight(r.Newest.Version.YAML(), "\n"))
	return terminal.List(o, r.Versions, []string{"VERSION", "STATE", "LINEAGE", "CREATED", "AUTHOR", "REASON"}, func(v rulestore.StoredVersion) []string {
		return []string{strconv.Itoa(v.Version.Number), r.StateOf(&v), strconv.Itoa(v.Version.Lineage), terminal.Stamp(v.Created), terminal.Brief(v.Author), terminal.Brief(v.Reason)}
	})
}

// wronglyText says what speaks for it that a rule holds the wrong ones.
func wronglyText(f *history.FalsePositives) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("# false positives in the last 7 days, at least: blocks released %s; refused requests known good %s\n", f.Released, f.KnownGood)
}

// fileFlag is the -f of commands that take rule documents.
func fileFlag(c *cobra.Command, from *[]string) {
	c.Flags().StringArrayVarP(from, "file", "f", nil, "file or directory of rules, - for standard input; may be repeated")
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
