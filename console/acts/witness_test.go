package acts_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/audit"
)

// trail keeps entries, or refuses them.
type trail struct {
	all     []audit.Entry
	refuses error
}

func (t *trail) Add(_ context.Context, e audit.Entry) error {
	t.all = append(t.all, e)
	return t.refuses
}

func TestWhatAWitnessWritesDown(t *testing.T) {
	masker, err := access.NewMasker(access.Masking{Key: []byte(strings.Repeat("k", access.MaskKeyBytes)),
		Below: access.Admin, Fields: access.DefaultMaskedFields()})
	if err != nil {
		t.Fatal(err)
	}
	analyst := access.Actor{Name: "anna", Role: access.Analyst, Via: access.ViaOIDC}
	admin := access.Actor{Name: "ada", Role: access.Admin, Via: access.ViaToken}
	pseudonym := masker.Value(analyst, "user", "zoe")
	for _, c := range []struct {
		name, query, form      string
		act                    access.Act
		who                    access.Actor
		object, reason, detail string
	}{
		{"all", "", "", access.Export, admin, "history", "", "GET /explore.csv"},
		{"a question", "since=24h&by=source&rule=flood&cursor=abc&empty=", "", access.Export, admin, "history",
			"by source, rule flood, since 24h", "GET /explore.csv"},
		{"of an address", "source=ip%3D203.0.113.7", "", access.Export, admin, "history of ip=203.0.113.7", "",
			"GET /explore.csv"},
		{"of a subject", "source=ip%3D192.0.2.1%252F32%26device%3Dtv-1", "", access.Export, admin,
			"history of ip=192.0.2.1%2F32&device=tv-1", "", "GET /explore.csv"},
		{"of a user with a blank", "source=user%3Dzoe+quill", "", access.Export, admin, "history of user=zoe%20quill",
			"",
			"GET /explore.csv"},
		{"of a bare value", "source=zoe", "", access.Export, admin, "history", "", "GET /explore.csv"},
		{"by a pseudonym", "source=user%3D" + url.QueryEscape(pseudonym), "", access.Export, analyst,
			"history of user=" + pseudonym, "", "GET /explore.csv"},
		{"by a value that is not shown to him", "source=user%3Dzoe", "", access.Export, analyst, "history", "",
			"GET /explore.csv"},
		{"a view", "", "by=rule&source=ip%3D203.0.113.7", access.SaveView, admin, "view of ip=203.0.113.7", "by rule",
			"POST /explore.csv"},
		{"a view of everything", "", " ", access.SaveView, admin, "view", "", "POST /explore.csv"},
		{"a view, and an address that says something else", "by=rule&source=user%3Dzoe", " ", access.SaveView, admin,
			"view", "",
			"POST /explore.csv"},
		{"of a user with a line break", "source=user%3Da%0Ab", "", access.Export, admin, "history of user=a%EF%BF%BDb",
			"",
			"GET /explore.csv"},
		{"a long question", "rule=" + strings.Repeat("é", 400), "", access.Export, admin, "history",
			"rule " + strings.Repeat("é", 247) + "…", "GET /explore.csv"},
	} {
		kept := &trail{}
		w := &acts.Witness{Masking: acts.Masking{Masker: masker, Trail: kept}}
		r := httptest.NewRequest(http.MethodGet, "/explore.csv?"+c.query, nil)
		if c.form != "" {
			r = httptest.NewRequest(http.MethodPost, "/explore.csv?"+c.query, strings.NewReader(url.Values{
				"query": {strings.TrimSpace(c.form)}, "name": {"a name"}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		if err := w.Tell(r, c.who, c.act); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		want := audit.Entry{Actor: c.who.Name, Via: c.who.Via, Action: string(c.act), Object: c.object,
			Reason: c.reason,
			Detail: c.detail}
		if len(kept.all) != 1 || kept.all[0] != want {
			t.Errorf("%s: got %+v\nallowed: %+v", c.name, kept.all, want)
		}
		kept.refuses = errors.New("PostgreSQL is away")
		var unwritten *access.UnwrittenError
		if err := w.Tell(r, c.who, c.act); !errors.As(err, &unwritten) || !errors.Is(err, kept.refuses) ||
			strings.Contains(err.Error(), "PostgreSQL") {
			t.Errorf("%s with the trail away: got %v; allowed: that it cannot be written down", c.name, err)
		}
	}
}

// TestWhatCannotBeReadIsNotWrittenDown has a witness refuse a form that does not say what is done, and write nothing.
func TestWhatCannotBeReadIsNotWrittenDown(t *testing.T) {
	kept := &trail{}
	w := &acts.Witness{Masking: acts.Masking{Masker: &access.Masker{}, Trail: kept}}
	for _, body := range []string{"query=%zz", strings.Repeat("a", access.MaxFormBytes+1)} {
		r := httptest.NewRequest(http.MethodPost, "/explore/views", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		err := w.Tell(r, access.Actor{Name: "anna", Role: access.Analyst}, access.SaveView)
		if !errors.As(err, new(*access.FormError)) || len(kept.all) > 0 {
			t.Errorf("%.20s: got %v, %d entries; allowed: that the form cannot be read, and none", body, err,
				len(kept.all))
		}
	}
}
