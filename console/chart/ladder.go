package chart

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/weirhq/weir/console/shown"
)

// Ladder is a chart of what each of several limits would have held: a falling line over limits on a logarithmic axis, with the
// limit of the rule and one that somebody considers.
type Ladder struct {
	Name   string // what is shown, as a sentence for those who do not see it
	Unit   string // of the vertical axis, plural: "sources"
	Steps  []Rung // ascending by limit
	Limit  int    // of the rule; 0: not marked
	Chosen int    // considered; 0, or the rule's: not marked
}

// Rung is one limit and how many it would have held.
type Rung struct {
	Limit int
	Held  int64
}

// SVG draws the chart, wide and narrow; nothing where it has no step.
func (l *Ladder) SVG() template.HTML {
	if len(l.Steps) == 0 {
		return ""
	}
	var out template.HTML
	for _, f := range frames() {
		out += l.draw(f)
	}
	return out
}

func (l *Ladder) draw(f frame) template.HTML {
	d := begin(f, l.Name)
	var most int64
	for _, s := range l.Steps {
		most = max(most, s.Held)
	}
	y := d.vertical(float64(most), l.Unit)
	x := l.horizontal(d)
	var line strings.Builder
	for i, s := range l.Steps {
		if i == 0 {
			fmt.Fprintf(&line, "M%s %s", n(x(s.Limit)), n(y(float64(s.Held))))
			continue
		}
		fmt.Fprintf(&line, "H%sV%s", n(x(s.Limit)), n(y(float64(s.Held))))
	}
	ground, end := n(y(0)), n(d.width-d.right)
	d.path("area", line.String()+"H"+end+"V"+ground+"H"+n(x(l.Steps[0].Limit))+"Z")
	d.path("trace", line.String()+"H"+end)
	for i, s := range l.Steps {
		to := d.width - d.right
		if i+1 < len(l.Steps) {
			to = x(l.Steps[i+1].Limit)
		}
		d.told(fmt.Sprintf("limit %s: %s %s", shown.Count(s.Limit), shown.Count(s.Held), l.Unit), func() {
			d.rect("reach", x(s.Limit), d.top, max(1, to-x(s.Limit)), d.plotHeight())
		})
	}
	l.mark(d, x, l.Limit, "limit", "limit "+strconv.Itoa(l.Limit))
	l.consider(d, x)
	return d.end()
}

// bounds are the ends of the horizontal axis.
func (l *Ladder) bounds() (low, high float64) {
	low, high = float64(max(1, l.Steps[0].Limit)), float64(l.Steps[len(l.Steps)-1].Limit)
	return low, max(high, low*2)
}

// horizontal draws the axis of limits and gives its scale.
func (l *Ladder) horizontal(d *drawing) func(limit int) float64 {
	low, high := l.bounds()
	scale := func(limit int) float64 {
		v := min(max(float64(limit), low), high)
		return d.left + d.plotWidth()*math.Log(v/low)/math.Log(high/low)
	}
	last := -100.0
	for _, v := range ticksBetween(low, high) {
		at := scale(int(v))
		if at-last < 34 || at < d.left || at > d.width-d.right {
			continue
		}
		last = at
		d.line("axis", at, d.height-d.bottom, at, d.height-d.bottom+4)
		anchor := "middle"
		if at > d.width-d.right-14 {
			anchor = "end"
		}
		d.text("tick", anchor, at, d.height-d.bottom+17, shown.Short(v))
	}
	return scale
}

// ticksBetween are round numbers between two ends, and the lower end: evenly apart where the ends are near each other, by decades else.
func ticksBetween(low, high float64) []float64 {
	out := []float64{low}
	if high < 12*low {
		step := max(1, nice((high-low)/8))
		for v := (math.Floor(low/step) + 1) * step; v <= high; v += step {
			out = append(out, v)
		}
		return out
	}
	for base := math.Pow(10, math.Floor(math.Log10(low))); base <= high; base *= 10 {
		for _, m := range []float64{1, 2, 5} {
			if v := m * base; v > low && v <= high {
				out = append(out, v)
			}
		}
	}
	return out
}

// consider draws the mark of the limit that is considered, with what a script needs to move it. One that is the rule's is there and not shown.
func (l *Ladder) consider(d *drawing, x func(int) float64) {
	if l.Chosen <= 0 {
		return
	}
	low, high := l.bounds()
	hidden := ""
	if l.Chosen == l.Limit {
		hidden = " hidden"
	}
	fmt.Fprintf(&d.out, `<g class="considered" data-low="%s" data-high="%s" data-left="%s" data-width="%s"%s>`, n(low), n(high), n(d.left), n(d.plotWidth()), hidden)
	l.mark(d, x, l.Chosen, "chosen", "considered "+strconv.Itoa(l.Chosen))
	d.out.WriteString("</g>")
}

// mark draws an upright line at a limit, with a text on the side where there is room.
func (l *Ladder) mark(d *drawing, x func(int) float64, limit int, class, text string) {
	if limit <= 0 {
		return
	}
	at := x(limit)
	d.line(class, at, d.top-4, at, d.height-d.bottom)
	anchor, shift := "start", 5.0
	if at > d.left+d.plotWidth()*0.7 {
		anchor, shift = "end", -5.0
	}
	down := 8.0
	if class == "chosen" {
		down = 22 // two marks that are near each other do not write over each other
	}
	d.text(class+"-text", anchor, at+shift, d.top+down, text)
}
