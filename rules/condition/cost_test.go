package condition

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// TestCostIsKnownBefore has conditions cost what they read, and never more than Weight and Units say.
func TestCostIsKnownBefore(t *testing.T) {
	t.Parallel()
	l := language(t)
	long := strings.Repeat("x", MaxText)
	short := func(r *traffic.Request) {}
	for _, tt := range []struct {
		expr        string
		change      func(*traffic.Request)
		least, most int64
	}{
		{`event.status == 401`, short, 2, 5},
		{`event.user_agent.matches("bot[0-9]+")`, short, 10, 40},
		{`event.user_agent.matches("bot[0-9]+")`, func(r *traffic.Request) { r.UserAgent = long }, 820, 860},
		{`event.user_agent.matches("bot[0-9]+")`, func(r *traffic.Request) { r.UserAgent = long + long }, 820, 860},
		{`event.user_agent.contains("a") || event.user_agent.contains("b")`,
			func(r *traffic.Request) { r.UserAgent = long }, 1640, 1660},
		{`event.path.contains("a") || event.user_agent.contains("b")`,
			func(r *traffic.Request) { r.Path = "/" + long }, 820, 840},
		{`event.headers["x-app"].startsWith("a")`, func(r *traffic.Request) {
			r.Headers = []traffic.Header{{Name: "X-App", Value: long}, {Name: "x-app", Value: "b"}}
		}, 820, 840},
		{`event.attrs.text == "a"`, func(r *traffic.Request) { r.Attrs = []byte(`{"text":"` + long + `"}`) }, 820, 840},
		{`"a" in event.attrs.list`, func(r *traffic.Request) { r.Attrs = []byte(`{"list":["` + long[:4000] + `"]}`) },
			400, 480},
		{`(event.status == 1 ? event.path : event.user_agent).contains("a")`,
			func(r *traffic.Request) { r.UserAgent = long }, 820, 900},
		{`(event.path + event.user_agent).size() > 3`, func(r *traffic.Request) { r.UserAgent = long }, 2460, 2540},
	} {
		c, err := l.Compile(tt.expr)
		if err != nil {
			t.Errorf("%s: %v", tt.expr, err)
			continue
		}
		e := event()
		r, id := *e.request, e.identity
		tt.change(&r)
		e.Reset(&r, id)
		got, weight := c.Cost(e), c.Weight()
		if got < tt.least || got > tt.most {
			t.Errorf("%s: costs %d, want %d to %d", tt.expr, got, tt.least, tt.most)
		}
		if most := weight.Steps + weight.Reads*e.Units(); got > most || got < weight.Steps {
			t.Errorf("%s: costs %d, which is not from %d to %d", tt.expr, got, weight.Steps, most)
		}
	}
}
