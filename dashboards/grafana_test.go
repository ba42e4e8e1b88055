package dashboards_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dashboards"
)

// grafana stands in for the server where it expands a query: the browser puts variables in, the data source its macros.
type grafana struct {
	from, to  time.Time
	interval  time.Duration
	variables map[string][]string
}

var variable = regexp.MustCompile(`\$\{(\w+)(?::(\w+))?\}|\$(\w+)`)

// interpolate replaces variables as browsers do. A name that is no variable stays: it may be a macro.
func (g *grafana) interpolate(t *testing.T, text string) string {
	t.Helper()
	return variable.ReplaceAllStringFunc(text, func(mention string) string {
		m := variable.FindStringSubmatch(mention)
		switch m[3] {
		case "__interval":
			return fmt.Sprintf("%ds", int(g.interval.Seconds()))
		case "__interval_ms":
			return fmt.Sprint(g.interval.Milliseconds())
		}
		if strings.HasPrefix(m[3], "__") {
			return mention
		}
		values, known := g.variables[m[1]+m[3]]
		if !known {
			t.Fatalf("no variable %s", mention)
		}
		quote := ""
		switch m[2] {
		case "sqlstring":
			quote = "'"
		case "doublequote":
			quote = `"`
		default:
			t.Fatalf("%s: SQL takes a variable quoted", mention)
		}
		quoted := make([]string, len(values))
		for i, v := range values {
			quoted[i] = quote + strings.NewReplacer("'", "''", `"`, `\"`).Replace(v) + quote // both formats write both so
		}
		return strings.Join(quoted, ",")
	})
}

// The data source takes what stands between the parentheses up to the first closing one, and splits it at commas.
var macro = regexp.MustCompile(`\$([_a-zA-Z0-9]+)\(([^)]*)\)`)

// expand makes the SQL that PostgreSQL is asked, as the documentation of Grafana's data source says.
func (g *grafana) expand(t *testing.T, text string) string {
	t.Helper()
	from, to := g.from.UTC().Format(time.RFC3339Nano), g.to.UTC().Format(time.RFC3339Nano)
	return macro.ReplaceAllStringFunc(g.interpolate(t, text), func(call string) string {
		m := macro.FindStringSubmatch(call)
		args := strings.Split(m[2], ",")
		for i := range args {
			args[i] = strings.TrimSpace(args[i])
		}
		switch m[1] {
		case "__timeFilter":
			return fmt.Sprintf("%s BETWEEN '%s' AND '%s'", args[0], from, to)
		case "__timeFrom":
			return "'" + from + "'"
		case "__timeTo":
			return "'" + to + "'"
		case "__timeGroupAlias":
			seconds := g.step(t, strings.Trim(args[1], "'"))
			return fmt.Sprintf(`floor(extract(epoch from %s)/%v)*%v AS "time"`, args[0], seconds, seconds)
		}
		t.Fatalf("%s is no macro that this test knows", call)
		return ""
	})
}

func (g *grafana) step(t *testing.T, text string) float64 {
	t.Helper()
	if text == "1d" {
		return 24 * 3600
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d.Seconds()
}

// sqlBoard is what Grafana finds of a board that is meant for PostgreSQL.
type sqlBoard struct {
	uid       string
	variables []named
	queries   []named
}

// named is a query by the title of its panel, or the name of its variable or annotation.
type named struct {
	name, text string
	columns    []string          // that the panel describes, or links take values from
	links      map[string]string // where the cells of a column lead
}

// overrides are the columns that a panel describes, and those from which their links take values.
type overrides []struct {
	Matcher    struct{ Options any }
	Properties []struct {
		ID    string
		Value json.RawMessage
	}
}

func (o overrides) links(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, one := range o {
		for _, p := range one.Properties {
			var links []struct{ URL string }
			if p.ID != "links" {
				continue
			}
			if err := json.Unmarshal(p.Value, &links); err != nil || len(links) != 1 {
				t.Fatalf("links of %v: %v, %v", one.Matcher.Options, links, err)
			}
			all[fmt.Sprint(one.Matcher.Options)] = links[0].URL
		}
	}
	return all
}

var linkedField = regexp.MustCompile(`__data\.fields\.(\w+)`)

func (o overrides) columns() []string {
	var all []string
	for _, one := range o {
		all = append(all, fmt.Sprint(one.Matcher.Options))
		for _, p := range one.Properties {
			for _, m := range linkedField.FindAllStringSubmatch(string(p.Value), -1) {
				all = append(all, m[1])
			}
		}
	}
	return all
}

// sqlBoards reads the boards' JSON.
func sqlBoards(t *testing.T) []sqlBoard {
	t.Helper()
	type target struct {
		RawSQL string `json:"rawSql"`
	}
	all, err := dashboards.All()
	if err != nil {
		t.Fatal(err)
	}
	var boards []sqlBoard
	for _, d := range all {
		var model struct {
			Panels []struct {
				Title, Type string
				Targets     []target
				FieldConfig struct{ Overrides overrides }
			}
			Templating struct {
				List []struct {
					Name, Type string
					Query      any
					Datasource struct{ Type string }
				}
			}
			Annotations struct {
				List []struct {
					Name   string
					Target target
				}
			}
		}
		if err := json.Unmarshal(d.JSON, &model); err != nil {
			t.Fatal(err)
		}
		b := sqlBoard{uid: d.UID}
		for _, p := range model.Panels {
			for _, query := range p.Targets {
				if query.RawSQL != "" {
					q := named{name: p.Title, text: query.RawSQL}
					if p.Type == "table" {
						q.columns, q.links = p.FieldConfig.Overrides.columns(), p.FieldConfig.Overrides.links(t)
					}
					b.queries = append(b.queries, q)
				}
			}
		}
		for _, a := range model.Annotations.List {
			if a.Target.RawSQL != "" {
				b.queries = append(b.queries, named{name: a.Name, text: a.Target.RawSQL})
			}
		}
		for _, v := range model.Templating.List {
			if text, ok := v.Query.(string); ok && v.Type == "query" && strings.Contains(v.Datasource.Type, "postgres") {
				b.variables = append(b.variables, named{name: v.Name, text: text})
			}
		}
		if len(b.queries) > 0 {
			boards = append(boards, b)
		}
	}
	return boards
}
