package boardtest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// span is the time range of a board and the width at which a panel is drawn.
type span struct {
	from, to time.Time
	scrape   time.Duration // Prometheus' interval, as the data source is told
}

const points = 1000 // that a panel of usual width draws

// interval is Grafana's: the range over the points, and no less than there are samples.
func (s span) interval() time.Duration {
	return max((s.to.Sub(s.from) / points).Round(time.Millisecond), s.scrape)
}

// rateInterval is Grafana's: enough for four samples.
func (s span) rateInterval() time.Duration { return max(s.interval()+s.scrape, 4*s.scrape) }

// chosen is what the variables of a board stand for.
type chosen struct {
	span   span
	values map[string]choice
}

type choice struct {
	values []string
	all    string // what stands for all of them, if the variable says so
	listed bool   // the variable takes several values, or all
}

// references finds variables, in the three ways in which Grafana lets them be written.
var references = regexp.MustCompile(`\$(\w+)|\[\[(\w+?)(?::(\w+))?\]\]|\$\{(\w+)(?:\.[^:^}]+)?(?::([^}]+))?\}`)

// expand puts values in the place of variables, for a data source of a type. What no variable explains stays: it
// may be a macro of the data source.
func (c *chosen) expand(text, source string) (string, error) {
	var problem error
	out := references.ReplaceAllStringFunc(text, func(found string) string {
		parts := references.FindStringSubmatch(found)
		name, format := parts[1]+parts[2]+parts[4], parts[3]+parts[5]
		if value, ok := c.builtIn(name); ok {
			return value
		}
		known, ok := c.values[name]
		if !ok {
			if !strings.HasPrefix(name, "__") {
				problem = fmt.Errorf("no variable is named %s", name)
			}
			return found
		}
		value, err := known.as(format, source)
		if err != nil {
			problem = fmt.Errorf("variable %s: %w", name, err)
		}
		return value
	})
	return out, problem
}

// builtIn are variables that Grafana itself has, and boards use.
func (c *chosen) builtIn(name string) (string, bool) {
	switch name {
	case "__interval":
		return prometheusDuration(c.span.interval()), true
	case "__interval_ms":
		return strconv.FormatInt(c.span.interval().Milliseconds(), 10), true
	case "__rate_interval":
		return prometheusDuration(c.span.rateInterval()), true
	case "__range":
		return prometheusDuration(c.span.to.Sub(c.span.from)), true
	}
	return "", false
}

func prometheusDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

// as writes the values in a format, or in the data source's own.
func (c choice) as(format, source string) (string, error) {
	if c.all != "" {
		return c.all, nil // in every format
	}
	each := func(write func(string) string, between string) string {
		var written []string
		for _, v := range c.values {
			written = append(written, write(v))
		}
		return strings.Join(written, between)
	}
	quoted := func(v string) string { return "'" + strings.ReplaceAll(v, "'", "''") + "'" }
	switch {
	case format == "sqlstring", format == "" && source == typePostgres && c.listed:
		return each(quoted, ","), nil
	case format == "doublequote":
		return each(func(v string) string { return `"` + strings.ReplaceAll(v, `"`, `\"`) + `"` }, ","), nil
	case format == "regex", format == "" && source == typePrometheus && c.listed:
		text := each(escapeRegexp, "|")
		if len(c.values) != 1 {
			text = "(" + text + ")"
		}
		return text, nil
	case format == "" && source == typePostgres:
		return each(func(v string) string { return strings.ReplaceAll(v, "'", "''") }, ","), nil
	case format == "" && source == typePrometheus:
		return each(func(v string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(v) }, ","), nil
	case format == "raw":
		return strings.Join(c.values, ","), nil
	}
	return "", fmt.Errorf("the format %q is not known here", format)
}

// escapeRegexp is what Grafana makes of a value for a matcher: the backslash of each escape is one in a string, too.
func escapeRegexp(v string) string {
	v = strings.ReplaceAll(v, `\`, `\\\\`)
	return regexp.MustCompile(`[$^*{}\[\]'+?.()|]`).ReplaceAllStringFunc(v, func(c string) string { return `\\` + c })
}

// macros finds those of SQL: as Grafana does, up to the first closing parenthesis.
var macros = regexp.MustCompile(`\$(__[_a-zA-Z0-9]+)\(([^)]*)\)`)

// expandSQL does what Grafana's PostgreSQL data source does once the variables have their values.
func (s span) expandSQL(text string) (string, error) {
	var problem error
	out := macros.ReplaceAllStringFunc(text, func(found string) string {
		parts := macros.FindStringSubmatch(found)
		var args []string
		for arg := range strings.SplitSeq(parts[2], ",") {
			args = append(args, strings.TrimSpace(arg))
		}
		value, err := s.macro(parts[1], args)
		if err != nil {
			problem = err
		}
		return value
	})
	if at := strings.Index(out, "$__"); at >= 0 && problem == nil {
		problem = fmt.Errorf("Grafana makes nothing of %.30s", out[at:])
	}
	return out, problem
}

// macro is one of those that boards use.
func (s span) macro(name string, args []string) (string, error) {
	from, to := s.from.UTC().Format(time.RFC3339Nano), s.to.UTC().Format(time.RFC3339Nano)
	switch {
	case name == "__timeFrom":
		return "'" + from + "'", nil
	case name == "__timeTo":
		return "'" + to + "'", nil
	case args[0] == "":
		return "", fmt.Errorf("$%s needs a column", name)
	case name == "__timeFilter":
		return fmt.Sprintf("%s BETWEEN '%s' AND '%s'", args[0], from, to), nil
	case name == "__timeGroupAlias" && len(args) > 1:
		text := strings.Trim(args[1], `'"`)
		if text == "1d" {
			text = "24h"
		}
		every, err := time.ParseDuration(text)
		if err != nil {
			return "", fmt.Errorf("the interval of a time group: %w", err)
		}
		return fmt.Sprintf(`floor(extract(epoch from %[1]s)/%[2]g)*%[2]g AS "time"`, args[0], every.Seconds()), nil
	}
	return "", fmt.Errorf("a macro $%s of %d parts is not known here", name, len(args))
}
