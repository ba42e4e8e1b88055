package deploy

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// Grafana is not started here: its files are read, by what its documents say of them, and what they name exists.

// datasources is a provisioning file of Grafana: grafana.com/docs/grafana/latest/administration/provisioning/#data-sources.
type datasources struct {
	APIVersion  int `yaml:"apiVersion"`
	Datasources []datasource
}

type datasource struct {
	Name, UID, Type, Access, URL, User string
	IsDefault                          bool `yaml:"isDefault"`
	Editable                           bool
	JSONData                           struct {
		// Of Prometheus.
		TimeInterval   string `yaml:"timeInterval"`
		HTTPMethod     string `yaml:"httpMethod"`
		ManageAlerts   bool   `yaml:"manageAlerts"`
		PrometheusType string `yaml:"prometheusType"`
		// Of PostgreSQL.
		Database        string
		SSLMode         string `yaml:"sslmode"`
		PostgresVersion int    `yaml:"postgresVersion"`
		MaxOpenConns    int    `yaml:"maxOpenConns"`
	} `yaml:"jsonData"`
	SecureJSONData struct{ Password string } `yaml:"secureJsonData"`
}

// providers is one too: grafana.com/docs/grafana/latest/administration/provisioning/#dashboards.
type providers struct {
	APIVersion int `yaml:"apiVersion"`
	Providers  []struct {
		Name, Folder, Type string
		FolderUID          string `yaml:"folderUid"`
		DisableDeletion    bool   `yaml:"disableDeletion"`
		AllowUIUpdates     bool   `yaml:"allowUiUpdates"`
		Options            struct{ Path string }
	}
}

const provisioning = "deploy/grafana/provisioning/"

// strictly reads a file in which nothing else may stand.
func strictly(t *testing.T, text []byte, into any) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

func readDatasource(t *testing.T, text []byte) datasource {
	t.Helper()
	var file datasources
	strictly(t, text, &file)
	if file.APIVersion != 1 || len(file.Datasources) != 1 {
		t.Fatalf("got %+v, want one data source", file)
	}
	d := file.Datasources[0]
	if d.Access != "proxy" || d.UID == "" || d.Editable {
		t.Errorf("data source %+v", d)
	}
	return d
}

func TestGrafanaFindsPrometheus(t *testing.T) {
	d := readDatasource(t, read(t, provisioning+"datasources/prometheus.yaml"))
	if d.Name != "Prometheus" || d.Type != "prometheus" || !d.IsDefault || !d.JSONData.ManageAlerts || d.JSONData.HTTPMethod != "POST" {
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
}

func TestGrafanaFindsPostgres(t *testing.T) {
	d := readDatasource(t, read(t, provisioning+"datasources/postgres.yaml"))
	if d.Name != "PostgreSQL" || d.Type != "grafana-postgresql-datasource" || d.IsDefault || d.User != "weir_read" || d.JSONData.Database != "weir" {
		t.Errorf("data source %+v", d)
	}
	version := regexp.MustCompile(`^postgres:(\d+)\.`).FindStringSubmatch(readComposition(t).Services["postgres"].Image)
	if version == nil || strconv.Itoa(d.JSONData.PostgresVersion) != version[1]+"00" {
		t.Errorf("Grafana takes PostgreSQL for version %d, docker-compose.yml has %v", d.JSONData.PostgresVersion, version)
	}
}

// Every board that is committed is where Grafana looks for boards, and asks data sources that it has.
func TestGrafanaFindsTheBoards(t *testing.T) {
	var file providers
	strictly(t, read(t, provisioning+"dashboards/weir.yaml"), &file)
	if file.APIVersion != 1 || len(file.Providers) != 1 {
		t.Fatalf("got %+v, want one provider", file)
	}
	p := file.Providers[0]
	if p.Type != "file" || p.Name == "" || p.Folder == "" || p.FolderUID == "" || p.AllowUIUpdates || !p.DisableDeletion {
		t.Errorf("provider %+v", p)
	}
	s := emptySite(t)
	s.mount("grafana")
	boards, err := filepath.Glob(filepath.Join(s.path("grafana", p.Options.Path), "*.json"))
	must(t, err)
	if len(boards) == 0 {
		t.Fatalf("no board is mounted at %s", p.Options.Path)
	}
	for _, path := range boards {
		text, err := os.ReadFile(path)
		must(t, err)
		var board struct {
			UID        string
			Templating struct {
				List []struct {
					Name, Type string
					Query      any
				}
			}
		}
		must(t, json.Unmarshal(text, &board))
		if board.UID+".json" != filepath.Base(path) {
			t.Errorf("%s has the uid %q", filepath.Base(path), board.UID)
		}
		for _, v := range board.Templating.List {
			if v.Type == "datasource" && !slices.Contains([]any{"prometheus", "grafana-postgresql-datasource"}, v.Query) {
				t.Errorf("%s: data source variable %s is of type %v, which Grafana is not provisioned with", board.UID, v.Name, v.Query)
			}
		}
	}
	settings := string(read(t, "deploy/grafana/grafana.ini"))
	home := regexp.MustCompile(`(?m)^default_home_dashboard_path = (.*)$`).FindStringSubmatch(settings)
	if home == nil || !slices.Contains(boards, s.path("grafana", home[1])) {
		t.Errorf("the first page is %v, there are %v", home, boards)
	}
	for line := range strings.Lines(settings) {
		if !regexp.MustCompile(`^(\s*|;.*|\[[a-z_.]+\]|[a-z_]+ = \S.*)\n$`).MatchString(line) {
			t.Errorf("grafana.ini: %q is no section, setting or comment", line)
		}
	}
}

// wantReader: PostgreSQL lets Grafana in, as its data source says, to read the views and no table.
func (s *site) wantReader() {
	s.t.Helper()
	text, err := os.ReadFile(s.path("grafana", "/etc/grafana/provisioning/datasources/postgres.yaml"))
	must(s.t, err)
	d := readDatasource(s.t, text)
	secret, inFile := strings.CutPrefix(d.SecureJSONData.Password, "$__file{")
	if !inFile {
		s.t.Fatalf("the password is %q, want that of a file", d.SecureJSONData.Password)
	}
	password, err := os.ReadFile(s.path("grafana", strings.TrimSuffix(secret, "}")))
	must(s.t, err)
	ask := func(sql string) *exec.Cmd {
		c := exec.Command(filepath.Join(s.programs.postgres, "psql"), "--no-psqlrc", "-At", "-c", sql,
			"host="+strings.Split(d.URL, ":")[0]+" port="+afterColon(d.URL)+" user="+d.User+" dbname="+d.JSONData.Database+" sslmode="+d.JSONData.SSLMode)
		c.Env = append(os.Environ(), "PGPASSWORD="+strings.TrimSpace(string(password)))
		return c
	}
	views := strings.Fields(s.run(ask("SELECT schemaname || '.' || viewname FROM pg_views WHERE schemaname = 'weir'")))
	if len(views) == 0 {
		s.t.Fatal("no view is there")
	}
	for _, view := range views {
		if !strings.HasSuffix(view, "_all") { // tables joined for other views: not documented, and not given
			s.run(ask("SELECT count(*) FROM " + view))
		}
	}
	if got := strings.TrimSpace(s.run(ask("SELECT count(*) > 0 FROM weir.hits_v"))); got != "t" {
		s.t.Errorf("there are hits: %s", got)
	}
	for _, forbidden := range []string{"SELECT count(*) FROM weir.hits", "CREATE TABLE mine (n int)"} {
		if out, err := ask(forbidden).CombinedOutput(); err == nil {
			s.t.Errorf("%s: allowed, with %s", forbidden, out)
		}
	}
}

// wantRules: Prometheus evaluates every alert and recording rule without an error.
func (s *site) wantRules() {
	s.t.Helper()
	page, err := get(s.t.Context(), "http://"+s.address("prometheus", "9090")+"/api/v1/rules")
	must(s.t, err)
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	must(s.t, json.Unmarshal([]byte(page), &answer))
	found := 0
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			found++
			if r.Health == "err" || r.LastError != "" {
				s.t.Errorf("rule %s: %s", r.Name, r.LastError)
			}
		}
	}
	if found == 0 {
		s.t.Error("Prometheus has no rule")
	}
}
