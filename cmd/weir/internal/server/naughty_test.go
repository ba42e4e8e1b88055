package server_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/sessions"
	"github.com/weirhq/weir/internal/naughty"
	"github.com/weirhq/weir/traffic"
)

// letters fails the test: everything here can be stored.
type letters struct{ t *testing.T }

func (l letters) Put(_ context.Context, dead []traffic.DeadLetter) error {
	l.t.Errorf("dead letters: %+v", dead)
	return nil
}

// perHit is how many texts are in the evidence of one episode, so that a page shows many.
const perHit = 12

// seed puts texts into history as devices, and into the evidence as everything that a client says; and into the trail as what people say.
func (b *bed) seed(from int, texts []string) (ids []string) {
	b.t.Helper()
	recorder, err := history.NewHitRecorder(b.in.History, history.Live, "weir.hits", letters{b.t}, nil, prometheus.NewRegistry())
	if err != nil {
		b.t.Fatal(err)
	}
	var batch []traffic.Message
	now := traffic.At(time.Now().Add(-time.Minute))
	for part := range slices.Chunk(texts, perHit) {
		from++
		subject, _ := traffic.MakeSubject(&traffic.Identity{Device: part[0] + "."}, []traffic.KeyField{{Field: traffic.FieldDevice}})
		h := detectors.Hit{
			Format: detectors.HitFormat, Kind: detectors.KindHit, ID: fmt.Sprintf("%08x%024x", from*7919, from), Rule: own, RuleVersion: 1, Lineage: 1, Phase: detectors.PhaseClosed,
			Subject: subject, BlockSubject: subject, Limit: 2, WindowMS: 60_000, Count: 3, Peak: 3, Opened: now, First: now, Last: now, Seen: now, Generation: 1, Offset: int64(from),
		}
		for _, text := range part {
			said := traffic.Printable(text)
			sample, err := json.Marshal(traffic.Sample{Time: now, Device: said, User: said, Session: said, UserAgent: said, Path: "/" + said, Host: said, Attrs: said})
			if err != nil {
				b.t.Fatal(err)
			}
			h.Samples = append(h.Samples, string(sample))
		}
		value, err := detectors.EncodeHit(&h)
		if err != nil {
			b.t.Fatal(err)
		}
		ids, batch = append(ids, h.ID), append(batch, traffic.Message{Value: value})
	}
	if err := recorder.Apply(b.t.Context(), batch); err != nil {
		b.t.Fatal(err)
	}
	for _, text := range texts {
		if err := b.in.History.Audit.Add(b.t.Context(), audit.Entry{Actor: text, Action: "release", Object: "block " + own + " " + text, Reason: text, Detail: text}); err != nil {
			b.t.Fatal(err)
		}
	}
	return ids
}

var (
	tags   = regexp.MustCompile(`<[^>]*>`)
	values = regexp.MustCompile(`"[^"]*"`)
	links  = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
)

// shapes are the elements of a page with the names of their attributes. The templates escape < and > in texts and in values, so that a tag
// which a text has made is one more.
func shapes(page string) map[string]bool {
	all := map[string]bool{}
	for _, tag := range tags.FindAllString(page, -1) {
		all[values.ReplaceAllString(tag, `""`)] = true
	}
	return all
}

// TestNaughtyStringsInTheConsole: what clients and people say is text on every page, in files and answers, whatever it is.
func TestNaughtyStringsInTheConsole(t *testing.T) {
	b := newBed(t)
	b.prepare(own)
	m := signintest.NewMatrix(t, signintest.Case{Serve: b.serve, Sessions: sessions.New(b.in.History.DB)})
	who := m.Cast(0)[slices.IndexFunc(m.Cast(0), func(c signintest.Caller) bool { return c.Actor.Role == access.Admin })]
	get := func(at string) *httptest.ResponseRecorder {
		w := m.Answer(httptest.NewRequest(http.MethodGet, at, nil), who)
		for tries := 1; w.Code == http.StatusServiceUnavailable && tries < 3; tries++ { // a page that stood still gives its stores up
			w = m.Answer(httptest.NewRequest(http.MethodGet, at, nil), who)
		}
		if w.Code >= http.StatusInternalServerError || w.Code == http.StatusTooManyRequests {
			t.Errorf("%s: %d %s", at, w.Code, w.Body)
		}
		return w
	}
	lists := []string{"/", "/explore", "/explore?by=source&top=1000", "/rules/" + own, "/audit", "/sources?of=evil"}
	known := map[string]bool{`<span class="">`: true, `<a class="" rel="" href="">`: true} // what cannot be seen, and the next page of a list
	for _, at := range append(lists, "/hits/"+b.seed(0, []string{"evil", "evil&1"})[0]) {
		for tag := range shapes(get(at).Body.String()) {
			known[tag] = true
		}
	}
	texts, err := naughty.Strings()
	if err != nil {
		t.Fatal(err)
	}
	texts = slices.DeleteFunc(texts, func(s string) bool { return s == "" })
	pages := slices.Clone(lists)
	for _, id := range b.seed(1, texts) {
		pages = append(pages, "/hits/"+id)
	}
	for _, entries := 0, get("/audit"); entries != nil; { // its further pages
		next := regexp.MustCompile(`href="([^"]*)">Next page`).FindStringSubmatch(entries.Body.String())
		if entries = nil; next != nil {
			at := strings.ReplaceAll(next[1], "&amp;", "&")
			pages, entries = append(pages, at), get(at)
		}
	}
	for _, at := range pages {
		page := get(at).Body.String()
		for tag := range shapes(page) {
			if !known[tag] {
				t.Errorf("%s has %s, which no page has without these texts", at, tag)
			}
		}
		for _, link := range links.FindAllStringSubmatch(page, -1) {
			if !strings.HasPrefix(link[1], "/") && !strings.HasPrefix(link[1], "#") || strings.HasPrefix(link[1], "//") {
				t.Errorf("%s links to %s", at, link[1])
			}
		}
	}
	for i, text := range texts {
		w := get("/search?q=" + url.QueryEscape(text))
		if to := w.Header().Get("Location"); to != "" && (!strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//")) {
			t.Errorf("searching %q leads to %s", text, to)
		}
		if i%8 == 0 {
			get("/audit?actor=" + url.QueryEscape(text))
			get("/explore?source=" + url.QueryEscape(text))
		}
	}
	for _, at := range []string{"/explore.csv?by=episode&top=1000", "/explore.csv?by=source&top=1000"} {
		checkCells(t, at, get(at).Body.String(), len(texts)/perHit)
	}
	for _, at := range []string{"/explore.json?by=episode", "/api/v1/audit?limit=1000"} {
		text := get(at).Body.String()
		if i := strings.IndexAny(strings.TrimRight(text, "\n"), "\x00\x07\x1b\u2028"); i >= 0 || !json.Valid([]byte(text)) {
			t.Errorf("%s is no JSON, or has what cannot be seen at %d: %.200q", at, i, text[max(0, i-40):])
		}
	}
	t.Logf("%d texts, %d pages", len(texts), len(pages))
}

// checkCells looks for formulas and broken lines.
func checkCells(t *testing.T, at, text string, least int) {
	t.Helper()
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(records) <= least || strings.Count(text, "\n") != len(records) {
		t.Errorf("%s: %d records on %d lines, %v", at, len(records), strings.Count(text, "\n"), err)
	}
	for _, record := range records {
		for _, cell := range record {
			if cell != "" && strings.ContainsAny(cell[:1], "=+-@\t\r") || strings.ContainsAny(cell, "\x00\x1b\r\n\u202e") {
				t.Errorf("%s has the cell %q", at, cell)
			}
		}
	}
}
