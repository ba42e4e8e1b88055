// Package dashboards has what Grafana shows of weir, as Go: boards, and in dashboards/alerts the rules that call somebody.
//
// A board is a value: rows, lines of a row, panels of a line. The frame in this package gives the panels their places and turns
// the board into Grafana's JSON, so that a board's file holds nothing but what the board says.
package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Dashboard is a board as Grafana reads it.
type Dashboard struct {
	UID, Title string
	JSON       []byte // indented, members sorted: equal boards are equal bytes
}

// uids stand in links from outside: they stay when a title changes.
const (
	uidOverLimit = "weir-overlimit"
	uidRule      = "weir-rule"
	uidPipeline  = "weir-pipeline"
	uidGate      = "weir-gate"
	uidHistory   = "weir-history"
)

// Tag is on every board, and finds them all.
const Tag = "weir"

// board is a dashboard before it has places and ids.
type board struct {
	uid, title, description string

	from        string // begin of the time range shown at first, such as now-6h
	refresh     string // how often Grafana asks again, such as 30s; empty: when somebody asks
	variables   []variable
	annotations []annotation
	rows        []row
}

// row is a heading with what stands under it.
type row struct {
	title string
	lines []line
}

// line is panels side by side, equally high. Panels without a width of their own share what the others leave of the line.
type line struct {
	height uint32
	panels []panel
}

// model is a dashboard in the form that every Grafana reads, from files and by its API.
type model = dashboard.Dashboard //nolint:staticcheck // the newer form is not read by Grafana 11, nor from files

// schemaVersion is that of the SDK's types.
const schemaVersion = 42

// columns of Grafana's grid.
const columns = 24

// All gives every board, in the order in which somebody looks for a cause.
func All() ([]Dashboard, error) {
	var all []Dashboard
	for _, b := range boards() {
		d, err := b.generate()
		if err != nil {
			return nil, fmt.Errorf("board %q: %w", b.title, err)
		}
		all = append(all, d)
	}
	return all, nil
}

func (b *board) generate() (Dashboard, error) {
	m, err := b.build()
	if err != nil {
		return Dashboard{}, err
	}
	text, err := plainJSON(m)
	return Dashboard{UID: b.uid, Title: b.title, JSON: text}, err
}

// plainJSON writes < and > of queries as they are: committed boards are read by people, too.
func plainJSON(board any) ([]byte, error) {
	escaped, err := json.Marshal(board)
	if err != nil {
		return nil, err
	}
	in := json.NewDecoder(bytes.NewReader(escaped))
	in.UseNumber()
	var value any
	if err := in.Decode(&value); err != nil {
		return nil, err
	}
	var plain bytes.Buffer
	out := json.NewEncoder(&plain)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	err = out.Encode(value)
	return plain.Bytes(), err
}

func (b *board) build() (model, error) {
	m := model{
		Uid: &b.uid, Title: &b.title, Description: &b.description, Tags: []string{Tag}, SchemaVersion: schemaVersion,
		Editable: new(bool), GraphTooltip: cog.ToPtr(dashboard.DashboardCursorSyncCrosshair), Timezone: cog.ToPtr("browser"),
		Time: &dashboard.DashboardDashboardTime{From: b.from, To: "now"}, Refresh: &b.refresh,
		Links: []dashboard.DashboardLink{otherBoards()},
	}
	for _, v := range append(b.sources(), b.variables...) {
		built, err := v.Build()
		if err != nil {
			return model{}, err
		}
		m.Templating.List = append(m.Templating.List, built)
	}
	for _, a := range b.annotations {
		m.Annotations.List = append(m.Annotations.List, a.model())
	}
	var err error
	m.Panels, err = b.place()
	return m, err
}

// otherBoards leads to all boards of weir, by their tag.
func otherBoards() dashboard.DashboardLink {
	return dashboard.DashboardLink{
		Title: "weir", Type: dashboard.DashboardLinkTypeDashboards, Tags: []string{Tag}, IncludeVars: true, KeepTime: true,
		Tooltip: "The other boards of weir, with the same variables and time range",
	}
}

// place lays the rows under each other and numbers what is in them.
func (b *board) place() ([]dashboard.PanelOrRowPanel, error) {
	var placed []dashboard.PanelOrRowPanel
	var y, id uint32
	for _, r := range b.rows {
		id++
		heading := dashboard.NewRowPanel()
		heading.Title, heading.Id = &r.title, id
		heading.GridPos = &dashboard.GridPos{H: 1, W: columns, X: 0, Y: y}
		placed = append(placed, dashboard.PanelOrRowPanel{RowPanel: heading})
		y++
		for _, l := range r.lines {
			widths, err := l.widths()
			if err != nil {
				return nil, fmt.Errorf("row %q: %w", r.title, err)
			}
			var x uint32
			for i := range l.panels {
				id++
				p, err := l.panels[i].build()
				if err != nil {
					return nil, fmt.Errorf("row %q, panel %q: %w", r.title, l.panels[i].title, err)
				}
				p.Id = cog.ToPtr(id)
				p.GridPos = &dashboard.GridPos{H: l.height, W: widths[i], X: x, Y: y}
				x += widths[i]
				placed = append(placed, dashboard.PanelOrRowPanel{Panel: &p})
			}
			y += l.height
		}
	}
	return placed, nil
}

// widths shares the line among its panels, to the last column.
func (l *line) widths() ([]uint32, error) {
	left, sharing := uint32(columns), uint32(0)
	for i := range l.panels {
		w := l.panels[i].width
		if w > left {
			return nil, fmt.Errorf("panel %q: the line has %d columns left, it wants %d", l.panels[i].title, left, w)
		}
		left -= w
		if w == 0 {
			sharing++
		}
	}
	if sharing == 0 && left > 0 || sharing > left || len(l.panels) == 0 {
		return nil, fmt.Errorf("a line of %d panels leaves %d of %d columns", len(l.panels), left, columns)
	}
	widths := make([]uint32, len(l.panels))
	for i := range l.panels {
		if widths[i] = l.panels[i].width; widths[i] > 0 {
			continue
		}
		widths[i] = left / sharing
		left -= widths[i]
		sharing--
	}
	return widths, nil
}
