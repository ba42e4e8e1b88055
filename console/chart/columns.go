package chart

import (
	"fmt"
	"html"
	"html/template"
	"strings"
	"time"

	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/traffic"
)

// Columns is a chart of numbers over time, a column for each step, stacked by series.
type Columns struct {
	Name   string       // what is shown, as a sentence for those who do not see it
	Unit   string       // of the vertical axis, plural: "episodes"
	From   traffic.Time // start of the first step
	Step   time.Duration
	Apart  bool     // series stand beside each other within a step: they are of different things, and make no sum
	Series []Series // from the ground up; all have as many values as the first
}

// Series is one kind of the numbers of a chart.
type Series struct {
	Name   string
	Class  string // of its marks: shadow, block, curve, other, or refused and would, which differ without colour, too
	Values []float64
}

// SVG draws the chart, wide and narrow; nothing where it has no step.
func (c *Columns) SVG() template.HTML {
	if len(c.Series) == 0 || len(c.Series[0].Values) == 0 || c.Step <= 0 {
		return ""
	}
	var out template.HTML
	for _, f := range frames() {
		out += c.draw(f)
	}
	return out
}

// Legend names the series by their marks; nothing for a single one, which the unit names.
func (c *Columns) Legend() template.HTML {
	if len(c.Series) < 2 {
		return ""
	}
	var out strings.Builder
	out.WriteString(`<ul class="legend">`)
	for _, s := range c.Series {
		fmt.Fprintf(&out, `<li><svg class="key" viewBox="0 0 10 10" aria-hidden="true"><rect class="mark %s" width="10" height="10"/></svg>%s</li>`, s.Class, html.EscapeString(s.Name))
	}
	out.WriteString("</ul>")
	return template.HTML(out.String()) // #nosec G203 -- names are escaped, classes are constants
}

func (c *Columns) steps() int { return len(c.Series[0].Values) }

// most is the greatest sum of a step, or value where there are no sums.
func (c *Columns) most() (most float64) {
	for i := range c.steps() {
		sum := 0.0
		for _, s := range c.Series {
			if sum += s.Values[i]; c.Apart {
				most, sum = max(most, sum), 0
			}
		}
		most = max(most, sum)
	}
	return most
}

func (c *Columns) draw(f frame) template.HTML {
	d := begin(f, c.Name)
	y := d.vertical(c.most(), c.Unit)
	width := d.plotWidth() / float64(c.steps())
	gap := min(2, width/5)
	for i := range c.steps() {
		d.told(c.tells(i), func() {
			x := d.left + float64(i)*width
			d.rect("reach", x, d.top, width, d.plotHeight()) // the tooltip is for the whole column, high or not
			if c.Apart {
				c.beside(d, i, x+gap/2, width-gap, y)
				return
			}
			sum := 0.0
			for _, s := range c.Series {
				if v := s.Values[i]; v > 0 {
					height := max(1.5, y(sum)-y(sum+v)) // one of a thousand is still to be seen
					d.rect("mark "+s.Class, x+gap/2, y(sum)-height, width-gap, height)
					sum += v
				}
			}
		})
	}
	d.times(c.From, c.Step*time.Duration(c.steps()))
	return d.end()
}

// beside draws the values of a step next to each other: one alone has the whole width.
func (c *Columns) beside(d *drawing, i int, x, width float64, y func(float64) float64) {
	some := 0.0
	for _, s := range c.Series {
		if s.Values[i] > 0 {
			some++
		}
	}
	for _, s := range c.Series {
		if v := s.Values[i]; v > 0 {
			height := max(1.5, y(0)-y(v))
			d.rect("mark "+s.Class, x, y(0)-height, width/some, height)
			x += width / some
		}
	}
}

// tells words one step: 21 Nov 05:00 to 06:00: 12 episodes, 3 of them …
func (c *Columns) tells(i int) string {
	from := c.From.Add(time.Duration(i) * c.Step).Std().UTC()
	to := from.Add(c.Step)
	layout := "15:04"
	if c.Step >= 24*time.Hour || to.YearDay() != from.YearDay() && to.Hour()+to.Minute() != 0 {
		layout = "2 Jan 15:04"
	}
	text := from.Format("2 Jan 15:04") + " to " + to.Format(layout) + " UTC: "
	if len(c.Series) == 1 {
		return text + shown.Count(int64(c.Series[0].Values[i])) + " " + c.Unit
	}
	for k, s := range c.Series {
		if k > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %s", shown.Count(int64(s.Values[i])), s.Name)
	}
	return text
}

// times draws the horizontal axis of a span of time.
func (d *drawing) times(from traffic.Time, span time.Duration) {
	begin := from.Std().UTC()
	step := timeStep(span, d.ticks)
	at := begin.Truncate(step)
	if step >= 24*time.Hour {
		at = time.Date(begin.Year(), begin.Month(), begin.Day(), 0, 0, 0, 0, time.UTC)
	}
	for ; !at.After(begin.Add(span)); at = at.Add(step) {
		if at.Before(begin) {
			continue
		}
		x := d.left + d.plotWidth()*float64(at.Sub(begin))/float64(span)
		text := at.Format("15:04")
		if at.Hour() == 0 && at.Minute() == 0 {
			text = at.Format("2 Jan")
		}
		d.line("axis", x, d.height-d.bottom, x, d.height-d.bottom+4)
		anchor := "middle"
		if x > d.width-d.right-14 {
			anchor = "end"
		}
		d.text("tick", anchor, x, d.height-d.bottom+17, text)
	}
}

// timeStep is the distance of texts below an axis, of which there are at most so many.
func timeStep(span time.Duration, most int) time.Duration {
	const day = 24 * time.Hour
	for _, step := range []time.Duration{
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 3 * day, 7 * day, 14 * day, 30 * day,
	} {
		if span <= step*time.Duration(most) {
			return step
		}
	}
	return 90 * day
}
