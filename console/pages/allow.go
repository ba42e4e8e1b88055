package pages

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/nearest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// allowPage is all allow lists.
type allowPage struct{ List []allowListView }

// allowListView is one allow list.
type allowListView struct {
	ID, Owner      string
	Entries, Ended int
	Rules          []string // that name it
	Changed        traffic.Time
	By, Reason     string
}

// allowedPage is the entries of one allow list.
type allowedPage struct {
	allowListView
	Did     string
	Version int
	List    []allowedView
	Pager   pager
	Add     string // the form that adds an entry; empty: the visitor may not
}

// allowedView is one entry of an allow list.
type allowedView struct {
	Kind, Value string
	Reason      string
	Until       traffic.Time // 0: no end
	Ended       bool
	Remove      string // the form that removes it; empty: the visitor may not
}

func allowListOf(r *reading, a *rulestore.AllowList) allowListView {
	v := allowListView{
		ID: a.List.ID, Owner: shown.Text(a.List.Owner), Entries: len(a.List.Entries), Rules: a.Rules,
		Changed: traffic.At(a.Created), By: shown.Text(a.Author), Reason: r.said(a.Reason, a.Author),
	}
	for i := range a.List.Entries {
		if a.List.Entries[i].Ends(r.now) {
			v.Ended++
		}
	}
	return v
}

// allowLists is the page of all allow lists.
func (p *Pages) allowLists(w http.ResponseWriter, r *http.Request) error {
	see, err := p.read(r)
	if err != nil {
		return err
	}
	all, err := p.o.Rules.AllowLists(r.Context())
	if err != nil {
		return err
	}
	v := &allowPage{}
	for i := range all {
		v.List = append(v.List, allowListOf(see, &all[i]))
	}
	return p.show(w, r, &shell{Name: "allow", Title: "Allow lists", Active: "blocks", Body: v})
}

// allowListAsked is the list that an address names.
func (p *Pages) allowListAsked(r *http.Request) (*rulestore.AllowList, error) {
	all, err := p.o.Rules.AllowLists(r.Context())
	if err != nil {
		return nil, err
	}
	id, names := r.PathValue("list"), []string{}
	for i := range all {
		if all[i].List.ID == id {
			return &all[i], nil
		}
		names = append(names, all[i].List.ID)
	}
	text := fmt.Sprintf("There is no allow list %q.", shown.Text(id))
	if meant := nearest.Name(id, names); meant != "" {
		text += fmt.Sprintf(" Did you mean %q?", meant)
	}
	return nil, &missing{text}
}

// entriesPerPage is how many entries one page lists.
const entriesPerPage = 200

// allowed is the page of one allow list.
func (p *Pages) allowed(w http.ResponseWriter, r *http.Request) error {
	see, err := p.read(r)
	if err != nil {
		return err
	}
	list, err := p.allowListAsked(r)
	if err != nil {
		return err
	}
	v := &allowedPage{allowListView: allowListOf(see, list), Did: did(r.URL.Query()), Version: list.Version}
	change := ""
	if see.forms && see.may(access.Allow, list.List.Owner) {
		change = "/allow/" + url.PathEscape(list.List.ID) + "/change"
	}
	v.Add = change
	see.mask.Know(list)
	for _, i := range orderOfEntries(see, list) {
		e := &list.List.Entries[i]
		one := allowedView{Kind: kindWords(e.Kind), Value: allowedValue(see, e.Kind, e.Value),
			Reason: see.said(e.Reason, ""), Until: e.Until, Ended: e.Ends(see.now)}
		if change != "" {
			one.Remove = fmt.Sprintf("%s?version=%d&remove=%d", change, list.Version, i+1)
		}
		v.List = append(v.List, one)
	}
	if v.List, v.Pager, err = pageOf(r.URL, v.List, entriesPerPage); err != nil {
		return err
	}
	return p.show(w, r, &shell{Name: "allowed", Title: "Allow list " + list.List.ID, Active: "blocks", Body: v})
}

// orderOfEntries are the places of a list's entries in the order in which the visitor is shown them: by pseudonyms,
// where he is shown those.
func orderOfEntries(see *reading, list *rulestore.AllowList) []int {
	places := make([]int, len(list.List.Entries))
	for i := range places {
		places[i] = i
	}
	if see.mask.Any() {
		slices.SortStableFunc(places, func(a, b int) int {
			return strings.Compare(see.mask.Order(list.List.Entries[a].Subject()),
				see.mask.Order(list.List.Entries[b].Subject()))
		})
	}
	return places
}

// routeAllow adds the forms that change an allow list.
func (p acting) routeAllow() {
	const path = "/allow/{list}/change"
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: path, Act: access.Allow, Rule: "list"},
		p.answered(func(w http.ResponseWriter, r *http.Request) error {
			form, _, err := p.allowForm(r, r.URL.Query())
			if err != nil {
				return err
			}
			return p.show(w, r, &shell{Name: "act", Title: form.Title, Active: "blocks", Body: form})
		}))
	p.mux.HandleFunc(access.Route{Method: http.MethodPost, Pattern: path, Act: access.Allow, Rule: "list"},
		p.answered(p.changeAllow))
}

// allowForm is the form that adds an entry, or that removes one: then it gives that, too. An entry is named by its
// place in a version of the list, so that no address has its value.
func (p acting) allowForm(r *http.Request, q url.Values) (*actForm, *rules.AllowEntry, error) {
	see, err := p.read(r)
	if err != nil {
		return nil, nil, err
	}
	list, err := p.allowListAsked(r)
	if err != nil {
		return nil, nil, err
	}
	if err := access.May(see.visit.Actor, access.Allow, list.List.Owner); err != nil {
		return nil, nil, err
	}
	id := list.List.ID
	back := "/allow/" + url.PathEscape(id)
	form := &actForm{Action: back + "/change", Back: back, Above: "Allow list " + id}
	named := "No rule names this list: it has no effect until one does."
	if len(list.Rules) > 0 {
		named = "The rules that name this list: " + strings.Join(list.Rules, ", ") + "."
	}
	if q.Get("remove") == "" {
		form.Title, form.Verb, form.Confirm = "Enter a source into "+id, "Enter",
			"It is not to be counted, whatever it does"
		form.Means = []string{"Rules that name the list do not count the source from now on. It releases nobody: blocks that stand hold until they end or are released.", named}
		form.Inputs = entryInputs(q.Get)
		return form, nil, nil
	}
	version, err := number(q, "version", 0, 1, math.MaxInt)
	if err != nil {
		return nil, nil, err
	}
	n, err := number(q, "remove", 0, 1, max(1, len(list.List.Entries)))
	if err == nil && (version != list.Version || n > len(list.List.Entries)) {
		err = &missing{fmt.Sprintf("The allow list %s is another one than you looked at: it is at version %d. Look at it again.", id, list.Version)}
	}
	if err != nil {
		return nil, nil, err
	}
	e := &list.List.Entries[n-1]
	form.Title, form.Verb, form.Danger, form.Confirm = "Remove an entry from "+id, "Remove", true, "Let it be counted"
	form.Means = []string{
		fmt.Sprintf("The rules that name the list count it again: %s %s, let pass since “%s”.", kindWords(e.Kind),
			allowedValue(see, e.Kind, e.Value), see.said(e.Reason, "")), named,
		"It is refused where a rule blocks that was promoted while the list let the source pass: demote the rule first.",
	}
	form.Hidden = []param{{"version", strconv.Itoa(version)}, {"remove", strconv.Itoa(n)}}
	return form, e, nil
}

// entryInputs ask for a new entry.
func entryInputs(asked func(name string) string) []input {
	kind := input{Name: "kind", Label: "By its"}
	for _, k := range rules.AllowKinds() {
		kind.Choices = append(kind.Choices, choice{Value: string(k), Text: kindWords(k),
			Chosen: asked("kind") == string(k)})
	}
	return []input{kind,
		{Name: "value", Label: "Address or prefix, or the value as requests have it", Value: asked("value"),
			Example: "192.0.2.0/24", Required: true},
		{Name: "for", Label: "For how long, such as 30d; empty for good", Value: asked("for")}}
}

// changeAllow adds or removes the entry that a form names.
func (p acting) changeAllow(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return &badRequest{"form", "", "fields as a form sends them"}
	}
	form, gone, err := p.allowForm(r, r.PostForm)
	if err != nil {
		return err
	}
	actor, asked, told := access.From(r.Context()), acts.AllowRequest{List: r.PathValue("list")}, "entered"
	if err = confirmed(r); err == nil {
		if gone != nil {
			asked.Remove, asked.Reason, told = true, r.PostFormValue("reason"), "entry-removed"
			asked.Entries = []acts.AllowSource{{Kind: gone.Kind, Value: gone.Value}}
		} else {
			err = p.entryAsked(r, &asked)
		}
	}
	if err == nil {
		_, err = p.o.Acts.ChangeAllow(r.Context(), actor, asked)
	}
	if err != nil {
		return p.again(w, r, form, err)
	}
	http.Redirect(w, r, withDid(form.Back, told), http.StatusSeeOther)
	return nil
}

// entryAsked reads the new entry that a form names. Whoever is shown pseudonyms names it by one.
func (p acting) entryAsked(r *http.Request, asked *acts.AllowRequest) error {
	kind := rules.AllowKind(r.PostFormValue("kind"))
	field, known := kind.Field()
	if !known {
		return &acts.Invalid{Field: "kind", Got: shown.Text(string(kind)),
			Allowed: "address, device, user, API key or session"}
	}
	value, err := maskOf(&p.o, r).Resolve(field.String(), strings.TrimSpace(r.PostFormValue("value")))
	if err != nil {
		return &acts.Invalid{Field: "value", Got: shown.Text(r.PostFormValue("value")), Allowed: err.Error()}
	}
	asked.Entries = []acts.AllowSource{{Kind: kind, Value: value}}
	if asked.For, err = lengthAsked(r); err != nil {
		return err
	}
	asked.Reason, err = entryReason(r.PostFormValue("reason"))
	return err
}

// lengthAsked is what a form asks for a time; empty where it asks for none.
func lengthAsked(r *http.Request) (string, error) {
	length := strings.TrimSpace(r.PostFormValue("for"))
	if length == "" {
		return "", nil
	}
	if lasts, err := duration.ParseWhole(length); err != nil || lasts <= 0 {
		return "", &acts.Invalid{Field: "for", Got: shown.Text(length),
			Allowed: "a time such as 30d, or nothing for no end"}
	}
	return length, nil
}
