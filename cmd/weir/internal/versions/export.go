package versions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
)

func exportCommand(h *Host) *cobra.Command {
	var to string
	var force bool
	c := &cobra.Command{
		Use:   "export [RULE]",
		Short: "Write the stored rules and allow lists as documents that apply to no change",
		Long: `Write the documents of all stored rules and allow lists, or of one rule: to standard output, or each into a file of its own in a
directory, a rule into ID.yaml and a list into ID.allow.yaml. A rule is written as it was applied, with its comments and tests, where that
text, of at most 64 KiB, still says what is stored; else with every field written out. Of a rule with a pending version it is that one's, the newest that was applied.
To apply what was written changes nothing, with --prune either; what is no part of documents, as modes and raised limits, is not written. A
file that holds something else is left alone without --force.`,
		Example: "  weir rules export -o rules/\n  weir rules export guest-token-flood -o -",
		Args:    cobra.MaximumNArgs(1),
	}
	c.RunE = h.Does(func(cmd *cobra.Command, args []string) error {
		if to == "" {
			return usage.Errorf("-o is required: a directory, or - for standard output")
		}
		return h.OpenStores(cmd, func(ctx context.Context, in Stores) error {
			all, lists, err := exported(ctx, in, args)
			if err != nil {
				return err
			}
			env, err := in.Environment()
			if err != nil {
				return err
			}
			found := documents(all, lists, env)
			if to == "-" {
				return exportTo(h.Stdout, found)
			}
			if err := exportFiles(to, found, force); err != nil {
				return err
			}
			what := plural.Of(len(all), "rule")
			if len(lists) > 0 {
				what += " and " + plural.Of(len(lists), "allow list")
			}
			_, err = fmt.Fprintf(h.Stdout, "%s written to %s\n", what, to)
			return err
		})
	})
	c.Flags().StringVarP(&to, "to", "o", "", "the directory to write to, - for standard output")
	c.Flags().BoolVar(&force, "force", false, "write over files that hold something else")
	return c
}

// exported are all rules and allow lists, or the one rule that is named.
func exported(ctx context.Context, in Stores, named []string) ([]rulestore.Rule, []rulestore.AllowList, error) {
	if len(named) > 0 {
		r, err := in.Named(ctx, named[0])
		if err == nil && r.Removed {
			err = fmt.Errorf("rule %s was removed: weir rules show %[1]s has its documents", named[0])
		}
		return []rulestore.Rule{r}, nil, err
	}
	all, err := in.Rules.List(ctx)
	if err == nil {
		err = in.Rules.Sources(ctx, all)
	}
	if err != nil {
		return nil, nil, err
	}
	lists, err := in.Rules.AllowLists(ctx)
	return all, lists, err
}

// documentOf is the newest document that was applied, byte for byte as it was written where that is stored and still means the same by env.
func documentOf(r *rulestore.Rule, env rules.Environment) string {
	v := &r.Newest
	if r.Pending != nil {
		v = r.Pending
	}
	docs, err := rules.ParseFiles([]rules.File{{Name: "stored", Src: []byte(v.Source)}}, env)
	if err != nil || len(docs) != 1 || !docs[0].Equal(&v.Version.Document) {
		return v.Version.YAML()
	}
	return v.Source
}

// written is a document, and the file that it is written to.
type written struct{ file, text string }

// documents are those of rules, and of allow lists behind them. No rule's id has a dot, so no rule has the file of a list.
func documents(all []rulestore.Rule, lists []rulestore.AllowList, env rules.Environment) []written {
	out := make([]written, 0, len(all)+len(lists))
	for i := range all {
		out = append(out, written{all[i].Newest.Version.ID + ".yaml", documentOf(&all[i], env)})
	}
	for i := range lists {
		out = append(out, written{lists[i].List.ID + ".allow.yaml", lists[i].List.YAML()})
	}
	return out
}

func exportTo(w io.Writer, all []written) error {
	for i, d := range all {
		if i > 0 {
			d.text = "---\n" + d.text
		}
		if i+1 < len(all) && !strings.HasSuffix(d.text, "\n") {
			d.text += "\n"
		}
		if _, err := io.WriteString(w, d.text); err != nil {
			return err
		}
	}
	return nil
}

// exportFiles writes all files or, where one holds something else, none.
func exportFiles(dir string, all []written, force bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var foreign []string
	for _, d := range all {
		name := filepath.Join(dir, d.file)
		there, err := os.ReadFile(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case string(there) != d.text:
			foreign = append(foreign, name)
		}
	}
	if len(foreign) > 0 && !force {
		return fmt.Errorf("%s: got a file that holds something else, allowed with --force; nothing was written", strings.Join(foreign, ", "))
	}
	for _, d := range all {
		if err := os.WriteFile(filepath.Join(dir, d.file), []byte(d.text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
