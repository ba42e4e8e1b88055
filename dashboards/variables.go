package dashboards

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Names of the variables, which links carry from board to board.
const (
	variablePrometheus = "prometheus"
	variablePostgres   = "postgres"
	variableNamespace  = "namespace"
	variableOwner      = "owner"
	variableMode       = "mode"
	variableRule       = "rule"
	variableConsole    = "console"
)

// Matchers that limit PromQL to what the variables choose.
const (
	inNamespace = `namespace=~"$namespace"`
	ofRules     = inNamespace + `, rule=~"$rule"`
)

// variable is what somebody chooses at the top of a board.
type variable = cog.Builder[dashboard.VariableModel]

// sources lets choose each data source the board asks.
func (b *board) sources() []variable {
	var chosen []variable
	for _, s := range []struct{ kind, name, label, provisioned string }{
		{typePrometheus, variablePrometheus, "Prometheus", "Prometheus"},
		{typePostgres, variablePostgres, "PostgreSQL", "PostgreSQL"},
	} {
		if !b.asks(s.kind) {
			continue
		}
		chosen = append(chosen, dashboard.NewDatasourceVariableBuilder(s.name).Label(s.label).Type(s.kind).
			Description("Where the board's numbers come from").
			Current(option(s.provisioned, s.provisioned)))
	}
	return chosen
}

func (b *board) asks(kind string) bool {
	for _, a := range b.annotations {
		if a.query.source == kind {
			return true
		}
	}
	for _, r := range b.rows {
		for _, l := range r.lines {
			for i := range l.panels {
				for _, q := range l.panels[i].queries {
					if q.source == kind {
						return true
					}
				}
			}
		}
	}
	return false
}

// namespaces chooses an installation, one at a time: of several, most sums and shares say nothing.
func namespaces() variable {
	const text = `label_values(weir_build_info, namespace)`
	return oneOf(variableNamespace, "Namespace", "Which installation: its setting namespace", typePrometheus, text).
		Sort(dashboard.VariableSortAlphabeticalCaseInsensitiveAsc)
}

// modeOf is the mode of a rule r as metrics and people name it.
const modeOf = `CASE r.mode WHEN 'off' THEN 'disabled' ELSE r.mode END`

// owners chooses who owns the rules.
func owners() variable {
	return sqlVariable(variableOwner, "Owner", "Whose rules", schemaIn(`SELECT DISTINCT r.owner FROM weir.rules_v r WHERE NOT r.removed ORDER BY 1`))
}

// modes chooses shadow beside block.
func modes() variable {
	return sqlVariable(variableMode, "Mode", "Rules that only watch (shadow), that block, that are disabled",
		schemaIn(`SELECT DISTINCT `+modeOf+` FROM weir.rules_v r WHERE NOT r.removed ORDER BY 1`))
}

// chosenRules chooses any number among the rules that are of the chosen owners and modes now; Prometheus has rules for as long as the time range
// by what they were. All stands for just these, so that choosing an owner is enough.
func chosenRules() variable {
	return sqlVariable(variableRule, "Rule", "Which rules, of those of the owners and modes chosen",
		schemaIn(`SELECT r.rule FROM weir.rules_v r WHERE NOT r.removed AND `+ofOwners+` AND `+modeOf+` = `+anyMode+` ORDER BY 1`))
}

// anyRules chooses any number of the rules that anybody tells of. All has those, too, of which only gates still know: what they hold
// goes on while nothing else of weir runs.
func anyRules() variable {
	return promVariable(variableRule, "Rule", "Which rules", `label_values({__name__=~"weir_rule_info|weir_blocklist_blocks", `+inNamespace+`}, rule)`).AllValue(".+")
}

// oneRule chooses a single rule. Those that were removed come last: links lead to them, too, and their history stays.
func oneRule() variable {
	return oneOf(variableRule, "Rule", "Which rule; those that were removed come last", typePostgres,
		schemaIn(`SELECT r.rule FROM weir.rules_v r ORDER BY r.removed, r.rule`))
}

// oneOf chooses one of the values that a query finds, in their order; the first at first.
func oneOf(name, label, description, source, text string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Description(description).
		Datasource(sourceRef(source)).Query(words(text)).Definition(text).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortDisabled)
}

// promVariable chooses any number of the values that Prometheus has; all of them at first.
func promVariable(name, label, description, text string) *dashboard.QueryVariableBuilder {
	return manyOf(name, label, description, typePrometheus, text)
}

// sqlVariable chooses any number of the values that a SQL query finds; all of them at first. SQL takes them with
// ${name:sqlstring}.
func sqlVariable(name, label, description, text string) *dashboard.QueryVariableBuilder {
	return manyOf(name, label, description, typePostgres, text)
}

func manyOf(name, label, description, source, text string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Description(description).
		Datasource(sourceRef(source)).Query(words(text)).Definition(text).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalCaseInsensitiveAsc).
		Multi(true).IncludeAll(true).Current(option("All", "$__all"))
}

// consoleAddress is where links into the console lead. There are none until somebody says where it is.
func consoleAddress() variable {
	return dashboard.NewTextBoxVariableBuilder(variableConsole).Label("Console").
		Description("Address of weir's console where one runs, such as http://127.0.0.1:9466 of weir dev: links lead there. Empty: no links").
		DefaultValue(words("")).Current(option("", ""))
}

func words(s string) dashboard.StringOrMap { return dashboard.StringOrMap{String: &s} }

func option(text, value string) dashboard.VariableOption {
	return dashboard.VariableOption{
		Selected: cog.ToPtr(true), Text: dashboard.StringOrArrayOfString{String: &text}, Value: dashboard.StringOrArrayOfString{String: &value},
	}
}

// toBoard is the address of another board with the time range of this one. Each of set is a variable and its value, such as rule and
// ${__data.fields.rule}; keep names variables that stay as they are.
func toBoard(uid string, set map[string]string, keep ...string) string {
	var parts []string
	for _, name := range sorted(set) {
		parts = append(parts, "var-"+url.QueryEscape(name)+"="+set[name])
	}
	for _, name := range keep {
		parts = append(parts, fmt.Sprintf("${%s:queryparam}", name))
	}
	return "/d/" + uid + "?" + strings.Join(append(parts, "${__url_time_range}"), "&")
}

// annotation marks moments on every panel that has a time axis.
type annotation struct {
	name   string
	colour colour
	query  query // SQL: columns time, title, text, tags
}

func (a *annotation) model() dashboard.AnnotationQuery {
	source := sourceRef(a.query.source)
	return dashboard.AnnotationQuery{
		Name: a.name, Datasource: &source, Enable: true, IconColor: string(a.colour), Target: a.query.target("A", answer{table: true}),
	}
}
