package pages

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/internal/nearest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// blocksPerPage is how many blocks one page lists.
const blocksPerPage = 100

// blockView is one block.
type blockView struct {
	Rule     string
	Source   sourceView
	Since    traffic.Time
	Until    traffic.Time
	Hit      string
	BlockID  string // what a refused client is told
	Extended bool
	InForce  bool // false: its rule was demoted since, and gates let pass
	Left     string
	By       string  // who ordered it by hand; empty: a rule's hit led to it
	Reason   string  // of who ordered it
	Share    int     // of its time that is left, in percent
	Release  actLink // empty where the visitor may not
}

// releaseView is one release that is still remembered.
type releaseView struct {
	Rule     string
	Source   sourceView
	Released traffic.Time
	Until    traffic.Time // when it is forgotten
	Hit      string
	By       string
}

// blocksPage is all blocks.
type blocksPage struct {
	Redis         string
	Cut           bool   // Redis holds more than was read
	Query         string // the filter: a part of a source
	Rule          string
	Rules         []string // that have blocks
	Sort          []option
	Total         int
	InForce       int
	Found         int
	List          []blockView
	Pager         pager
	Released      []releaseView
	ReleasedTotal int
	Block         bool // the visitor may block by hand
	Never         bool // there is a page of who is never blocked
}

func (r *reading) block(name blocklist.Name, item *blocklist.Listed) blockView {
	b := item.Block
	v := blockView{
		Rule: name.Rule, Source: r.source(name.Subject), Since: b.Since, Until: b.Until, Hit: b.Hit, BlockID: blockID(b.Hit), Extended: b.Extended,
		InForce: item.InForce, Left: shown.About(b.Until.Sub(r.now)),
		By: shown.Text(b.By),
	}
	v.Reason = r.said(b.Reason, b.By) // its source is met by now
	if whole := b.Until.Sub(b.Since); whole > 0 {
		v.Share = int(max(0, min(100, 100*b.Until.Sub(r.now)/whole)))
	}
	if r.may(access.Release, "") {
		masked := r.mask.Subject(name.Subject)
		v.Release = actLink{Title: "Release", Command: r.commands.Release(name.Rule, masked)}
		if r.forms {
			v.Release.Href = "/release?rule=" + url.QueryEscape(name.Rule) + "&subject=" + url.QueryEscape(string(masked))
		}
	}
	return v
}

func (r *reading) release(name blocklist.Name, item *blocklist.Listed) releaseView {
	t := item.Tombstone
	return releaseView{Rule: name.Rule, Source: r.source(name.Subject), Released: t.Released, Until: t.Until,
		Hit: t.Hit, By: shown.Text(t.By)}
}

// listing makes lists of blocks and releases: views of those that are shown, however many there are.
type listing struct{ *reading }

// of are the newest blocks and releases that have all the values of a subject, and how many blocks there are.
func (r listing) of(subject traffic.Subject) (shown []blockView, all int, released []releaseView) {
	blocks, releases := r.Of(func(name blocklist.Name) bool { return holdsAll(name.Subject, subject) })
	r.sort(blocks, "newest")
	return r.views(blocks[:min(len(blocks), blocksPerPage)]), len(blocks), r.newest(releases)
}

func nameOf(item *blocklist.Listed) blocklist.Name {
	return blocklist.Name{Subject: item.Subject, Rule: item.Rule}
}

func (r listing) views(list []*blocklist.Listed) (out []blockView) {
	for _, item := range list {
		out = append(out, r.block(nameOf(item), item))
	}
	return out
}

// newest are those of the list that are shown.
func (r listing) newest(list []*blocklist.Listed) (out []releaseView) {
	slices.SortFunc(list, func(a, b *blocklist.Listed) int {
		return cmp.Or(cmp.Compare(b.Tombstone.Released, a.Tombstone.Released), r.order(a, b))
	})
	for _, item := range list[:min(len(list), releasesShown)] {
		out = append(out, r.release(nameOf(item), item))
	}
	return out
}

// sort orders blocks before views are made of those that are shown: there may be many.
func (r listing) sort(list []*blocklist.Listed, by string) {
	slices.SortFunc(list, func(a, b *blocklist.Listed) int {
		first := cmp.Compare(b.Block.Since, a.Block.Since)
		switch by {
		case "ending":
			first = cmp.Compare(a.Block.Until, b.Block.Until)
		case "rule":
			first = cmp.Compare(a.Rule, b.Rule)
		}
		return cmp.Or(first, cmp.Compare(b.Block.Since, a.Block.Since), r.order(a, b))
	})
}

// order is the order of what has the same time: by what is shown.
func (r listing) order(a, b *blocklist.Listed) int {
	if first := cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Hit(), b.Hit())); first != 0 {
		return first
	}
	return cmp.Compare(r.mask.Order(a.Subject), r.mask.Order(b.Subject))
}

// matches reports whether a part of a block's source, as it is shown, or the beginning of its id is text.
func (r listing) matches(item *blocklist.Listed, text string) bool {
	return strings.HasPrefix(item.Block.Hit, strings.ToLower(text)) ||
		strings.Contains(shown.SourceOf(traffic.Subject(r.mask.Order(item.Subject))).String(), text)
}

const releasesShown = 50

func (p *Pages) blocks(w http.ResponseWriter, r *http.Request) error {
	see, err := p.read(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	v := &blocksPage{Redis: see.redis, Cut: see.cut, Query: q.Get("q"), Rule: q.Get("rule"), Total: len(see.Blocks),
		ReleasedTotal: len(see.Releases)}
	by, err := oneOf(q, "sort", "newest", "newest", "ending", "rule")
	if err != nil {
		return err
	}
	for _, name := range []string{"newest", "ending", "rule"} {
		text := map[string]string{"newest": "Newest", "ending": "Ending soonest", "rule": "By rule"}[name]
		v.Sort = append(v.Sort, option{Text: text, Href: with(r.URL, "sort", name, "page", ""), Chosen: name == by})
	}
	counts, list := map[string]int64{}, listing{see}
	var found []*blocklist.Listed
	for name, item := range see.Blocks {
		counts[name.Rule]++
		if item.InForce {
			v.InForce++
		}
		if (v.Rule == "" || name.Rule == v.Rule) && (v.Query == "" || list.matches(item, v.Query)) {
			found = append(found, item)
		}
	}
	v.Rules = sortedByCount(counts)
	if v.Rule != "" && counts[v.Rule] == 0 && !see.cut && see.Rules[v.Rule] == nil && !rules.IsByHand(v.Rule) {
		return &badRequest{"rule", v.Rule, "the name of a rule that is there" + near(v.Rule, see)}
	}
	v.Never, v.Block = see.forms && !see.mask.Any(), see.forms && see.may(access.Block, "")
	list.sort(found, by)
	v.Found = len(found)
	if found, v.Pager, err = pageOf(r.URL, found, blocksPerPage); err != nil {
		return err
	}
	v.List = list.views(found)
	_, releases := see.Of(func(name blocklist.Name) bool { return v.Rule == "" || name.Rule == v.Rule })
	v.Released = list.newest(releases)
	v.Query = shown.Text(v.Query)
	return p.show(w, r, &shell{Name: "blocks", Title: "Blocks", Active: "blocks", Live: true, Body: v})
}

// near says which rule was probably meant.
func near(id string, see *reading) string {
	if name := nearest.Name(id, see.ids()); name != "" {
		return fmt.Sprintf("; did you mean %q?", name)
	}
	return ""
}

// neverPage is who is never blocked.
type neverPage struct {
	Did  string
	List []neverView
	Add  bool // the visitor may change the list
}

// neverView is one entry of the never-block list.
type neverView struct {
	Prefix     string
	Configured bool
	Until      traffic.Time
	Added      traffic.Time
	By, Reason string
	Remove     string // the form that removes it; empty: it is the configuration's, or the visitor may not
}

// neverForm is what the form of a new entry asks beside the reason.
type neverForm struct{ Entry, For string }

// routeNever adds the page of who is never blocked, and its forms.
func (p acting) routeNever() {
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/never-block", Act: access.View},
		p.answered(p.never))
	form := func(w http.ResponseWriter, r *http.Request) error {
		form, err := p.neverForm(r, r.URL.Query())
		if err != nil {
			return err
		}
		return p.show(w, r, &shell{Name: "act", Title: form.Title, Active: "blocks", Body: form})
	}
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/never-block/change", Act: access.NeverBlock},
		p.answered(form))
	p.mux.HandleFunc(access.Route{Method: http.MethodPost, Pattern: "/never-block/change", Act: access.NeverBlock},
		p.answered(p.changeNever))
}

func (p acting) never(w http.ResponseWriter, r *http.Request) error {
	see, err := p.read(r)
	if err != nil {
		return err
	}
	if see.mask.Any() { // a list of addresses without the addresses is none
		return &withheld{"Who is never blocked is listed by addresses as they are, and your role is shown pseudonyms."}
	}
	all, err := p.o.Acts.NeverBlockList(r.Context(), see.visit.Actor)
	if err != nil {
		return err
	}
	v := &neverPage{Did: did(r.URL.Query()), Add: see.may(access.NeverBlock, "")}
	for i := range all {
		n := &all[i]
		one := neverView{
			Prefix:     n.Prefix.String(),
			Configured: n.From == acts.NeverConfigured,
			Until:      n.Until, Added: n.Added, By: shown.Text(n.By), Reason: shown.Text(n.Reason),
		}
		if v.Add && !one.Configured {
			one.Remove = "/never-block/change?remove=" + url.QueryEscape(n.Prefix.String())
		}
		v.List = append(v.List, one)
	}
	return p.show(w, r, &shell{Name: "never", Title: "Never blocked", Active: "blocks", Body: v})
}

// neverForm is the form that adds an entry, or removes the one that is named.
func (p acting) neverForm(r *http.Request, q url.Values) (*actForm, error) {
	see, err := p.read(r)
	if err != nil {
		return nil, err
	}
	if err := access.May(see.visit.Actor, access.NeverBlock, ""); err != nil {
		return nil, err
	}
	form := &actForm{Action: "/never-block/change", Back: "/never-block", Rule: "Never blocked"}
	if gone := q.Get("remove"); gone != "" {
		form.Title, form.Verb, form.Danger = "Remove "+shown.Text(gone)+" from the never-block list", "Remove", true
		form.Means = []string{"Its addresses may be blocked again, by rules and by hand, by evidence from after now."}
		form.Hidden, form.Confirm = []param{{"remove", gone}}, "Let it be blocked"
		return form, nil
	}
	form.Title, form.Verb, form.Confirm = "Never block an address", "Enter", "It may not be blocked, whatever it does"
	form.Means = []string{"Gates pass its requests within a second, whatever rules say, and blocks that hold one of its addresses are released."}
	form.Never = &neverForm{Entry: q.Get("entry"), For: q.Get("for")}
	return form, nil
}

func (p acting) changeNever(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return &badRequest{"form", "", "fields as a form sends them"}
	}
	form, err := p.neverForm(r, r.PostForm)
	if err != nil {
		return err
	}
	asked, told := acts.NeverRequest{Entries: []string{strings.TrimSpace(r.PostFormValue("entry"))},
		Reason: r.PostFormValue("reason")}, "never"
	if gone := r.PostFormValue("remove"); gone != "" {
		asked.Entries, asked.Remove, told = []string{gone}, true, "never-remove"
	} else if asked.For, err = lengthAsked(r); err != nil {
		return p.again(w, r, form, err)
	}
	if err = confirmed(r); err == nil {
		_, err = p.o.Acts.ChangeNeverBlock(r.Context(), access.From(r.Context()), asked)
	}
	if err != nil {
		return p.again(w, r, form, err)
	}
	p.forget()
	http.Redirect(w, r, withDid(form.Back, told), http.StatusSeeOther)
	return nil
}
