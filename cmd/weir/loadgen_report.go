package main

import (
	"fmt"
	"strconv"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/loadgen"
	"github.com/weirhq/weir/traffic"
)

// verifiedLoad is the answer of weir loadgen verify as JSON.
type verifiedLoad struct {
	Seed     uint64        `json:"seed"`
	Started  traffic.Time  `json:"started"`
	Complete bool          `json:"complete"` // the load came to its own end
	Verified bool          `json:"verified"`
	Rules    []ruleVerdict `json:"rules"`
}

// showVerdicts says how each rule did. Its error is the exit code's.
func (a *app) showVerdicts(t *loadgen.Truth, verdicts []ruleVerdict) error {
	differ, agree := 0, 0
	for _, v := range verdicts {
		switch v.Verdict {
		case verdictDiffers:
			differ++
		case verdictAgrees:
			agree++
		}
	}
	ok := differ == 0 && agree > 0
	if a.Format == "json" {
		h := &t.Header
		err := a.WriteJSON(verifiedLoad{
			Seed: h.Parameters.Seed, Started: h.Started, Complete: t.End != nil && t.End.Complete, Verified: ok, Rules: verdicts,
		})
		if err == nil && !ok {
			err = errSaid
		}
		return err
	}
	head := []string{"RULE", "VERSION", "EVENTS", "OVER", "FOUND", "MISSING", "EXTRA", "EPISODES", "EQUAL", "UNEQUAL", "OPEN", "UNSURE", "VERDICT"}
	if err := terminal.List(&a.Output, verdicts, head, verdictRow); err != nil {
		return err
	}
	for _, v := range verdicts {
		a.explain(&v)
	}
	return a.conclude(t, differ, agree)
}

func verdictRow(v ruleVerdict) []string {
	row := []string{v.Rule, strconv.Itoa(v.Version)}
	c := v.Comparison
	if c == nil {
		return append(row, "", "", "", "", "", "", "", "", "", "", v.Verdict)
	}
	equal := fmt.Sprintf("%d of %d", c.Equal, c.Exact)
	return append(row, strconv.FormatInt(c.Events, 10), strconv.Itoa(c.Sources), strconv.Itoa(c.Found), strconv.Itoa(c.Missing), strconv.Itoa(c.Extra),
		strconv.Itoa(c.Episodes), equal, strconv.Itoa(c.Unequal), strconv.Itoa(c.Open), strconv.Itoa(c.Unsure), v.Verdict)
}

// explain says what the table cannot.
func (a *app) explain(v *ruleVerdict) {
	say := func(format string, args ...any) { fmt.Fprintf(a.Stdout, v.Rule+": "+format+"\n", args...) }
	if v.Reason != "" {
		say("not judged: %s", v.Reason)
	}
	c := v.Comparison
	if c == nil {
		return
	}
	if c.Doubted > 0 {
		say("%s may have come too late for it, or are not certain to have been sent: sources that hang on them are unsure", terminal.Plural(c.Doubted, "event"))
	}
	if c.Shared > 0 {
		say("%s share a window with other traffic and are not judged", terminal.Plural(c.Shared, "event"))
	}
	if c.Before > 0 {
		say("%s over since before the load and not judged: another load used the same identities", wasWere(c.Before))
	}
	for _, d := range c.Differences {
		say("%s", d)
	}
	if all := c.Missing + c.Extra + c.Unequal; all > len(c.Differences) {
		say("and %s more", terminal.Plural(all-len(c.Differences), "difference"))
	}
}

func wasWere(sources int) string {
	if sources == 1 {
		return "1 source was"
	}
	return fmt.Sprintf("%d sources were", sources)
}

// conclude is the last line.
func (a *app) conclude(t *loadgen.Truth, differ, agree int) error {
	if t.End == nil {
		fmt.Fprintln(a.Stdout, "the load was killed: its last chunk may be in the stream or not")
	}
	switch {
	case differ > 0:
		fmt.Fprintf(a.Stdout, "history differs from the truth on %s\n", terminal.Plural(differ, "rule"))
		return errSaid
	case agree == 0:
		fmt.Fprintln(a.Stdout, "no rule could be judged")
		return errSaid
	}
	fmt.Fprintf(a.Stdout, "history agrees with the truth on %s\n", terminal.Plural(agree, "rule"))
	return nil
}
