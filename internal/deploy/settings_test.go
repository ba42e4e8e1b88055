package deploy

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

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
	config := filepath.Join(repository, "deploy/prometheus/prometheus.yml")
	out, err := exec.Command(testbed.Program(t, "promtool"), "check", "config", config).CombinedOutput()
	if err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// datasources is a provisioning file of Grafana: grafana.com/docs/grafana/latest/administration/provisioning/#data-sources.
type datasources struct {
	APIVersion  int `yaml:"apiVersion"`
	Datasources []struct {
		Name, UID, Type, Access, URL string
		IsDefault                    bool `yaml:"isDefault"`
		Editable                     bool
		JSONData                     struct {
			TimeInterval string `yaml:"timeInterval"`
		} `yaml:"jsonData"`
	}
}

// Grafana is not started here: its files are read, and what they name exists.
func TestGrafanaFindsPrometheus(t *testing.T) {
	var provisioned datasources
	decoder := yaml.NewDecoder(bytes.NewReader(read(t, "deploy/grafana/provisioning/datasources/prometheus.yaml")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&provisioned); err != nil {
		t.Fatal(err)
	}
	if provisioned.APIVersion != 1 || len(provisioned.Datasources) != 1 {
		t.Fatalf("got %+v, want one data source", provisioned)
	}
	d := provisioned.Datasources[0]
	if d.Type != "prometheus" || d.Access != "proxy" || !d.IsDefault || d.UID == "" || d.Name == "" {
		t.Errorf("data source %+v", d)
	}
	var scraped struct {
		Global struct {
			Interval string `yaml:"scrape_interval"`
		}
	}
	must(t, yaml.Unmarshal(read(t, "deploy/prometheus/prometheus.yml"), &scraped))
	if _, err := time.ParseDuration(d.JSONData.TimeInterval); err != nil || d.JSONData.TimeInterval != scraped.Global.Interval {
		t.Errorf("Grafana takes Prometheus to scrape every %q, it does every %q", d.JSONData.TimeInterval, scraped.Global.Interval)
	}
	// It is reached by the service's name and the port that its health check asks.
	check := readComposition(t).Services["prometheus"].HealthCheck.Test
	port := regexp.MustCompile(`:(\d+)/`).FindStringSubmatch(check[len(check)-1])[1]
	if d.URL != "http://prometheus:"+port {
		t.Errorf("the data source is %s, Prometheus listens on port %s", d.URL, port)
	}
	for line := range strings.Lines(string(read(t, "deploy/grafana/grafana.ini"))) {
		if !regexp.MustCompile(`^(\s*|;.*|\[[a-z_.]+\]|[a-z_]+ = \S.*)\n$`).MatchString(line) {
			t.Errorf("grafana.ini: %q is no section, setting or comment", line)
		}
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
