package dashboards

import (
	"errors"
	"reflect"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// The data sources as Grafana calls their types.
const (
	typePrometheus = "prometheus"
	typePostgres   = "grafana-postgresql-datasource"
)

// query asks a data source for what a panel shows. Its legend names a series, by its labels such as {{rule}}, or a table's column.
type query struct {
	source, text, legend string
}

// prom asks Prometheus.
func prom(expr, legend string) query {
	return query{source: typePrometheus, text: expr, legend: legend}
}

// sql asks history; the columns' names are those of the result. For a timeseries one column is named time.
func sql(text string) query { return query{source: typePostgres, text: text} }

// sourceRef is the data source that the board's variable for the type chooses.
func sourceRef(kind string) common.DataSourceRef {
	name := variablePrometheus
	if kind == typePostgres {
		name = variablePostgres
	}
	return common.DataSourceRef{Type: cog.ToPtr(kind), Uid: cog.ToPtr("${" + name + "}")}
}

// answer is the form in which a panel takes what its queries find.
type answer struct {
	instant bool // the latest value only
	table   bool
	heatmap bool // buckets of a histogram
}

func (q *query) target(id string, form answer) variants.Dataquery {
	if q.source == typePostgres {
		format := "time_series"
		if form.table {
			format = "table"
		}
		return sqlQuery{RefID: id, Datasource: sourceRef(typePostgres), Format: format, RawQuery: true, RawSQL: q.text, EditorMode: "code"}
	}
	format := prometheus.PromQueryFormatTimeSeries
	switch {
	case form.table:
		format = prometheus.PromQueryFormatTable
	case form.heatmap:
		format = prometheus.PromQueryFormatHeatmap
	}
	ref := sourceRef(typePrometheus)
	return prometheus.Dataquery{
		RefId: &id, Datasource: &ref, Expr: q.text, LegendFormat: cog.ToPtr(q.legend), Format: &format,
		EditorMode: cog.ToPtr(prometheus.QueryEditorModeCode), Instant: cog.ToPtr(form.instant), Range: cog.ToPtr(!form.instant),
	}
}

// sqlQuery is a target of Grafana's PostgreSQL data source, for which the SDK has no type.
type sqlQuery struct {
	RefID      string               `json:"refId"`
	Datasource common.DataSourceRef `json:"datasource"`
	Format     string               `json:"format"` // table or time_series
	RawQuery   bool                 `json:"rawQuery"`
	RawSQL     string               `json:"rawSql"`
	EditorMode string               `json:"editorMode"`
}

// ImplementsDataqueryVariant lets the SDK take it for a target.
func (sqlQuery) ImplementsDataqueryVariant() {}

// DataqueryType is the data source it is for.
func (sqlQuery) DataqueryType() string { return typePostgres }

// Equals compares with any other target.
func (q sqlQuery) Equals(other variants.Dataquery) bool { return reflect.DeepEqual(q, other) }

// Validate refuses a target that asks nothing.
func (q sqlQuery) Validate() error {
	if q.RefID == "" || q.RawSQL == "" {
		return errors.New("a SQL target has a refId and rawSql")
	}
	return nil
}
