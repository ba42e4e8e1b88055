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
}

func (r *reading) block(name blocklist.Name, item *blocklist.Listed) blockView {
	b := item.Block
	v := blockView{
		Rule: name.Rule, Source: r.source(name.Subject), Since: b.Since, Until: b.Until, Hit: b.Hit, BlockID: blockID(b.Hit), Extended: b.Extended,
		InForce: item.InForce, Left: shown.About(b.Until.Sub(r.now)),
		By: r.text(b.By), Reason: shown.Text(r.masker.TextAbout(r.visit.Actor, b.Reason, string(name.Subject))),
	}
	if whole := b.Until.Sub(b.Since); whole > 0 {
		v.Share = int(max(0, min(100, 100*b.Until.Sub(r.now)/whole)))
	}
	if r.may(access.Release, "") {
		masked := r.masker.Subject(r.visit.Actor, name.Subject)
		v.Release = actLink{Title: "Release", Command: r.commands.Release(name.Rule, masked)}
		if r.forms {
			v.Release.Href = "/release?rule=" + url.QueryEscape(name.Rule) + "&subject=" + url.QueryEscape(string(masked))
		}
	}
	return v
}

func (r *reading) release(name blocklist.Name, item *blocklist.Listed) releaseView {
	t := item.Tombstone
	return releaseView{Rule: name.Rule, Source: r.source(name.Subject), Released: t.Released, Until: t.Until, Hit: t.Hit, By: r.text(t.By)}
}

// blocksOf are the blocks and releases that have all the values of a subject.
func (r *reading) blocksOf(subject traffic.Subject) (blocks []blockView, releases []releaseView) {
	for name, item := range r.Blocks {
		if holdsAll(name.Subject, subject) {
			blocks = append(blocks, r.block(name, item))
		}
	}
	for name, item := range r.Releases {
		if holdsAll(name.Subject, subject) {
			releases = append(releases, r.release(name, item))
		}
	}
	sortBlocks(blocks, "newest")
	sortReleases(releases)
	return blocks, releases
}

func sortBlocks(list []blockView, by string) {
	slices.SortFunc(list, func(a, b blockView) int {
		first := cmp.Compare(b.Since, a.Since)
		switch by {
		case "ending":
			first = cmp.Compare(a.Until, b.Until)
		case "rule":
			first = cmp.Compare(a.Rule, b.Rule)
		}
		return cmp.Or(first, cmp.Compare(b.Since, a.Since), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Source.Href, b.Source.Href))
	})
}

func sortReleases(list []releaseView) {
	slices.SortFunc(list, func(a, b releaseView) int {
		return cmp.Or(cmp.Compare(b.Released, a.Released), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Source.Href, b.Source.Href))
	})
}

const releasesShown = 50

func (p *Pages) blocks(w http.ResponseWriter, r *http.Request) error {
	see, err := p.read(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	v := &blocksPage{Redis: see.redis, Query: q.Get("q"), Rule: q.Get("rule"), Total: len(see.Blocks), ReleasedTotal: len(see.Releases)}
	by, err := oneOf(q, "sort", "newest", "newest", "ending", "rule")
	if err != nil {
		return err
	}
	for _, name := range []string{"newest", "ending", "rule"} {
		text := map[string]string{"newest": "Newest", "ending": "Ending soonest", "rule": "By rule"}[name]
		v.Sort = append(v.Sort, option{Text: text, Href: with(r.URL, "sort", name, "page", ""), Chosen: name == by})
	}
	counts := map[string]int64{}
	var found []blockView
	for name, item := range see.Blocks {
		counts[name.Rule]++
		if item.InForce {
			v.InForce++
		}
		if v.Rule != "" && name.Rule != v.Rule {
			continue
		}
		one := see.block(name, item)
		if v.Query != "" && !strings.Contains(one.Source.Label, v.Query) && !strings.HasPrefix(one.Hit, strings.ToLower(v.Query)) {
			continue
		}
		found = append(found, one)
	}
	v.Rules = sortedByCount(counts)
	if v.Rule != "" && counts[v.Rule] == 0 && see.Rules[v.Rule] == nil && !rules.IsByHand(v.Rule) {
		return &badRequest{"rule", v.Rule, "the name of a rule that is there" + near(v.Rule, see)}
	}
	v.Block = see.forms && see.may(access.Block, "")
	sortBlocks(found, by)
	v.Found = len(found)
	if v.List, v.Pager, err = pageOf(r.URL, found, blocksPerPage); err != nil {
		return err
	}
	for name, item := range see.Releases {
		if v.Rule == "" || name.Rule == v.Rule {
			v.Released = append(v.Released, see.release(name, item))
		}
	}
	sortReleases(v.Released)
	v.Released = v.Released[:min(len(v.Released), releasesShown)]
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
