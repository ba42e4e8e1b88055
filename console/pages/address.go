package pages

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
)

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
