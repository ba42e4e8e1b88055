package acts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/rules"
)

// Masking says who is shown pseudonyms in place of values, so that nobody finds out by an act which value has one.
type Masking struct {
	Masker *access.Masker // nil: everybody sees values
	Trail  Trail          // where trials are written down; needed where there is a Masker
}

// Trail is the audit trail.
type Trail interface {
	// Add stores an entry of its own.
	Add(ctx context.Context, entry audit.Entry) error
}

var _ Trail = (*audit.Trail)(nil)

// mayList refuses documents of allow lists with values of which the actor is shown pseudonyms: the pages of the list
// would tell him the pseudonym of each. He enters sources one by one, by those.
func (m *Masking) mayList(actor access.Actor, set *rules.Set) error {
	mask := m.Masker.For(actor)
	for i := range set.AllowLists {
		list := &set.AllowLists[i]
		for j := range list.Entries {
			if field, _ := list.Entries[j].Kind.Field(); mask.Masks(field.String()) {
				return &Invalid{Field: "files", Got: "entries of " + string(list.Entries[j].Kind) + " in allow list " +
					list.ID,
					Allowed: fmt.Sprintf("none whose values the role %s is not shown: "+
						"enter sources into a list that there is, by pseudonyms",
						actor.Role)}
			}
		}
	}
	return nil
}

// tries writes down that somebody who is shown pseudonyms tries rules with conditions: with `event.ip == …` he learns
// which pseudonym a value has.
func (m *Masking) tries(ctx context.Context, actor access.Actor, files []File, set *rules.Set) error {
	if !m.Masker.For(actor).Any() {
		return nil
	}
	var with []string
	for i := range set.Rules {
		if strings.Contains(set.Rules[i].YAML(), "when:") {
			with = append(with, set.Rules[i].ID)
		}
	}
	if len(with) == 0 {
		return nil
	}
	hash := sha256.New()
	for _, f := range files {
		_, _ = hash.Write([]byte(f.Text)) // a hash takes all
	}
	return m.Trail.Add(ctx, audit.Entry{
		Actor: actor.Name, Via: actor.Via, Action: "try", Object: "rules " + strings.Join(with, ", "),
		Reason: "conditions on the latest requests", Detail: "documents " + hex.EncodeToString(hash.Sum(nil)),
	})
}

// unnamed is an error about entries that the actor has named by pseudonyms: what is wrong with a value is told without
// it.
func (m *Masking) unnamed(actor access.Actor, err error) error {
	var wrong rules.Problems
	if !m.Masker.For(actor).Any() || !errors.As(err, &wrong) || len(wrong) == 0 {
		return err
	}
	return &Invalid{Field: "entries", Got: "a pseudonym of another value", Allowed: wrong[0].Allowed}
}
