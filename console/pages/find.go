package pages

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/internal/nearest"
	"github.com/weirhq/weir/traffic"
)

// A client is told a part of a hit's id, 16 digits; the whole has 32. Fewer than 8 digits find too much.
const (
	hitDigits   = 32
	leastDigits = 8
)

func looksLikeID(text string) bool {
	return len(text) >= leastDigits && len(text) <= hitDigits && strings.Trim(text, "0123456789abcdef") == ""
}

// search goes to the page of what the text names: a block id or the id of an episode, a rule, an address, a source.
func (p *Pages) search(w http.ResponseWriter, r *http.Request) error {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	see, err := p.read(r)
	if err != nil {
		return err
	}
	if text == "" {
		return p.show(w, r, &shell{Name: "search", Title: "Search", Body: searchPage{}})
	}
	if id := strings.ToLower(text); looksLikeID(id) {
		var many *explore.AmbiguousError
		story, err := p.o.Explorer.Story(r.Context(), id)
		if err != nil && !errors.As(err, &many) {
			return err
		}
		if story != nil || many != nil {
			http.Redirect(w, r, "/hits/"+id, http.StatusSeeOther)
			return nil
		}
	}
	if _, ok := see.Rules[text]; ok {
		http.Redirect(w, r, "/rules/"+url.PathEscape(text), http.StatusSeeOther)
		return nil
	}
	if address, ok := traffic.ParseClient(text); ok {
		http.Redirect(w, r, aboutHref("ip", netip.PrefixFrom(address, address.BitLen()).String()), http.StatusSeeOther)
		return nil
	}
	v := searchPage{Text: shown.Text(text), Rules: see.rulesLike(text)}
	if _, err := history.ParseSource(text); err != nil {
		v.Problem = shown.Text(err.Error())
	} else if len(v.Rules) == 0 {
		http.Redirect(w, r, "/sources?of="+url.QueryEscape(text), http.StatusSeeOther)
		return nil
	} else {
		v.Source = "/sources?of=" + url.QueryEscape(text)
	}
	return p.show(w, r, &shell{Name: "search", Title: "Search", Query: v.Text, Body: v})
}

// searchPage is what a text may mean where it is not clear.
type searchPage struct {
	Text    string
	Rules   []string
	Source  string // the page of the sources that have the text as a value
	Problem string // why it is no source
}

// rulesLike are the rules whose id holds text, or the one that was probably meant.
func (r *reading) rulesLike(text string) []string {
	var out []string
	for _, id := range r.ids() {
		if strings.Contains(id, strings.ToLower(text)) {
			out = append(out, id)
		}
	}
	return out
}

// ids are the ids of all rules, ascending.
func (r *reading) ids() []string { return slices.Sorted(maps.Keys(r.Rules)) }

// unknownRule says which rule was probably meant.
func unknownRule(err error, id string, see *reading) error {
	if !errors.Is(err, postgres.ErrNotFound) {
		return err
	}
	text := fmt.Sprintf("There is no rule %q.", shown.Text(id))
	if name := nearest.Name(id, see.ids()); name != "" {
		text += fmt.Sprintf(" Did you mean %q?", name)
	}
	return &missing{text}
}

// objectWords is what an entry of the audit trail is about, for reading: a source as its fields, not as its canonical subject.
func (r *reading) objectWords(object string) string {
	if rest, ok := strings.CutPrefix(object, "block "); ok {
		if rule, subject, ok := strings.Cut(rest, " "); ok {
			if who := r.source(traffic.Subject(subject)); who.Of != "" {
				return "block " + shown.Text(rule) + " " + who.Label
			}
		}
	}
	return shown.Text(r.mask.Object(object))
}

// objectHref is the page of what an entry of the audit trail is about; empty where there is none.
func (r *reading) objectHref(object string) string {
	kind, rest, _ := strings.Cut(object, " ")
	switch kind {
	case "rule":
		return "/rules/" + url.PathEscape(rest)
	case "partition":
		if r.forms {
			return "/partitions"
		}
	case "allow":
		return "/allow/" + url.PathEscape(strings.TrimPrefix(rest, "list "))
	case "block":
		if rule, subject, ok := strings.Cut(rest, " "); ok && rule != "" {
			return r.source(traffic.Subject(subject)).Href
		}
	}
	return ""
}

// param is a parameter of an address, as a hidden field of a form keeps it.
type param struct{ Name, Value string }

// with is an address with other values of some parameters; an empty value removes one.
func with(u *url.URL, pairs ...string) string {
	q := u.Query()
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			q.Del(pairs[i])
		} else {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return u.Path
	}
	return u.Path + "?" + q.Encode()
}

func sortedNames(q url.Values) []string { return slices.Sorted(maps.Keys(q)) }

// number reads a whole number of an address, between two bounds.
func number(q url.Values, name string, absent, least, most int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, &badRequest{name, text, strconv.Itoa(least) + " to " + strconv.Itoa(most)}
	}
	return n, nil
}

// oneOf reads a word of an address that must be one of some.
func oneOf(q url.Values, name, absent string, allowed ...string) (string, error) {
	text := q.Get(name)
	if text == "" {
		return absent, nil
	}
	if !slices.Contains(allowed, text) {
		return "", &badRequest{name, text, joined(allowed)}
	}
	return text, nil
}

func joined(words []string) string {
	out := ""
	for i, w := range words {
		if i > 0 {
			out += ", "
		}
		out += w
	}
	return out
}

// pager is a list of which one page is shown.
type pager struct {
	Page, Pages, Size int
	Total             int
	here              *url.URL
}

// pageOf cuts the page out of a list that the address asks for.
func pageOf[T any](u *url.URL, list []T, size int) ([]T, pager, error) {
	g := pager{Size: size, Total: len(list), Pages: max(1, (len(list)+size-1)/size), here: u}
	var err error
	if g.Page, err = number(u.Query(), "page", 1, 1, 1_000_000); err != nil {
		return nil, g, err
	}
	g.Page = min(g.Page, g.Pages)
	from := (g.Page - 1) * size
	return list[from:min(len(list), from+size)], g, nil
}

// First and Last number what is shown, from 1.
func (g *pager) First() int { return min(g.Total, (g.Page-1)*g.Size+1) }

// Last is the number of the last one shown.
func (g *pager) Last() int { return min(g.Total, g.Page*g.Size) }

// Before is the page before this one, empty where there is none.
func (g *pager) Before() string {
	if g.Page <= 1 {
		return ""
	}
	return with(g.here, "page", strconv.Itoa(g.Page-1))
}

// After is the page after this one, empty where there is none.
func (g *pager) After() string {
	if g.Page >= g.Pages {
		return ""
	}
	return with(g.here, "page", strconv.Itoa(g.Page+1))
}
