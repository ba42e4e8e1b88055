package pages

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/access"
)

// Each route that takes history away, or keeps a view, is written down once; with the trail away nothing is told or
// done. A route that is added is among them by its act.
func TestFilesAndViewsAreWrittenDown(t *testing.T) {
	seen := 0
	for _, route := range newPages(t, newScene().options()).Routes() {
		if !access.Witnessed(route.Act) {
			continue
		}
		seen++
		for _, refuses := range []error{nil, &access.UnwrittenError{Act: route.Act}} {
			s := newScene()
			s.witness.refuses = refuses
			p := newPages(t, s.options())
			var status int
			var body string
			if route.Method == http.MethodGet {
				status, body, _ = get(t, p, having(access.Analyst), route.Pattern+"?by=episode")
			} else {
				status, body, _ = post(t, p, having(access.Analyst), route.Pattern, url.Values{"name": {"mine"},
					"query": {"by=rule"}})
			}
			if len(s.witness.told) != 1 || s.witness.told[0] != route.Method+" "+route.Pattern+" "+string(route.Act) {
				t.Errorf("%s %s: written down %q; allowed: once", route.Method, route.Pattern, s.witness.told)
			}
			if refuses == nil {
				if status == http.StatusServiceUnavailable {
					t.Errorf("%s %s: status %d: %s", route.Method, route.Pattern, status, body)
				}
				continue
			}
			if status != http.StatusServiceUnavailable || len(s.views.all) > 0 ||
				strings.Contains(body, "203.0.113.") ||
				!strings.Contains(body, "it cannot be written down just now who asks") {
				t.Errorf("%s %s with the trail away: got %d, views %v, %s", route.Method, route.Pattern, status,
					s.views.all, body)
			}
		}
	}
	if seen < 4 {
		t.Errorf("got %d routes; allowed: those of files and of views", seen)
	}
	// Who may not is not written down.
	s := newScene()
	if status, _, _ := get(t, newPages(t, s.options()), having(access.Viewer), "/explore.csv"); status != 403 ||
		len(s.witness.told) > 0 {
		t.Errorf("a viewer: got %d, written down %q; allowed: 403, nothing", status, s.witness.told)
	}
}

func having(role access.Role) access.Visit {
	return access.Visit{Actor: access.Actor{Name: "anna", Role: role, Via: access.ViaOIDC}, CSRF: "token"}
}
