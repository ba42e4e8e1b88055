package dashboards

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// scene is a real Prometheus that was told what some processes exported in the hour before now, scraped every 15 seconds.
type scene struct {
	t       *testing.T
	address string
	now     time.Time
	rules   string // that are chosen
}

// told is a series of a scene: name{labels}, and its value after so many scrapes; false: there was none.
type told struct {
	series string
	value  func(n int) (float64, bool)
}

const (
	scrapeInterval = 15 * time.Second
	scrapes        = 240
)

func newScene(t *testing.T, all []told) *scene {
	t.Helper()
	promtool, program, dir := testbed.Program(t, "promtool"), testbed.Program(t, "prometheus"), t.TempDir()
	s := &scene{t: t, address: fmt.Sprintf("127.0.0.1:%d", testbed.FreePort(t)), now: time.Now().Truncate(scrapeInterval), rules: "(a|b)"}
	var text strings.Builder
	for _, one := range all {
		for n := range scrapes {
			if value, there := one.value(n); there {
				at := s.now.Add(-time.Duration(scrapes-1-n)*scrapeInterval - 3*time.Second) // steps lie between scrapes
				fmt.Fprintf(&text, "%s %s %d\n", one.series, strconv.FormatFloat(value, 'f', -1, 64), at.Unix())
			}
		}
	}
	text.WriteString("# EOF\n")
	for name, content := range map[string]string{"told": text.String(), "prometheus.yml": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	if out, err := exec.Command(promtool, "tsdb", "create-blocks-from", "openmetrics", filepath.Join(dir, "told"), data).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	running := testbed.Run(t, exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--log.level=warn",
		"--storage.tsdb.path="+data, "--web.listen-address="+s.address))
	testbed.Eventually(t, 20*time.Second, func() error {
		if err := running.Alive(); err != nil {
			t.Fatal(err)
		}
		found, err := s.ask("count(weir_build_info)", false)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("the blocks are not loaded")
		}
		return err
	})
	return s
}

// found is a series of an answer.
type found struct {
	Metric map[string]string
	Value  [2]any
	Values [][2]any
}

func number(t *testing.T, sample [2]any) float64 {
	t.Helper()
	text, _ := sample[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// expand puts in what Grafana does for the variables: every namespace, the scene's rules, the hour.
func (s *scene) expand(expr string) string {
	return strings.NewReplacer("$namespace", ".*", "$rule", s.rules, "$__rate_interval", "75s", "$__range", "1h", "$__interval_ms", "60000", "$__interval", "60s").Replace(expr)
}

// ask puts PromQL as it is, for now, or for each minute of the last half hour.
func (s *scene) ask(expr string, overTime bool) ([]found, error) {
	form := url.Values{"query": {s.expand(expr)}}
	kind := "query"
	if overTime {
		kind = "query_range"
		form.Set("start", strconv.FormatInt(s.now.Add(-30*time.Minute).Unix(), 10))
		form.Set("end", strconv.FormatInt(s.now.Unix(), 10))
		form.Set("step", "60")
	} else {
		form.Set("time", strconv.FormatInt(s.now.Unix(), 10))
	}
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.address+"/api/v1/"+kind+"?"+form.Encode(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	var page struct {
		Status, Error string
		Data          struct{ Result []found }
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, fmt.Errorf("%s: %w", body, err)
	}
	if page.Status != "success" {
		return nil, fmt.Errorf("%s\n%s", page.Error, form.Get("query"))
	}
	return page.Data.Result, nil
}

// labelValues are those that metrics have in a scene, for each process the same; of others there is one, x.
func labelValues() map[string][]string {
	return map[string][]string{
		"rule": {"a", "b"}, "mode": {"block", "shadow"}, "kind": {"hit"}, "phase": {"open", "closed"}, "decision": {"pass", "refuse", "would_refuse", "fail_open"},
		"action": {"written", "withheld"}, "reason": {"full", "max_lag"}, "stage": {"route", "detect", "enforce"}, "partition": {"0", "1"}, "le": {"0.1", "1", "+Inf"},
		"outcome": {"matched", "over"}, "protocol": {"forward_auth", "auth_request"}, "call": {"append", "fetch"}, "node": {"n1", "n2"},
	}
}

// everything is all that docs/metrics.md lists, of two processes that disagree about the rule a: its owner and its mode were changed, and run-1 has
// not heard. Counters rise at each scrape, gauges stay 1.
func everything(t *testing.T) []told {
	t.Helper()
	var all []told
	values := labelValues()
	constant := func(v float64) func(int) (float64, bool) { return func(int) (float64, bool) { return v, true } }
	rising := func(n int) (float64, bool) { return float64(n), true }
	for name, m := range exportedMetrics(t) {
		if strings.HasPrefix(name, "weir_rule_info") || strings.HasPrefix(name, "weir_rule_changed") {
			continue
		}
		parts := map[string][]string{name: m.labels}
		if m.kind == "histogram" {
			parts = map[string][]string{name + "_bucket": append(slices.Clone(m.labels), "le"), name + "_count": m.labels, name + "_sum": m.labels}
		}
		for part, labels := range parts {
			for _, instance := range []string{"run-1", "run-2"} {
				sets := []string{fmt.Sprintf("job=%q,instance=%q,namespace=%q,stream=%q", "weir", instance, "weir", "live")}
				for _, l := range labels {
					if l == "" || l == "stream" {
						continue
					}
					var wider []string
					options := values[l]
					if options == nil {
						options = []string{"x"}
					}
					for _, set := range sets {
						for _, v := range options {
							wider = append(wider, fmt.Sprintf("%s,%s=%q", set, l, v))
						}
					}
					sets = wider
				}
				for _, set := range sets {
					value := rising
					if m.kind == "gauge" {
						value = constant(1)
					}
					all = append(all, told{part + "{" + set + "}", value})
				}
			}
		}
	}
	for _, info := range []struct {
		instance, rule, owner, mode string
		changed                     float64
	}{
		{"run-1", "a", "web", "shadow", 1}, {"run-2", "a", "accounts", "block", 2}, {"run-1", "b", "web", "shadow", 1}, {"run-2", "b", "web", "shadow", 1},
	} {
		process := fmt.Sprintf("job=%q,instance=%q,namespace=%q,stream=%q,rule=%q", "weir", info.instance, "weir", "live", info.rule)
		all = append(all, told{fmt.Sprintf("weir_rule_info{%s,owner=%q,mode=%q,version=%q}", process, info.owner, info.mode, fmt.Sprint(info.changed)), constant(1)},
			told{"weir_rule_changed_timestamp_seconds{" + process + "}", constant(info.changed)})
	}
	for _, instance := range []string{"run-1", "run-2"} {
		process := fmt.Sprintf("{job=%q,instance=%q}", "weir", instance)
		all = append(all, told{"process_start_time_seconds" + process, constant(1)}, told{"process_cpu_seconds_total" + process, rising},
			told{"process_resident_memory_bytes" + process, constant(1)}, told{"go_goroutines" + process, constant(1)})
	}
	return all
}
