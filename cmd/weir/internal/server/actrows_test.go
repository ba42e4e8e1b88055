package server_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weirhq/weir/rules"
)

// actRow is what a route does: which act of docs/access.md, to what, and what is sent.
type actRow struct {
	act    string
	on     string // rule, list, document; empty: nothing of anybody's
	api    bool
	ok     []int // of who may
	absent int   // where what it is on is not there; 0: that cannot be
	body   func(w *world, on target) string
	// changed is a body of who looked at what is not so any more; nil: there is no such.
	changed     func(w *world, on target) string
	staleStatus int
	begin       rules.Mode // the mode from which a rule is changed
	edited      bool       // it is another document than its first before
	unaudited   bool       // it changes nothing
}

// otherwise are the routes that change something and are no acts of access.md's table, and where they are asked.
func otherwise() map[string]string {
	return map[string]string{
		"POST /signout":       "console/signin",
		"POST /signin/invite": "console/signin, TestWhoMayAskForWhat",
		"POST /signin/token":  "console/signin, and each session here begins by it",
	}
}

func fixed(text string) func(*world, target) string {
	return func(*world, target) string { return text }
}

// rule makes a document of a target, with its allow list.
func (t target) document(limit int) string {
	owner := ""
	if t.owner != "" {
		owner = "owner: " + t.owner + "\n"
	}
	return fmt.Sprintf(`kind: allow
id: %[1]s-partners
%[2]sentries: []
---
id: %[1]s
%[2]smatch: {method: POST, path: %[3]s}
allow: [%[1]s-partners]
key: [ip]
limit: %[4]d
window: 60s
block: {key: [ip], ttl: 10m}
`, t.rule, owner, t.path, limit)
}

func asFiles(more string) func(w *world, on target) string {
	return func(w *world, on target) string {
		text, err := json.Marshal([]map[string]string{{"name": "a.yaml", "text": on.document(20 + w.n)}})
		if err != nil {
			w.t.Fatal(err)
		}
		return fmt.Sprintf(`{%s"files":%s}`, more, text)
	}
}

// typed is a page's form with a text that was tried. plan: as it was shown; empty: as it would be now.
func typed(make func(string) string, plan string) func(w *world, on target) string {
	return func(w *world, on target) string {
		text := make(on.document(20 + w.n))
		if plan == "" {
			return w.writing(text)
		}
		plan := strings.ReplaceAll(plan, "RULE", on.rule)
		sum := sha256.Sum256([]byte(text))
		return url.Values{"text": {text}, "do": {"apply"}, "tried": {hex.EncodeToString(sum[:])}, "plan": {plan},
			"reason": {"matrix"}, "confirm": {"yes"}}.Encode()
	}
}

func whole(text string) string { return text }

const (
	confirmedForm = "reason=matrix&confirm=yes"
	seenBefore    = "0123456789abcdef" // no revision of any rule
)

func promoting(more string) func(w *world, on target) string {
	return func(w *world, on target) string {
		return confirmedForm + "&override=matrix&to=block&until=" +
			url.QueryEscape(time.Now().UTC().Add(-5*time.Minute).Format(time.RFC3339Nano)) + more
	}
}

func raising(more string) func(w *world, on target) string {
	return func(w *world, on target) string {
		return fmt.Sprintf(`{"reason":"matrix","limit":%d,"until":%q%s}`, 200_000+w.n,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339), more)
	}
}

func raisingForm(more string) func(w *world, on target) string {
	return func(w *world, on target) string {
		return fmt.Sprintf("%s&limit=%d&for=1h%s", confirmedForm, 200_000+w.n, more)
	}
}

func entering(format string) func(w *world, on target) string {
	return func(w *world, on target) string { return fmt.Sprintf(format, w.n/250%250, w.n%250) }
}

// actRows has each route that changes something; a route without a row fails.
func actRows() map[string]*actRow {
	const seen = `"seen":"` + seenBefore + `",`
	const subject = `"subject":"ip=192.0.2.1%2F32"`
	done, see := []int{http.StatusOK}, []int{http.StatusSeeOther}
	api := func(act, on string, body, changed func(*world, target) string, begin rules.Mode) *actRow {
		return &actRow{act: act, on: on, api: true, ok: done, absent: http.StatusNotFound, body: body, changed: changed,
			staleStatus: http.StatusPreconditionFailed, begin: begin}
	}
	page := func(act, on string, body, changed func(*world, target) string, begin rules.Mode) *actRow {
		return &actRow{act: act, on: on, ok: see, absent: http.StatusNotFound, body: body, changed: changed,
			staleStatus: http.StatusConflict, begin: begin}
	}
	conflict := func(r *actRow, status int, ok ...int) *actRow {
		if r.staleStatus = status; len(ok) > 0 {
			r.ok = ok
		}
		return r
	}
	of := func(r *actRow, absent int) *actRow { r.absent = absent; return r }
	after := func(r *actRow) *actRow { r.edited = true; return r }
	quiet := func(r *actRow) *actRow { r.unaudited = true; return r }
	reasoned, formed := fixed(`{"reason":"matrix"}`), fixed(confirmedForm)
	turned, turnedForm := fixed(`{`+seen+`"reason":"matrix"}`), fixed(confirmedForm+"&seen="+seenBefore)
	const shadow, block, off = rules.ModeShadow, rules.ModeBlock, rules.ModeOff
	return map[string]*actRow{
		"POST /api/v1/rules/{rule}/promote": api("promote", "rule", fixed(`{"reason":"matrix","override":"matrix"}`),
			fixed(`{`+seen+`"reason":"matrix","override":"matrix"}`), shadow),
		"POST /api/v1/rules/{rule}/demote":  api("demote", "rule", reasoned, turned, block),
		"POST /api/v1/rules/{rule}/disable": api("disable", "rule", reasoned, turned, shadow),
		"POST /api/v1/rules/{rule}/enable":  api("enable", "rule", reasoned, turned, off),
		"POST /api/v1/rules/{rule}/limit": api("set-limit", "rule", raising(""), raising(`,"seen":"`+seenBefore+`"`),
			shadow),
		"POST /api/v1/rules/{rule}/rollback": after(conflict(api("rollback", "rule",
			fixed(`{"reason":"matrix","to":1}`),
			fixed(`{"reason":"matrix","to":1,"shown":{}}`), shadow), http.StatusConflict)),
		"POST /api/v1/rules/{rule}/reset": api("reset", "rule", fixed(`{"reason":"matrix",`+subject+`}`), nil, shadow),
		"POST /api/v1/apply": of(conflict(api("apply", "document", asFiles(`"reason":"matrix","alone":true,`),
			asFiles(`"reason":"matrix","alone":true,"shown":{},`), shadow), http.StatusConflict), 0),
		"POST /api/v1/try": quiet(of(api("apply", "document", asFiles(""), nil, shadow), 0)),
		"POST /api/v1/allow/{list}/entries": conflict(api("allow", "list",
			entering(`{"reason":"matrix","entries":[{"kind":"cidr","value":"10.1.%d.%d/32"}]}`),
			fixed(`{"reason":"matrix","remove":true,"entries":[{"kind":"cidr","value":"203.0.113.9/32"}]}`), shadow),
			http.StatusConflict),
		"POST /api/v1/rules/{rule}/release": conflict(quiet(api("release", "rule",
			fixed(`{"reason":"matrix",`+subject+`}`),
			nil, shadow)), 0, http.StatusNotFound),
		"POST /api/v1/blocks": conflict(api("block", "", fixed(
			`{"reason":"matrix","subject":"user=alice","everything":true,"for":"1h"}`), fixed(
			`{"reason":"matrix","subject":"ip=198.51.100.7%2F32","everything":true,"for":"1h"}`), ""),
			http.StatusConflict),
		"POST /api/v1/never-block/entries": conflict(api("never-block", "",
			entering(`{"reason":"matrix","entries":["10.2.%d.%d"]}`),
			fixed(`{"reason":"matrix","remove":true,"entries":["203.0.113.9"]}`), ""), http.StatusConflict),
		"POST /api/v1/history/erase": api("erase", "", fixed(`{"reason":"matrix","subject":"user=nobody-at-all"}`),
			nil, ""),
		"POST /api/v1/reveal": conflict(quiet(api("reveal", "", fixed(`{"reason":"matrix","field":"ip","of":"~0"}`),
			nil,
			"")), 0, http.StatusBadRequest),
		"POST /api/v1/partitions/{side}/{partition}/resume": conflict(quiet(api("resume", "", fixed(
			`{"reason":"matrix","gap_source":-1,"gap_offset":7}`), nil, "")), 0, http.StatusNotFound),

		"POST /rules/{rule}/promote": page("promote", "rule", promoting(""), promoting("&seen="+seenBefore), shadow),
		"POST /rules/{rule}/demote":  page("demote", "rule", formed, turnedForm, block),
		"POST /rules/{rule}/disable": page("disable", "rule", formed, turnedForm, shadow),
		"POST /rules/{rule}/enable":  page("enable", "rule", formed, turnedForm, off),
		"POST /rules/{rule}/limit": page("set-limit", "rule", raisingForm(""), raisingForm("&seen="+seenBefore),
			shadow),
		"POST /rules/{rule}/rollback": after(page("rollback", "rule", fixed(confirmedForm+"&to=1"),
			fixed(confirmedForm+"&to=1&seen="+seenBefore), shadow)),
		"POST /rules/{rule}/reset": page("reset", "rule", fixed(confirmedForm+"&subject=ip%3D192.0.2.1%252F32"), nil,
			shadow),
		"POST /rules/{rule}/edit": page("apply", "rule", typed(alone, ""),
			typed(alone, `{"changes":[{"rule":"RULE"}]}`),
			shadow),
		"POST /write": of(page("apply", "document", typed(whole, ""), typed(whole, `{}`), shadow), 0),
		"POST /allow/{list}/change": conflict(page("allow", "list",
			entering(confirmedForm+"&kind=cidr&value=10.3.%d.%d"),
			fixed(confirmedForm+"&version=1000000&remove=1"), shadow), http.StatusNotFound),
		"POST /release": conflict(quiet(of(page("release", "rule", func(_ *world, on target) string {
			return confirmedForm + "&subject=ip%3D192.0.2.1%252F32&rule=" + on.rule
		}, nil, shadow), http.StatusBadRequest)), 0, http.StatusUnprocessableEntity),
		"POST /block": conflict(page("block", "", fixed(confirmedForm+"&of=user%3Dalice&for=1h&what=everything"),
			fixed(confirmedForm+"&of=ip%3D198.51.100.7&for=1h&what=everything"), ""), http.StatusConflict),
		"POST /never-block/change": conflict(page("never-block", "", entering(confirmedForm+"&entry=10.4.%d.%d"),
			fixed(confirmedForm+"&remove=203.0.113.9"), ""), http.StatusConflict),
		"POST /erase": page("erase", "", fixed(confirmedForm+"&of=user%3Dnobody-at-all"), nil, ""),
		"POST /partitions/{side}/{partition}/resume": conflict(quiet(page("resume", "", fixed(
			confirmedForm+"&gap_source=-1&gap_offset=7"), nil, "")), 0, http.StatusNotFound),
		"POST /reveal": conflict(quiet(page("reveal", "", fixed("reason=matrix&field=ip&of=~0"), nil, "")), 0,
			http.StatusBadRequest),
		"POST /explore/views": page("save-view", "", entering("name=view-%d-%d&query=by%%3Drule"), nil, ""),
		"POST /explore/views/remove": conflict(page("save-view", "", fixed("name=none&query=by%3Drule"), nil, ""), 0,
			http.StatusNotFound),
	}
}
