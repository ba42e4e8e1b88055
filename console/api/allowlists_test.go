package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/rules"
)

const secretKey = "sk_live_0123456789abcdef"

// list stores an allow list of identity's, whose second version has an entry less.
func (b *bed) list(t *testing.T, id string) {
	t.Helper()
	entries := []rules.AllowEntry{
		{Kind: rules.AllowCIDR, Value: "203.0.113.0/24", Reason: "the office at 203.0.113.7"},
		{Kind: rules.AllowDevice, Value: "tv-of-alice", Reason: "tv-of-alice is hers"},
		{Kind: rules.AllowAPIKey, Value: secretKey, Reason: "the key " + secretKey},
	}
	for n := range 2 { // as an identity map that vouches for devices and keys would let it be stored
		list := rules.AllowList{ID: id, Owner: "identity", Entries: entries[n:]}
		document, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		b.Run(t, `INSERT INTO `+historytest.Schema+
			`.allow_versions (list, version, document, hash, created_at, author, reason)
			VALUES ($1, $2, $3, sha256(convert_to($3, 'UTF8')), now(), 'ann',
				'since 203.0.113.9 moved')`, id, n+1, string(document))
	}
}

// TestAllowListsTellNoValue: entries are sources. Who is shown pseudonyms finds these in values, reasons and nowhere
// the values, nor a hash by which they could be tried; and keys are whole for who may change the list alone.
func TestAllowListsTellNoValue(t *testing.T) {
	for _, masked := range []bool{true, false} {
		var masker *access.Masker
		if masked {
			masker = maskedBelowAdmin(t)
		}
		b := newBed(t, masker)
		b.list(t, "office")
		for _, who := range []string{"vera", "anna", "olga", "otto", "adam"} {
			hides := masked && who != "adam"
			secret := hides || who != "otto" && who != "adam"
			for _, path := range []string{"/api/v1/allow", "/api/v1/allow/office", "/api/v1/allow/office?version=1"} {
				got := b.ask(t, who, "GET", path, nil)
				text := string(got.body)
				for _, value := range []string{"203.0.113.", "tv-of-alice"} {
					if hides && strings.Contains(text, value) {
						t.Errorf("masked %t, %s, %s: it tells %s: %s", masked, who, path, value, text)
					}
				}
				if strings.Contains(text, secretKey) == secret {
					t.Errorf("masked %t, %s, %s: the key is there: %t; %s", masked, who, path, !secret, text)
				}
				if strings.Contains(text, `"hash":""`) != secret || got.status != http.StatusOK {
					t.Errorf("masked %t, %s, %s: %d, the hash: %s", masked, who, path, got.status, text)
				}
			}
		}
		var answer api.AllowListAnswer
		b.ask(t, "adam", "GET", "/api/v1/allow/office?version=1", nil).read(t, &answer)
		if answer.Hidden != 0 || answer.Version != 1 || len(answer.List.Entries) != 3 || len(answer.Versions) != 2 ||
			answer.Versions[0].Entries != 2 || answer.Versions[0].Version != 2 {
			t.Errorf("an admin is shown %+v", answer)
		}
	}
}

// TestPagesOfAllowLists: the pages together are all lists, each once.
func TestPagesOfAllowLists(t *testing.T) {
	b := newBed(t, nil)
	var want []string
	for i := range 5 {
		want = append(want, fmt.Sprint("list-", i))
		b.list(t, want[i])
	}
	var got []string
	for cursor := ""; ; {
		var page api.Page[api.AllowList]
		b.ask(t, "vera", "GET", "/api/v1/allow?limit=2&cursor="+cursor, nil).read(t, &page)
		for i := range page.Items {
			got = append(got, page.Items[i].List.ID)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("pages give %v", got)
	}
	p := b.ask(t, "vera", "GET", "/api/v1/allow/list-9", nil).problem(t)
	if p.Status != http.StatusNotFound || p.Thing != "allow list" || p.Near == "" {
		t.Errorf("an unknown list: %+v", p)
	}
	if p := b.askWrongly(t, "vera", "GET", "/api/v1/allow/list-1?version=9", nil).problem(t); p.Field != "version" {
		t.Errorf("an unknown version: %+v", p)
	}
}

// TestCountTellsNoValue: a count is asked for by pseudonyms, and answered with them; where nobody answers, no address
// of a process is told.
func TestCountTellsNoValue(t *testing.T) {
	masker := maskedBelowAdmin(t)
	b := newBed(t, masker)
	who := masker.Subject(cast()["vera"], "ip=203.0.113.7%2F32&device=tv-7")
	path := "/api/v1/rules/tokens/counters?subject=" + strings.NewReplacer("%", "%25", "=", "%3D", "&",
		"%26").Replace(string(who))
	got := b.ask(t, "vera", "GET", path, nil)
	if got.status != http.StatusOK || strings.Contains(string(got.body), "203.0.113.7") ||
		!strings.Contains(string(got.body), "~") {
		t.Errorf("%d %s", got.status, got.body)
	}
	plain := "/api/v1/rules/tokens/counters?subject=ip%3D203.0.113.7%252F32%26device%3Dtv-7"
	if got := b.askWrongly(t, "vera", "GET", plain, nil); got.status != http.StatusBadRequest {
		t.Errorf("a plain value is taken: %d %s", got.status, got.body)
	}
	b.away = true
	got = b.ask(t, "adam", "GET", plain, nil)
	if got.status != http.StatusServiceUnavailable || strings.Contains(string(got.body), "internal") {
		t.Errorf("away: %d %s", got.status, got.body)
	}
}
