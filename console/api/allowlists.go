package api

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// AllowList is an allow list as it is shown to who asks.
type AllowList struct {
	rulestore.AllowList
	// Hidden is of how many entries the value is a pseudonym, or the end of a secret: the document is none to apply
	// then, and has no hash.
	Hidden int `json:"hidden,omitempty"`
}

// AllowListAnswer is an allow list with its versions, the newest first: a thousand at most.
type AllowListAnswer struct {
	AllowList
	Versions []rulestore.AllowVersion `json:"versions"`
}

// AllowLists are all allow lists that have not been removed, ascending by id.
func (r *Reader) AllowLists(ctx context.Context) ([]AllowList, error) {
	all, err := r.Rules.AllowLists(ctx)
	out := make([]AllowList, len(all))
	for i := range all {
		out[i].AllowList = all[i]
	}
	return out, err
}

// AllowList is a version of an allow list, 0 for the newest one, also of one that was removed; *acts.UnknownName where
// there is no such list, *acts.Invalid where it has no such version.
func (r *Reader) AllowList(ctx context.Context, id string, version int) (AllowListAnswer, error) {
	list, versions, err := r.Rules.AllowList(ctx, id, version)
	if errors.Is(err, postgres.ErrNotFound) {
		err = r.noAllowList(ctx, id, version, err)
	}
	return AllowListAnswer{AllowList{AllowList: list}, versions}, err
}

// noAllowList says of what was not found whether it is the list or its version that there is not.
func (r *Reader) noAllowList(ctx context.Context, id string, version int, cause error) error {
	if version != 0 {
		newest, _, err := r.Rules.AllowList(ctx, id, 0)
		if err == nil {
			return &acts.Invalid{Field: "version", Got: strconv.Itoa(version),
				Allowed: "1 to " + strconv.Itoa(newest.Version) + ", the versions of allow list " + id}
		}
		if !errors.Is(err, postgres.ErrNotFound) {
			return err
		}
	}
	all, err := r.Rules.AllowLists(ctx)
	if err != nil {
		return errors.Join(cause, err)
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].List.ID
	}
	return &acts.UnknownName{Thing: "allow list", Name: id, Known: names}
}

func listAllow(c *call) (any, error) {
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	after, err := c.cursor()
	if err != nil {
		return nil, err
	}
	all, err := c.o.Reader.AllowLists(c.r.Context())
	if err != nil {
		return nil, err
	}
	page := Page[AllowList]{Items: []AllowList{}}
	for i := range all {
		if after != "" && all[i].List.ID <= after {
			continue
		}
		if len(page.Items) == limit {
			page.Next = cursorAt(page.Items[limit-1].List.ID)
			break
		}
		hideEntries(c, &all[i])
		page.Items = append(page.Items, all[i])
	}
	return page, nil
}

func getAllow(c *call) (any, error) {
	version := 0
	if text := c.values["version"]; text != "" {
		var err error
		if version, err = strconv.Atoi(text); err != nil || version < 1 {
			return nil, &acts.Invalid{Field: "version", Got: text, Allowed: "a version of the list, from 1 on"}
		}
	}
	answer, err := c.o.Reader.AllowList(c.r.Context(), c.r.PathValue("list"), version)
	if err != nil {
		return nil, err
	}
	hideEntries(c, &answer.AllowList)
	return answer, nil
}

// hideEntries leaves of keys and sessions, which are secrets, the end alone for who may not change the list, and counts
// the entries that are not shown as they are. The hash of those would tell them to who tries values. Who is shown
// pseudonyms has the entries in the order of these.
func hideEntries(c *call, a *AllowList) {
	secret := access.May(c.actor, access.Allow, a.List.Owner) != nil
	entries := slices.Clone(a.List.Entries)
	for i := range entries {
		e := &entries[i]
		switch field, _ := e.Kind.Field(); {
		case c.mask.Masks(field.String()):
			a.Hidden++
		case secret && e.Kind.Secret():
			e.Reason = strings.ReplaceAll(e.Reason, e.Value, e.End())
			e.Value = e.End()
			a.Hidden++
		}
	}
	if c.mask.Any() {
		slices.SortStableFunc(entries, func(a, b rules.AllowEntry) int {
			return strings.Compare(c.mask.Order(a.Subject()), c.mask.Order(b.Subject()))
		})
	}
	if a.List.Entries = entries; a.Hidden > 0 {
		a.Hash = ""
	}
}
