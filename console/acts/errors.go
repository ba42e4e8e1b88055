package acts

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
)

// Invalid is a request that cannot be carried out as it is written: which field, what it got, what is allowed.
type Invalid struct {
	Field, Got, Allowed string
}

func (e *Invalid) Error() string {
	return fmt.Sprintf("%s: got %q; allowed: %s", e.Field, e.Got, e.Allowed)
}

// UnknownName is a name that nothing has.
type UnknownName struct {
	Thing string // rule, allow list
	Name  string
	Known []string // the names that there are
}

func (e *UnknownName) Error() string {
	text := fmt.Sprintf("there is no %s %q", e.Thing, e.Name)
	switch meant := rules.Nearest(e.Name, e.Known); {
	case meant != "":
		text += fmt.Sprintf("; did you mean %s?", meant)
	case len(e.Known) == 0:
		text += ", and no other"
	}
	return text
}

// ChangedError says that a rule is not any more as it was when somebody decided: somebody else was quicker, and nothing was done.
type ChangedError struct {
	Rule string
	Seen string // the revision that was decided on
	Now  Standing
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("rule %s has changed since it was looked at: it is now in mode %s, version %d, set by %s: %s; nothing was done, look again",
		e.Rule, e.Now.Mode, e.Now.Version, e.Now.By, e.Now.Reason)
}

// TurnedError says that a gate answers otherwise than to who decided to promote. Nothing was done.
type TurnedError struct {
	Rule  string
	Since time.Time // when he looked
	Then  []promotion.Verdict
	Now   []promotion.Verdict // of the same gates
}

func (e *TurnedError) Error() string {
	var turned []string
	for i := range e.Then {
		turned = append(turned, fmt.Sprintf("%s, allowed %s: then %s, now %s", e.Now[i].Gate, e.Now[i].Allowed,
			answer(&e.Then[i]), answer(&e.Now[i])))
	}
	return fmt.Sprintf("rule %s was not promoted: since %s a gate answers otherwise: %s; look again", e.Rule,
		e.Since.UTC().Format("15:04 UTC"), strings.Join(turned, "; "))
}

// answer is what a gate said, with the figure where there is one.
func answer(v *promotion.Verdict) string {
	if v.Got == "" {
		return string(v.Outcome)
	}
	return fmt.Sprintf("%s (%s)", v.Got, v.Outcome)
}

// UnfinishedError says that an act was begun and is not known to be complete: what is done stays done.
type UnfinishedError struct {
	Done   string // what is done, and what comes of it
	Undone string // what is not known, and what to do about it
	Cause  error
}

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("%s, but %s (%v)", e.Done, e.Undone, e.Cause)
}

func (e *UnfinishedError) Unwrap() error { return e.Cause }

// AwayError says that a server of the installation did not take what an act told it.
type AwayError struct {
	Store       string // Kafka
	Consequence string // what that means, for who asked
	Cause       error
}

func (e *AwayError) Error() string { return e.Cause.Error() }

func (e *AwayError) Unwrap() error { return e.Cause }

// ErrNoRules says that files hold no document.
var ErrNoRules = errors.New("got no rules in the files, allowed at least one rule or allow list")
