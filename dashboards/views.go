package dashboards

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// views asks the views of history (docs/history.md) in the schema that the variable namespace names; in text, that is weir.
func views(text string) query { return sql(schemaIn(text)) }

func schemaIn(text string) string {
	return strings.ReplaceAll(text, "weir.", "${namespace:doublequote}.")
}

// oneNamespace chooses the installation whose history a board reads: a namespace is a schema there.
func oneNamespace() variable {
	const text = `SELECT schemaname FROM pg_views WHERE viewname = 'blocks_v' AND has_schema_privilege(schemaname, 'USAGE')
ORDER BY schemaname <> 'weir', schemaname`
	return dashboard.NewQueryVariableBuilder(variableNamespace).Label("Namespace").
		Description("Which installation: its setting namespace, which its schema in PostgreSQL is named after").
		Datasource(sourceRef(typePostgres)).Query(words(text)).Definition(text).
		Refresh(dashboard.VariableRefreshOnDashboardLoad).Sort(dashboard.VariableSortDisabled)
}

// Conditions on hits_v h. Each bounds last, so that an index gives the rows: an episode lasts a day at most, and one that touches the
// time range is over no later than a day after it.
const (
	overInRange = `h.stream = 'live' AND h.phase <> 'merged'
    AND h.last ` + lastOfRange + ` AND h.first <= $__timeTo()::timestamptz`
	lastOfRange   = `BETWEEN $__timeFrom()::timestamptz AND $__timeTo()::timestamptz + interval '1 day'`
	ofChosenRules = `h.rule = ` + anyRule
)

// anyRule, anyOwner and anyMode stand after a column: it is one of those chosen. None may be chosen, or there to be chosen: an empty array is SQL,
// an empty list IN () is not.
const (
	anyRule  = `ANY (ARRAY[${rule:sqlstring}]::text[])`
	anyOwner = `ANY (ARRAY[${owner:sqlstring}]::text[])`
	anyMode  = `ANY (ARRAY[${mode:sqlstring}]::text[])`
)

// sqlDecisions counts what ENFORCE did by the time it did it. The reason of a release is somebody's words, and no name of a series.
const sqlDecisions = `SELECT $__timeGroupAlias(h.at,$__interval),
  h.action || CASE WHEN h.action = 'withheld' THEN ': ' || h.reason ELSE '' END AS metric, count(*) AS value
FROM weir.block_decisions_v h
WHERE h.stream = 'live' AND $__timeFilter(h.at) AND ` + ofChosenRules + `
GROUP BY 1, 2
ORDER BY 1, 2`

// toRule leads from a row to its rule, toSource to the history of the source of its episode. An episode's id names its source without
// spelling it: keys and sessions are secrets.
func toRule(more ...string) *link {
	return &link{"Rule ${__value.text}", toBoard(uidRule, map[string]string{variableRule: "${__data.fields.rule:percentencode}"}, kept(more...)...)}
}

func toSource() *link {
	return &link{"History of ${__value.text}", toBoard(uidHistory, map[string]string{variableSource: "${__data.fields.id}"}, kept()...)}
}

func toConsole() *link { return &link{"Over limit, live, in weir's console", "${console:raw}/#over"} }

// kept are the variables that links carry on, and more that the board has.
func kept(more ...string) []string {
	return append([]string{variablePostgres, variableNamespace, variableConsole}, more...)
}

// variableSource holds whose history is shown: an address, a prefix, a device, a user, or an episode's id, which stands for its source.
const variableSource = "source"

func columnsOfSources() []column {
	return []column{
		{name: "rule", link: toRule(variablePrometheus)},
		{name: "source", link: toSource(), width: 260},
		{name: "over since", unit: unitTime},
		{name: "last over", unit: unitTime},
		{name: "first in range", unit: unitTime},
		{name: "until", unit: unitTime},
		{name: "asked for", wrapped: true, width: 320},
		{name: "a block holds", width: 240},
		{name: "mode", tinted: true},
		{name: "outcome", tinted: true, width: 170},
		{name: "console", link: toConsole(), width: 80},
	}
}

// modesNamed gives the modes of rules their colours in stats and tables.
func (p panel) modesNamed() panel {
	return p.named("shadow", "shadow", colourShadow).named("canary", "canary", colourWarn).named("block", "block", colourBlock).named("off", "disabled", colourDisabled)
}

// outcomesNamed gives what became of sources colours.
func (p panel) outcomesNamed() panel {
	for _, o := range []struct {
		text   string
		colour colour
	}{
		{"held", colourBlock}, {"would be held", colourShadow}, {"would have been held", colourShadow}, {"was held", colourDisabled},
		{"released", colourPass}, {"not held", colourPass}, {"withheld: canary", colourShadow}, {"no block is possible", colourDisabled},
	} {
		p = p.named(o.text, o.text, o.colour)
	}
	return p
}

func columnsOfSamples(more ...string) []column {
	return []column{
		{name: "time", unit: unitTime, width: 190},
		{name: "rule", link: toRule(more...)},
		{name: "source", link: toSource(), width: 260},
		{name: "status", unit: unitText, width: 80},
		{name: "limit", width: 80},
		{name: "path", wrapped: true},
		{name: "user agent", wrapped: true},
	}
}
