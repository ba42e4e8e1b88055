package usage

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/rules"
)

// Voice has root and all commands below it tell mistakes of the command line in weir's own words: what was got, what is allowed, and
// which name was probably meant. It is called when all commands are there.
func Voice(root *cobra.Command) {
	root.SetFlagErrorFunc(flagMistake)
	root.SetUsageTemplate(withoutGlobalFlags(root.UsageTemplate()))
	root.InitDefaultHelpCmd()
	voiced(root)
}

func voiced(c *cobra.Command) {
	if c.HasParent() && !c.Parent().HasParent() && c.Name() == "help" {
		c.Run, c.RunE = nil, help
	}
	if c.HasSubCommands() {
		c.Args = noSuchCommand
		if !c.Runnable() { // else what it was given is not looked at
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	} else if allowed := c.Args; allowed != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if allowed(c, args) != nil {
				return argumentMistake(c, args)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		voiced(sub)
	}
}

// help is weir help COMMAND.
func help(c *cobra.Command, args []string) error {
	of, rest, err := c.Root().Find(args)
	if err != nil {
		return err
	}
	if of.HasSubCommands() && len(rest) > 0 {
		return noSuchCommand(of, rest)
	}
	of.InitDefaultHelpFlag()
	return of.Help()
}

// globalFlags are the part of a command's help that would be the same in each. The page of the program itself lists them.
var globalFlags = regexp.MustCompile(`\n\nGlobal Flags:\n\{\{[^}]*InheritedFlags[^}]*\}\}`)

func withoutGlobalFlags(template string) string {
	return globalFlags.ReplaceAllLiteralString(template, "\n\nFlags of every command, such as --config, --server and --output: {{.Root.Name}} --help")
}

// noSuchCommand refuses what stands where the name of a subcommand belongs.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	if meant := rules.Nearest(args[0], names); meant != "" {
		return Errorf("%s; did you mean %s?", text, meant)
	}
	if meant := elsewhere(c.Root(), args[0]); meant != "" {
		return Errorf("%s; did you mean %s?", text, meant)
	}
	return Errorf("%s; allowed: %s", text, strings.Join(names, ", "))
}

// elsewhere finds the command of that very name among those of other families; "" for none, or several.
func elsewhere(root *cobra.Command, name string) string {
	var found []string
	for _, family := range root.Commands() {
		for _, sub := range append(family.Commands(), family) {
			if sub.Name() == name && sub.IsAvailableCommand() {
				found = append(found, sub.CommandPath())
			}
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// argumentMistake says which arguments a command takes, as its line of usage names them.
func argumentMistake(c *cobra.Command, args []string) error {
	got := "nothing"
	if len(args) > 0 {
		quoted := make([]string, len(args))
		for i, arg := range args {
			quoted[i] = fmt.Sprintf("%q", arg)
		}
		got = strings.Join(quoted, " ")
	}
	_, takes, _ := strings.Cut(c.Use, " ")
	switch named := takes != "" && !strings.HasPrefix(takes, "-"); {
	case named:
		return Errorf("%s: got %s; allowed: %s", c.CommandPath(), got, takes)
	case len(args) == 1 && c.Flags().ShorthandLookup("f") != nil:
		return Errorf("%s takes no arguments: got %s; did you mean -f %s?", c.CommandPath(), got, args[0])
	}
	return Errorf("%s takes no arguments: got %s", c.CommandPath(), got)
}

// flagMistake words what the library of flags has found.
func flagMistake(c *cobra.Command, err error) error {
	if given := c.Flags().Args(); c.HasSubCommands() && len(given) > 0 {
		return noSuchCommand(c, given) // the flags are those of the command that was meant
	}
	var unknown *pflag.NotExistError
	var valueless *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		return unknownFlag(c, unknown)
	case errors.As(err, &valueless):
		return Errorf("--%s needs a value: %s", valueless.GetFlag().Name, valueless.GetFlag().Usage)
	case errors.As(err, &invalid):
		return invalidValue(invalid)
	}
	return &Error{err}
}

func unknownFlag(c *cobra.Command, e *pflag.NotExistError) error {
	name := e.GetSpecifiedName()
	if e.GetSpecifiedShortnames() != "" {
		return Errorf("unknown flag -%s; names of more than one letter begin with --", name)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if meant := rules.Nearest(name, names); meant != "" {
		return Errorf("unknown flag --%s; did you mean --%s?", name, meant)
	}
	return Errorf("unknown flag --%s", name)
}

func invalidValue(e *pflag.InvalidValueError) error {
	f := e.GetFlag()
	allowed := ""
	switch kind := f.Value.Type(); {
	case kind == "bool":
		allowed = "true, false"
	case strings.HasPrefix(kind, "uint"):
		allowed = "a whole number, 0 or more"
	case strings.HasPrefix(kind, "int"):
		allowed = "a whole number"
	case strings.HasPrefix(kind, "float"):
		allowed = "a number"
	default: // a value of weir's own, which says so itself
		return Errorf("--%s: %w", f.Name, errors.Unwrap(e))
	}
	return Errorf("--%s: got %q; allowed: %s", f.Name, e.GetValue(), allowed)
}

// exclusive is what the library of commands says of flags that are set together and must not be.
var exclusive = regexp.MustCompile(`^if any flags in the group \[[^\]]*\] are set none of the others can be; \[([^\]]*)\] were all set$`)

// Worded is the text of an error, one problem a line, in weir's own words: without the names of the packages through which it came.
func Worded(err error) []string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		if m := exclusive.FindStringSubmatch(line); m != nil {
			lines[i] = "got --" + strings.ReplaceAll(m[1], " ", " and --") + "; allowed: one of them"
			continue
		}
		for slices.ContainsFunc(layers(), func(layer string) bool { return strings.HasPrefix(lines[i], layer) }) {
			_, lines[i], _ = strings.Cut(lines[i], ": ")
		}
	}
	return lines
}

// layers begin errors that say in which package something failed: of use in a log, and none to who gave a command.
func layers() []string { return []string{"history: ", "stages: "} }
