package pages

import (
	"net/url"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/traffic"
)

// period is the span of time that a page is about.
type period struct {
	Since, Until traffic.Time // Until is now where the address names none
	Open         bool         // it ends now
	Choice       string       // the text of since; that of a preset is marked in the page
	End          string       // the text of until
	here         url.URL
}

// longest bounds a period: nothing is kept that long.
const longest = 400 * 24 * time.Hour

// presets are the periods that a page offers.
func presets() []string { return []string{"1h", "24h", "7d", "30d", "90d"} }

const allowedTimes = "a duration before now (90m, 24h, 7d), a date (2026-11-20), date and time in UTC (2026-11-20T15:04, 2026-11-20T15:04:05Z), today, yesterday"

// periodOf reads `since` and `until` of an address.
func periodOf(u *url.URL, now traffic.Time, preset string) (period, error) {
	q := u.Query()
	p := period{Choice: q.Get("since"), End: q.Get("until"), here: *u}
	if p.Choice == "" {
		p.Choice = preset
	}
	var err error
	if p.Since, err = timeOf("since", p.Choice, now); err != nil {
		return p, err
	}
	if p.Until, p.Open = now, true; p.End != "" {
		if p.Until, err = timeOf("until", p.End, now); err != nil {
			return p, err
		}
		p.Open = p.Until >= now
	}
	switch {
	case p.Since >= p.Until:
		return p, &badRequest{"since", p.Choice, "a time before until"}
	case p.Until.Sub(p.Since) > longest:
		return p, &badRequest{"since", p.Choice, "at most 400 days before until"}
	}
	return p, nil
}

// timeOf reads a time as people write it.
func timeOf(field, text string, now traffic.Time) (traffic.Time, error) {
	today := now.Std().UTC().Truncate(24 * time.Hour)
	switch text {
	case "today":
		return traffic.At(today), nil
	case "yesterday":
		return traffic.At(today.Add(-24 * time.Hour)), nil
	}
	if d, err := duration.Parse(text); err == nil && d > 0 && d <= longest {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateTime, time.RFC3339Nano} {
		if t, err := time.Parse(layout, strings.TrimSpace(text)); err == nil && t.Year() > 1970 && t.Year() < 3000 {
			return traffic.At(t), nil
		}
	}
	return 0, &badRequest{field, text, allowedTimes}
}

// end is the bound of a question: none where the period ends now.
func (p *period) end() traffic.Time {
	if p.Open {
		return 0
	}
	return p.Until
}

// Span is how long the period is.
func (p *period) Span() time.Duration { return p.Until.Sub(p.Since) }

// option is one choice of several, as a link.
type option struct {
	Text, Href string
	Chosen     bool
}

// Options are the presets, as links to the same page.
func (p *period) Options() []option {
	var out []option
	for _, text := range presets() {
		out = append(out, option{Text: text, Href: with(&p.here, "since", text, "until", "", "page", "", "did", ""), Chosen: p.End == "" && p.Choice == text})
	}
	return out
}

// Kept are the other parameters of the page, for its form.
func (p *period) Kept() []param {
	var out []param
	q := p.here.Query()
	for _, name := range sortedNames(q) {
		if name != "since" && name != "until" && name != "page" && name != "did" {
			for _, value := range q[name] {
				out = append(out, param{name, value})
			}
		}
	}
	return out
}

// Path is the page's own, for its form.
func (p *period) Path() string { return p.here.Path }

// Step is how wide the columns of a chart of the period are: 100 or so of them at most.
func (p *period) Step() time.Duration {
	for _, step := range []time.Duration{
		10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour,
	} {
		if p.Span() <= 100*step && p.Span() <= hourly && (step >= time.Hour || p.Span() <= finely) {
			return step
		}
	}
	return 24 * time.Hour * time.Duration(1+int(p.Span()/(100*24*time.Hour)))
}
