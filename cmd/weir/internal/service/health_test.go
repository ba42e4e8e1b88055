package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
)

// A process that is ready and lacks something says both: it is sent requests, and whoever looks sees what is missing.
func TestReadyTellsWhatIsMissing(t *testing.T) {
	var broken error
	o := &Health{
		registry: NewRegistry("", "weir"),
		log:      slog.New(slog.DiscardHandler),
		probes:   []Probe{{"blocklist", func(context.Context) error { return broken }}},
		Notes:    []func() string{func() string { return "" }, func() string { return "5461 slots are missing" }},
	}
	ask := func() (int, string) {
		answer := httptest.NewRecorder()
		o.handler().ServeHTTP(answer, httptest.NewRequest("GET", "/readyz", nil))
		return answer.Code, answer.Body.String()
	}
	if code, body := ask(); code != 200 || body != "ok\n5461 slots are missing\n" {
		t.Errorf("answered %d %q", code, body)
	}
	broken = errors.New("10.1.2.3 is away")
	if code, body := ask(); code != 503 || body != "not ready: blocklist\n" {
		t.Errorf("answered %d %q", code, body)
	}
	broken = fmt.Errorf("10.1.2.3: %w", forAll("the wrong database"))
	if code, body := ask(); code != 503 || body != "not ready: blocklist\nblocklist: the wrong database\n" {
		t.Errorf("answered %d %q", code, body)
	}
}

// forAll is a reason that everybody may read.
type forAll string

func (f forAll) Error() string  { return "secret" }
func (f forAll) Public() string { return string(f) }
