package boardtest

import (
	"fmt"
	"math"
	"regexp"
	"slices"
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

// expand puts values in the place of variables, for a data source of a type. What no variable explains stays: it may be a
// macro of the data source.
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

// builtIn are the variables that Grafana itself has.
func (c *chosen) builtIn(name string) (string, bool) {
	length := c.span.to.Sub(c.span.from)
	switch name {
	case "__interval":
		return prometheusDuration(c.span.interval()), true
	case "__interval_ms":
		return strconv.FormatInt(c.span.interval().Milliseconds(), 10), true
	case "__rate_interval":
		return prometheusDuration(c.span.rateInterval()), true
	case "__rate_interval_ms":
		return strconv.FormatInt(c.span.rateInterval().Milliseconds(), 10), true
	case "__range":
		return prometheusDuration(length), true
	case "__range_s":
		return strconv.FormatInt(int64(math.Round(length.Seconds())), 10), true
	case "__range_ms":
		return strconv.FormatInt(length.Milliseconds(), 10), true
	case "__from":
		return strconv.FormatInt(c.span.from.UnixMilli(), 10), true
	case "__to":
		return strconv.FormatInt(c.span.to.UnixMilli(), 10), true
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
	plain := func(v string) string { return v }
	switch {
	case format == "sqlstring", format == "" && source == typePostgres && c.listed:
		return each(quoted, ","), nil
	case format == "singlequote":
		return each(func(v string) string { return "'" + strings.ReplaceAll(v, "'", `\'`) + "'" }, ","), nil
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
	case format == "csv", format == "raw":
		return each(plain, ","), nil
	case format == "pipe":
		return each(plain, "|"), nil
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

func (s span) macro(name string, args []string) (string, error) {
	from, to := s.from.UTC().Format(time.RFC3339Nano), s.to.UTC().Format(time.RFC3339Nano)
	alias := func(text string, err error) (string, error) { return text + ` AS "time"`, err }
	if args[0] == "" && !slices.Contains([]string{"__timeFrom", "__timeTo", "__unixEpochFrom", "__unixEpochTo"}, name) {
		return "", fmt.Errorf("$%s needs a column", name)
	}
	switch name {
	case "__time":
		return alias(args[0], nil)
	case "__timeEpoch":
		return fmt.Sprintf(`extract(epoch from %s) as "time"`, args[0]), nil
	case "__timeFilter":
		return fmt.Sprintf("%s BETWEEN '%s' AND '%s'", args[0], from, to), nil
	case "__timeFrom":
		return "'" + from + "'", nil
	case "__timeTo":
		return "'" + to + "'", nil
	case "__timeGroup":
		return timeGroup("extract(epoch from "+args[0]+")", args)
	case "__timeGroupAlias":
		return alias(timeGroup("extract(epoch from "+args[0]+")", args))
	case "__unixEpochFilter":
		return fmt.Sprintf("%[1]s >= %[2]d AND %[1]s <= %[3]d", args[0], s.from.Unix(), s.to.Unix()), nil
	case "__unixEpochFrom":
		return strconv.FormatInt(s.from.Unix(), 10), nil
	case "__unixEpochTo":
		return strconv.FormatInt(s.to.Unix(), 10), nil
	case "__unixEpochGroup":
		return timeGroup(args[0], args)
	case "__unixEpochGroupAlias":
		return alias(timeGroup(args[0], args))
	}
	return "", fmt.Errorf("Grafana's PostgreSQL has no macro $%s", name)
}

func timeGroup(seconds string, args []string) (string, error) {
	if len(args) < 2 {
		return "", fmt.Errorf("a time group needs a column and an interval, got %q", args)
	}
	text := strings.Trim(args[1], `'"`)
	days, isDays := strings.CutSuffix(text, "d")
	if isDays {
		text = days + "h"
	}
	every, err := time.ParseDuration(text)
	if err != nil {
		return "", fmt.Errorf("the interval of a time group: %w", err)
	}
	if isDays {
		every *= 24
	}
	n := strconv.FormatFloat(every.Seconds(), 'f', -1, 64)
	return fmt.Sprintf("floor(%s/%s)*%s", seconds, n, n), nil
}
