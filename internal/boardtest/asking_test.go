package boardtest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// grafana asks the data sources as the program of that name does.
type grafana struct {
	prometheus *prometheus
	postgres   *pgx.Conn
}

// errNothing says that a query is right, and finds nothing.
var errNothing = errors.New("finds nothing")

// ask puts a question of a board.
func (g *grafana) ask(ctx context.Context, q *question, s span) error {
	c, err := g.choose(ctx, q.board, s)
	if err != nil {
		return err
	}
	text, err := c.expand(q.text, q.source)
	if err != nil {
		return err
	}
	switch q.source {
	case typePrometheus:
		return g.askPrometheus(text, q.series, s)
	case typePostgres:
		return g.askPostgres(ctx, text, q.series, s)
	}
	return fmt.Errorf("Grafana is provisioned with no data source of type %q", q.source)
}

// lookBack is how long ago a panel may have shown something that shows one moment: on a busy machine a round of
// questions takes longer than what happened just then is shown for.
const lookBack = time.Minute

func (g *grafana) askPrometheus(promql string, overTime bool, s span) error {
	ask := func(back time.Duration) ([]series, error) { return g.prometheus.instant(promql, s.to.Add(-back)) }
	if overTime {
		ask = func(time.Duration) ([]series, error) { return g.prometheus.overTime(promql, s) }
	}
	for back := time.Duration(0); back <= lookBack; back += 3 * time.Second {
		found, err := ask(back)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, promql)
		}
		if says(found) {
			return nil
		}
		if overTime {
			break
		}
	}
	return fmt.Errorf("%w: %s", errNothing, promql)
}

func (g *grafana) askPostgres(ctx context.Context, text string, overTime bool, s span) error {
	columns, rows, err := g.rows(ctx, text, s)
	if err != nil {
		return err
	}
	if overTime && !slices.Contains(columns, "time") {
		return fmt.Errorf("no column of %v is named time", columns)
	}
	if len(rows) == 0 {
		return fmt.Errorf("%w: %s", errNothing, text)
	}
	return nil
}

// rows runs SQL whose variables have their values.
func (g *grafana) rows(ctx context.Context, text string, s span) (columns []string, rows [][]any, err error) {
	sql, err := s.expandSQL(text)
	if err != nil {
		return nil, nil, err
	}
	found, err := g.postgres.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, nil, fmt.Errorf("%w\n%s", err, sql)
	}
	rows, err = pgx.CollectRows(found, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	if err != nil {
		return nil, nil, fmt.Errorf("%w\n%s", err, sql)
	}
	for _, f := range found.FieldDescriptions() {
		columns = append(columns, f.Name)
	}
	return columns, rows, nil
}

// choose gives each variable of a board the values that it has at first, in their order: one may ask for another.
func (g *grafana) choose(ctx context.Context, b *board, s span) (*chosen, error) {
	c := &chosen{span: s, values: map[string]choice{}}
	for _, v := range b.Templating.List {
		var err error
		if c.values[v.Name], err = g.chooseOne(ctx, &v, c); err != nil {
			return nil, fmt.Errorf("board %s, variable %s: %w", b.UID, v.Name, err)
		}
	}
	return c, nil
}

func (g *grafana) chooseOne(ctx context.Context, v *variable, c *chosen) (choice, error) {
	current, _ := v.Current.Value.(string)
	var options []string
	switch v.Type {
	case "datasource":
		return choice{values: []string{v.text()}}, nil
	case "textbox", "constant":
		return choice{values: []string{v.text()}}, nil
	case "custom", "interval":
		for option := range strings.SplitSeq(v.text(), ",") {
			options = append(options, strings.TrimSpace(option))
		}
	case "query":
		text, err := c.expand(v.text(), v.Datasource.Type)
		if err != nil {
			return choice{}, err
		}
		if options, err = g.options(ctx, text, v.Datasource.Type, c.span); err != nil {
			return choice{}, err
		}
	default:
		return choice{}, fmt.Errorf("the type %q is not known here", v.Type)
	}
	if len(options) == 0 {
		return choice{}, fmt.Errorf("%w: %s", errNothing, v.text())
	}
	switch {
	case v.IncludeAll && (current == "$__all" || current == ""):
		return choice{values: options, all: v.AllValue, listed: true}, nil
	case slices.Contains(options, current):
		return choice{values: []string{current}, listed: v.Multi || v.IncludeAll}, nil
	}
	return choice{values: options[:1], listed: v.Multi || v.IncludeAll}, nil
}

// labelValues is how a variable asks Prometheus for the values of a label.
var labelValues = regexp.MustCompile(`^label_values\((?:(.+),\s*)?([a-zA-Z_][a-zA-Z0-9_]*)\)\s*$`)

// options are what a variable lets choose.
func (g *grafana) options(ctx context.Context, text, source string, s span) ([]string, error) {
	if source == typePrometheus {
		parts := labelValues.FindStringSubmatch(text)
		if parts == nil {
			return nil, fmt.Errorf("%s: only label_values is known here", text)
		}
		return g.prometheus.labelValues(parts[2], parts[1], s)
	}
	columns, rows, err := g.rows(ctx, text, s)
	if err != nil {
		return nil, err
	}
	at := max(0, slices.Index(columns, "__value"))
	var options []string
	for _, row := range rows {
		options = append(options, fmt.Sprint(row[at]))
	}
	return options, nil
}
