package acts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
)

// Words is an error as who asked is told it, by pages and API alike: with pseudonyms for what the request has met, and
// without addresses of servers for who is no admin. What the request itself has got wrong is told in its own words:
// they are not compared with what it has met, so that nobody can try values by them.
func Words(mask *access.Mask, actor access.Actor, err error) string {
	var (
		invalid    *Invalid
		filter     *explore.BadFilterError
		changed    *ChangedError
		listed     *rulestore.AllowRefusedError
		unfinished *UnfinishedError
	)
	switch {
	case ownWords(err):
		return plainly(err)
	case errors.As(err, &invalid):
		told := *invalid
		told.Allowed = mask.Line(told.Allowed)
		return told.Error()
	case errors.As(err, &filter):
		told := *filter
		told.Allowed = mask.Line(told.Allowed)
		return told.Error()
	case errors.As(err, &changed):
		told := *changed
		told.Now = access.Show(mask, told.Now)
		return told.Error()
	case errors.As(err, &listed) && mask.Any():
		return listedWords(listed)
	case errors.As(err, &unfinished) && actor.Role < access.Admin:
		return fmt.Sprintf("%s, but %s", mask.Line(unfinished.Done), mask.Line(unfinished.Undone))
	}
	if actor.Role < access.Admin {
		if words := awayWords(err); words != "" {
			return words
		}
	}
	return mask.Line(plainly(err))
}

// ownWords reports whether an error has words of the request and the configuration alone: names that it gave, documents
// that it sent or named.
func ownWords(err error) bool {
	var problems rules.Problems
	return errors.As(err, new(*access.Forbidden)) || errors.As(err, new(*BeyondError)) ||
		errors.As(err, new(*UnknownName)) ||
		errors.As(err, new(*explore.UnknownError)) || errors.As(err, new(*explore.AmbiguousError)) ||
		errors.As(err, &problems)
}

// listedWords is a refused change of an allow list without whom it lets pass.
func listedWords(e *rulestore.AllowRefusedError) string {
	var lists []string
	for _, c := range e.Changes {
		lists = append(lists, fmt.Sprintf("allow list %s: %s about sources that a rule that blocks would count again",
			c.List, plural.Of(len(c.Refused), "line")))
	}
	return strings.Join(lists, "; ") + "; nothing was changed: demote the rule, change the list, watch the rule in " +
		"shadow, promote it again"
}

// awayWords is that a server does not answer, without saying which one stands where; empty for another error.
func awayWords(err error) string {
	var away *AwayError
	switch {
	case errors.As(err, &away):
		return fmt.Sprintf("%s does not answer: %s", away.Store, away.Consequence)
	case errors.As(err, new(*postgres.UnreachableError)), errors.Is(err, context.DeadlineExceeded),
		postgres.Broken(err):
		return "a store of the installation does not answer: nothing is known to be done; look before you ask again"
	}
	return ""
}

// plainly is an error's text without the part of this program that it came through.
func plainly(err error) string {
	text := err.Error()
	rest, ok := strings.CutPrefix(text, "history: ")
	if !ok {
		return text
	}
	if _, what, ok := strings.Cut(rest, ": "); ok {
		return what
	}
	return rest
}
