package deploy

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

// What docs/gate.md tells an nginx is the file that the demo's nginx uses.
func TestDocumentedNginxIsTheOneThatRuns(t *testing.T) {
	doc := string(read(t, "docs/gate.md"))
	if !strings.Contains(doc, "```nginx\n"+string(read(t, "deploy/gateway/weir_check.conf"))+"```") {
		t.Error("docs/gate.md does not show deploy/gateway/weir_check.conf as it is")
	}
	demo := string(read(t, "deploy/gateway/nginx.conf"))
	way := regexp.MustCompile(`(?s)    server \{\n        listen 127\.0\.0\.1:9465;.*?\n    \}\n`).FindString(demo)
	if way == "" || !strings.Contains(doc, "  ```nginx\n"+strings.TrimPrefix(strings.ReplaceAll("\n"+way, "\n    ", "\n  "), "\n")+"  ```\n") {
		t.Errorf("docs/gate.md does not show the demo's way to a gate with a name as it is:\n%s", way)
	}
	for _, file := range []string{"weir_log.conf", "weir_check.conf"} {
		if !strings.Contains(demo, "include "+file+";") {
			t.Errorf("the demo's nginx does not use %s", file)
		}
	}
}

func TestPrometheusConfiguration(t *testing.T) {
	s := emptySite(t)
	s.mount("prometheus")
	out, err := exec.Command(testbed.Program(t, "promtool"), "check", "config", s.path("prometheus", "/etc/prometheus/prometheus.yml")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "rules found") {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// The demo's rule is one that weir takes, and its configuration names no field that weir does not know: the walk through
// docs/deploy.md shows both. Here: each container that Prometheus asks listens where it is asked.
func TestTargetsAreServices(t *testing.T) {
	c := readComposition(t)
	for _, found := range regexp.MustCompile(`"([a-z]+):(\d+)"`).FindAllStringSubmatch(string(read(t, "deploy/prometheus/prometheus.yml")), -1) {
		if name, port := found[1], found[2]; name != "localhost" && (c.Services[name] == nil || !strings.Contains(string(read(t, "deploy/weir/weir.yaml")), "0.0.0.0:"+port)) {
			t.Errorf("nothing listens on %s:%s", name, port)
		}
	}
}
