package boardtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	boardFiles = "../../dashboards/json/*.json"
	ruleFile   = "../../dashboards/alerts/rules.yaml"
)

// The data sources, as Grafana calls their types.
const (
	typePrometheus = "prometheus"
	typePostgres   = "grafana-postgresql-datasource"
)

// board is a dashboard as Grafana keeps it, as far as its queries go.
type board struct {
	UID, Title string
	Templating struct{ List []variable }
	Panels     []panel
	// Annotations have one target each.
	Annotations struct {
		List []struct {
			Name       string
			Datasource reference
			Target     target
		}
	}
}

type panel struct {
	Title      string
	Datasource reference
	Targets    []target
	Panels     []panel // of a row that is folded
}

type reference struct{ Type, UID string }

type target struct {
	RefID        string `json:"refId"`
	Datasource   reference
	Expr, RawSQL string
	LegendFormat string
	Format       string
	Instant      bool
}

// variable is one of the choices at the top of a board.
type variable struct {
	Name, Type string
	Query      any // words, or an object with them
	AllValue   string
	Multi      bool
	IncludeAll bool
	Datasource reference
	Current    struct{ Value any }
}

// text is what a variable asks, or with some types what it is.
func (v *variable) text() string {
	switch q := v.Query.(type) {
	case string:
		return q
	case map[string]any:
		text, _ := q["query"].(string)
		return text
	}
	return ""
}

// question is one query with the place where somebody would look for it.
type question struct {
	place  string // uid / panel / letter of the query
	source string // type of the data source
	text   string
	series bool // over time, rather than the latest value
	board  *board
}

func readBoard(text []byte) (*board, error) {
	var b board
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, err
	}
	if b.UID == "" || len(b.Panels) == 0 {
		return nil, fmt.Errorf("board %q of uid %q has no uid or no panel", b.Title, b.UID)
	}
	return &b, nil
}

// committedBoards are all that the repository has.
func committedBoards(t *testing.T) []*board {
	t.Helper()
	paths, err := filepath.Glob(boardFiles)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no board at %s (%v)", boardFiles, err)
	}
	var all []*board
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := readBoard(text)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, b)
	}
	return all
}

// all are its panels, those of folded rows among them.
func (b *board) all() (panels []panel) {
	for _, p := range b.Panels {
		panels = append(append(panels, p), p.Panels...)
	}
	return panels
}

// questions are all queries of a board.
func (b *board) questions() []question {
	var all []question
	for _, p := range b.all() {
		for _, q := range p.Targets {
			all = append(all, b.question(p.Title, p.Datasource, q))
		}
	}
	for _, a := range b.Annotations.List {
		if a.Target.Expr != "" || a.Target.RawSQL != "" { // Grafana's own has no query
			all = append(all, b.question("annotation "+a.Name, a.Datasource, a.Target))
		}
	}
	return all
}

func (b *board) question(title string, from reference, q target) question {
	if q.Datasource.Type != "" {
		from = q.Datasource
	}
	text := q.Expr
	if from.Type == typePostgres {
		text = q.RawSQL
	}
	return question{
		place: strings.Join([]string{b.UID, title, q.RefID}, " / "), source: from.Type, text: text, board: b,
		series: from.Type == typePostgres && q.Format == "time_series" || from.Type == typePrometheus && !q.Instant,
	}
}

// rule is a recording or an alerting rule of Prometheus.
type rule struct {
	Record, Alert, Expr string
	Labels              map[string]string // tell apart what has one name
}

func (r *rule) place() string {
	words := []string{"record", r.Record}
	if r.Alert != "" {
		words = []string{"alert", r.Alert}
	}
	for _, label := range slices.Sorted(maps.Keys(r.Labels)) {
		words = append(words, label+"="+r.Labels[label])
	}
	return strings.Join(words, " / ")
}

func committedRules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(ruleFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatalf("%s: %v", ruleFile, err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rule", ruleFile)
	}
	return all
}
