package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	sdkheatmap "github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	sdkstat "github.com/grafana/grafana-foundation-sdk/go/stat"
	sdktable "github.com/grafana/grafana-foundation-sdk/go/table"
	sdktimeseries "github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

const update = "WEIR_TEST_UPDATE=1 go test ./dashboards -run TestCommittedBoards"

func TestCommittedBoards(t *testing.T) {
	var names []string
	for _, d := range all(t) {
		file := filepath.Join("json", d.UID+".json")
		names = append(names, file)
		if os.Getenv("WEIR_TEST_UPDATE") != "" {
			if err := os.WriteFile(file, d.JSON, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		committed, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v (%s writes it)", err, update)
		}
		if string(committed) != string(d.JSON) {
			t.Errorf("%s is not what the Go says (%s)", file, update)
		}
	}
	found, err := filepath.Glob("json/*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	if !slices.Equal(found, names) {
		t.Errorf("json has %v, and there are the boards %v", found, names)
	}
}

// Grafana drops members that it does not know without a word; the SDK's strict decoding names them.
func TestGrafanaKnowsEveryMember(t *testing.T) {
	for _, d := range all(t) {
		for _, problem := range unknown(d.JSON) {
			t.Errorf("%s: %v", d.UID, problem)
		}
		if err := decoded(t, d).Validate(); err != nil {
			t.Errorf("%s: %v", d.UID, err)
		}
		for _, member := range []string{`"unit":`, `"legendFormat":`, `"gridPos":`, `"lineWidth":`} {
			if member == `"legendFormat":` && !strings.Contains(string(d.JSON), member) {
				continue // the board asks history alone
			}
			odd := strings.Replace(string(d.JSON), member, `"x`+member[1:], 1)
			if odd == string(d.JSON) || len(unknown([]byte(odd))) == 0 {
				t.Errorf("%s: that Grafana does not know a member in place of %s goes unnoticed", d.UID, member)
			}
		}
	}
}

// tellSDK tells the SDK of the kinds of panels and queries that the boards have; of others it decodes nothing but their names.
var tellSDK = sync.OnceFunc(func() {
	sdk := cog.NewRuntime()
	for _, config := range []variants.PanelcfgConfig{sdkheatmap.VariantConfig(), sdkstat.VariantConfig(), sdktable.VariantConfig(), sdktimeseries.VariantConfig()} {
		sdk.RegisterPanelcfgVariant(config)
	}
	sdk.RegisterDataqueryVariant(prometheus.VariantConfig())
	sdk.RegisterDataqueryVariant(variants.DataqueryConfig{Identifier: typePostgres, DataqueryUnmarshaler: strictSQL, StrictDataqueryUnmarshaler: strictSQL})
})

// unknown decodes strictly, and the fields' configuration apart, which the SDK leaves out there. The SDK's errors are never nil:
// without problems they are empty lists.
func unknown(board []byte) cog.BuildErrors {
	var m model
	problems := cog.MakeBuildErrors("board", m.UnmarshalJSONStrict(board))
	var raw struct {
		Panels []struct {
			FieldConfig json.RawMessage `json:"fieldConfig"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(board, &raw); err != nil {
		return cog.MakeBuildErrors("board", err)
	}
	for i, p := range raw.Panels {
		if p.FieldConfig != nil {
			var fields dashboard.FieldConfigSource
			problems = append(problems, cog.MakeBuildErrors(fmt.Sprintf("panels[%d].fieldConfig", i), fields.UnmarshalJSONStrict(p.FieldConfig))...)
		}
	}
	return problems
}

func strictSQL(raw []byte) (variants.Dataquery, error) {
	var q sqlQuery
	in := json.NewDecoder(strings.NewReader(string(raw)))
	in.DisallowUnknownFields()
	err := in.Decode(&q)
	return q, err
}

// On a screen of 1280 pixels a column has 50; narrower ones than 768 show one panel below the other. A letter of a title has about 7, and
// 30 are the margins.
const (
	columnPixels = 50
	letterPixels = 7
	titleMargins = 30
)

// least is how wide and how high a kind of panel must be to be read there.
var least = map[string]dashboard.GridPos{
	"stat": {W: 4, H: 4}, "timeseries": {W: 6, H: 7}, "heatmap": {W: 8, H: 7}, "table": {W: 8, H: 6},
}

func TestPanelsFillTheGrid(t *testing.T) {
	for _, d := range all(t) {
		cells := map[[2]uint32]string{}
		var bottom uint32
		ids := map[uint32]bool{}
		place := func(title string, id uint32, at dashboard.GridPos) {
			if ids[id] || id == 0 {
				t.Errorf("%s: %s has the id %d, which is taken", d.UID, title, id)
			}
			ids[id] = true
			if at.X+at.W > columns {
				t.Errorf("%s: %s ends in column %d", d.UID, title, at.X+at.W)
			}
			for x := at.X; x < at.X+at.W; x++ {
				for y := at.Y; y < at.Y+at.H; y++ {
					if other := cells[[2]uint32{x, y}]; other != "" {
						t.Fatalf("%s: %s lies over %s", d.UID, title, other)
					}
					cells[[2]uint32{x, y}] = title
				}
			}
			bottom = max(bottom, at.Y+at.H)
		}
		for _, p := range decoded(t, d).Panels {
			if p.RowPanel != nil {
				place(*p.RowPanel.Title, p.RowPanel.Id, *p.RowPanel.GridPos)
				continue
			}
			place(*p.Panel.Title, *p.Panel.Id, *p.Panel.GridPos)
			if small := least[p.Panel.Type]; p.Panel.GridPos.W < small.W || p.Panel.GridPos.H < small.H || small.W == 0 {
				t.Errorf("%s: %s has %d x %d cells; a %s needs %d x %d", d.UID, *p.Panel.Title, p.Panel.GridPos.W, p.Panel.GridPos.H, p.Panel.Type, small.W, small.H)
			}
			if wide := letterPixels*len(*p.Panel.Title) + titleMargins; wide > int(p.Panel.GridPos.W)*columnPixels {
				t.Errorf("%s: the title of %s does not fit into %d columns", d.UID, *p.Panel.Title, p.Panel.GridPos.W)
			}
		}
		if len(cells) != int(bottom*columns) {
			t.Errorf("%s: %d of %d cells are empty", d.UID, int(bottom*columns)-len(cells), bottom*columns)
		}
	}
}

func TestEachPanelSaysWhatItShows(t *testing.T) {
	for _, d := range all(t) {
		model := decoded(t, d)
		if *model.Description == "" || !slices.Contains(model.Tags, Tag) {
			t.Errorf("%s: a board has a description and the tag %s", d.UID, Tag)
		}
		titles := map[string]bool{}
		for _, p := range model.Panels {
			if p.Panel == nil {
				continue
			}
			title := *p.Panel.Title
			if titles[title] {
				t.Errorf("%s: two panels are called %s", d.UID, title)
			}
			titles[title] = true
			if about := *p.Panel.Description; len(about) < 20 || !strings.HasSuffix(about, ".") {
				t.Errorf("%s: the description of %s is no sentence: %q", d.UID, title, about)
			}
			if *p.Panel.FieldConfig.Defaults.Unit == "" {
				t.Errorf("%s: %s has no unit", d.UID, title)
			}
		}
	}
}

// A rule in a legend leads to the rule, with what the board shows it by.
func TestRulesInLegendsAreLinks(t *testing.T) {
	for _, d := range all(t) {
		for _, p := range decoded(t, d).Panels {
			if p.Panel == nil || d.UID == uidRule {
				continue
			}
			for _, target := range p.Panel.Targets {
				q, ok := target.(*prometheus.Dataquery)
				if ok && strings.Contains(*q.LegendFormat, "{{rule}}") && len(p.Panel.FieldConfig.Defaults.Links) != 1 {
					t.Errorf("%s: the rules of %s are no links", d.UID, *p.Panel.Title)
				}
			}
		}
	}
}

// A variable that does not exist stays in the query as it is written, and finds nothing.
func TestVariablesExistAndAreUsed(t *testing.T) {
	mention := regexp.MustCompile(`\$\{?([a-z][a-z_]*)`)
	for _, d := range all(t) {
		model := decoded(t, d)
		exists := map[string]bool{}
		for _, v := range model.Templating.List {
			exists[v.Name] = true
			if v.Description == nil || *v.Description == "" || v.Label == nil || *v.Label == "" {
				t.Errorf("%s: the variable %s has no label or no description", d.UID, v.Name)
			}
		}
		used := map[string]bool{}
		for _, m := range mention.FindAllStringSubmatch(string(d.JSON), -1) {
			used[m[1]] = true
			if !exists[m[1]] {
				t.Errorf("%s: $%s is no variable of the board", d.UID, m[1])
			}
		}
		for name := range exists {
			if !used[name] {
				t.Errorf("%s: nothing uses the variable %s", d.UID, name)
			}
		}
	}
}

func TestLinksLeadToBoards(t *testing.T) {
	link := regexp.MustCompile(`"/d/([a-z-]+)\?([^"]*)"`)
	var uids []string
	for _, d := range all(t) {
		uids = append(uids, d.UID)
	}
	for _, d := range all(t) {
		for _, m := range link.FindAllStringSubmatch(string(d.JSON), -1) {
			at := slices.Index(uids, m[1])
			if at < 0 {
				t.Errorf("%s: a link leads to %s, which is no board", d.UID, m[1])
				continue
			}
			// It leads to the same installation, by the same sources.
			for _, name := range []string{variablePrometheus, variablePostgres, variableNamespace} {
				if has(t, d, name) && has(t, all(t)[at], name) && !strings.Contains(m[2], "${"+name+":queryparam}") {
					t.Errorf("%s: the link %s leaves the variable %s behind", d.UID, m[0], name)
				}
			}
		}
	}
}

// has reports whether a board has a variable.
func has(t *testing.T, d Dashboard, variable string) bool {
	t.Helper()
	return slices.ContainsFunc(decoded(t, d).Templating.List, func(v dashboard.VariableModel) bool { return v.Name == variable })
}

func all(t *testing.T) []Dashboard {
	t.Helper()
	tellSDK()
	found, err := All()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func decoded(t *testing.T, d Dashboard) model {
	t.Helper()
	var m model
	if err := json.Unmarshal(d.JSON, &m); err != nil {
		t.Fatal(err)
	}
	return m
}
