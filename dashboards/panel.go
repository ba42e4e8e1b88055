package dashboards

import (
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// panel is one picture. Its methods give it more than its kind's constructor takes; each returns a changed copy.
type panel struct {
	kind               kind
	title, description string // the description says what the numbers mean, and what to do about them
	unit               unit
	queries            []query

	width      uint32 // in columns; 0: an equal share of the line
	stack      bool
	bars       bool
	log        bool
	steps      []step
	limits     *[2]float64
	empty      string
	paints     []paint
	links      []link
	names      []cellText
	columns    []column
	hidden     []string
	sortColumn string
}

// kind is how a panel draws.
type kind int

const (
	kindTimeseries kind = iota + 1
	kindStat
	kindTable
	kindHeatmap
)

// timeseries draws lines over time.
func timeseries(title, description string, u unit, queries ...query) panel {
	return panel{kind: kindTimeseries, title: title, description: description, unit: u, queries: queries}
}

// stat writes the latest value large.
func stat(title, description string, u unit, queries ...query) panel {
	return panel{kind: kindStat, title: title, description: description, unit: u, queries: queries}
}

// table lists. Of Prometheus each query makes a column named by its legend, beside those of the labels; u is the unit of
// columns that have none of their own.
func table(title, description string, u unit, queries ...query) panel {
	return panel{kind: kindTable, title: title, description: description, unit: u, queries: queries}
}

// heatmap draws how a histogram changes; the query sums increases by le.
func heatmap(title, description string, u unit, queries ...query) panel {
	return panel{kind: kindHeatmap, title: title, description: description, unit: u, queries: queries}
}

// step is a value from which on a panel has a colour. Below the first it is good.
type step struct {
	from   float64
	colour colour
}

// always is the colour below all other steps, where low is bad.
func always(c colour) step { return step{math.Inf(-1), c} }

// link leads from a value to where more is known.
type link struct{ title, url string }

// cellText shows words in place of a number.
type cellText struct {
	value  string
	text   string
	colour colour
}

// column is one of a table's with properties of its own.
type column struct {
	name    string
	unit    unit
	width   uint32 // pixels; 0: as wide as there is room
	link    *link
	wrapped bool
	tinted  bool // words have the colours that the panel names
}

// wide gives the panel a width of its own, in columns of 24.
func (p panel) wide(w uint32) panel { p.width = w; return p }

// stacked draws the series on top of each other, where their sum means something.
func (p panel) stacked() panel { p.stack = true; return p }

// asBars draws a bar for each point, where a point is a span of time such as a day.
func (p panel) asBars() panel { p.bars = true; return p }

// logarithmic draws a scale on which small and large values are both seen.
func (p panel) logarithmic() panel { p.log = true; return p }

// thresholds colours values, and draws the bounds into a timeseries.
func (p panel) thresholds(s ...step) panel { p.steps = s; return p }

// within fixes the scale.
func (p panel) within(low, high float64) panel { p.limits = &[2]float64{low, high}; return p }

// ifEmpty says what no answer means; without it Grafana writes No data.
func (p panel) ifEmpty(text string) panel { p.empty = text; return p }

// painted gives series colours by their names.
func (p panel) painted(paints []paint) panel {
	p.paints = append(slices.Clone(p.paints), paints...)
	return p
}

// linkedToRule leads from a series by rule to the rule's own board; keep are variables of this one that go along with installation and
// Prometheus.
func (p panel) linkedToRule(keep ...string) panel {
	p.links = []link{{"Rule detail", toBoard(uidRule, map[string]string{variableRule: "${__field.labels.rule}"}, append([]string{variablePrometheus, variableNamespace}, keep...)...)}}
	return p
}

// named shows a text in place of a value.
func (p panel) named(value, text string, c colour) panel {
	p.names = append(slices.Clone(p.names), cellText{value, text, c})
	return p
}

// with describes a column of a table.
func (p panel) with(columns ...column) panel {
	p.columns = append(slices.Clone(p.columns), columns...)
	return p
}

// without leaves columns of a table out that links still can use.
func (p panel) without(columns ...string) panel {
	p.hidden = append(slices.Clone(p.hidden), columns...)
	return p
}

// largestFirst sorts a table by a column. SQL sorts itself.
func (p panel) largestFirst(column string) panel { p.sortColumn = column; return p }

func (p *panel) build() (dashboard.Panel, error) {
	if p.title == "" || p.description == "" || p.unit == "" || len(p.queries) == 0 {
		return dashboard.Panel{}, errors.New("a panel has a title, a description, a unit and a query")
	}
	if p.kind == kindTable && p.empty != "" {
		return dashboard.Panel{}, errors.New("a table would say what no answer means in every empty cell")
	}
	built, form, err := p.draw()
	if err != nil {
		return dashboard.Panel{}, err
	}
	built.Title, built.Description = &p.title, &p.description
	built.RepeatDirection, built.Transparent = nil, nil
	for i := range p.queries {
		built.Targets = append(built.Targets, p.queries[i].target(refID(i), form))
	}
	source := sourceRef(p.queries[0].source)
	built.Datasource = &source
	if built.FieldConfig == nil {
		built.FieldConfig = dashboard.NewFieldConfigSource()
	}
	p.describeFields(&built.FieldConfig.Defaults)
	built.FieldConfig.Overrides = p.overrides()
	built.Transformations = p.transformations()
	return built, nil
}

func refID(i int) string { return string(rune('A' + i)) }

// describeFields says how the values are written.
func (p *panel) describeFields(f *dashboard.FieldConfig) {
	f.Unit = cog.ToPtr(string(p.unit))
	if p.limits != nil {
		f.Min, f.Max = &p.limits[0], &p.limits[1]
	}
	if p.empty != "" {
		f.NoValue = &p.empty
	}
	f.Thresholds = p.thresholdsConfig()
	f.Color = &dashboard.FieldColor{Mode: p.colouring()}
	for _, l := range p.links {
		f.Links = append(f.Links, l.model())
	}
	if len(p.names) == 0 {
		return
	}
	mapping := dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: map[string]dashboard.ValueMappingResult{}}
	for i, n := range p.names {
		mapping.Options[n.value] = dashboard.ValueMappingResult{Text: cog.ToPtr(n.text), Color: cog.ToPtr(string(n.colour)), Index: cog.ToPtr(int32(i))}
	}
	f.Mappings = []dashboard.ValueMapping{{ValueMap: &mapping}}
}

func (p *panel) thresholdsConfig() *dashboard.ThresholdsConfig {
	steps, base := p.steps, colourGood
	switch {
	case len(steps) == 0:
		base = colourNeutral
	case math.IsInf(steps[0].from, -1):
		base, steps = steps[0].colour, steps[1:]
	}
	config := &dashboard.ThresholdsConfig{Mode: dashboard.ThresholdsModeAbsolute, Steps: []dashboard.Threshold{{Color: string(base)}}}
	for _, s := range steps {
		config.Steps = append(config.Steps, dashboard.Threshold{Value: cog.ToPtr(s.from), Color: string(s.colour)})
	}
	return config
}

// colouring: lines differ by series, everything else by value.
func (p *panel) colouring() dashboard.FieldColorModeId {
	if p.kind == kindTimeseries {
		return dashboard.FieldColorModeIdPaletteClassicByName
	}
	return dashboard.FieldColorModeIdThresholds
}

func (l *link) model() dashboard.DashboardLink {
	return dashboard.DashboardLink{Title: l.title, Url: &l.url, Type: dashboard.DashboardLinkTypeLink, Tags: []string{}}
}

// overrides are what single series or columns have of their own.
func (p *panel) overrides() []dashboard.DashboardFieldConfigSourceOverrides {
	all := []dashboard.DashboardFieldConfigSourceOverrides{}
	add := func(name string, properties ...dashboard.DynamicConfigValue) {
		all = append(all, dashboard.DashboardFieldConfigSourceOverrides{
			Matcher: dashboard.MatcherConfig{Id: "byName", Options: name}, Properties: properties,
		})
	}
	for _, c := range p.paints {
		add(c.name, dashboard.DynamicConfigValue{Id: "color", Value: dashboard.FieldColor{Mode: dashboard.FieldColorModeIdFixed, FixedColor: cog.ToPtr(string(c.colour))}})
	}
	for _, c := range p.columns {
		add(c.name, c.properties()...)
	}
	for _, name := range p.hidden {
		add(name, dashboard.DynamicConfigValue{Id: "custom.hidden", Value: true})
	}
	return all
}

func (c *column) properties() []dashboard.DynamicConfigValue {
	var all []dashboard.DynamicConfigValue
	if c.unit != "" {
		all = append(all, dashboard.DynamicConfigValue{Id: "unit", Value: string(c.unit)})
	}
	if c.width > 0 {
		all = append(all, dashboard.DynamicConfigValue{Id: "custom.width", Value: c.width})
	}
	if c.link != nil {
		all = append(all, dashboard.DynamicConfigValue{Id: "links", Value: []dashboard.DashboardLink{c.link.model()}})
	}
	if c.tinted {
		all = append(all, dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]any{"type": "color-text"}})
	}
	if c.wrapped {
		all = append(all, dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]any{"type": "auto", "wrapText": true}})
	}
	return all
}

// transformations make one table of what Prometheus answers: a row for each set of labels, a column for each query.
func (p *panel) transformations() []dashboard.DataTransformerConfig {
	if p.kind != kindTable || p.queries[0].source != typePrometheus {
		return nil
	}
	names := map[string]string{}
	for i, q := range p.queries {
		names["Value #"+refID(i)] = q.legend
	}
	if len(p.queries) == 1 {
		names["Value"] = p.queries[0].legend
	}
	return []dashboard.DataTransformerConfig{
		{Id: "merge", Options: map[string]any{}},
		{Id: "organize", Options: map[string]any{"excludeByName": map[string]bool{"Time": true}, "renameByName": names}},
	}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
