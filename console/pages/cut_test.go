package pages

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/traffic"
)

// Where Redis holds more than was read, each page says so, no count and no empty list looks whole, and what is asked
// about one source or one block is asked of Redis.
func TestPagesSayThatNotAllBlocksWereRead(t *testing.T) {
	s := newScene()
	all := slices.Clone(s.listed)
	of := slices.IndexFunc(all, func(l blocklist.Listed) bool {
		return l.Block != nil && l.Rule == "login-stuffing" &&
			l.InForce
	})
	away := all[of]
	s.listed = slices.DeleteFunc(slices.Clone(all), func(l blocklist.Listed) bool { return l.Subject == away.Subject })
	s.beyond = []blocklist.Listed{away}
	const note = "Redis holds more blocks or releases than pages read of it"
	p := newPages(t, s.options())
	source := "/sources?of=" + url.QueryEscape(string(away.Subject))
	for address, want := range map[string][]string{
		"/blocks":                     {note, "At least <b>"},
		"/blocks?q=" + away.Block.Hit: {note, "No block of those that were read matches", "Show the "},
		"/rules/login-stuffing":       {note, "+</dd><dt>held now"},
		"/explore":                    {note},
		"/":                           {"holds more blocks or releases than pages read of it", "+</dd><dt>held now"},
		"/health":                     {"holds more blocks or releases than pages read of it", "at least "},
		"/hits/" + away.Block.Hit:     {note, `<p class="quiet">blocked `},
		source:                        {note, "Held now", "<dd>1</dd><dt>blocks now</dt>"},
	} {
		status, body, _ := get(t, p, admin(), address)
		for _, text := range want {
			if status != 200 || !strings.Contains(body, text) {
				t.Errorf("%s: %d, without %q", address, status, text)
			}
		}
	}
	s.beyond = nil
	p = newPages(t, s.options())
	for _, address := range []string{"/blocks", "/", "/health", source, "/rules/login-stuffing"} {
		_, body, _ := get(t, p, admin(), address)
		for _, text := range []string{"than pages read", "At least", "of those that were read", "+</dd><dt>held now"} {
			if strings.Contains(body, text) {
				t.Errorf("%s says %q, and all was read", address, text)
			}
		}
	}
}

// TestPagesSayWhoseRedisIs: pages that show blocks say that they are another installation's, and nothing else of Redis.
func TestPagesSayWhoseRedisIs(t *testing.T) {
	s := newScene()
	const whose = "belongs to installation staging"
	s.pulse.Foreign, s.pulse.Problems = whose, []console.Problem{{Part: "Redis", Detail: whose}}
	p := newPages(t, s.options())
	for _, address := range []string{"/blocks", "/", "/health", "/rules/login-stuffing", "/explore"} {
		_, body, _ := get(t, p, admin(), address)
		if !strings.Contains(body, whose) || strings.Contains(body, "does not answer") ||
			strings.Contains(body, "than pages read") {
			t.Errorf("%s does not say whose Redis is alone", address)
		}
	}
}

// Of many blocks a page makes views of those that it shows alone: what a page takes does not grow with what there is.
func TestABlocksPageMakesViewsOfWhatItShows(t *testing.T) {
	s := newScene()
	s.listed = nil
	const many = 20_000
	for i := range many {
		at := s.now.Add(-time.Duration(i) * time.Millisecond)
		b := blocklist.NewBlock("login-stuffing", 2, fmt.Sprintf("%032x", i+1), at, s.now.Add(time.Hour))
		s.listed = append(s.listed, blocklist.Listed{Rule: "login-stuffing", InForce: true, Block: &b,
			Subject: traffic.Subject(fmt.Sprintf("ip=198.18.%d.%d%%2F32", i>>8, i&255))})
	}
	p := newPages(t, s.options())
	newest := func(body string) string {
		_, list, _ := strings.Cut(body, `<section aria-label="Blocks">`)
		_, after, _ := strings.Cut(list, "198.18.")
		return after[:max(0, strings.IndexAny(after, "\"<"))]
	}
	for address, want := range map[string]string{"/blocks": "0.0", "/blocks?page=3": "0.200",
		"/blocks?q=198.18.77.": "77.0"} {
		_, body, _ := get(t, p, admin(), address)
		if got := newest(body); got != want {
			t.Errorf("%s begins with 198.18.%s, want 198.18.%s", address, got, want)
		}
		if n := strings.Count(body, `class="source`); n > 3*blocksPerPage {
			t.Errorf("%s shows %d sources", address, n)
		}
	}
	made := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			get(b, p, admin(), "/blocks")
		}
	}).AllocsPerOp()
	if made > 2*many { // the page itself takes some 30,000, and a view of each several times as many
		t.Errorf("a page of 100 blocks of %d takes %d allocations", many, made)
	}
}
