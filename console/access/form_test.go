package access_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/access"
)

func TestAFormIsReadWholeOrNotAtAll(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct {
		name, kind, body string
		status           int // 0: it is read
	}{
		{"a form", form, "reason=x&confirm=yes", 0},
		{"with a charset", form + "; charset=utf-8", "reason=x", 0},
		{"nothing", "", "", 0},
		{"a part that is none", form, "reason=x&more=%zz", http.StatusBadRequest},
		{"too long", form, "reason=x&more=" + strings.Repeat("a", access.MaxFormBytes),
			http.StatusRequestEntityTooLarge},
		{"JSON", "application/json", `{"reason":"x"}`, http.StatusUnsupportedMediaType},
		{"text", "text/plain", "reason=x", http.StatusUnsupportedMediaType},
		{"files", "multipart/form-data; boundary=x", "--x--", http.StatusUnsupportedMediaType},
		{"a kind that is none", ";", "reason=x", http.StatusUnsupportedMediaType},
	} {
		r := httptest.NewRequest(http.MethodPost, "/release", strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		err := access.Form(httptest.NewRecorder(), r)
		var unread *access.FormError
		if got := errors.As(err, &unread); got != (c.status != 0) || got && unread.Status != c.status {
			t.Errorf("%s: got %v; allowed: status %d", c.name, err, c.status)
		}
		if err == nil && (access.Form(nil, r) != nil || c.body != "" && r.PostForm.Get("reason") != "x") {
			t.Errorf("%s: asked again it has %v; allowed: what was read", c.name, r.PostForm)
		}
	}
}
