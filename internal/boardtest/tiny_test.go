package boardtest

import (
	"strings"
	"testing"
	"time"
)

const tiny = `{
  "uid": "tiny", "title": "Tiny",
  "templating": {"list": [
    {"name": "prometheus", "type": "datasource", "query": "prometheus"},
    {"name": "rule", "type": "query", "query": {"query": "label_values(weir_rule_info, rule)"}, "multi": true, "includeAll": true}
  ]},
  "annotations": {"list": [{"name": "changes", "datasource": {"type": "grafana-postgresql-datasource"}, "target": {"refId": "A", "rawSql": "SELECT 1"}}]},
  "panels": [
    {"type": "row", "title": "Folded", "panels": [
      {"title": "Hits", "targets": [{"refId": "A", "datasource": {"type": "prometheus"}, "expr": "rate(hits[$__rate_interval])"},
                                    {"refId": "B", "datasource": {"type": "prometheus"}, "expr": "hits", "instant": true}]}
    ]},
    {"title": "Sources", "datasource": {"type": "grafana-postgresql-datasource"}, "targets": [{"refId": "A", "rawSql": "SELECT 2", "format": "table"}]}
  ]
}`

func TestQuestionsOfABoard(t *testing.T) {
	b, err := readBoard([]byte(tiny))
	if err != nil {
		t.Fatal(err)
	}
	want := []question{
		{place: "tiny / Hits / A", source: typePrometheus, text: "rate(hits[$__rate_interval])", series: true},
		{place: "tiny / Hits / B", source: typePrometheus, text: "hits"},
		{place: "tiny / Sources / A", source: typePostgres, text: "SELECT 2"},
		{place: "tiny / annotation changes / A", source: typePostgres, text: "SELECT 1"},
	}
	got := b.questions()
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i := range want {
		want[i].board = b
		if got[i] != want[i] {
			t.Errorf("got %+v, want %+v", got[i], want[i])
		}
	}
	if got := b.Templating.List[1].text(); got != "label_values(weir_rule_info, rule)" {
		t.Errorf("the variable asks %q", got)
	}
}

// Variables and macros become what Grafana's documents, and its sources, say.
func TestVariablesAndMacros(t *testing.T) {
	from := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	c := &chosen{
		span: span{from: from, to: from.Add(90 * time.Second), scrape: 5 * time.Second},
		values: map[string]choice{
			"rule": {values: []string{"a.b", "c"}, listed: true}, "one": {values: []string{"a.b"}, listed: true},
			"all": {values: []string{"x", "y"}, all: ".*", listed: true}, "text": {values: []string{"it's"}},
		},
	}
	for _, tc := range []struct{ source, text, want string }{
		{typePrometheus, `hits{rule=~"$rule"}`, `hits{rule=~"(a\\.b|c)"}`},
		{typePrometheus, `hits{rule=~"${one}"}`, `hits{rule=~"a\\.b"}`},
		{typePrometheus, `hits{rule=~"[[all]]"}`, `hits{rule=~".*"}`},
		{typePrometheus, `rate(hits[$__rate_interval])`, `rate(hits[20s])`},
		{typePrometheus, `increase(hits[$__range])`, `increase(hits[90s])`},
		{typePrometheus, `increase(hits[$__range:$__interval])`, `increase(hits[90s:5s])`},
		{typePostgres, `rule IN ($rule)`, `rule IN ('a.b','c')`},
		{typePostgres, `rule IN (${rule:sqlstring}) AND source = '$text'`, `rule IN ('a.b','c') AND source = 'it''s'`},
		{typePostgres, `${text:doublequote}.hits_v`, `"it's".hits_v`},
		{typePostgres, `$__timeFilter(at)`, `at BETWEEN '2026-11-22T12:00:00Z' AND '2026-11-22T12:01:30Z'`},
		{typePostgres, `$__timeGroupAlias(at, $__interval)`, `floor(extract(epoch from at)/5)*5 AS "time"`},
		{typePostgres, `$__timeGroupAlias(at, '1d')`, `floor(extract(epoch from at)/86400)*86400 AS "time"`},
		{typePostgres, `at > $__timeFrom()`, `at > '2026-11-22T12:00:00Z'`},
	} {
		got, err := c.expand(tc.text, tc.source)
		if err == nil && tc.source == typePostgres {
			got, err = c.span.expandSQL(got)
		}
		if err != nil || got != tc.want {
			t.Errorf("%s becomes %s (%v), want %s", tc.text, got, err, tc.want)
		}
	}
	for _, wrong := range []string{"$nobody", "${rule:unheardof}", "$__timeWhen(at)", "$__timeGroupAlias(at)", "$__timeFilter()", "$__unheard"} {
		got, err := c.expand(wrong, typePostgres)
		if err == nil {
			got, err = c.span.expandSQL(got)
		}
		if err == nil {
			t.Errorf("%s becomes %s, want an error", wrong, got)
		}
	}
}

func TestUnboundedAlertsAnswer(t *testing.T) {
	for alert, want := range map[string]string{
		`a > 0.5`:                         `a > bool 0.5`,
		`sum(a) / sum(b) >= on(x) c`:      `sum(a) / sum(b) >= bool on(x) c`,
		`a{b!="c",d=~"e"} == 1 unless f`:  `a{b!="c",d=~"e"} == bool 1 and f`,
		`absent(up{job="weir"})`:          `count(up{job="weir"})`,
		`a[1w] offset 1h and b offset 1d`: `a[1w] and b`,
	} {
		if got := unbounded(alert); strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("%s becomes %s, want %s", alert, got, want)
		}
	}
}
