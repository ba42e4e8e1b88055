package boardtest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// scrapeEvery is short, so that a minute's load is seen in many samples.
const scrapeEvery = time.Second

// prometheus is one that runs.
type prometheus struct {
	t       *testing.T
	address string
}

// startPrometheus starts one that scrapes targets, by the role of each, and evaluates the committed rules at every scrape.
func startPrometheus(t *testing.T, targets map[string]string) *prometheus {
	t.Helper()
	program, dir := testbed.Program(t, "prometheus"), t.TempDir()
	rules, err := os.ReadFile(ruleFile)
	if err != nil {
		t.Fatal(err)
	}
	// As committed, but that no group takes its time.
	rules = regexp.MustCompile(`(?m)^    interval: .*\n`).ReplaceAll(rules, nil)
	write(t, filepath.Join(dir, "rules.yaml"), string(rules))
	var config strings.Builder
	fmt.Fprintf(&config, "global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}\nrule_files: [rules.yaml]\n"+
		"scrape_configs:\n  - job_name: weir\n    static_configs:\n", scrapeEvery)
	for role, address := range targets {
		fmt.Fprintf(&config, "      - {targets: [%q], labels: {role: %s}}\n", address, role)
	}
	write(t, filepath.Join(dir, "prometheus.yml"), config.String())
	p := &prometheus{t: t, address: fmt.Sprintf("127.0.0.1:%d", testbed.FreePort(t))}
	running := testbed.Run(t, exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--log.level=warn",
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.address))
	testbed.Eventually(t, 20*time.Second, func() error {
		if err := running.Alive(); err != nil {
			t.Fatal(err)
		}
		up, err := p.instant("up", time.Now())
		if err != nil || len(up) < len(targets) {
			return fmt.Errorf("%d of %d targets are scraped (%w)", len(up), len(targets), err)
		}
		return nil
	})
	return p
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// point is a sample of a series.
type point struct {
	at    time.Time
	value float64
}

// UnmarshalJSON reads a sample of the HTTP API: [seconds, "value"].
func (p *point) UnmarshalJSON(text []byte) error {
	var pair [2]any
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	seconds, isNumber := pair[0].(float64)
	value, isText := pair[1].(string)
	if !isNumber || !isText {
		return fmt.Errorf("%s is no sample", text)
	}
	p.at = time.UnixMilli(int64(math.Round(seconds * 1000)))
	var err error
	p.value, err = strconv.ParseFloat(value, 64)
	return err
}

// series is what a query answers: points of one set of labels.
type series struct {
	Metric map[string]string
	Value  point   // of an instant query
	Values []point // of a query over time, or of raw samples
}

func (s *series) points() []point {
	if s.Values != nil {
		return s.Values
	}
	return []point{s.Value}
}

func (p *prometheus) instant(promql string, at time.Time) ([]series, error) {
	return p.query("query", url.Values{"query": {promql}, "time": {stamp(at)}})
}

func (p *prometheus) overTime(promql string, s span) ([]series, error) {
	return p.query("query_range", url.Values{
		"query": {promql}, "start": {stamp(s.from)}, "end": {stamp(s.to)}, "step": {strconv.FormatFloat(s.interval().Seconds(), 'f', -1, 64)},
	})
}

func stamp(at time.Time) string { return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64) }

func (p *prometheus) query(kind string, form url.Values) ([]series, error) {
	var data struct {
		ResultType string
		Result     json.RawMessage
	}
	if err := p.get("/api/v1/"+kind, form, &data); err != nil {
		return nil, err
	}
	if data.ResultType == "scalar" {
		var one point
		err := json.Unmarshal(data.Result, &one)
		return []series{{Value: one}}, err
	}
	var found []series
	err := json.Unmarshal(data.Result, &found)
	return found, err
}

// labelValues are the values that a label has among the series that match; without a selector, among all.
func (p *prometheus) labelValues(label, selector string, s span) ([]string, error) {
	form := url.Values{"start": {stamp(s.from)}, "end": {stamp(s.to)}}
	if selector != "" {
		form.Set("match[]", selector)
	}
	var values []string
	err := p.get("/api/v1/label/"+label+"/values", form, &values)
	return values, err
}

// get asks the HTTP API.
func (p *prometheus) get(path string, form url.Values, data any) error {
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.address+path+"?"+form.Encode(), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	page := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal(body, &page); err != nil {
		return fmt.Errorf("%s: %w", body, err)
	}
	if page.Status != "success" {
		return fmt.Errorf("Prometheus says: %s", page.Error)
	}
	return nil
}

// says reports whether anything in an answer is a number.
func says(found []series) bool {
	for i := range found {
		for _, p := range found[i].points() {
			if !math.IsNaN(p.value) {
				return true
			}
		}
	}
	return false
}
