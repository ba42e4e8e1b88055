package versions

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history/rulestore"
)

// PlanText is one line for each rule of a plan and one for each field that changes, with what keeps a change from acting.
func PlanText(plan *rulestore.Plan) string {
	var b strings.Builder
	for _, c := range plan.Changes {
		fmt.Fprintf(&b, "%-9s %s version %d, %s", c.Kind, c.Rule, c.Version, c.Mode)
		switch {
		case c.Kind == rulestore.ChangePending:
			b.WriteString(", counted beside the version that blocks, not enforced; warming: its windows start empty")
		case c.Warming:
			b.WriteString(", warming: its windows start empty")
		}
		b.WriteString("\n")
		for _, line := range c.Diff {
			fmt.Fprintf(&b, "            %s\n", terminal.Cell(line))
		}
		for _, reason := range c.Pending {
			fmt.Fprintf(&b, "            may block more: %s\n", terminal.Cell(reason))
		}
		for _, reason := range c.Refused {
			fmt.Fprintf(&b, "            would be refused: %s\n", terminal.Cell(reason))
		}
	}
	for _, c := range plan.AllowLists {
		fmt.Fprintf(&b, "%-9s allow list %s version %d, entries: %d\n", c.Kind, c.List, c.Version, c.Entries)
		for _, line := range c.Diff {
			fmt.Fprintf(&b, "            %s\n", terminal.Cell(line))
		}
		for _, reason := range c.Refused {
			fmt.Fprintf(&b, "            would be refused: %s\n", terminal.Cell(reason))
		}
	}
	return b.String()
}

// Promotions says how each version of a plan that is pending comes to act.
func Promotions(plan *rulestore.Plan) string {
	var b strings.Builder
	for _, c := range plan.Changes {
		if c.Kind == rulestore.ChangePending {
			fmt.Fprintf(&b, "version %d of rule %s blocks nobody until it is promoted: weir rules promote %[2]s --version %[1]d\n", c.Version, c.Rule)
		}
	}
	return b.String()
}

// Asks reports whether somebody sits at in who can be asked.
func Asks(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Agreed asks on out for a yes to what was shown there, and reads the answer from in.
func Agreed(in io.Reader, out io.Writer) (bool, error) {
	return Confirmed(in, out, "apply this? [y/N] ")
}

// Confirmed asks a question on out for a yes, and reads the answer from in.
func Confirmed(in io.Reader, out io.Writer, question string) (bool, error) {
	if _, err := io.WriteString(out, question); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(io.LimitReader(in, 64)).ReadString('\n')
	if err != nil && err != io.EOF {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}
