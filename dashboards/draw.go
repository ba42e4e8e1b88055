package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	sdkheatmap "github.com/grafana/grafana-foundation-sdk/go/heatmap"
	sdkstat "github.com/grafana/grafana-foundation-sdk/go/stat"
	sdktable "github.com/grafana/grafana-foundation-sdk/go/table"
	sdktimeseries "github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// draw gives the options of the panel's kind, the same on all boards, and the form of answer it takes.
func (p *panel) draw() (dashboard.Panel, answer, error) {
	switch p.kind {
	case kindTimeseries:
		built, err := p.drawTimeseries().Build()
		return built, answer{}, err
	case kindStat:
		built, err := p.drawStat().Build()
		// Of now: the last value of a range would stay for hours when everything has died.
		return built, answer{instant: true, table: p.queries[0].source == typePostgres}, err
	case kindTable:
		built, err := p.drawTable().Build()
		return built, answer{instant: true, table: true}, err
	case kindHeatmap:
		built, err := p.drawHeatmap().Build()
		return built, answer{heatmap: true}, err
	}
	return dashboard.Panel{}, answer{}, fmt.Errorf("kind of panel %d is none", p.kind)
}

func (p *panel) drawTimeseries() *sdktimeseries.PanelBuilder {
	b := sdktimeseries.NewPanelBuilder().
		LineWidth(1).FillOpacity(10).ShowPoints(common.VisibilityModeAuto).SpanNulls(common.BoolOrFloat64{Bool: new(bool)}).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).
			ShowLegend(true).Calcs([]string{})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if p.stack {
		b.FillOpacity(40).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
	}
	if p.bars {
		// A bar for each minute at most: shorter steps would have few scrapes each, and share an event among them.
		b.DrawStyle(common.GraphDrawStyleBars).FillOpacity(70).Interval("1m")
	}
	if p.log {
		b.ScaleDistribution(common.NewScaleDistributionConfigBuilder().Type(common.ScaleDistributionSymlog).Log(10).LinearThreshold(1))
	}
	if len(p.steps) > 0 {
		b.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	if p.limits == nil {
		b.AxisSoftMin(0)
	}
	return b
}

func (p *panel) drawStat() *sdkstat.PanelBuilder {
	b := sdkstat.NewPanelBuilder().GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeValue).
		JustifyMode(common.BigValueJustifyModeAuto).TextMode(common.BigValueTextModeAuto).Orientation(common.VizOrientationAuto).
		ReduceOptions(latest(p.queries[0].source))
	if len(p.steps) > 0 || len(p.names) > 0 {
		b.ColorMode(common.BigValueColorModeBackground)
	}
	return b
}

// latest takes the value of a series, and the only one of a SQL query's column, whatever its type.
func latest(source string) *common.ReduceDataOptionsBuilder {
	b := common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}).Values(false)
	if source == typePostgres {
		b.Values(true).Fields("/.*/")
	}
	return b
}

func (p *panel) drawTable() *sdktable.PanelBuilder {
	b := sdktable.NewPanelBuilder().ShowHeader(true).Filterable(true).CellHeight(common.TableCellHeightSm).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{}))
	if p.sortColumn != "" {
		b.SortBy([]cog.Builder[common.TableSortByFieldState]{common.NewTableSortByFieldStateBuilder().DisplayName(p.sortColumn).Desc(true)})
	}
	return b
}

func (p *panel) drawHeatmap() *sdkheatmap.PanelBuilder {
	return sdkheatmap.NewPanelBuilder().Calculate(false).
		Color(sdkheatmap.NewHeatmapColorOptionsBuilder().Mode(sdkheatmap.HeatmapColorModeScheme).Scheme("Oranges").
			Scale(sdkheatmap.HeatmapColorScaleExponential).Exponent(0.5).Steps(64).Fill("dark-orange")).
		YAxis(sdkheatmap.NewYAxisConfigBuilder().Unit(string(p.unit))).
		CellValues(sdkheatmap.NewCellValuesBuilder().Unit(string(unitCount))).CellGap(1).
		ShowValue(common.VisibilityModeNever).Tooltip(sdkheatmap.NewHeatmapTooltipBuilder().Mode(common.TooltipDisplayModeSingle)).ShowLegend()
}
